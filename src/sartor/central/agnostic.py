"""Agnostic: the model that does best on the mixture of domains that is worst for it (appendix B.2).

min over h, max over λ in the simplex, of Σ_d λ_d · L_d(h): the server descends in h as FedAvg
does, with clients weighed by their domains, and ascends in λ by exponentiated gradient.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.central.fedavg import TINY, FedAvg
from sartor.central.fitting import Fit
from sartor.central.model import CentralModel
from sartor.checking import Count, NotNegative, check_memory
from sartor.data import ClientData
from sartor.engine import Cohort, Passed
from sartor.errors import DataError
from sartor.models import Model, Params
from sartor.types import Ints


class State(NamedTuple):
    """The state of the server.

    Attributes:
        hypotheses: the model, stacked: [1, ...].
        memory: the memory of the server's optimizer.
        domain_weights: [domains] the weights λ.
        counts: [rounds, domains] the domains' shares of the examples, in the rounds of the window.
        told: [domains] the loss that each domain last reported; NaN before the first.
    """

    hypotheses: Params
    memory: optax.OptState
    domain_weights: jax.Array
    counts: jax.Array
    told: jax.Array


class Upload(NamedTuple):
    """What a cohort sends: sums over its clients, and sums over those of every domain."""

    change: Params
    weight: jax.Array
    loss: jax.Array
    examples: jax.Array


@dataclasses.dataclass(frozen=True)
class Agnostic(FedAvg):
    """Agnostic federated learning: FedAvg with weighted domains.

    A client of a domain that is rarely in a cohort would have to outweigh all others in its few
    rounds. So rare domains have seats in cohorts (:class:`sartor.engine.Sampler`), and the weights
    of clients are divided by how often they are drawn: the mean update, and the objective, are
    those of uniform cohorts. With D domains and cohorts of C clients, a client of an average size
    for its domain counts at most λ_d · max(1, 4·D/C) times as much as a cohort does on average.
    Where every client is a domain of its own, cohorts are uniform, and it is λ_d · D/C.

    It has FedAvg's attributes, where ``weights`` weights the clients inside a domain, and these:

    Attributes:
        domains: name of the clients' metadata that holds the domain. ``"clients"`` makes every
            client a domain.
        domain_step: step size of the exponentiated gradient for λ. 0 keeps λ fixed.
        domain_start: initial λ: ``"uniform"``, or ``"population"`` for each domain's share of all
            examples, which is FedAvg's objective.
        counts: how the examples of a domain are counted. ``"population"`` counts all seen clients
            once, before the first round, without noise. ``"window"`` averages over recent cohorts,
            for a server that does not know the population.
        window: number of rounds in the window.

    >>> Agnostic(domain_step=0.1).domains
    'domain'
    """

    for_everybody: ClassVar[bool] = False  # the worst mixture counts, not the usual one

    domains: str = "domain"
    domain_step: NotNegative = 0.05
    domain_start: Literal["uniform", "population"] = "uniform"
    counts: Literal["population", "window"] = "population"
    window: Count = 20

    @property
    def server_rule(self) -> Agnostic:
        """Domains are weighed for any hypothesis."""
        return self

    def _codes(self, data: ClientData) -> tuple[list[str], Ints]:
        """The domains' names, and the domain of every client."""
        if self.domains == "clients":
            codes = np.zeros(len(data), np.int64)
            codes[data.seen] = np.arange(int(data.seen.sum()))
            return [data.ids[k] for k in np.flatnonzero(data.seen)], codes
        if self.domains not in data.metadata:
            raise DataError(
                f"Agnostic: clients have no metadata {self.domains!r} to be their domain; there is "
                f"{sorted(data.metadata) or 'none'}: name one with domains=, or say "
                "domains='clients'"
            )
        names, codes = np.unique(data.metadata[self.domains].astype(str), return_inverse=True)
        return names.tolist(), codes

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """Every client's domain, and the mean weight of a client without λ."""
        usual = data.sizes("train")[data.seen].mean() if self.weights == "size" else 1.0
        return {
            "domain": self._codes(data)[1].astype(np.int32),
            "usual": np.full(len(data), usual, np.float32),
        }

    def strata(self, data: ClientData) -> Ints:
        """The domains."""
        return self._codes(data)[1]

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """A random model, and λ where it begins."""
        names, codes = self._codes(data)
        empty = np.setdiff1d(np.arange(len(names)), codes[data.seen])
        if len(empty):
            raise DataError(
                f"Agnostic: no seen client has the domain {names[empty[0]]!r}, so nothing can be "
                "learnt about it; move some of its clients to the seen ones, or leave them out"
            )
        sizes = data.sizes("train")[data.seen] if self.weights == "size" else None
        population = np.bincount(codes[data.seen], sizes, len(names)).astype(np.float32)
        shares = population / population.sum()
        uniform = np.full(len(names), 1 / len(names), np.float32)
        weights = uniform if self.domain_start == "uniform" else shares
        known = shares if self.counts == "population" else uniform
        rounds = self.window if self.counts == "window" else 1
        size = 16.0 * rounds * len(names)
        check_memory(f"Agnostic: a window of {rounds:,} rounds", size, "make it smaller")
        counts = jnp.asarray(np.tile(known, (rounds, 1)))
        told = jnp.full(len(names), jnp.nan)
        first = super().init(model, data, key)
        return State(first.hypotheses, first.memory, jnp.asarray(weights), counts, told)

    def clients(self, state: Any, cohort: Cohort) -> tuple[Upload, dict[str, jax.Array]]:
        """Every client trains, weighed by its domain, and reports the loss of the model it got."""
        losses = cohort.score(state.hypotheses)[:, 0]
        trained = self.train(state, cohort)
        metrics = {
            "loss": trained.record["loss"],
            "finite": jnp.isfinite(losses),
            **self.notes(state),
        }
        return self.upload(state, cohort, trained, losses), metrics

    def notes(self, state: Any) -> dict[str, jax.Array]:
        """λ."""
        return {"domain_weights": state.domain_weights}

    def weigh(self, state: Any, cohort: Cohort) -> jax.Array:
        """λ_d of a client's domain d, shared out over the examples of that domain."""
        counts = state.counts
        if self.counts == "window":  # with this cohort, so that no domain in it has no examples
            own = super().weigh(state, cohort)
            latest = self._by_domain(state, cohort, own) / self._total(cohort, own)
            counts = jnp.concatenate([counts, latest[None]])
        scale = state.domain_weights / jnp.maximum(counts.mean(axis=0), TINY)
        return super().weigh(state, cohort) * scale[cohort.attributes["domain"]]

    def _total(self, cohort: Cohort, own: jax.Array) -> jax.Array:
        """The weight of the cohort without λ; where domains have seats, that of a uniform one."""
        seats = "stands_for" in cohort.attributes
        return (cohort.attributes["usual"] if seats else own).sum()

    def _by_domain(self, state: Any, cohort: Cohort, values: jax.Array) -> jax.Array:
        """Sums over the clients of every domain."""
        domains = jnp.arange(len(state.domain_weights))
        member = cohort.attributes["domain"] == domains[:, None]  # [domains, clients]
        return jnp.where(member, values, 0).sum(axis=1)

    def upload(
        self, state: Any, cohort: Cohort, trained: Passed, losses: jax.Array | None = None
    ) -> Upload:
        """Sums over all clients, and over those of every domain.

        The weight that changes are divided by is the clients' own, without λ: it is what the
        weights with λ sum up to on average. Divided by their sum in the cohort, a round without
        the domain that counts most would move the model as far as any other.
        """
        own = super().weigh(state, cohort)
        losses = trained.record["loss"] if losses is None else losses
        return Upload(
            trained.total,
            self._total(cohort, own)[None],
            self._by_domain(state, cohort, own * losses),
            self._by_domain(state, cohort, own),
        )

    def finish(self, trained: CentralModel, state: Any, fit: Fit) -> CentralModel:
        """Add the last weights to those at the beginning of every round."""
        weights = trained.history["domain_weights"]
        last = np.asarray(state.domain_weights)[None]
        history = {**trained.history, "domain_weights": np.concatenate([weights, last])}
        return dataclasses.replace(trained, history=history)

    def begin(self, state: Any, fit: Fit) -> Any:
        """From a central model with the weights of its domains, if it has any."""
        state = super().begin(state, fit)
        weights = fit.start.history.get("domain_weights") if fit.start else None
        if weights is not None and len(weights) and weights.shape[1:] == state.domain_weights.shape:
            state = state._replace(domain_weights=jnp.asarray(weights[-1]))
        return state

    def server(self, state: Any, upload: Any) -> Any:
        """Descend in h, ascend in λ. An absent domain counts with the loss it last reported."""
        after = super().server(state, upload)
        here = upload.examples > 0
        told = jnp.where(here, upload.loss / jnp.maximum(upload.examples, TINY), state.told)
        known = ~jnp.isnan(told)
        # Only differences matter, and the largest exponent is 0 so that nothing overflows.
        most = jnp.where(known, told, -jnp.inf).max()
        grown = state.domain_weights * jnp.exp(self.domain_step * jnp.where(known, told - most, 0))
        # Domains that nobody has heard of yet keep their weight; the others share theirs.
        total = jnp.where(known, state.domain_weights, 0).sum()
        grown = grown * total / jnp.maximum(jnp.where(known, grown, 0).sum(), TINY)
        weights = jnp.where(known, grown, state.domain_weights)
        counts = state.counts
        if self.counts == "window":
            latest = upload.examples / jnp.maximum(upload.weight, TINY)
            counts = jnp.concatenate([counts[1:], latest[None]])
        return after._replace(domain_weights=weights / weights.sum(), counts=counts, told=told)
