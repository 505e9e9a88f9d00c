"""A mixture of candidates: the weights with which they lose least together on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import optimize

from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.types import Bools, Floats

LEAST = 0.03
"""Smaller weights are left out, as every part takes time to predict."""


def weigh(
    task: Task, scores: Mapping[str, Floats], y: Floats, weight: Floats | None
) -> dict[str, float]:
    """The weights of candidates: none is negative, and their sum is 1.

    Args:
        task: what is predicted.
        scores: of each candidate, [rows, outputs].
        y: the labels.
        weight: how much each row counts.

    >>> y = np.arange(4.0)
    >>> weigh(Task(0), {"low": y[:, None] - 1, "high": y[:, None] + 3}, y, None)
    {'low': 0.75, 'high': 0.25}
    """
    stacked = np.stack(list(scores.values()))
    count = np.ones(len(y)) if weight is None else weight
    unit = 1 / (count.sum() * max(float(task.losses(stacked[0], y).mean()), 1e-300))

    def lost(point: Floats) -> tuple[float, Floats]:
        share = np.exp(point - point.max())
        share /= share.sum()
        mixed = np.tensordot(share, stacked, axes=1)
        slope = task.slopes(mixed, y) * count[:, None]
        by_part = np.tensordot(stacked, slope, axes=([1, 2], [0, 1]))
        gradient = share * (by_part - (share * by_part).sum())
        return float((task.losses(mixed, y) * count).sum()) * unit, gradient * unit

    start = np.zeros(len(stacked))
    found = optimize.minimize(lost, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-9})
    share = np.exp(found.x - found.x.max())
    share = np.where(share / share.sum() < LEAST, 0.0, share)
    share = np.round(share / share.sum(), 6)
    return {name: float(one) for name, one in zip(scores, share, strict=True) if one > 0}


def mixed(scores: Mapping[str, Floats], parts: Mapping[str, float]) -> Floats:
    """The weighted mean of candidates' scores."""
    return np.asarray(sum(weight * scores[name] for name, weight in parts.items()))


def held_out(
    task: Task, rows: Rows, folds: Folds, scores: Mapping[str, Floats], where: Bools
) -> Floats:
    """The scores of mixtures whose weights come from other folds; NaN outside ``where``."""
    found = np.full((len(rows), task.outputs), np.nan)
    for fold in np.unique(folds.number[where]):
        held, learns = where & (folds.number == fold), where & (folds.number != fold)
        if learns.any():
            of = {name: values[learns] for name, values in scores.items()}
            weight = None if rows.weight is None else rows.weight[learns]
            parts = weigh(task, of, rows.y[learns], weight)
            found[held] = mixed({name: values[held] for name, values in scores.items()}, parts)
    return found
