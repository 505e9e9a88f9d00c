"""All seeds together: what is the same for every number that is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from sartor.data import ClientData
from sartor.evaluation import Scores
from sartor.evaluation.statistics import bootstrap_interval, sign_flip
from sartor.experiments.emnist.cells import Cell
from sartor.experiments.emnist.settings import Settings

Floats = npt.NDArray[np.float64]
Cells = dict[tuple[int, str], Cell]
"""Cells by seed and name."""

GROUPS = ("seen", "unseen")


class Pool:
    """All seeds together: a value for every seed and writer, NaN where it is not in a group.

    Writers are the unit that is drawn: one who takes part in several seeds counts once, with the
    mean over them. What differs from seed to seed is reported beside it.
    """

    def __init__(self, settings: Settings, data: ClientData, cells: Cells) -> None:
        self.settings, self.cells = settings, cells
        self.place = {client: k for k, client in enumerate(data.ids)}

    def values(self, name: str, group: str, what: str = "accuracy") -> Floats:
        """[seeds, writers] a number of every writer in a group."""
        out = np.full((self.settings.seeds, len(self.place)), np.nan)
        for seed in range(self.settings.seeds):
            scores = self.cells[seed, name].scores
            column = getattr(scores, what) if hasattr(scores, what) else scores.extra[what]
            where = np.array([self.place[client] for client in scores.client])
            out[seed, where] = np.where(member(scores, group), column, np.nan)
        return out

    def estimate(self, values: Floats) -> dict[str, Any]:
        """The mean with a 95% interval over writers, and the means of the seeds."""
        mean, weights = by_writer(values)
        low, high = bootstrap_interval(mean, weights)
        by_seed = np.nanmean(values, axis=1)
        spread = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
        return {
            "mean": float(by_seed.mean()), "low": low, "high": high,
            "by_seed": by_seed.tolist(), "seed_deviation": spread,
        }  # fmt: skip

    def difference(self, a: str, b: str, group: str, what: str = "accuracy") -> dict[str, Any]:
        """How much higher a is than b, writer by writer; with a paired sign-flip test."""
        return self.tested(self.values(a, group, what) - self.values(b, group, what))

    def tested(self, values: Floats, than: float = 0.0) -> dict[str, Any]:
        """An estimate of differences, and p-values that their mean is ``than``.

        ``p_value`` is of sign flips over writers: whether these trained models would differ for
        other writers. ``p_seeds`` is of a t-test over seeds: whether models that are trained
        anew would; ``None`` with one seed.
        """
        mean, weights = by_writer(values - than)
        by_seed = np.nanmean(values, axis=1) - than
        return {
            **self.estimate(values),
            "p_value": sign_flip(mean * weights),
            "p_seeds": _over_seeds(by_seed),
            "writers": len(mean),
        }


def _over_seeds(differences: Floats) -> float | None:
    """The p-value that the mean of a few seeds' differences is zero."""
    count = len(differences)
    if count < 2:
        return None
    error = differences.std(ddof=1) / np.sqrt(count)
    if error == 0:
        return 0.0 if differences[0] else 1.0
    return float(2 * special.stdtr(count - 1, -abs(differences.mean()) / error))


def by_writer(values: Floats) -> tuple[Floats, Floats]:
    """The mean of every writer that has a value, and in how many seeds it has."""
    counts = (~np.isnan(values)).sum(axis=0)
    some = counts > 0
    means = np.nansum(values[:, some], axis=0) / counts[some]
    return means, counts[some].astype(np.float64)


def member(scores: Scores, group: str) -> npt.NDArray[np.bool_]:
    """Who belongs to a group: "seen", "unseen", "all", or the writers of a domain."""
    if group in ("seen", "unseen"):
        return scores.seen if group == "seen" else ~scores.seen
    if group == "all":
        return np.ones(len(scores), np.bool_)
    return np.array(scores.domain) == group


def cell_name(row: str, column: str) -> str:
    """The cell of the tables' row and column."""
    return row if column == "initial" else f"{row} + {column}"
