"""Where the hypotheses of a clustering begin: the values of HypCluster's ``start``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central.bregman import spread_out
from sartor.checking import Count, Range, Whole, check_fields, shown
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Own, Recipe, everybody, losses_by_client, steps_of, train_each
from sartor.errors import ConfigError
from sartor.models import Params, parameter_bytes
from sartor.randomness import mix, shuffles
from sartor.trees import unflatten
from sartor.types import Floats, Ints

if TYPE_CHECKING:
    from sartor.central.fitting import Fit
    from sartor.central.hypcluster import HypCluster

CANDIDATES = 8
"""For each centre that ``KMeansPlusPlus`` draws, how many clients it has to choose from."""


@dataclasses.dataclass(frozen=True)
class Start:
    """A start. Its numbers are checked here; and it does nothing special, by default."""

    def __post_init__(self) -> None:
        check_fields(self)

    def hypotheses(self, algorithm: HypCluster, q: int, drawn: Params, fit: Fit) -> Params:
        """Where the hypotheses of all restarts begin, from random ones: [restarts · q, ...]."""
        return drawn

    def rounds_of(self, q: int) -> int:
        """How many of the rounds belong to the start."""
        return 0

    def assign(self, f: jax.Array, round_: jax.Array, q: int) -> jax.Array:
        """The hypothesis that each client trains, from the best one f(k)."""
        return f

    def cost(self, algorithm: HypCluster, q: int, fit: Fit) -> Cost:
        """What the starts of all restarts ask of clients before the first round."""
        return Cost.nothing(fit.data.ids)


@dataclasses.dataclass(frozen=True)
class Random(Start):
    """Random models. All clients often end in one cluster with them.

    Attributes:
        draw: another number makes another start.
    """

    draw: Whole = 0


@dataclasses.dataclass(frozen=True)
class Warm(Start):
    """FedAvg models, each trained apart for some of the rounds, on cohorts of its own.

    Give large models many rounds, up to half of all rounds together. While models are still bad,
    one is better than the others for nearly every client, by chance, and takes all clients.

    Attributes:
        rounds: rounds of each hypothesis.
        draw: another number makes another start.
    """

    rounds: Annotated[int, Range(1, 1_000_000)] = 10
    draw: Whole = 0

    def rounds_of(self, q: int) -> int:
        """Its rounds for each of q hypotheses."""
        return self.rounds * q

    def assign(self, f: jax.Array, round_: jax.Array, q: int) -> jax.Array:
        """In a warm round, all clients train the same hypothesis; each has its turn."""
        turns = jnp.asarray(self._turns(q))
        turn = turns[jnp.minimum(round_, len(turns) - 1)]
        return jnp.where(round_ < len(turns), turn, f)

    def _turns(self, q: int) -> npt.NDArray[np.int32]:
        turns = np.tile(np.arange(q, dtype=np.int32), self.rounds)
        if self.draw == 0:
            return turns
        word = np.atleast_1d(mix("warm", self.draw))
        return turns[shuffles(word, np.array([len(turns)]))]


@dataclasses.dataclass(frozen=True)
class Lent(Start):
    """Models of single clients that are drawn at random (the paper's start).

    Attributes:
        epochs: passes over its own data that a client makes for the model it lends.
        draw: another number makes another start.
    """

    epochs: Count = 5
    draw: Whole = 0

    def lenders(self, algorithm: HypCluster, q: int, fit: Fit) -> list[Ints]:
        """The clients that train a model to lend: q for every restart."""
        words = (mix(fit.seed, "start", self.draw + n) for n in range(algorithm.restarts))
        return [_draw(fit.data, q, word) for word in words]

    def hypotheses(self, algorithm: HypCluster, q: int, drawn: Params, fit: Fit) -> Params:
        """The models that the lenders have trained."""
        found = []
        for lenders in self.lenders(algorithm, q, fit):
            clients, places = np.unique(lenders, return_inverse=True)
            own = _own_models(self, algorithm, clients, drawn, fit)
            found.append(jax.tree.map(lambda a, places=places: a[places], own))
        return joined(found)

    def cost(self, algorithm: HypCluster, q: int, fit: Fit) -> Cost:
        """A model down, a model up, and the lenders' training."""
        cost, one = Cost.nothing(fit.data.ids), parameter_bytes(fit.model)
        for lenders in self.lenders(algorithm, q, fit):
            size = fit.data.sizes("train")[lenders]
            cost.down[lenders] += one
            cost.up[lenders] += one
            cost.examples[lenders] += self.epochs * size
            cost.steps[lenders] += steps_of(size, algorithm.batch, self.epochs)
        return cost


@dataclasses.dataclass(frozen=True)
class KMeansPlusPlus(Lent):
    """Models of single clients, drawn so that they are badly served by the ones before.

    A client is drawn in proportion to its excess loss, min_i L_k(h_i) − L_k(own model), which is
    the KL divergence for densities. A client that is a centre already is never drawn again.

    Attributes:
        epochs: passes over its own data that a client makes for the model it lends.
        draw: another number makes another start.
    """

    def lenders(self, algorithm: HypCluster, q: int, fit: Fit) -> list[Ints]:
        """Candidates, some for each centre. All restarts share them."""
        count = min(max(CANDIDATES * q, algorithm.cohort), int(fit.data.seen.sum()))
        return [_draw(fit.data, count, mix(fit.seed, "candidates"))]

    def hypotheses(self, algorithm: HypCluster, q: int, drawn: Params, fit: Fit) -> Params:
        """The models of the candidates that are drawn as centres."""
        (lenders,) = self.lenders(algorithm, q, fit)
        own = _own_models(self, algorithm, lenders, drawn, fit)
        losses = losses_by_client(fit.model, fit.data, lenders, own, fit.engine)
        excess = np.maximum(losses - np.diag(losses)[:, None], 0)  # [client, whose model]
        weights = fit.data.sizes("train")[lenders] if algorithm.weights == "size" else 1.0

        def pays(chosen: list[int]) -> Floats:
            return weights * (excess[:, chosen].min(axis=1) if chosen else np.ones(len(lenders)))

        words = (mix(fit.seed, "kmeans++", self.draw + n) for n in range(algorithm.restarts))
        centres = np.array([spread_out(pays, q, word) for word in words])
        return jax.tree.map(lambda a: a[centres.reshape(-1)], own)

    def cost(self, algorithm: HypCluster, q: int, fit: Fit) -> Cost:
        """What lending costs; and each candidate receives and scores the models of all."""
        cost = super().cost(algorithm, q, fit)
        (lenders,) = self.lenders(algorithm, q, fit)
        cost.down[lenders] += len(lenders) * parameter_bytes(fit.model)
        cost.examples[lenders] += len(lenders) * fit.data.sizes("train")[lenders]
        return cost


WORDS: dict[str, type[Start]] = {
    "warm": Warm, "clients": Lent, "kmeans++": KMeansPlusPlus, "random": Random
}  # fmt: skip
"""The starts by the words that stood for them in earlier versions."""

STARTS = {kind.__name__: kind for kind in WORDS.values()}
"""The starts by name."""


def as_start(start: Any, warm_rounds: int | None, start_epochs: int | None) -> Start:
    """A start from a value, from a table of a configuration, or from a word.

    >>> as_start("warm", 20, None)
    Warm(rounds=20, draw=0)
    >>> as_start({"name": "Lent", "epochs": 3}, None, None)
    Lent(epochs=3, draw=0)
    """
    table = {"name": start} if isinstance(start, str) else start
    if isinstance(table, dict):
        settings = {key: value for key, value in table.items() if key != "name"}
        try:
            start = (STARTS | WORDS)[table["name"]](**settings)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"HypCluster: start must be one of {', '.join(STARTS)}, with its settings "
                f"(got {start!r})"
            ) from error
    if not isinstance(start, Start):
        raise ConfigError(
            f"HypCluster: start must be a start such as Warm(10) (got {shown(start)})"
        )
    if warm_rounds is not None and isinstance(start, Warm):
        start = dataclasses.replace(start, rounds=warm_rounds)
    if start_epochs is not None and isinstance(start, Lent):
        start = dataclasses.replace(start, epochs=start_epochs)
    return start


