"""Effects of clients and of a second grouping, such as their regions or their items, on top of a
central model. Both are fitted together, so that neither is credited with what the other one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sartor.effects import (
    Effects,
    Grouping,
    fit_crossed,
    update_linear,
    with_clients,
    without_client,
    without_fixed,
)
from sartor.effects.crossed import MOST
from sartor.errors import ConfigError
from sartor.estimators.approaches import Added, Approach, strongest, varying_of
from sartor.estimators.frames import UNKNOWN
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.types import Floats, Ints

LEVELS_AND_SLOPES = "levels of the client and of the second column, and the client's slopes"
"""What is fitted where effects of columns vary, for people."""

MOST_SLOPES = 5
"""Columns whose effects may vary between clients, beside a second grouping."""

STEP = 1e-10
"""Seconds for each third power of the number of equations; those of a usual core."""


@dataclass(frozen=True)
class AddedCrossed(Added):
    """Effects of clients and of a second grouping, which are added to the central scores.

    Attributes:
        own: the clients' effects.
        second: the effects of the second grouping: one level each.
        columns: the columns of ``rows.linear`` whose effects vary between clients.
        slope: whether the effect of the central score varies between clients, too.
    """

    own: Effects
    second: Effects
    columns: Ints
    slope: bool

    def scores(self, rows: Rows, central: Floats) -> Floats:
        """Central scores and effects of both; levels that the fit has not seen have none."""
        nothing = np.zeros((len(rows), 0))
        varying = varying_of(rows, central, self.columns, self.slope)
        return self.own.score(nothing, varying, rows.owner, self._offset(rows, central))[:, None]

    def updated(self, rows: Rows, central: Floats, clients: int) -> AddedCrossed:
        """The same with what new rows say of their clients; the second grouping stays."""
        nothing = np.zeros((len(rows), 0))
        varying = varying_of(rows, central, self.columns, self.slope)
        own = update_linear(
            with_clients(self.own, clients), nothing, varying, rows.y, rows.owner,
            self._offset(rows, central), rows.weight,
        )  # fmt: skip
        return replace(self, own=own)

    def without(self, client: int) -> AddedCrossed:
        """The same without a client's effects."""
        return replace(self, own=without_client(self.own, client))

    def _offset(self, rows: Rows, central: Floats) -> Floats:
        """Central scores and effects of the second grouping."""
        nothing, ones = np.zeros((len(rows), 0)), np.ones((len(rows), 1))
        return self.second.score(nothing, ones, second_of(rows), central[:, 0])


@dataclass(frozen=True)
class Crossed(Approach):
    """Effects of clients and of a second grouping; both groupings may be nested or crossed.

    Attributes:
        words: what it does, for people.
        slopes: whether effects of columns vary between clients, and not that of the central score.
        levels: how many levels the second grouping has.
    """

    words: str = "levels of the client and of the second column, and the client's slope"
    slopes: bool = False
    levels: int = 0

    def prepared(self, rows: Rows, clients: int) -> Crossed:
        """The same for the levels of these rows."""
        levels = int(second_of(rows).max(initial=UNKNOWN)) + 1
        if min(self._width * clients, levels) > MOST:
            raise ConfigError(
                f"second has {levels:,} levels; with {clients:,} clients there can be {MOST:,} at "
                "most: merge rare levels into one, or leave second out"
            )
        return replace(self, levels=max(levels, 1))

    @property
    def _width(self) -> int:
        """About how many effects a client has."""
        return 1 + MOST_SLOPES if self.slopes else 2

    def seconds(self, task: Task, rows: Rows, central: Floats) -> float:
        """That of the smaller grouping's equations, which are solved some twenty times."""
        clients = int(rows.owner.max(initial=UNKNOWN)) + 1
        return 20 * STEP * float(min(self._width * clients, self.levels)) ** 3

    def fit(self, task: Task, rows: Rows, central: Floats, clients: int) -> AddedCrossed:
        """Fit the effects of both to what the central model leaves."""
        columns = strongest(rows, central, MOST_SLOPES) if self.slopes else np.zeros(1, np.int64)
        varying = varying_of(rows, central, columns, not self.slopes)
        ones = np.ones((len(rows), 1))
        found = fit_crossed(
            np.concatenate([ones, central], axis=1),  # what all rows have in common
            Grouping(varying, rows.owner, clients),
            Grouping(ones, second_of(rows), self.levels),
            rows.y,
            offset=central[:, 0],
            weights=rows.weight,
            correlated=varying.shape[1] <= 3,
        )
        own = without_fixed(found.first)
        return AddedCrossed(own, found.second, columns, not self.slopes)


def second_of(rows: Rows) -> Ints:
    """The level of each row in the second grouping; −1 if it has none, or is new."""
    return np.full(len(rows), UNKNOWN) if rows.second is None else rows.second
