"""Measures of predictions that people use, for each client and for all rows together.

Each takes rows of many clients at once: a measure is a function of labels, predictions and owners
that returns one number per client, NaN where it has no meaning (such as the area under the curve of
a client whose labels are all alike).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from sartor.checking import Probability, checks_arguments
from sartor.errors import ConfigError, nearest
from sartor.types import Floats, Ints

Kind = Literal["binary", "classes", "regression"]

BINS = 10
"""Bins of predicted probabilities in the calibration error."""

TINY = 1e-15
"""The least probability in a log loss."""


@dataclass(frozen=True)
class Measure:
    """A measure of predictions.

    Attributes:
        name: what it is called.
        of: ``(y, predicted, owner, clients) -> [clients]``. Predictions are the probability of
            class 1 for two classes, [rows, classes] for more, and means for regression.
        higher: whether more is better.
        kinds: what it applies to.
    """

    name: str
    of: Callable[[Floats, Floats, Ints, int], Floats]
    higher: bool
    kinds: tuple[Kind, ...]

    def pooled(self, y: Floats, predicted: Floats) -> float:
        """Over all rows, whosever they are."""
        return float(self.of(y, predicted, np.zeros(len(y), np.int64), 1)[0])


def mean_by(values: Floats, owner: Ints, clients: int) -> Floats:
    """The mean of each client's rows; NaN for those without rows."""
    counts = np.bincount(owner, minlength=clients)
    with np.errstate(invalid="ignore"):
        return np.bincount(owner, values, minlength=clients) / np.where(counts, counts, np.nan)


def _chance_of(y: Floats, predicted: Floats) -> Floats:
    """The probability that was given to the label."""
    if predicted.ndim == 1:
        return np.where(y > 0, predicted, 1 - predicted)
    return np.asarray(predicted[np.arange(len(y)), y.astype(np.int64)], np.float64)


def _label_of(predicted: Floats) -> Floats:
    """The most probable class."""
    if predicted.ndim == 1:
        return (predicted > 0.5).astype(np.float64)
    return predicted.argmax(axis=1).astype(np.float64)


