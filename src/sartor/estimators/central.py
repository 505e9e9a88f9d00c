"""Central models of a table: one estimator for all clients, and its scores of held-out rows."""

from __future__ import annotations

import abc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from sartor.estimators import families, mixing
from sartor.estimators.encoders import PLAIN, Encoded, Encoder
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.estimators.threads import few_threads
from sartor.types import Bools, Floats

Done = Callable[[str], None]
"""Told about each piece of work that is done."""


class Scorer(abc.ABC):
    """A fitted central model. It is a dataclass, which is saved by the types of its fields."""

    @abc.abstractmethod
    def scores(self, rows: Rows) -> Floats:
        """The scores of rows."""

    @abc.abstractmethod
    def without(self, client: int) -> Scorer:
        """The same, where a client's column says nothing of it."""


@dataclass(frozen=True)
class Fitted(Scorer):
    """An estimator.

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
class Averaged(Scorer):
    """The weighted mean of several models' scores.

    Attributes:
        models: the models.
        weights: theirs, whose sum is 1; ``None`` if all count the same.
    """

    models: tuple[Scorer, ...]
    weights: Floats | None = None

    def scores(self, rows: Rows) -> Floats:
        """The mean of their scores."""
        return np.average([each.scores(rows) for each in self.models], axis=0, weights=self.weights)

    def without(self, client: int) -> Averaged:
        """The same of each."""
        return replace(self, models=tuple(model.without(client) for model in self.models))


@dataclass(eq=False)
class Central:
    """A central model, and its scores of the rows that it was fitted to.

    Attributes:
        fitted: the model.
        held_out: [rows, outputs] the scores of each row by a model that has not seen it; NaN for
            rows that are never held out.
        settings: what was found out about the estimator on the way, such as its iterations.
        without_two: see :meth:`Maker.without_two`, which sets it when it is needed.
        parts: central models that it is mixed of, by name; others may begin with them, too.
        seconds: how long it took.
    """

    fitted: Scorer
    held_out: Floats
    settings: Mapping[str, Any] = field(default_factory=dict)
    without_two: list[Floats] | None = None
    parts: Mapping[str, Central] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def pairs(self) -> float:
        """About how long :meth:`Maker.without_two` would take: twice as long, if it is not set."""
        if self.without_two is not None:
            return 0.0
        return sum(part.pairs for part in self.parts.values()) if self.parts else 2 * self.seconds


class Maker(abc.ABC):
    """Makes central models."""

    def timed(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """The same as ``fit``, with how long it took."""
        began = time.perf_counter()
        found = self.fit(task, rows, folds, done)
        found.seconds = time.perf_counter() - began
        return found

    @abc.abstractmethod
    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Fit to all rows, and to the rows without each fold."""

    def without_two(
        self, central: Central, task: Task, rows: Rows, folds: Folds, done: Done
    ) -> list[Floats]:
        """For each fold that is held out, the scores of all others by models that know neither.

        What is fitted beside a central model is judged by rows of a fold. If the scores that it is
        fitted to came from models that have seen this fold, they would lean away from its labels:
        a client that is often late there is expected late by them, and so seems early elsewhere.
        By time there is nothing to do, as models know earlier folds only.
        """
        if central.without_two is None:
            if folds.forward:
                central.without_two = [central.held_out for _ in folds]
            else:
                central.without_two = self._without_two(central, task, rows, folds, done)
        return central.without_two

    @abc.abstractmethod
    def _without_two(
        self, central: Central, task: Task, rows: Rows, folds: Folds, done: Done
    ) -> list[Floats]:
        """The same by models that are fitted for it."""


@dataclass(frozen=True)
class OfEstimator(Maker):
    """Makes central models of one estimator.

    Attributes:
        estimator: it is cloned, and stays as it is.
        encoder: what it sees of rows.
        categories: the columns that hold codes of categories.
    """

    estimator: Any
    encoder: Encoder = PLAIN
    categories: tuple[int, ...] = ()

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

    def _without_two(
        self, central: Central, task: Task, rows: Rows, folds: Folds, done: Done
    ) -> list[Floats]:
        """By clones that are fitted to all but two folds."""
        return self._pairs(task, rows, folds, done, **central.settings)

    def _pairs(
        self, task: Task, rows: Rows, folds: Folds, done: Done, **settings: Any
    ) -> list[Floats]:
        """The scores of models without two folds: [one that is held out][rows of the other]."""
        found = [np.full((len(rows), task.outputs), np.nan) for _ in range(folds.count)]
        if folds.count == 2:  # a model that knows neither has to come from the same fold
            for held in range(2):
                some = np.flatnonzero(folds.number != held)
                for half, rest in ((some[::2], some[1::2]), (some[1::2], some[::2])):
                    learns = half if len(half) else some
                    part = self.fitted_to(task, rows.take(learns), folds.take(learns), **settings)
                    found[held][rest] = part.scores(rows.take(rest))
                    done("central model without two folds")
            return found
        for i, j in itertools.combinations(range(folds.count), 2):
            trains = (folds.number != i) & (folds.number != j)
            part = self.fitted_to(task, rows.take(trains), folds.take(trains), **settings)
            for one, other in ((i, j), (j, i)):
                mine = np.flatnonzero(folds.number == one)
                found[other][mine] = part.scores(rows.take(mine))
            done("central model without two folds")
        return found


