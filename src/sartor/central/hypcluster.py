"""HypCluster: q models, and each client takes the one with the lowest loss (section 4, figure 1).

Minimises the sum over clients of m_k/m · min_i L_k(h_i) by stochastic EM. In every round t, each
client k of a cohort

1. finds its cluster f^t(k) = argmin_i L_k(h_i^t);
2. trains the hypothesis of that cluster on its own data.

The server averages the changes of every hypothesis, as FedAvg does.
"""

import dataclasses
import warnings
from dataclasses import InitVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sartor.central.fedavg import FedAvg
from sartor.central.fitting import Fit
from sartor.central.model import CentralModel
from sartor.central.settings import check_clusters
from sartor.central.starts import KMeansPlusPlus, Lent, Random, Start, Warm, as_start
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Cohort, losses_by_client, traced
from sartor.errors import ConfigError
from sartor.models import Model, Params, parameter_bytes
from sartor.types import Floats, Ints

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

    learning_rate: float = traced(0.03)
    q: int | tuple[int, ...] = 2
    start: Warm | Lent | KMeansPlusPlus | Random | str = Warm()  # noqa: RUF009  (it is frozen)
    restarts: int = 1
    warm_rounds: InitVar[int | None] = None
    start_epochs: InitVar[int | None] = None

    def __post_init__(self, warm_rounds: int | None, start_epochs: int | None) -> None:
        super().__post_init__()
        if isinstance(self.q, list | tuple):
            object.__setattr__(self, "q", tuple(self.q))
        several = self.q if isinstance(self.q, tuple) else (self.q,)
        if not several or not all(type(n) is int and n >= 1 for n in (*several, self.restarts)):
            raise ConfigError(
                "HypCluster: q (one number or several) and restarts must be whole numbers of at "
                f"least 1 (got {self.q!r}, {self.restarts!r})"
            )
        object.__setattr__(self, "start", as_start(self.start, warm_rounds, start_epochs))
        warm = self.first.rounds_of(max(several))
        if max(several) > 1 and warm >= self.rounds:
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
    def clusters(self) -> int:
        """The number of clusters q, of a single clustering."""
        assert isinstance(self.q, int)
        return self.q

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """Random models; the first is the one that FedAvg would begin with."""
        check_clusters(self, data)
        others = [jax.random.fold_in(key, i) for i in range(1, self.clusters)]
        return self.state_of(jax.vmap(model.init)(jnp.stack([key, *others])))

    def state_of(self, hypotheses: Params) -> State:
        """The state before the first round from these hypotheses."""
        memory = jax.vmap(self.server_sgd.init)(hypotheses)
        return State(hypotheses, memory, jnp.zeros((), jnp.int32))

    def begin(self, state: State, fit: Fit) -> State:
        """Initialize h^0_i. A clustering that starts from another has its warm start behind it."""
        if fit.start is not None:
            behind = jnp.asarray(self.first.rounds_of(self.clusters), jnp.int32)
            return state._replace(hypotheses=fit.start.hypotheses, round=behind)
        if self.clusters == 1:
            return state
        return state._replace(hypotheses=self.first.hypotheses(self, state.hypotheses, fit))

    def clients(self, state: State, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client finds its cluster and trains that hypothesis."""
        losses = jnp.zeros((len(cohort.sizes), 1))
        if self.clusters > 1:
            losses = cohort.score(state.hypotheses)
        f, margin = self.assign(losses, state.round)
        trained = self.train(state, cohort, f)
        metrics = {
            "loss": trained.record["loss"],
            "share": (f[:, None] == jnp.arange(self.clusters)).mean(axis=0),
            "margin": margin[None],
        }
        return self.upload(state, cohort, trained), metrics

    def assign(self, losses: jax.Array, round_: jax.Array) -> tuple[jax.Array, jax.Array]:
        """f^t(k) = argmin_i L_k(h_i), the first where several are equal: [clients].

        And by how much the best hypothesis is better than the second best, on average.
        """
        f = losses.argmin(axis=1).astype(jnp.int32)
        if self.clusters == 1:
            return f, jnp.zeros(())
        two = -jax.lax.top_k(-losses, 2)[0]
        return self.first.assign(f, round_, self.clusters), (two[:, 1] - two[:, 0]).mean()

    def server(self, state: Any, upload: Any) -> Any:
        """The server steps every hypothesis that somebody has trained."""
        return super().server(state, upload)._replace(round=state.round + 1)

    def finish(self, trained: CentralModel, state: State, fit: Fit) -> CentralModel:
        """Compute f^{T+1}: every client scores all hypotheses once more."""
        trained = dataclasses.replace(trained, clusterings=(self.clusters,))
        if self.clusters == 1:
            return trained
        losses, cost = last_scores(trained, (self,), fit)
        warn_of_collapse(self, losses.argmin(axis=1))
        return dataclasses.replace(trained, cost=cost)


def last_scores(
    trained: CentralModel, members: tuple[HypCluster, ...], fit: Fit, draws: int = 1
) -> tuple[Floats, Cost]:
    """Every seen client's training loss under all hypotheses, [clients, q]; and the whole cost.

    That is the cost of the rounds, of these losses, and of the members' starts, each of which was
    drawn several times.
    """
    data, cost = fit.data, trained.cost
    assert cost is not None
    seen = np.flatnonzero(data.seen)
    if fit.start is None:
        for member in members:
            cost += member.first.cost(member, fit, draws)
    cost.down[seen] += trained.q * parameter_bytes(fit.model)
    cost.examples[seen] += trained.q * data.sizes("train")[seen]
    return losses_by_client(fit.model, data, seen, trained.hypotheses, fit.engine), cost


def warn_of_collapse(algorithm: HypCluster, cluster: Ints) -> None:
    """Warn if some cluster has almost no clients."""
    q, start = algorithm.clusters, algorithm.start
    counts = np.bincount(cluster, minlength=q)
    if q > 1 and counts.min() <= ALMOST_NOBODY * len(cluster):
        longer = algorithm.rounds // 2 // q
        if not isinstance(start, Warm):
            other = "try start=Warm()"
        elif longer > start.rounds:
            other = f"give the hypotheses a longer start of their own (start=Warm({longer}))"
        else:
            other = "try start=KMeansPlusPlus()"
        warnings.warn(
            f"HypCluster: some clusters have almost no clients (sizes {counts.tolist()}); "
            f"{other}, several restarts, or a smaller q",
            stacklevel=5,
        )
