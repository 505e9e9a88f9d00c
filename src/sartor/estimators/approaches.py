"""The approaches around any central model: what is fitted beside it, and how the two are joined.

Each is fitted on the scores of a central model for rows that this model has not seen, so that it
corrects errors that will be made on new rows, too.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sartor.effects import Effects, without_client, without_fixed
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.randomness import mix, uniforms
from sartor.types import Floats, Ints

MOST_SLOPES = 10
"""Columns whose effects may vary between clients: those with the largest effects for everybody."""

ENOUGH = 40_000
"""Rows that are enough to estimate how much clients differ; what they are is fitted to all."""

FEWEST = 20
"""Rows of a client that it takes for that."""


class Added(abc.ABC):
    """What was fitted beside a central model.

    It is a dataclass, which is saved by the types of its fields: see :mod:`.parts`.
    """

    @abc.abstractmethod
    def scores(self, rows: Rows, central: Floats) -> Floats:
        """The scores of rows, whose central scores are given."""

    @abc.abstractmethod
    def updated(self, rows: Rows, central: Floats, clients: int) -> Added:
        """The same with new rows of some clients, of whom there may be more than before."""

    @abc.abstractmethod
    def without(self, client: int) -> Added:
        """The same without what is known of a client."""

    def knows(self, client: int) -> bool:
        """Whether anything is fitted to a client."""
        return True

    def unchanged(self, before: Added, client: int) -> str:
        """Why new rows of a client have changed nothing, in words; empty if they have."""
        return ""


@dataclass(frozen=True)
class AddedEffects(Added):
    """Effects that are added to the central scores.

    Attributes:
        task: what is predicted.
        effects: for each output.
        columns: the columns of ``rows.linear`` whose effects vary.
        slope: whether the effect of the central score varies, too.
    """

    task: Task
    effects: list[Effects]
    columns: Ints
    slope: bool

    def updated(self, rows: Rows, central: Floats, clients: int) -> AddedEffects:
        """The same with what new rows say."""
        varying = varying_of(rows, central, self.columns, self.slope)
        effects = self.task.with_new_rows(
            self.effects, varying, rows.y, rows.owner, clients, central, rows.weight
        )
        return replace(self, effects=effects)

    def without(self, client: int) -> AddedEffects:
        """The same without a client's effects."""
        return replace(self, effects=[without_client(each, client) for each in self.effects])

    def scores(self, rows: Rows, central: Floats) -> Floats:
        """Central scores and effects."""
        nothing = np.zeros((len(rows), 0))
        varying = varying_of(rows, central, self.columns, self.slope)
        return self.task.with_effects(self.effects, nothing, varying, rows.owner, central)


class Approach(abc.ABC):
    """A way to make a model for each client."""

    words: str
    """What it does, for people."""

    def seconds(self, task: Task, rows: Rows, central: Floats) -> float:
        """About how long a fit takes, where it may take long."""
        return 0.0

    @abc.abstractmethod
    def fit(self, task: Task, rows: Rows, central: Floats, clients: int) -> Added:
        """Fit beside a central model, whose scores of the rows are given."""


def varying_of(rows: Rows, central: Floats, columns: Ints, slope: bool) -> Floats:
    """The columns whose effects vary."""
    found = rows.linear[:, columns]
    return np.concatenate([found, central], axis=1) if slope else found


@dataclass(frozen=True)
class Recalibrate(Approach):
    """Model interpolation with a line for each client: its own level, and its own slope.

    A slope below 1 pulls predictions to the client's mean, as λ does. Both are ridge regressions
    around the central model, with penalties that are estimated from all clients.
    """

    words: str = "the client's own level and slope"

    slope: bool = True

    def fit(self, task: Task, rows: Rows, central: Floats, clients: int) -> Added:
        """Effects of the intercept, and of the central score."""
        return _added(task, rows, central, clients, np.zeros(1, np.int64), self.slope)


@dataclass(frozen=True)
class Slopes(Approach):
    """Effects of columns that differ between clients, on top of the central model."""

    words: str = "the client's own effects of columns"

    def fit(self, task: Task, rows: Rows, central: Floats, clients: int) -> Added:
        """Effects of the intercept and of the columns that matter most."""
        return _added(task, rows, central, clients, strongest(rows, central), False)


def _added(
    task: Task, rows: Rows, central: Floats, clients: int, columns: Ints, slope: bool
) -> AddedEffects:
    known = rows.owner >= 0
    if not known.all():
        rows, central = rows.take(known), central[known]
    # What all rows have in common, such as a drift of the central model, is no client's own. Beside
    # slopes of columns it has no slope: the two could cancel out, and one of them be left out then.
    common = np.ones((len(rows), 1))
    if slope:
        common = np.concatenate([common, central], axis=1)
    varying = varying_of(rows, central, columns, slope)
    how: dict[str, Any] = {"correlated": varying.shape[1] <= 3}
    if len(some := _enough(rows.owner, clients)) < len(rows):
        few = task.effects(
            common[some], varying[some], rows.y[some], rows.owner[some], clients, central[some],
            None if rows.weight is None else rows.weight[some], **how,
        )  # fmt: skip
        how = {"covariances": [_ratio(each) for each in few]}
    effects = task.effects(
        common, varying, rows.y, rows.owner, clients, central, rows.weight, **how
    )
    effects = [without_fixed(each) for each in effects]
    return AddedEffects(task, effects, columns, slope)


def _enough(owner: Ints, clients: int) -> Ints:
    """Rows that tell how much clients differ: some of each client, or all of some clients."""
    if len(owner) <= ENOUGH:
        return np.arange(len(owner))
    order = np.lexsort((uniforms(mix(0, "rows for variances", np.arange(len(owner)))), owner))
    counts = np.bincount(owner, minlength=clients)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    most = np.searchsorted(np.cumsum(np.bincount(place)), ENOUGH)
    if most >= FEWEST:
        return np.sort(order[place < most])
    draw = uniforms(mix(0, "clients for variances", np.arange(clients)))
    chosen = np.cumsum(counts[np.argsort(draw)]) <= ENOUGH
    return np.flatnonzero(np.isin(owner, np.argsort(draw)[chosen]))


def _ratio(effects: Effects) -> Floats:
    """The covariance of effects by the noise; one that is singular is moved away from that."""
    found = effects.covariance / effects.noise
    return found + 1e-9 * max(float(np.trace(found)), 1e-9) * np.eye(len(found))


def strongest(rows: Rows, central: Floats, most: int = MOST_SLOPES) -> Ints:
    """The intercept, and the columns that the central scores depend on most."""
    linear = rows.linear
    centred = linear - linear.mean(axis=0)
    spread = np.sqrt(np.square(centred).mean(axis=0))
    moved = np.abs(centred.T @ (central - central.mean(axis=0))).sum(axis=1) / len(rows)
    strength = np.where(spread > 0, moved / np.where(spread > 0, spread, 1.0), -1.0)
    strength[0] = np.inf  # the column of ones
    return np.sort(np.argsort(-strength, kind="stable")[: most + 1])
