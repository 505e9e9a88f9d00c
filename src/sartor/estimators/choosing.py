"""Which candidate, and for whom: the evidence of held-out rows is pooled, and then guarded.

All clients get the candidate that clearly pays on all held-out rows together. What differs between
clients is estimated inside of candidates, with shrinkage. But a client keeps the global model if it
would not see the gain, and if that costs all clients together next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from sartor.estimators.candidates import GLOBAL
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.trying import Tried
from sartor.evaluation.shrinkage import client_means, posterior
from sartor.types import Floats, Ints

PAYS = 2.0
"""A candidate pays if its mean gain is more than so many standard errors."""

SEEN = 0.75
"""Clients keep the global model if their expected gain is less than so many standard deviations of
the mean of as many rows as they have: they would hardly see it."""

GIVEN_UP = 0.0005
"""What these clients may give up together, as a share of the global model's loss."""

Words = npt.NDArray[np.str_]


@dataclass(frozen=True)
class Decision:
    """What was decided; mappings from candidates to [clients] arrays.

    Attributes:
        name: [clients] the candidate of each.
        kept: [clients] whether a client keeps the global model although another candidate pays.
        gain: the expected gain over the global model: how much smaller the loss is.
        deviation: the standard deviation of the expected gain.
        observed: the mean gain on the client's own held-out rows; NaN if it has none.
        pays: for each candidate, its mean gain over all held-out rows, and the standard error.
        paid: [clients] the mean gain on held-out rows of what other folds would have decided; NaN
            for clients without such rows.
        loss: [clients] the mean loss of the global model on held-out rows; NaN likewise.
    """

    name: Words
    kept: npt.NDArray[np.bool_]
    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    observed: Mapping[str, Floats]
    pays: Mapping[str, tuple[float, float]]
    paid: Floats
    loss: Floats


class Gains(NamedTuple):
    """Gains over the global model on held-out rows.

    Attributes:
        of: for each candidate, [rows].
        owner: [rows] the client of each.
        fold: [rows] the fold of each.
        size: [clients] how many rows each client has, held out or not.
        weight: [rows] how much each counts.
        loss: the mean loss of the global model.
        alike: [rows] what other models that do not know clients gain.
    """

    of: dict[str, Floats]
    owner: Ints
    fold: Ints
    size: Ints
    weight: Floats
    loss: float
    alike: Floats

    def only(self, where: npt.NDArray[np.bool_]) -> Gains:
        """Those of some rows."""
        of = {name: gains[where] for name, gains in self.of.items()}
        return self._replace(
            of=of, owner=self.owner[where], fold=self.fold[where], weight=self.weight[where],
            alike=self.alike[where],
        )  # fmt: skip


def choose(tried: Tried, rows: Rows, folds: Folds, size: Ints) -> Decision:
    """Decide by losses on held-out rows.

    Args:
        tried: the losses.
        rows: whose they are.
        folds: the folds that were held out.
        size: each client's number of rows.
    """
    there = folds.decisive & (rows.owner >= 0)
    there &= np.all([np.isfinite(v) for v in tried.losses.values()], axis=0)
    losses = {name: values[there] for name, values in tried.losses.items()}
    of = {name: losses[GLOBAL] - v for name, v in losses.items() if name != GLOBAL}
    weight = np.ones(there.sum()) if rows.weight is None else rows.weight[there]
    everybody = float(np.average(losses[GLOBAL], weights=weight)) if len(weight) else 0.0
    alike = np.zeros(len(weight))
    if tried.alike is not None:
        alike = np.nan_to_num(losses[GLOBAL] - tried.alike[there])
    gains = Gains(of, rows.owner[there], folds.number[there], size, weight, everybody, alike)
    nothing = np.zeros(len(size))
    gain, deviation, observed = {GLOBAL: nothing}, {GLOBAL: nothing}, {}
    for each in of:
        gain[each], deviation[each], observed[each] = _expected(gains, each)
    name, kept = _decide(gains)
    loss, _ = client_means(losses[GLOBAL], gains.owner, len(size))
    pays = {each: mean_and_error(gains, gains.of[each]) for each in of}
    return Decision(name, kept, gain, deviation, observed, pays, _paid(gains), loss)


