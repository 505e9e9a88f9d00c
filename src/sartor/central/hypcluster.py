"""HypCluster: q models, and each client takes the one with the lowest loss (section 4, figure 1).

Minimises the sum over clients of m_k/m · min_i L_k(h_i) by stochastic EM. In every round t, each
client k of a cohort

1. finds its cluster f^t(k) = argmin_i L_k(h_i^t);
2. trains the hypothesis of that cluster on its own data.

The server averages the changes of every hypothesis, as FedAvg does.
"""

import dataclasses
from dataclasses import InitVar
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sartor.central.clusterings import Clusterings
from sartor.central.fedavg import FedAvg
from sartor.central.fitting import Fit
from sartor.central.model import CentralModel
from sartor.central.settings import check_clusters
from sartor.central.starts import KMeansPlusPlus, Lent, Random, Start, Warm, as_start, joined
from sartor.checking import Count, Range, check_memory, checked
from sartor.data import ClientData
from sartor.engine import Cohort, losses_by_client
from sartor.errors import ConfigError, warn
from sartor.models import Model, Params, parameter_bytes
from sartor.types import Ints

ALMOST_NOBODY = 0.01
"""A cluster with no more than this share of the clients is as good as empty."""


class State(NamedTuple):
    """The hypotheses, each with its server's memory; and how many rounds are behind them."""

    hypotheses: Params
    memory: optax.OptState
    round: jax.Array


