"""What a central model sees of rows: their columns, and perhaps whose they are."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.registry import register
from sartor.types import Floats


@dataclass(frozen=True, eq=False)
class Encoded(abc.ABC):
    """Turns rows into what an estimator takes.

    Attributes:
        levels: [clients, columns] what was learned of clients; no columns if nothing was.
    """

    levels: Floats

    known: ClassVar[dict[str, type[Encoded]]] = {}
    """All ways by name: how saved models find theirs."""

    unknown: ClassVar[float] = 0.0
    """What stands for clients that nothing was learned of."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register(Encoded.known, cls.__name__.lower(), cls, "choose another name")

    @abc.abstractmethod
    def __call__(self, rows: Rows) -> Any:
        """What the estimator takes for these rows."""

    def without(self, client: int) -> Encoded:
        """The same without what was learned of a client."""
        if client >= len(self.levels):
            return self
        levels = self.levels.copy()
        levels[client] = self.unknown
        return replace(self, levels=levels)


class Columns(Encoded):
    """The columns alone."""

    def __call__(self, rows: Rows) -> Any:
        """As they are."""
        return rows.x


class LinearColumns(Encoded):
    """The columns for linear models."""

    def __call__(self, rows: Rows) -> Any:
        """Without the column of ones, unless there is no other."""
        return rows.linear[:, 1:] if rows.linear.shape[1] > 1 else rows.linear


class Levels(Encoded):
    """The columns, and what was learned of the client."""

    def __call__(self, rows: Rows) -> Any:
        """As many more columns."""
        known = (rows.owner >= 0) & (rows.owner < len(self.levels))  # others came later
        own = self.levels[np.where(known, rows.owner, 0)]
        return np.concatenate([rows.x, np.where(known[:, None], own, self.unknown)], axis=1)


class Codes(Levels):
    """The columns, and the number of the client, whose order means nothing."""

    unknown: ClassVar[float] = float("nan")


class Encoder(abc.ABC):
    """Learns what an estimator takes."""

    categorical: ClassVar[bool] = False
    """Whether the last column is a category."""

    @abc.abstractmethod
    def fit(self, task: Task, rows: Rows, folds: Folds) -> tuple[Any, Encoded]:
        """What an estimator is fitted to, and what turns other rows into the same."""


@dataclass(frozen=True)
class By(Encoder):
    """A way that nothing has to be learned for.

    Attributes:
        kind: it.
    """

    kind: type[Encoded] = Columns

    def fit(self, task: Task, rows: Rows, folds: Folds) -> tuple[Any, Encoded]:
        """The same for all rows."""
        encoded = self.kind(np.zeros((0, 0)))
        return encoded(rows), encoded


PLAIN = By(Columns)


@dataclass(frozen=True)
class WithCode(Encoder):
    """The columns, and the client as one more category.

    Attributes:
        clients: how many clients there are.
    """

    clients: int
    categorical: ClassVar[bool] = True

    def fit(self, task: Task, rows: Rows, folds: Folds) -> tuple[Any, Encoded]:
        """One more column."""
        encoded = Codes(np.arange(self.clients, dtype=np.float64)[:, None])
        return encoded(rows), encoded


@dataclass(frozen=True)
class WithEffect(Encoder):
    """The columns, and how much the client's labels differ from everybody's.

    That is its effect in a hierarchical model without columns. For rows that are fitted to, it
    comes from other folds, as a client's own labels would tell too much. It stands for the client
    where there are too many clients, or too few rows of each, for a category.

    Attributes:
        clients: how many clients there are.
    """

    clients: int

    def fit(self, task: Task, rows: Rows, folds: Folds) -> tuple[Any, Encoded]:
        """One more column for each output."""
        found = np.zeros((len(rows), task.outputs))
        for fold in np.unique(folds.number):
            held, learns = folds.number == fold, folds.before(fold)
            if learns.any():
                others = self._levels(task, rows.take(learns))
                owner = rows.owner[held]
                found[held] = np.where(owner[:, None] >= 0, others[owner], 0.0)
        return np.concatenate([rows.x, found], axis=1), Levels(self._levels(task, rows))

    def _levels(self, task: Task, rows: Rows) -> Floats:
        rows = rows.take(rows.owner >= 0)
        if not len(rows):
            return np.zeros((self.clients, task.outputs))
        ones, nothing = np.ones((len(rows), 1)), np.zeros((len(rows), task.outputs))
        effects = task.effects(ones, ones, rows.y, rows.owner, self.clients, nothing, rows.weight)
        return np.stack([each.clients[:, 0] for each in effects], axis=1)