@dataclass(frozen=True)
class Plainly(OfEstimator):
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

SEEDS = 3
"""Fits to all rows that are averaged where rows have times."""


@dataclass(frozen=True)
class Boosted(OfEstimator):
    """Gradient boosting, with as many iterations as are best on held-out rows.

    One fit depends much on chance, so several are averaged: those without one fold each, or by
    time, fits to all rows with other seeds. A held-out row is scored by an average, too: that of
    the models without its fold and another one.
    """

    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Find the number of iterations, and average."""
        parts, stages, most = self._by_fold(task, rows, folds, done)
        lost = np.zeros(len(stages[0]))
        for (_, held), several in zip(folds, stages, strict=True):
            lost += [_lost(task, scores, rows.take(held)) for scores in several]
        best = int(lost.argmin())
        settings = {"max_iter": min(STEP * (best + 1), most)}
        held_out = np.full((len(rows), task.outputs), np.nan)
        if folds.forward or folds.count < 3:
            for (_, held), several in zip(folds, stages, strict=True):
                held_out[held] = several[best]
            seeds = self.estimator.random_state + np.arange(SEEDS)
            models = []
            for seed in seeds.tolist():
                models.append(self.fitted_to(task, rows, folds, random_state=seed, **settings))
                done("central model")
            return Central(Averaged(tuple(models)), held_out, settings)
        for part in parts:
            families.cut_off(part.estimator, settings["max_iter"])
        pairs = self._pairs(task, rows, folds, done, **settings)
        # Row r of pairs[j] is scored without the fold of r and without j: so all of them count.
        held_out = np.nanmean(pairs, axis=0)
        return Central(Averaged(tuple(parts)), held_out, settings, pairs)

    def _by_fold(
        self, task: Task, rows: Rows, folds: Folds, done: Done
    ) -> tuple[list[Fitted], list[list[Floats]], int]:
        """Models without one fold each, and their scores of it after every few iterations.

        In the first fold iterations are doubled until more do not pay; the others have as many.
        """
        parts: list[Fitted] = []
        stages: list[list[Floats]] = []
        most = min(20 * STEP, self.estimator.max_iter)
        for trains, held in folds:
            some, others, within = rows.take(trains), rows.take(held), folds.take(trains)
            while True:
                part = self.fitted_to(task, some, within, max_iter=most)
                with few_threads(len(others)):
                    found = list(_stages(part, others, most))
                lost = np.array([_lost(task, scores, others) for scores in found])
                enough = lost.argmin() < 0.8 * len(lost) or most >= self.estimator.max_iter
                if stages or enough:
                    break
                most = min(2 * most, self.estimator.max_iter)
            parts.append(part)
            stages.append(found)
            done("central model")
        return parts, stages, most


def _lost(task: Task, scores: Floats, rows: Rows) -> float:
    """The sum of losses, as much as each row counts."""
    losses = task.losses(scores, rows.y)
    return float(losses.sum() if rows.weight is None else losses @ rows.weight)


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


@dataclass(frozen=True)
class Blended(Maker):
    """A mixture of several makers' models, with the weights that lose least on held-out rows.

    Attributes:
        makers: by name.
    """

    makers: Mapping[str, Maker]

    def fit(self, task: Task, rows: Rows, folds: Folds, done: Done) -> Central:
        """Fit all, and weigh them."""
        parts = {name: one.timed(task, rows, folds, done) for name, one in self.makers.items()}
        scores = {name: part.held_out for name, part in parts.items()}
        there = np.all([np.isfinite(each).all(axis=1) for each in scores.values()], axis=0)
        share = _weights(task, rows, scores, there)
        held_out = np.full((len(rows), task.outputs), np.nan)
        by_fold = {}
        for fold in np.unique(folds.number[there]).tolist():
            held, others = there & (folds.number == fold), there & (folds.number != fold)
            by_fold[fold] = _weights(task, rows, scores, others) if others.any() else share
            held_out[held] = mixing.mixed({n: s[held] for n, s in scores.items()}, by_fold[fold])
        of = tuple(parts[name].fitted for name in share)
        fitted = of[0] if len(of) == 1 else Averaged(of, np.array([*share.values()]))
        return Central(fitted, held_out, {"by fold": by_fold}, parts=parts)

    def _without_two(
        self, central: Central, task: Task, rows: Rows, folds: Folds, done: Done
    ) -> list[Floats]:
        """Mixtures of the same of all parts."""
        of = {
            name: maker.without_two(central.parts[name], task, rows, folds, done)
            for name, maker in self.makers.items()
        }
        return [
            mixing.mixed({name: each[fold] for name, each in of.items()}, weights)
            for fold, weights in central.settings["by fold"].items()
        ]


def _weights(task: Task, rows: Rows, scores: Mapping[str, Floats], where: Bools) -> Any:
    """The weights of several models' scores of some rows."""
    weight = None if rows.weight is None else rows.weight[where]
    return mixing.weigh(task, {n: s[where] for n, s in scores.items()}, rows.y[where], weight)