@dataclasses.dataclass(frozen=True)
class HypCluster(FedAvg):
    """Hypothesis-based clustering: FedAvg for each of q hypotheses.

    It has FedAvg's attributes, where ``rounds`` includes the rounds of a warm start and ``cohort``
    is the paper's P, and these:

    Attributes:
        q: number of clusters. A list of numbers trains several clusterings together, and each
            client takes the one that is best on its validation part.
        start: how the hypotheses are initialised: ``Warm(rounds)``, ``Lent(epochs)`` (the paper's),
            ``KMeansPlusPlus(epochs)`` or ``Random()``, all in ``sartor.central``.
        restarts: number of clusterings to train from different starts. The one with the lowest
            training loss is kept.

    ``start`` also accepts the words ``"warm"``, ``"clients"``, ``"kmeans++"`` and ``"random"``.
    ``warm_rounds`` and ``start_epochs`` set their numbers.

    >>> HypCluster(q=4, rounds=200).start
    Warm(rounds=10, draw=0)
    """

    q: Count | tuple[Count, ...] = 2
    start: Warm | Lent | KMeansPlusPlus | Random | str = Warm()  # noqa: RUF009  (it is frozen)
    restarts: Annotated[int, Range(1, 100)] = 1
    warm_rounds: InitVar[int | None] = None
    start_epochs: InitVar[int | None] = None

    def __post_init__(self, warm_rounds: int | None, start_epochs: int | None) -> None:
        checked("HypCluster: warm_rounds", warm_rounds, Count | None)
        checked("HypCluster: start_epochs", start_epochs, Count | None)
        object.__setattr__(self, "start", as_start(self.start, warm_rounds, start_epochs))
        super().__post_init__()
        if not self.several:
            raise ConfigError("HypCluster: q is an empty list; give at least one number")
        warm = self.first.rounds_of(max(self.several))
        if max(self.several) > 1 and warm >= self.rounds:
            raise ConfigError(
                f"HypCluster: a warm start takes {warm} rounds, {self.first.rounds_of(1)} for each "
                f"hypothesis, and there are {self.rounds}; start with fewer, Warm(rounds=...), or "
                "raise rounds"
            )

    @property
    def first(self) -> Start:
        """The start, as a value."""
        assert isinstance(self.start, Start)
        return self.start

    @property
    def several(self) -> tuple[int, ...]:
        """The numbers of clusters to choose from."""
        return self.q if isinstance(self.q, tuple) else (self.q,)

    @property
    def together(self) -> Clusterings:
        """The clusterings that are trained together; one, without several q and restarts."""
        return Clusterings(self.several, self.restarts)

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """Random models, all different; the first is the one that FedAvg would begin with."""
        if len(self.several) > 1 and not data.sizes("validation").any():
            raise ConfigError(
                "HypCluster: to choose between several q, clients need a validation part; make one "
                "with data.split(validation=0.2, seed=0), or give one q"
            )
        check_clusters(self, max(self.several), data)
        number = self.together.number
        what = f"HypCluster: {number:,} models (q={self.q}, restarts={self.restarts}) in training"
        # Each has a server's memory and a sum of changes beside it.
        check_memory(what, 3.0 * number * parameter_bytes(model), "choose fewer")
        others = range(1, number)
        keys = [key, *(jax.random.fold_in(key, i) for i in others)]
        return self.state_of(jax.vmap(model.init)(jnp.stack(keys)))

    def state_of(self, hypotheses: Params) -> State:
        """The state before the first round from these hypotheses."""
        memory = jax.vmap(self.server_sgd.init)(hypotheses)
        return State(hypotheses, memory, jnp.zeros((), jnp.int32))

    def begin(self, state: State, fit: Fit) -> State:
        """Initialize h^0_i. A clustering that starts from another has its warm start behind it."""
        if fit.start is not None:
            behind = jnp.asarray(self.first.rounds_of(max(self.several)), jnp.int32)
            return state._replace(hypotheses=fit.start.hypotheses, round=behind)
        found = [
            self.first.hypotheses(self, q, drawn, fit) if q > 1 else drawn
            for q, drawn in zip(self.several, self.together.by_q(state.hypotheses), strict=True)
        ]
        return state._replace(hypotheses=joined(found))

    def clients(self, state: State, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client finds its cluster and trains that hypothesis."""
        number = self.together.number
        losses = jnp.zeros((len(cohort.sizes), 1))  # a single hypothesis is everybody's best
        if number > 1:
            losses = cohort.score(state.hypotheses)
        f, margin = self.together.assign(losses, lambda a, n: self.assign(a, n, state.round))
        trained = self.train(state, cohort, f)
        metrics = {
            "loss": trained.record["loss"].reshape(f.shape).mean(axis=1),
            "share": (f[..., None] == jnp.arange(number)).any(axis=1).mean(axis=0),
            "margin": margin,
        }
        return self.upload(state, cohort, trained), metrics

    def assign(
        self, losses: jax.Array, restart: int, round_: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """f^t(k) = argmin_i L_k(h_i), the first where several are equal: [clients].

        And by how much the best hypothesis is better than the second best, on average.
        """
        f, q = losses.argmin(axis=1).astype(jnp.int32), losses.shape[1]
        if q == 1:
            return f, jnp.zeros(())
        first: Any = self.first
        start = dataclasses.replace(first, draw=first.draw + restart)
        two = -jax.lax.top_k(-losses, 2)[0]
        return start.assign(f, round_, q), (two[:, 1] - two[:, 0]).mean()

    def server(self, state: Any, upload: Any) -> Any:
        """The server steps every hypothesis that somebody has trained."""
        return super().server(state, upload)._replace(round=state.round + 1)

    def finish(self, trained: CentralModel, state: State, fit: Fit) -> CentralModel:
        """Compute f^{T+1}: every client scores all hypotheses once more.

        Of every q, the restart with the lowest training loss is kept.
        """
        trained = dataclasses.replace(trained, clusterings=self.several)
        if trained.q == 1:
            return trained
        data, cost, seen = fit.data, trained.cost, np.flatnonzero(fit.data.seen)
        assert cost is not None
        if fit.start is None:
            for q in self.several:
                cost += self.first.cost(self, q, fit)
        sizes = data.sizes("train")[seen]
        cost.down[seen] += trained.q * parameter_bytes(fit.model)
        cost.examples[seen] += trained.q * sizes
        losses = losses_by_client(fit.model, data, seen, trained.hypotheses, fit.engine)
        weights = sizes if self.weights == "size" else np.ones(len(sizes))
        kept = []
        for hypotheses, under in self.together.best(trained.hypotheses, losses, weights):
            self._warn_of_collapse(len(under), under.argmin(axis=0))
            kept.append(hypotheses)
        return dataclasses.replace(trained, hypotheses=joined(kept), cost=cost)

    def _warn_of_collapse(self, q: int, cluster: Ints) -> None:
        """Warn if some cluster has almost no clients."""
        counts = np.bincount(cluster, minlength=q)
        if q == 1 or counts.min() > ALMOST_NOBODY * len(cluster):
            return
        longer = self.rounds // 2 // q
        if not isinstance(self.start, Warm):
            other = "try start=Warm()"
        elif longer > self.start.rounds:
            other = f"give the hypotheses a longer start of their own (start=Warm({longer}))"
        else:
            other = "try start=KMeansPlusPlus()"
        warn(
            f"HypCluster: some clusters have almost no clients (sizes {counts.tolist()}); "
            f"{other}, several restarts, or a smaller q"
        )
