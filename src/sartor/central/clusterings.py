"""Several clusterings trained together, on the same cohorts: several q, and restarts of each."""

import copy
import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sartor.central.base import Central
from sartor.central.fitting import Fit, as_run
from sartor.central.hypcluster import HypCluster, last_scores, warn_of_collapse
from sartor.central.model import CentralModel
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.engine import Cohort
from sartor.errors import ConfigError
from sartor.models import Model, Params
from sartor.trees import Tree


class State(NamedTuple):
    """The states of the clusterings."""

    members: tuple[Any, ...]

    @property
    def hypotheses(self) -> Params:
        """The hypotheses of all clusterings, one after the other."""
        each = (member.hypotheses for member in self.members)
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *each)


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
        number = sum(member.clusters for member in self.members)
        keys = [key, *(jax.random.fold_in(key, i) for i in range(1, number))]
        drawn = jax.vmap(model.init)(jnp.stack(keys))
        for member in self.members:
            jax.eval_shape(lambda m=member: m.init(model, data, key))  # its own checks
        parts = zip(self.members, self._parts(drawn), strict=True)
        return State(tuple(member.state_of(part) for member, part in parts))

    def begin(self, state: State, fit: Fit) -> State:
        """Where each of them begins."""
        fits, given = [fit] * len(self.members), fit.start
        if given is not None:
            parts = self._parts(given.hypotheses)
            starts = [dataclasses.replace(given, hypotheses=part) for part in parts]
            fits = [fit._replace(start=start) for start in starts]
        begun = zip(self.members, state.members, fits, strict=True)
        return State(tuple(member.begin(one, its_fit) for member, one, its_fit in begun))

    def clients(self, state: State, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """What a cohort uploads to each of them."""
        uploads, metrics = zip(
            *(m.clients(s, cohort) for m, s in zip(self.members, state.members, strict=True)),
            strict=True,
        )
        found = {name: [one[name] for one in metrics] for name in metrics[0]}
        joined = {name: jnp.concatenate(found[name]) for name in ("share", "margin")}
        return uploads, {"loss": jnp.stack(found["loss"]).mean(axis=0), **joined}

    def server(self, state: State, upload: Any) -> State:
        """The server of each of them."""
        steps = zip(self.members, state.members, upload, strict=True)
        return State(tuple(member.server(one, sent) for member, one, sent in steps))

    def finish(self, trained: CentralModel, state: State, fit: Fit) -> CentralModel:
        """Keep the best restart of every q, by training loss."""
        all_losses, cost = last_scores(trained, self.members, fit)
        sizes = fit.data.sizes("train")[fit.data.seen]
        weights = sizes if self.of.weights == "size" else np.ones(len(sizes))
        losses = self._parts(all_losses.T)  # for each clustering, [q, clients]
        totals = np.array([weights @ part.min(axis=0) for part in losses])
        first = np.arange(0, len(self.members), self.of.restarts)
        best = first + totals.reshape(len(first), self.of.restarts).argmin(axis=1)
        for n in best:
            warn_of_collapse(self.members[n], losses[n].argmin(axis=0))
        parts = self._parts(trained.hypotheses)
        kept = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(parts[n] for n in best))
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
