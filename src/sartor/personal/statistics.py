"""Dapper from sufficient statistics: linear regression without any example leaving a client.

For squared loss all that is needed of Ĉ is its matrix of second moments (appendix "Practical
considerations"). Clients send theirs, the sums are sent back, and the minimiser of
λ·L_k + (1−λ)·L_Ĉ solves a linear system.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Block, Jobs, Recipe, Spans, ragged
from sartor.personal.sources import circles
from sartor.personal.task import Source, Task
from sartor.types import Bools, Floats, Ints

CHUNK = 2**22
"""About how many products are held at a time."""


class Statistics(NamedTuple):
    """Second moments of examples z = (x, 1) with targets y: sums, so they add up over clients.

    Attributes:
        moment: [..., d + 1, d + 1] the sum of z zᵀ.
        cross: [..., d + 1, outputs] the sum of z yᵀ.
        square: [...] the sum of ‖y‖².
        examples: [...] the number of examples.
    """

    moment: Floats
    cross: Floats
    square: Floats
    examples: Floats

    def take(self, which: Ints) -> Statistics:
        """Those of some clients."""
        return Statistics(*(a[which] for a in self))

    def sums(self, group: Ints, groups: int) -> Statistics:
        """Sums over clients, by group."""
        out = Statistics(*(np.zeros((groups, *a.shape[1:])) for a in self))
        for total, part in zip(out, self, strict=True):
            np.add.at(total, group, part)
        return out

    def where(self, these: Bools, others: Statistics) -> Statistics:
        """These statistics for some clients, and others for the rest."""
        return Statistics(
            *(
                np.where(these.reshape(-1, *[1] * (a.ndim - 1)), a, b)
                for a, b in zip(self, others, strict=True)
            )
        )


def statistics_of(data: ClientData, spans: Spans) -> Statistics:
    """The statistics of every stretch of examples."""
    width = int(np.prod(data.columns["x"].shape[1:])) + 1
    outputs = int(np.prod(data.columns["y"].shape[1:]))
    jobs = len(spans.sizes)
    out = Statistics(
        np.zeros((jobs, width, width)),
        np.zeros((jobs, width, outputs)),
        np.zeros(jobs),
        spans.sizes.astype(np.float64),
    )
    group = np.cumsum(spans.sizes) * width * width // CHUNK
    for number in np.unique(group):
        some = np.flatnonzero(group == number)
        some = some[spans.sizes[some] > 0]
        owner, place = ragged(spans.sizes[some])
        rows = data.rows[spans.at(spans.first[some][owner] + place)]
        x = np.asarray(data.seen_by_models("x", rows), np.float64).reshape(len(rows), -1)
        z = np.concatenate([x, np.ones((len(rows), 1))], axis=1)
        y = np.asarray(data.columns["y"][rows], np.float64).reshape(len(rows), -1)
        starts = np.cumsum(spans.sizes[some]) - spans.sizes[some]
        out.moment[some] = np.add.reduceat(z[:, :, None] * z[:, None, :], starts, axis=0)
        out.cross[some] = np.add.reduceat(z[:, :, None] * y[:, None, :], starts, axis=0)
        out.square[some] = np.add.reduceat((y**2).sum(axis=1), starts)
    return out


def minimiser(mine: Statistics, others: Statistics, lambda_: Floats) -> Floats:
    """What minimises λ·(mean loss on mine) + (1−λ)·(mean loss on others): [..., d + 1, outputs].

    If there are several minimisers, the smallest.
    """
    weights = [
        (share / np.maximum(s.examples, 1))[..., None, None]
        for share, s in ((lambda_, mine), (1 - lambda_, others))
    ]
    left = weights[0] * mine.moment + weights[1] * others.moment
    right = weights[0] * mine.cross + weights[1] * others.cross
    return np.asarray(np.linalg.pinv(left, rcond=1e-12, hermitian=True) @ right)


def mean_loss(statistics: Statistics, solution: Floats) -> Floats:
    """The mean squared error of solutions on the examples behind the statistics."""
    fit = (solution * (statistics.moment @ solution)).sum(axis=(-2, -1))
    error = statistics.square - 2 * (solution * statistics.cross).sum(axis=(-2, -1)) + fit
    return np.asarray(np.maximum(error, 0) / np.maximum(statistics.examples, 1))


@dataclasses.dataclass(frozen=True, eq=False)
class Solver(Source):
    """Solves for clients from statistics alone.

    Attributes:
        data: the clients.
        own: the statistics of every client's training part.
        pooled: those of Ĉ, for every client: of all seen clients, or of those in its cluster.
    """

    data: ClientData
    own: Statistics
    pooled: Statistics

    @classmethod
    def of(
        cls, data: ClientData, cluster: Ints | None = None, members: Bools | None = None
    ) -> Solver:
        """With Ĉ of all seen clients, or by cluster."""
        own = statistics_of(data, Spans(data.bounds[:, 0], data.sizes("train")))
        of, number, client, several = circles(data, cluster, members)
        return cls(data, own, own.take(client).sums(number, several).take(of))

    def train(
        self, task: Task, recipe: Recipe, jobs: Jobs, done: Bools, *, fetch: bool
    ) -> Iterator[Block]:
        """Solve all jobs at once; a trial on a fold holds its examples out of Ĉ, too."""
        if done.all():
            return
        everything, mine = np.arange(jobs.number), statistics_of(self.data, jobs.train)
        others, held_loss = self.pooled.take(jobs.client), None
        if jobs.fold is not None:
            own = self.own.take(jobs.client)
            rest = Statistics(*(a - b for a, b in zip(others, own, strict=True)))
            # A client that is alone in Ĉ is left with what the trial trains on.
            rest = rest.where(rest.examples > 0, mine)
            others = rest.where(jobs.fold & self.data.seen[jobs.client], others)
        solution = minimiser(mine, others, jobs.values["lambda"])
        if jobs.held is not None:
            halves = (jobs.held, jobs.held.second())
            means = [mean_loss(statistics_of(self.data, half), solution) for half in halves]
            held_loss = np.stack(means, axis=1)
        loss, finite = mean_loss(mine, solution), np.ones(jobs.number, bool)
        stack = solution.astype(np.float32)  # as parameters of sartor.models.linear
        params = {"dense_1/b": stack[..., -1, :], "dense_1/w": stack[..., :-1, :]}
        yield Block(everything, params, loss, finite, held_loss)

    def widest(self, task: Task, recipe: Recipe, jobs: Jobs) -> int:
        """All of them."""
        return jobs.number

    def work(self, task: Task, recipe: Recipe, jobs: Jobs) -> Cost:
        """Every example once, to be tried on or to be added up."""
        cost = Cost.nothing(task.data.ids)
        read = jobs.train if jobs.held is None else jobs.held
        np.add.at(cost.examples, jobs.client, read.sizes)
        return cost

    def received(self, task: Task, sizes: Ints) -> Cost:
        """The statistics of seen clients go up, and those of Ĉ down."""
        cost, (d, outputs) = Cost.nothing(task.data.ids), self.own.cross.shape[-2:]
        numbers = d * (d + 1) // 2 + d * outputs + 2  # the moments are symmetric
        cost.up[task.data.seen] += 8 * numbers
        cost.down[:] += 8 * numbers
        cost.left["statistics"] = numbers * int(task.data.seen.sum())
        return cost
