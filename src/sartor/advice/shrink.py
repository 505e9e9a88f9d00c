"""From noisy means of single clients to estimates: what all clients have in common is believed.

A client's mean over a few held-out examples says little about it, and the mean over all clients
nothing about it alone. Between them is the posterior mean under a normal prior that is estimated
from all clients (empirical Bayes): a line in the logarithm of the sample size, since models of a
client's own gain by samples, and a variance of clients around it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SPREAD = 0.1
"""Sample sizes whose logarithms differ by less are taken to be the same."""


class Estimate(NamedTuple):
    """What is believed of every client: [clients].

    Attributes:
        mean: the posterior mean.
        deviation: how far the client may be from it, as a standard deviation.
        prior: what would be believed without the client's own examples.
        between: the variance of clients around the prior.
    """

    mean: Floats
    deviation: Floats
    prior: Floats
    between: float


def means_of(values: Floats, owner: npt.NDArray[np.int64], clients: int) -> tuple[Floats, Floats]:
    """Every client's mean, and the variance of that mean; NaN where it has no examples.

    The variance of examples is that of all clients: losses have long tails, and a client that was
    lucky would seem to be certain of it.
    """
    counts = np.bincount(owner, minlength=clients).astype(np.float64)
    some = np.where(counts > 0, counts, np.nan)
    mean = np.bincount(owner, values, minlength=clients) / some
    squares = float(((values - mean[owner]) ** 2).sum())
    return mean, squares / max(float(np.maximum(counts - 1, 0).sum()), 1.0) / some


def shrink(mean: Floats, variance: Floats, size: npt.ArrayLike, trust: float = 1.0) -> Estimate:
    """Posterior means of clients.

    Args:
        mean: of a client's own examples: [clients], NaN where there are none.
        variance: of that mean.
        size: training examples of every client.
        trust: the share of the variance between clients that is believed.
    """
    known = np.isfinite(mean) & np.isfinite(variance)
    logs = np.log(np.maximum(np.asarray(size, np.float64), 1.0))
    if known.any():  # a line says nothing beyond the sizes that it was drawn by
        logs = np.clip(logs, logs[known].min(), logs[known].max())
    design = np.stack([np.ones_like(logs), logs - logs.mean()], axis=1)
    if known.sum() < 3 or logs[known].std() < SPREAD:
        design = design[:, :1]
    x, y, within = design[known], mean[known], np.maximum(variance[known], 1e-12)
    if not len(y):
        nothing = np.zeros(len(mean))
        return Estimate(nothing, np.full(len(mean), np.inf), nothing, 0.0)
    between = 0.0
    line = np.zeros(design.shape[1])
    for _ in range(20):  # weights depend on the variance between, and that on the line
        weights = 1 / (within + between)
        line = np.linalg.lstsq(x * np.sqrt(weights)[:, None], y * np.sqrt(weights), rcond=None)[0]
        rest = (y - x @ line) ** 2
        free = max(len(y) - x.shape[1], 1)
        # Moments, weighted: what clients scatter more than their examples explain.
        scatter = (weights * rest).sum() * len(y) / free
        new = max(0.0, between + (scatter - len(y)) / weights.sum())
        if abs(new - between) <= 1e-9 * max(new, 1e-12):
            break
        between = new
    prior, believed = design @ line, trust * between
    weight, error = np.zeros(len(mean)), np.zeros(len(mean))
    weight[known], error[known] = believed / (believed + within), within
    own = np.where(known, mean, prior)
    # How far the client may be from it: by the line's error, its place among clients, and chance.
    covariance = np.linalg.pinv(x.T @ (x / (within + between)[:, None]))
    of_line = np.einsum("ki,ij,kj->k", design, covariance, design)
    deviation = np.sqrt((1 - weight) ** 2 * (between + of_line) + weight**2 * error)
    return Estimate(prior + weight * (own - prior), deviation, prior, float(between))