def joined(parts: list[Params]) -> Params:
    """Several stacks of hypotheses as one."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _draw(data: ClientData, count: int, word: Any) -> Ints:
    """Some of the seen clients, without replacement, whatever their order in the data."""
    seen = np.flatnonzero(data.seen)
    order = np.argsort(mix(word, data.hashes[seen]), kind="stable")
    return seen[order[:count]]


def _own_models(
    start: Lent, algorithm: HypCluster, clients: Ints, drawn: Params, fit: Fit
) -> Params:
    """Models that clients train from a common start on their own data: [clients, ...]."""
    first = jax.tree.map(lambda a: a[:1], drawn)
    recipe = Recipe(Own(fit.model), algorithm.client_optimizer, start.epochs, algorithm.batch)
    some = fit.data.select([fit.data.ids[k] for k in clients])
    rates = algorithm.step_size(
        algorithm.learning_rate,
        fit.model,
        steps_of(some.sizes("train"), algorithm.batch, start.epochs),
    )
    rates = np.broadcast_to(np.asarray(rates, np.float32), len(some))
    nobody = np.zeros(len(some), np.int64)
    jobs = everybody(some, int(mix(fit.seed, "start")), nobody, learning_rate=rates)
    leaves: dict[str, npt.NDArray[Any]] = {}
    for block in train_each(
        some, recipe, jobs, central=first, done=nobody > 0, engine=fit.engine
    ):  # fmt: skip
        for name, leaf in block.params.items():
            whole = leaves.setdefault(name, np.empty((len(some), *leaf.shape[1:]), leaf.dtype))
            whole[block.jobs] = leaf
    return unflatten(first, leaves)