def log_loss(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The mean of −log of the label's probability."""
    return mean_by(-np.log(np.maximum(_chance_of(y, predicted), TINY)), owner, clients)


def accuracy(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The share of rows whose most probable class is right."""
    return mean_by((_label_of(predicted) == y).astype(np.float64), owner, clients)


def brier(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The mean squared error of probabilities; of several classes, the sum of theirs."""
    if predicted.ndim == 1:
        return mean_by((predicted - y) ** 2, owner, clients)
    right = y.astype(np.int64)[:, None] == np.arange(predicted.shape[1])
    errors = np.square(predicted - right).sum(axis=1)
    return mean_by(np.asarray(errors, np.float64), owner, clients)


def calibration(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """How far what was predicted is from what happened, on average over ten bins of predictions."""
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    apart = np.bincount(owner * BINS + bins, predicted - y, minlength=clients * BINS)
    sums = np.abs(apart.reshape(clients, BINS)).sum(axis=1)
    counts = np.bincount(owner, minlength=clients)
    return np.asarray(sums / np.where(counts, counts, np.nan))


def auc(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The chance that a row of class 1 is predicted higher than one of class 0; ties count half."""
    order = np.lexsort((predicted, owner))
    whose, score, one = owner[order], predicted[order], y[order] > 0
    place = np.arange(len(order)) - np.searchsorted(whose, whose)
    new = np.append(True, (np.diff(score) != 0) | (np.diff(whose) != 0))
    block = np.cumsum(new) - 1
    rank = mean_by((place + 1).astype(np.float64), block, len(block))[block]
    ones = np.bincount(whose, one, minlength=clients)
    zeros = np.bincount(whose, ~one, minlength=clients)
    wins = np.bincount(whose, rank * one, minlength=clients) - ones * (ones + 1) / 2
    pairs = ones * zeros
    return np.asarray(wins / np.where(pairs > 0, pairs, np.nan))


def average_precision(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The precision at each threshold, weighted by how much recall it adds."""
    order = np.lexsort((-predicted, owner))
    whose, score, one = owner[order], predicted[order], (y[order] > 0).astype(np.float64)
    first = np.searchsorted(whose, whose)
    before = np.append(0.0, np.cumsum(one))
    found = before[1:] - before[first]
    place = np.arange(len(order)) - first + 1
    last = np.append((np.diff(score) != 0) | (np.diff(whose) != 0), True)
    # Rows with equal predictions share a threshold: the last of them counts for all.
    ends = np.flatnonzero(last)
    added = np.diff(np.append(0.0, before[1:][ends]))
    gains = added * found[ends] / place[ends]
    ones = np.bincount(whose, one, minlength=clients)
    total = np.bincount(whose[ends], gains, minlength=clients)
    return np.asarray(total / np.where(ones > 0, ones, np.nan))


def f1(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The harmonic mean of precision and recall; of several classes, its mean over them."""
    label = _label_of(predicted)
    classes = [1] if predicted.ndim == 1 else range(predicted.shape[1])
    found = []
    for c in classes:
        both = np.bincount(owner, (label == c) & (y == c), minlength=clients)
        said = np.bincount(owner, label == c, minlength=clients)
        true = np.bincount(owner, y == c, minlength=clients)
        found.append(2 * both / np.where(said + true > 0, said + true, np.nan))
    with np.errstate(invalid="ignore"):
        there = np.isfinite(found)
        return np.asarray(np.where(there, found, 0).sum(axis=0) / np.where(
            there.any(axis=0), there.sum(axis=0), np.nan))  # fmt: skip


def mse(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The mean squared error."""
    return mean_by((predicted - y) ** 2, owner, clients)


def rmse(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The root of the mean squared error."""
    return np.sqrt(mse(y, predicted, owner, clients))


def mae(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The mean absolute error."""
    return mean_by(np.abs(predicted - y), owner, clients)


def r2(y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    """The share of the labels' variance that is explained."""
    middle = np.nan_to_num(mean_by(y, owner, clients))
    spread = mean_by((y - middle[owner]) ** 2, owner, clients)
    error = mse(y, predicted, owner, clients)
    return np.asarray(1 - error / np.where(spread > 0, spread, np.nan))


def _pinball(level: float, y: Floats, predicted: Floats, owner: Ints, clients: int) -> Floats:
    apart = y - predicted
    return mean_by(np.maximum(level * apart, (level - 1) * apart), owner, clients)


@checks_arguments
def pinball(level: Probability = 0.5) -> Measure:
    """The loss of a quantile: above it, errors count by its level, and below by the rest."""
    return Measure(f"pinball {level:g}", partial(_pinball, level), False, ("regression",))


MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("log loss", log_loss, False, ("binary", "classes")),
        Measure("accuracy", accuracy, True, ("binary", "classes")),
        Measure("AUC", auc, True, ("binary",)),
        Measure("average precision", average_precision, True, ("binary",)),
        Measure("Brier", brier, False, ("binary", "classes")),
        Measure("calibration", calibration, False, ("binary",)),
        Measure("F1", f1, True, ("binary", "classes")),
        Measure("MSE", mse, False, ("regression",)),
        Measure("RMSE", rmse, False, ("regression",)),
        Measure("MAE", mae, False, ("regression",)),
        Measure("R²", r2, True, ("regression",)),
        pinball(0.9),
    )
}
"""The measures by name."""


def measures_for(kind: Kind, names: list[Any] | None = None) -> list[Measure]:
    """The measures for a kind of label, or those that were asked for by name.

    >>> [measure.name for measure in measures_for("regression")]
    ['MSE', 'RMSE', 'MAE', 'R²', 'pinball 0.9']
    """
    if names is None:
        return [measure for measure in MEASURES.values() if kind in measure.kinds]
    found = []
    for name in names:
        measure = name if isinstance(name, Measure) else MEASURES.get(str(name))
        if measure is None:
            raise ConfigError(f"there is no measure {name!r}; {nearest(str(name), MEASURES)}")
        if kind not in measure.kinds:
            fit = ", ".join(m.name for m in measures_for(kind))
            raise ConfigError(f"{measure.name} is no measure for these labels; take {fit}")
        found.append(measure)
    return found
