"""Central models of a table: one estimator for all clients, and its scores of held-out rows."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from sartor.estimators import families
from sartor.estimators.encoders import PLAIN, Encoded, Encoder
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.types import Floats

Done = Callable[[str], None]
"""Told about each piece of work that is done."""


@dataclass(frozen=True)
class Fitted:
    """A fitted central model.

    Attributes:
        task: what it predicts.
        estimator: of scikit-learn's kind.
        encoded: turns rows into what it takes.
    """

    task: Task
    estimator: Any
    encoded: Encoded

    def scores(self, rows: Rows) -> Floats:
        """The scores of rows."""
        return self.task.scores_of(self.estimator, self.encoded(rows))

    def without(self, client: int) -> Fitted:
        """The same, where a client's column says nothing of it."""
        return replace(self, encoded=self.encoded.without(client))


@dataclass(frozen=True)
class Central:
    """A central model, and its scores of the rows that it was fitted to.

    Attributes:
        fitted: the model, fitted to all rows.
        held_out: [rows, outputs] the scores of each row by a model that has not seen it; NaN for
            rows that are never held out.
    """

    fitted: Fitted
    held_out: Floats


@dataclass(frozen=True)
class Maker(abc.ABC):
    """Makes central models.

    Attributes:
        estimator: it is cloned, and stays as it is.
        encoder: what it sees of rows.
        categories: the columns that hold codes of categories.
    """

    estimator: Any
    encoder: Encoder = PLAIN
    categories: tuple[int, ...] = ()

    @abc.abstractmethod
    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Fit to all rows, and to the rows without each fold."""

    def fitted_to(self, task: Task, rows: Rows, folds: Folds, **settings: Any) -> Fitted:
        """A clone, fitted to rows. Where all have one class, nothing can be learned but that."""
        x, encoded = self.encoder.fit(task, rows, folds)
        y = task.labels(rows.y)
        if task.classes and (y == y[0]).all():
            return Fitted(task, DummyClassifier(strategy="prior").fit(x, y), encoded)
        categories = self.categories
        if self.encoder.categorical:
            categories = (*categories, x.shape[1] - 1)
        estimator = families.fresh(self.estimator, categories, **settings)
        return Fitted(task, families.fit(estimator, x, y, rows.weight, categories), encoded)


@dataclass(frozen=True)
class Plainly(Maker):
    """Any estimator of scikit-learn's kind, as it is."""

    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Fit a clone to each set of rows."""
        held_out = np.full((len(rows), task.outputs), np.nan)
        for trains, held in folds:
            part = self.fitted_to(task, rows.take(trains), folds.take(trains))
            held_out[held] = part.scores(rows.take(held))
            done("central model")
        fitted = self.fitted_to(task, rows, folds)
        done("central model")
        return Central(fitted, held_out)


STEP = 10
"""Boosting may end after every so many iterations."""


@dataclass(frozen=True)
class Boosted(Maker):
    """Gradient boosting, with as many iterations as are best on held-out rows.

    In the first fold their number is doubled until more do not pay; the other folds take as many.
    """

    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Try numbers of iterations in each fold, and take the best one for all."""
        several: list[list[Floats]] = []
        losses, most = np.zeros(0), min(20 * STEP, self.estimator.max_iter)
        for trains, held in folds:
            some, others, within = rows.take(trains), rows.take(held), folds.take(trains)
            while True:
                part = self.fitted_to(task, some, within, max_iter=most)
                stages = list(_stages(part, others, most))
                lost = np.array([task.losses(scores, others.y).sum() for scores in stages])
                enough = lost.argmin() < 0.8 * len(lost) or most >= self.estimator.max_iter
                if several or enough:
                    break
                most = min(2 * most, self.estimator.max_iter)
            losses = losses + lost if several else lost
            several.append(stages)
            done("central model")
        best = int(losses.argmin())
        held_out = np.full((len(rows), task.outputs), np.nan)
        for (_, held), stages in zip(folds, several, strict=True):
            held_out[held] = stages[best]
        fitted = self.fitted_to(task, rows, folds, max_iter=min(STEP * (best + 1), most))
        done("central model")
        return Central(fitted, held_out)


def _stages(part: Fitted, rows: Rows, count: int) -> Iterator[Floats]:
    """The scores after every few iterations, and after the last one."""
    task, estimator, x = part.task, part.estimator, part.encoded(rows)
    wanted = {*range(STEP, count + 1, STEP), count}
    if isinstance(estimator, DummyClassifier):
        yield from [task.scores_of(estimator, x)] * len(wanted)
    elif task.classes:
        for i, said in enumerate(estimator.staged_predict_proba(x), 1):
            if i in wanted:
                yield task.from_proba(task.aligned(estimator, said))
    else:
        for i, said in enumerate(estimator.staged_predict(x), 1):
            if i in wanted:
                yield said[:, None]
