"""Several clusterings trained together, on the same cohorts: several q, and restarts of each."""

import copy
import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sartor.central.base import Central
from sartor.central.fitting import Fit, as_run
from sartor.central.hypcluster import HypCluster, State, last_scores, warn_of_collapse
from sartor.central.model import CentralModel
from sartor.central.settings import check_clusters, describe
from sartor.data import ClientData
from sartor.engine import Cohort
from sartor.errors import ConfigError
from sartor.models import Model
from sartor.trees import Tree


@dataclasses.dataclass(frozen=True)
class Clusterings(Central, listed=False):
    """Clusterings of one HypCluster with several q, or several restarts.

    Attributes:
        of: its settings.
    """

    of: HypCluster = dataclasses.field(default_factory=HypCluster)

    @property
    def several(self) -> tuple[int, ...]:
        """The numbers of clusters to choose from."""
        return self.of.q if isinstance(self.of.q, tuple) else (self.of.q,)

    @property
    def members(self) -> tuple[HypCluster, ...]:
        """The clusterings: for each q, one from every start."""
        first: Any = self.of.first
        starts = [dataclasses.replace(first, draw=n) for n in range(self.of.restarts)]
        return tuple(
            _replaced(self.of, q=q, restarts=1, start=s) for q in self.several for s in starts
        )

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """Random models, all different; the first is the one that FedAvg would begin with."""
        if len(self.several) > 1 and not data.sizes("validation").any():
            raise ConfigError(
                "HypCluster: to choose between several q, clients need a validation part; make one "
                "with data.split(validation=0.2, seed=0), or give one q"
            )
        for member in self.members:
            check_clusters(member, data)
        number = sum(member.clusters for member in self.members)
        keys = [key, *(jax.random.fold_in(key, i) for i in range(1, number))]
        return self.of.state_of(jax.vmap(model.init)(jnp.stack(keys)))

    def begin(self, state: State, fit: Fit) -> State:
        """Where each of them begins; clusterings that are given have their warm start behind."""
        if fit.start is not None:
            behind = jnp.asarray(self.of.first.rounds_of(max(self.several)), jnp.int32)
            return state._replace(hypotheses=fit.start.hypotheses, round=behind)
        restarts, parts = self.of.restarts, self._parts(state.hypotheses)
        found = []
        for n in range(0, len(parts), restarts):  # all restarts of one q
            member, drawn = self.members[n], _joined(parts[n : n + restarts])
            if member.clusters > 1:
                drawn = member.first.hypotheses(member, drawn, fit, restarts)
            found.append(drawn)
        return state._replace(hypotheses=_joined(found))

    def clients(self, state: State, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client finds its cluster and trains that hypothesis, in every clustering."""
        losses = self._parts(cohort.score(state.hypotheses).T)
        first, f, margins = 0, [], []
        for member, part in zip(self.members, losses, strict=True):
            best, margin = member.assign(part.T, state.round)
            f.append(first + best)
            margins.append(margin)
            first += member.clusters
        chosen = jnp.stack(f, axis=1)  # [clients, clusterings]
        trained = self.of.train(state, cohort, chosen)
        metrics = {
            "loss": trained.record["loss"].mean(axis=1),
            "share": (chosen[..., None] == jnp.arange(first)).any(axis=1).mean(axis=0),
            "margin": jnp.stack(margins),
        }
        return self.of.upload(state, cohort, trained), metrics

    def server(self, state: State, upload: Any) -> State:
        """The server steps every hypothesis that somebody has trained."""
        return self.of.server(state, upload)

    def finish(self, trained: CentralModel, state: State, fit: Fit) -> CentralModel:
        """Keep the best restart of every q, by training loss."""
        restarts = self.of.restarts
        all_losses, cost = last_scores(trained, self.members[::restarts], fit, restarts)
        sizes = fit.data.sizes("train")[fit.data.seen]
        weights = sizes if self.of.weights == "size" else np.ones(len(sizes))
        losses = self._parts(all_losses.T)  # for each clustering, [q, clients]
        totals = np.array([weights @ part.min(axis=0) for part in losses])
        first = np.arange(0, len(self.members), restarts)
        best = first + totals.reshape(len(first), restarts).argmin(axis=1)
        for n in best:
            warn_of_collapse(self.members[n], losses[n].argmin(axis=0))
        parts = self._parts(trained.hypotheses)
        kept = _joined([parts[n] for n in best])
        return dataclasses.replace(
            trained, hypotheses=kept, clusterings=self.several, cost=cost,
            algorithm=describe(self.of),
        )  # fmt: skip

    def _parts(self, stacked: Tree) -> list[Tree]:
        """What belongs to each clustering, of arrays that hold all of them: [hypotheses, ...]."""
        ends = itertools.accumulate(member.clusters for member in self.members)
        return [
            jax.tree.map(lambda a, begin=end - m.clusters, end=end: a[begin:end], stacked)
            for m, end in zip(self.members, ends, strict=True)
        ]


def _joined(parts: list[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@as_run.register
def _(algorithm: HypCluster) -> Central:
    if isinstance(algorithm.q, int) and algorithm.restarts == 1:
        return algorithm
    return Clusterings(algorithm.rounds, algorithm.cohort, algorithm)


def _replaced(algorithm: HypCluster, **changes: Any) -> HypCluster:
    """A copy with other settings, of numbers that may be traced: they were checked before."""
    changed = copy.copy(algorithm)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed
