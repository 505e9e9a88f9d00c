"""HypCluster: q models, and each client takes the one with the lowest loss (section 4, figure 1).

Minimises the sum over clients of m_k/m · min_i L_k(h_i) by stochastic EM: the clients of a round
find their cluster f(k), and train its hypothesis.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.central.fedavg import FedAvg
from sartor.central.model import CentralModel
from sartor.central.settings import check_choices
from sartor.central.starts import lending_cost, lent_models
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Cohort, Engine, Pass
from sartor.engine.scoring import losses_by_client
from sartor.errors import ConfigError
from sartor.models import Model, Params, parameter_bytes
from sartor.randomness import mix, shuffles

Start = Literal["warm", "clients", "kmeans++", "random"]


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

    The attributes are FedAvg's (``rounds`` counts those of a warm start, ``cohort`` is the paper's
    P), and:

    Attributes:
        q: number of clusters; several numbers train several clusterings together, and each client
            takes the best one by its validation part.
        start: where the hypotheses begin. ``"warm"``: as FedAvg models, each trained apart for
            ``warm_rounds`` of the rounds, on cohorts of its own. ``"clients"`` (the paper's): as
            models of single clients drawn at random. ``"kmeans++"``: the same, with clients drawn
            so that they are badly served by the hypotheses before them. ``"random"``: as random
            models, with which all clients often end in one cluster.
        warm_rounds: rounds of each hypothesis in a warm start. Give large models many, up to half
            of the rounds together: while they are still bad, one is better than the others for
            nearly everybody, by chance, and takes all clients.
        start_epochs: passes over its own data that a client makes for the model it lends as start.
        restarts: train so many clusterings from different starts, side by side, and keep the one
            with the lowest training loss.

    >>> HypCluster(q=4, rounds=200).start
    'warm'
    """

    learning_rate: float = 0.03
    q: int | tuple[int, ...] = 2
    start: Start = "warm"
    warm_rounds: int = 10
    start_epochs: int = 5
    restarts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.q, list | tuple):
            object.__setattr__(self, "q", tuple(self.q))
        whole = (*self.blocks, self.warm_rounds, self.start_epochs, self.restarts)
        if not self.blocks or not all(type(n) is int and n >= 1 for n in whole):
            raise ConfigError(
                "HypCluster: q (one number or several), warm_rounds, start_epochs and restarts "
                f"must be whole numbers of at least 1 (got {self.q!r}, {self.warm_rounds!r}, "
                f"{self.start_epochs!r}, {self.restarts!r})"
            )
        check_choices(self, start=get_args(Start))
        warm = self.warm_rounds * max(self.blocks)
        if self.start == "warm" and max(self.blocks) > 1 and warm >= self.rounds:
            raise ConfigError(
                f"HypCluster: a warm start takes {warm} rounds, warm_rounds for each hypothesis, "
                f"and there are {self.rounds}; lower warm_rounds or raise rounds"
            )

    @property
    def blocks(self) -> tuple[int, ...]:
        """The number of clusters in every clustering that is trained."""
        several = self.q if isinstance(self.q, tuple) else (self.q,)
        return tuple(q for q in several for _ in range(self.restarts))

    def passes(self, data: ClientData, seed: int) -> dict[str, Pass]:
        """A client trains one hypothesis of every clustering."""
        jobs = len(self.blocks)
        return {"train": Pass(self.epochs, self.batch, jobs, copies=jobs)}

    @property
    def messages(self) -> int:
        """All hypotheses of all clusterings."""
        return sum(self.blocks)

    @property
    def scores(self) -> bool:
        """Clients find their clusters by scoring the hypotheses."""
        return max(self.blocks) > 1

    def check(self, data: ClientData) -> None:
        """There must be a client for every cluster, and hold-outs to choose between several q."""
        seen = int(data.seen.sum())
        if max(self.blocks) > seen:
            raise ConfigError(
                f"HypCluster: q is {max(self.blocks)}, but there are only {seen} seen clients; "
                "choose a smaller q"
            )
        if isinstance(self.q, tuple) and not data.sizes("validation").any():
            raise ConfigError(
                "HypCluster: to choose between several q, clients need a validation part; make one "
                "with data.split(validation=0.2, seed=0), or give one q"
            )

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """Random models; the first is the one that FedAvg would begin with."""
        others = [jax.random.fold_in(key, i) for i in range(1, sum(self.blocks))]
        hypotheses = jax.vmap(model.init)(jnp.stack([key, *others]))
        memory = jax.vmap(self.server_sgd.init)(hypotheses)
        return State(hypotheses, memory, jnp.zeros((), jnp.int32))

    def begin(self, state: State, model: Model, data: ClientData, seed: int, engine: Engine) -> Any:
        """Initialize h^0_i."""
        if not self._lent:
            return state
        first = jax.tree.map(lambda a: a[:1], state.hypotheses)
        return state._replace(hypotheses=lent_models(self, model, data, first, seed, engine))

    @property
    def _lent(self) -> bool:
        """Whether clients lend their models as a start."""
        return self.start in ("clients", "kmeans++") and max(self.blocks) > 1

    def resume(self, state: Any, start: CentralModel) -> Any:
        """A clustering that goes on has its warm start behind it."""
        return super().resume(state, start)._replace(round=jnp.asarray(self._warm, jnp.int32))

    @property
    def _warm(self) -> int:
        """How many rounds a warm start takes."""
        return self.warm_rounds * max(self.blocks) if self.start == "warm" else 0

    def cost(
        self, model: Model, data: ClientData, seed: int, start: CentralModel | None = None
    ) -> Cost:
        """The rounds, what clients did that lent their models as a start, and the final f."""
        cost = super().cost(model, data, seed, start)
        if self._lent and start is None:
            cost += lending_cost(self, model, data, seed)
        if self.blocks != (1,):  # f^{T+1}: every client scores all hypotheses once more
            cost.down[data.seen] += self.messages * parameter_bytes(model)
            cost.examples[data.seen] += self.messages * data.sizes("train")[data.seen]
        return cost

    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client finds its cluster and trains that hypothesis, in every clustering."""
        f, margin = self._assign(state, cohort)
        trained = cohort.train(state.hypotheses, self.client_sgd, self.weigh(state, cohort), f)
        taken = f.reshape(-1, 1) == jnp.arange(sum(self.blocks))
        metrics = {
            "loss": trained.loss,
            "finite": trained.finite,
            "share": taken.sum(axis=0) / f.shape[0],
            "margin": margin,
        }
        return self.upload(state, cohort, trained), metrics

    def _assign(self, state: State, cohort: Cohort) -> tuple[jax.Array, jax.Array]:
        """f^t(k) = argmin_i L_k(h_i), the first where several are equal: [clients, clusterings].

        And by how much the best hypothesis is better than the second best, on average.
        """
        losses = cohort.score(state.hypotheses) if self.scores else None
        f, margins, first = [], [], 0
        for block, q in enumerate(self.blocks):
            best, margin = jnp.zeros(len(cohort.sizes), jnp.int32), jnp.zeros(())
            if q > 1 and losses is not None:
                mine = losses[:, first : first + q]
                best = mine.argmin(axis=1).astype(jnp.int32)
                two = -jax.lax.top_k(-mine, 2)[0]
                margin = (two[:, 1] - two[:, 0]).mean()
                if self.start == "warm":  # everybody trains the same one, each in its turn
                    turns = jnp.asarray(self._turns(block, q))
                    turn = turns[jnp.minimum(state.round, len(turns) - 1)]
                    best = jnp.where(state.round < len(turns), turn, best)
            f.append(first + best)
            margins.append(margin)
            first += q
        return jnp.stack(f, axis=1), jnp.stack(margins)

    def _turns(self, block: int, q: int) -> npt.NDArray[np.int32]:
        """Which hypothesis a warm start trains in each of its rounds; other ones in a restart."""
        turns = np.tile(np.arange(q, dtype=np.int32), self.warm_rounds)
        if block % self.restarts == 0:
            return turns
        word = mix("warm", block % self.restarts)
        return turns[shuffles(np.atleast_1d(word), np.array([len(turns)]))]

    def server(self, state: Any, upload: Any) -> Any:
        """The server steps every hypothesis that somebody has trained."""
        return super().server(state, upload)._replace(round=state.round + 1)

    def finish(self, trained: CentralModel, data: ClientData, state: Any) -> CentralModel:
        """Compute f^{T+1}, keep the best restart of every q, and warn if clusters are empty."""
        seen = np.flatnonzero(data.seen)
        if self.blocks == (1,):
            return dataclasses.replace(trained, blocks=(1,))
        losses = losses_by_client(trained.model, data, seen, trained.hypotheses, trained.engine)
        weights = data.sizes("train")[seen] if self.weights == "size" else np.ones(len(seen))
        several = self.q if isinstance(self.q, tuple) else (self.q,)
        firsts = np.cumsum(self.blocks) - self.blocks
        kept: list[int] = []
        for number, q in enumerate(several):
            runs = range(number * self.restarts, (number + 1) * self.restarts)
            best = min(
                runs,
                key=lambda b: float(weights @ losses[:, firsts[b] : firsts[b] + q].min(axis=1)),
            )
            here = np.arange(firsts[best], firsts[best] + q)
            kept += here.tolist()
            _warn_of_collapse(self, q, losses[:, here].argmin(axis=1))
        hypotheses = jax.tree.map(lambda a: a[np.array(kept)], trained.hypotheses)
        return dataclasses.replace(trained, hypotheses=hypotheses, blocks=several)


def _warn_of_collapse(algorithm: HypCluster, q: int, cluster: npt.NDArray[np.int64]) -> None:
    counts = np.bincount(cluster, minlength=q)
    if q > 1 and counts.min() <= ALMOST_NOBODY * len(cluster):
        longer = algorithm.rounds // 2 // q
        if algorithm.start != "warm":
            other = "try start='warm'"
        elif longer > algorithm.warm_rounds:
            other = f"give the hypotheses a longer start of their own (warm_rounds={longer})"
        else:
            other = "try start='kmeans++'"
        warnings.warn(
            f"HypCluster: some clusters have almost no clients (sizes {counts.tolist()}); "
            f"{other}, several restarts, or a smaller q",
            stacklevel=4,
        )
