"""Several clusterings trained together, on the same cohorts: several q, and restarts of each."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sartor.central.base import Central
from sartor.central.fitting import Fit, as_run
from sartor.central.hypcluster import HypCluster, warn_of_collapse
from sartor.central.model import CentralModel
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.engine import Cohort, losses_by_client
from sartor.errors import ConfigError
from sartor.models import Model, Params, parameter_bytes


class State(NamedTuple):
    """The states of the clusterings."""

    members: tuple[Any, ...]

    @property
    def hypotheses(self) -> Params:
        """Those of all clusterings, one after the other."""
        return _end_to_end([member.hypotheses for member in self.members])


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
        keys = [key, *(jax.random.fold_in(key, i) for i in range(1, sum(self._sizes())))]
        drawn = jax.vmap(model.init)(jnp.stack(keys))
        for member in self.members:
            jax.eval_shape(lambda m=member: m.init(model, data, key))  # its own checks
        parts = zip(self.members, self._parts(drawn), strict=True)
        return State(tuple(member.state_of(part) for member, part in parts))

    def begin(self, state: State, fit: Fit) -> State:
        """Where each of them begins."""
        starts: list[CentralModel | None] = [None] * len(self.members)
        if fit.start is not None:
            given = fit.start
            starts = [
                dataclasses.replace(given, hypotheses=part)
                for part in self._parts(given.hypotheses)
            ]
        begun = zip(self.members, state.members, starts, strict=True)
        return State(tuple(m.begin(s, fit._replace(start=start)) for m, s, start in begun))

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
        data, cost = fit.data, trained.cost
        seen = np.flatnonzero(data.seen)
        losses = losses_by_client(fit.model, data, seen, trained.hypotheses, fit.engine)
        weights = data.sizes("train")[seen] if self.of.weights == "size" else np.ones(len(seen))
        sizes = self._sizes()
        firsts = np.cumsum(sizes) - sizes
        kept: list[int] = []
        for number, q in enumerate(self.several):
            runs = range(number * self.of.restarts, (number + 1) * self.of.restarts)

            def total(run: int, q: int = q) -> float:
                return float(weights @ losses[:, firsts[run] : firsts[run] + q].min(axis=1))

            best = min(runs, key=total)
            here = np.arange(firsts[best], firsts[best] + q)
            kept += here.tolist()
            warn_of_collapse(self.members[best], losses[:, here].argmin(axis=1))
        assert cost is not None
        if fit.start is None:
            for member in self.members:
                cost += member.first.cost(member, fit)
        cost.down[seen] += sum(sizes) * parameter_bytes(fit.model)
        cost.examples[seen] += sum(sizes) * data.sizes("train")[seen]
        return dataclasses.replace(
            trained,
            hypotheses=jax.tree.map(lambda a: a[np.array(kept)], trained.hypotheses),
            clusterings=self.several, cost=cost, algorithm=describe(self.of),
        )  # fmt: skip

    def _sizes(self) -> tuple[int, ...]:
        return tuple(member.clusters for member in self.members)

    def _parts(self, hypotheses: Params) -> list[Params]:
        """The hypotheses of each clustering."""
        ends = np.cumsum(self._sizes())
        return [
            jax.tree.map(lambda a, b=end - size, e=end: a[b:e], hypotheses)
            for end, size in zip(ends, self._sizes(), strict=True)
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


def _end_to_end(trees: list[Params]) -> Params:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
