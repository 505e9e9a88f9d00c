"""Empirical Bayes: shrink each client's noisy mean towards what all clients have in common.

The mean over a few held-out examples says little about a client, and the mean over all clients
says nothing about what sets it apart. The posterior mean lies between the two. Its normal prior is
estimated from all clients: a line in the logarithm of the sample size, because local models improve
with more examples, and a variance of the clients around this line.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.types import Floats, Ints

SAME_SIZE = 0.1
"""Log sample sizes with a smaller standard deviation count as equal."""

TINY = 1e-24
"""The least variance of a mean, as a share of the largest squared mean."""


class Posterior(NamedTuple):
    """The posterior of each client's mean: arrays of shape [clients].

    Attributes:
        mean: the posterior mean.
        deviation: the posterior standard deviation.
        prior: the prior mean, which ignores the client's own examples.
        between: the variance of the clients around the prior mean.
        prior_error: the standard error of the prior mean.
    """

    mean: Floats
    deviation: Floats
    prior: Floats
    between: float
    prior_error: Floats


def client_means(
    values: Floats, owner: Ints, clients: int, fold: Ints | None = None
) -> tuple[Floats, Floats]:
    """Each client's mean, and the variance of that mean; NaN for clients without examples.

    All clients share one variance of examples. Losses have long tails, so the variance of a few
    lucky examples would be far too small. Examples of one fold were scored by the same model, and
    may be of one time or group. Where the means of folds scatter more than those of independent
    examples would, their variance is taken.

    >>> client_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)
    (array([2., 5.]), array([1., 2.]))
    """
    counts = np.bincount(owner, minlength=clients).astype(np.float64)
    some = np.where(counts > 0, counts, np.nan)
    mean = np.bincount(owner, values, minlength=clients) / some
    variance = _variance((values - mean[owner]) ** 2, counts)
    if fold is not None and len(fold):
        of_fold = owner * (fold.max() + 1) + fold
        _, block, number = np.unique(of_fold, return_inverse=True, return_counts=True)
        apart = np.bincount(block, values - mean[owner]) ** 2 / number
        whose = np.zeros(len(number), np.int64)
        whose[block] = owner
        variance = max(variance, _variance(apart, np.bincount(whose, minlength=clients)))
    return mean, variance / some


def _variance(squares: Floats, counts: npt.NDArray[Any]) -> float:
    """The variance within clients, by squares of distances from their means."""
    return float(squares.sum()) / max(float(np.maximum(counts - 1, 0).sum()), 1.0)


def posterior(mean: Floats, variance: Floats, size: npt.ArrayLike, trust: float = 1.0) -> Posterior:
    """Shrink the clients' means.

    Args:
        mean: the mean over each client's own examples, [clients]; NaN if it has none.
        variance: the variance of that mean.
        size: each client's number of training examples.
        trust: the share of the variance between clients that the posterior mean uses.
    """
    known = np.isfinite(mean) & np.isfinite(variance)
    if not known.any():
        zeros = np.zeros(len(mean))
        return Posterior(zeros, np.full(len(mean), np.inf), zeros, 0.0, zeros)
    logs = np.log(np.maximum(np.asarray(size, np.float64), 1.0))
    logs = np.clip(logs, logs[known].min(), logs[known].max())  # do not extrapolate the line
    design = np.stack([np.ones_like(logs), logs - logs.mean()], axis=1)
    if known.sum() < 3 or logs[known].std() < SAME_SIZE:
        design = design[:, :1]
    x, y = design[known], mean[known]
    # Variances of nothing are kept from dividing by zero, in whatever unit the means are.
    within = np.maximum(variance[known], TINY * ((y**2).max() or 1.0))
    between = 0.0
    for _ in range(20):  # the weights depend on the variance between, which depends on the line
        weights = 1 / (within + between)
        line = np.linalg.lstsq(x * np.sqrt(weights)[:, None], y * np.sqrt(weights), rcond=None)[0]
        # Weighted moments: how much more the clients scatter than their examples explain.
        residuals = (weights * (y - x @ line) ** 2).sum()
        scatter = residuals * len(y) / max(len(y) - x.shape[1], 1)
        new = max(0.0, between + (scatter - len(y)) / weights.sum())
        if abs(new - between) <= 1e-9 * new:
            break
        between = new
    prior, believed = design @ line, trust * between
    weight, error = np.zeros((2, len(mean)))
    weight[known], error[known] = believed / (believed + within), within
    # Three errors: of the line, of the client's distance from it, and of the client's own mean.
    covariance = np.linalg.pinv(x.T @ (x / (within + between)[:, None]))
    line_error = np.einsum("ki,ij,kj->k", design, covariance, design)
    deviation = np.sqrt((1 - weight) ** 2 * (between + line_error) + weight**2 * error)
    own = np.where(known, mean, prior)
    expected = prior + weight * (own - prior)
    return Posterior(expected, deviation, prior, float(between), np.sqrt(line_error))