def mean_and_error(gains: Gains, values: Floats) -> tuple[float, float]:
    """The mean of gains over all rows, and its standard error.

    The question is what the same clients gain on further rows. So it does not matter that one
    client gains more than another; what counts is how a client's rows differ among themselves.
    Rows of a client in one fold are alike, and so are all rows of a fold, which were scored by the
    same model and may be of one time or group. The error is the largest of what rows, rows of a
    client in a fold, and folds say. A few folds say little, so theirs grows as a quantile of
    Student's t does.
    """
    owner, weight = gains.owner, gains.weight
    share = weight / max(float(weight.sum()), 1e-300)
    mean = float((values * share).sum())
    there, fold = np.unique(gains.fold, return_inverse=True)
    own = np.bincount(owner, share)
    apart = values - (np.bincount(owner, values * share) / np.where(own > 0, own, 1.0))[owner]
    if len(np.unique(owner)) == len(owner):  # clients of one row each
        apart = values - mean
    rows = _variance(share * apart, owner)
    _, block = np.unique(owner * len(there) + fold, return_inverse=True)
    whose = np.zeros(block.max(initial=-1) + 1, np.int64)
    whose[block] = owner
    blocks = _variance(np.bincount(block, share * apart).astype(np.float64), whose)
    by_fold = 0.0
    if len(there) > 1:
        means = np.bincount(fold, apart * weight) / np.maximum(np.bincount(fold, weight), 1e-300)
        few = stats.t.ppf(stats.norm.cdf(PAYS), len(there) - 1) / PAYS
        by_fold = float(means.var(ddof=1)) / len(there) * few**2
    return mean, float(np.sqrt(max(rows, blocks, by_fold)))


def _variance(parts: Floats, owner: Ints) -> float:
    """The variance of a sum of parts that are deviations from their clients' means."""
    counts = np.bincount(owner)
    several = counts[owner] > 1
    if not several.any():
        return float(np.square(parts).sum())
    free = (counts[counts > 1] - 1).sum() / several.sum()
    return float(np.square(parts[several]).sum()) / free * len(parts) / several.sum()


def _decide(gains: Gains) -> tuple[Words, npt.NDArray[np.bool_]]:
    """The candidate of each client, and who keeps the global model although another one pays."""
    best, surely = GLOBAL, 0.0
    enough = len(np.unique(gains.fold)) > 1  # one fold says nothing of how folds differ
    for name, of in gains.of.items():
        mean, error = mean_and_error(gains, of)
        # What a better model for all would bring is no reason to tell clients apart.
        beyond, doubt = mean_and_error(gains, of - gains.alike)
        pays = enough and mean > PAYS * error and beyond > PAYS * doubt
        if pays and mean - error > surely:
            best, surely = name, mean - error
    kept = np.zeros(len(gains.size), np.bool_)
    if best != GLOBAL:
        gain, deviation, _ = _expected(gains, best)
        counts = np.bincount(gains.owner, minlength=len(kept))
        _, of_mean = client_means(gains.of[best], gains.owner, len(kept))
        of_row = np.nanmax(of_mean * np.where(counts, counts, np.nan))  # one for all clients
        seen = gain / np.sqrt(deviation**2 + of_row / np.maximum(gains.size, 1))
        order = np.argsort(seen)
        given_up = np.cumsum(np.maximum(gain * gains.size, 0)[order])
        kept[order] = (seen[order] < SEEN) & (given_up <= GIVEN_UP * gains.loss * gains.size.sum())
    return np.where(kept, GLOBAL, best), kept


def _expected(gains: Gains, name: str) -> tuple[Floats, Floats, Floats]:
    """Each client's expected gain, its standard deviation, and the gain on its own rows."""
    mean, variance = client_means(gains.of[name], gains.owner, len(gains.size), gains.fold)
    found = posterior(mean, variance, gains.size)
    return found.mean, found.deviation, mean


def _paid(gains: Gains) -> Floats:
    """Each client's mean gain on held-out rows of what other folds would have decided."""
    found = np.full(len(gains.owner), np.nan)
    for fold in np.unique(gains.fold):
        held = gains.fold == fold
        if held.all():
            break
        name, _ = _decide(gains.only(~held))
        mine = name[gains.owner]
        of = {GLOBAL: np.zeros(len(mine)), **gains.of}
        for each in np.unique(mine[held]).tolist():
            found = np.where(held & (mine == each), of[each], found)
    known = np.isfinite(found)
    return client_means(found[known], gains.owner[known], len(gains.size))[0]
