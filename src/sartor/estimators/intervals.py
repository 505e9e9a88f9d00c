"""Prediction intervals of regression, from errors on held-out rows.

A client's errors have a scale of their own, shrunk towards that of all clients on a logarithmic
scale, since few rows say little about it. How errors are spread around their scale is learned from
all clients' rows, so that tails are what they are. Each row is divided by a scale that was learned
without it; so clients with few rows, whose scale is known badly, have wider intervals. New clients
get the quantiles of the global model's errors, where every client counts the same: that clients
differ is in there. Errors stand here for the roots of their absolute values, of which a few large
ones say less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from sartor.errors import ConfigError
from sartor.evaluation.shrinkage import posterior
from sartor.types import Floats, Ints

POINTS = 1001
"""Quantiles that are kept of a distribution, from 0 to 1."""

ENOUGH = 300
"""Rows that the quantiles of clients of about one size are learned from."""

TURNS = 3
"""Scales and the spread of errors around them depend on each other: so often both are learned."""

NORMAL = 0.18
"""The variance of the roots of absolute errors that are normal, for a mean of 1."""

TINY = 1e-9
"""The least scale, as a share of everybody's: a client's few errors may all be zero."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """How far labels are from predictions, by client.

    Attributes:
        scale: [clients] the mean of errors; NaN for clients that are as unknown as new ones.
        group: [clients] the row of ``shapes`` that holds for clients of this size.
        shapes: [groups, points] quantiles of errors, divided by the client's scale.
        new: [points] quantiles of errors of clients that are not known.
    """

    scale: Floats
    group: Ints
    shapes: Floats
    new: Floats

    @classmethod
    def learn(
        cls, losses: Mapping[str, Floats], owner: Ints, names: npt.NDArray[np.str_], shared: str
    ) -> Intervals:
        """Learn from held-out rows.

        Args:
            losses: for each candidate, [rows] the squared errors; NaN for rows not held out.
            owner: [rows] the client of each row; −1 for none.
            names: [clients] the candidate that predicts for each.
            shared: the candidate that predicts for all others.
        """
        everybody = losses[shared] ** 0.25
        there = np.isfinite(everybody)
        new = _of_new_clients(everybody[there], owner[there])
        error = np.full(len(owner), np.nan)
        for name in np.unique(names):
            mine = (owner >= 0) & (names[owner] == name)
            error[mine] = losses[name][mine] ** 0.25
        there = np.isfinite(error)
        return _of_clients(error[there], owner[there], len(names), new)

    def half_width(self, owner: Ints, level: float) -> Floats:
        """[rows] how far from the prediction an interval reaches.

        Args:
            owner: the client of each row; −1 or a number beyond those of the fit for new ones.
            level: the share of labels that intervals hold.
        """
        known = (owner >= 0) & (owner < len(self.scale))
        place = np.where(known, owner, 0)
        at = np.linspace(0, 1, POINTS)
        shape = np.array([np.interp(level, at, quantiles) for quantiles in self.shapes])
        own = self.scale[place] * shape[self.group[place]]
        return np.where(known & np.isfinite(own), own, np.interp(level, at, self.new)) ** 2

    def without(self, client: int) -> Intervals:
        """The same without the scale of a client."""
        scale = self.scale.copy()
        scale[client : client + 1] = np.nan  # there is none of clients that came later
        return replace(self, scale=scale)


def check_level(level: float) -> None:
    """Refuse what is no share of labels."""
    if not (isinstance(level, float | int | np.number) and 0 < level < 1):
        raise ConfigError(
            f"level={level!r} must be between 0 and 1: the share of labels that intervals hold, "
            "such as 0.9"
        )


def _of_clients(error: Floats, owner: Ints, clients: int, new: Floats) -> Intervals:
    """The scales of clients, and the quantiles of errors around them."""
    size = np.bincount(owner, minlength=clients)
    total = np.bincount(owner, error, minlength=clients).astype(np.float64)
    if not len(error):
        return Intervals(np.full(clients, np.nan), 0 * size, np.zeros((1, POINTS)), new)
    least = TINY * error.mean() if error.any() else 1.0
    spread, scale = NORMAL, np.full(clients, max(error.mean(), least))
    for _ in range(TURNS):
        spread = _spread(error / scale[owner], owner, size)
        mean, variance = _logs(total, size, spread, least)
        found = posterior(mean, variance, size)
        scale = np.exp(found.mean)
    others, rest = size[owner] - 1, total[owner] - error
    mean, variance = _logs(rest, others, spread, least)
    share = found.between / (found.between + variance) if found.between else np.zeros(len(error))
    prior = found.prior[owner]
    apart = np.exp(prior + share * np.where(others > 0, mean - prior, 0.0))
    group = _groups(size)
    of_row = group[owner]
    shapes = [_quantiles((error / apart)[of_row == g]) for g in range(group.max() + 1)]
    return Intervals(scale, group, np.stack(shapes), new)


def _spread(error: Floats, owner: Ints, size: Ints) -> float:
    """The variance of errors around their mean, for a mean of 1.

    Of a client's errors it is s² / (m² − s² / n): a mean of n errors squared is too large by the
    variance of this mean.
    """
    mean = np.bincount(owner, error, minlength=len(size)) / np.maximum(size, 1)
    squares = np.bincount(owner, (error - mean[owner]) ** 2, minlength=len(size))
    some = size > 1
    if not some.any():
        return NORMAL
    variance = squares[some].sum() / (size[some] - 1).sum()
    level = (size * mean**2)[some].sum() / size[some].sum()
    level -= variance * some.sum() / size[some].sum()
    return float(np.clip(variance / level, 0.02, 10.0)) if level > 0 else NORMAL


def _logs(total: Floats, count: Ints, spread: float, least: float) -> tuple[Floats, Floats]:
    """The logarithm of the mean error, and its variance, as if errors had a gamma distribution."""
    some = np.maximum(count, 1)
    shape = some / spread
    mean = np.log(np.maximum(total / some, least)) - special.digamma(shape) + np.log(shape)
    variance = special.polygamma(1, shape)
    return np.where(count > 0, mean, np.nan), np.where(count > 0, variance, np.inf)


def _groups(size: Ints) -> Ints:
    """[clients] numbers of groups of clients of about one size, each with enough rows."""
    sizes, counts = np.unique(size, return_counts=True)
    number, rows, first, found = 0, 0, 0, np.zeros(len(sizes), np.int64)
    for i, (one, count) in enumerate(zip(sizes.tolist(), counts.tolist(), strict=True)):
        if rows >= ENOUGH and one >= 2 * first:
            number, rows = number + 1, 0
        first = one if not rows else first
        found[i], rows = number, rows + one * count
    if number and rows < ENOUGH:
        found[found == number] = number - 1
    return found[np.searchsorted(sizes, size)]


def _of_new_clients(error: Floats, owner: Ints) -> Floats:
    """Quantiles of the errors of a client that is like any other. A row of nobody is one, too.

    The client itself counts as one more, whose errors are beyond all others (as in conformal
    prediction): of few clients, high quantiles are the largest error.
    """
    if not len(error):  # nothing was held out, and nothing is known
        return np.full(POINTS, np.inf)
    _, place, size = np.unique(
        np.where(owner >= 0, owner, -1 - np.arange(len(owner))),
        return_inverse=True, return_counts=True,
    )  # fmt: skip
    order = np.argsort(error)
    share = np.cumsum(1 / size[place[order]]) / (len(size) + 1)
    at = np.searchsorted(share, np.linspace(0, 1, POINTS)).clip(max=len(error) - 1)
    return np.asarray(error[order][at])


def _quantiles(error: Floats) -> Floats:
    """Quantiles of errors, where a new one counts as one more."""
    rank = np.ceil(np.linspace(0, 1, POINTS) * (len(error) + 1)).astype(np.int64)
    return np.asarray(np.sort(error)[rank.clip(1, len(error)) - 1])
