"""Closed forms of the label discrepancy (section 2.3): disc_H(D1, D2) = max_h |L_D1(h) − L_D2(h)|.

Distributions are samples, or their moments or label frequencies. All computations are in float64 on
the host. Leading axes hold many pairs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.checking import Positive, checks_arguments
from sartor.errors import DataError
from sartor.theory.bound import check_largest_loss
from sartor.types import Bools, Floats

ITERATIONS = 200
"""Of bisection: more than a float64 has bits."""


def finite(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """The discrepancy of a finite class, from the mean loss of each hypothesis: [..., hypotheses].

    >>> float(finite([0.1, 0.5], [0.3, 0.4]).round(3))
    0.2
    """
    return np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64)).max(axis=-1)


def constants(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """The discrepancy of constant predictors with the 0-1 loss: max_y |D1(y) − D2(y)|.

    The arguments are label frequencies.

    >>> float(constants([0.5, 0.5, 0.0], [0.2, 0.5, 0.3]).round(3))
    0.3
    """
    return finite(1 - _shares(first), 1 - _shares(second))


def thresholds(
    first: tuple[npt.ArrayLike, npt.ArrayLike], second: tuple[npt.ArrayLike, npt.ArrayLike]
) -> float:
    """The discrepancy of threshold classifiers, h(x) = 1 if (x − t)·s > 0, with the 0-1 loss.

    The arguments are samples (x, y). The loss changes only where t passes a sample, and the
    opposite sign s has 1 minus that loss. So each place between two samples has one difference.

    >>> x = [-1.0, 1.0]
    >>> thresholds((x, [0, 1]), (x, [1, 0]))
    1.0
    """
    start, places, changes = 0.0, [], []
    for sign, (x, y) in ((1, first), (-1, second)):
        values, labels = np.asarray(x, np.float64), np.asarray(y)
        if values.ndim != 1 or values.shape != labels.shape or not len(values):
            raise DataError("thresholds: give numbers x and a label y for each, at least one")
        if not np.isin(labels, (0, 1)).all():
            raise DataError(f"thresholds: labels are 0 or 1, got {np.unique(labels)[:5]}")
        # With t below all samples, h is 1 everywhere. Passing a sample corrects or spoils it.
        start += sign * float(np.mean(labels == 0))
        places.append(values)
        changes.append(sign * (2.0 * labels - 1) / len(values))
    place, change = np.concatenate(places), np.concatenate(changes)
    order = np.argsort(place)
    last = np.append(np.diff(place[order]) > 0, True)  # equal samples are passed together
    passed = start + np.cumsum(change[order])[last]
    return float(max(abs(start), np.abs(passed).max()))


class Moments(NamedTuple):
    """The moments of a distribution that decide the squared loss of linear models.

    Attributes:
        xx: E[x·xᵀ], [..., features, features]; x ends with a 1 if there is an intercept.
        xy: E[x·yᵀ], [..., features, outputs].
        yy: E[|y|²], [...].
    """

    xx: Floats
    xy: Floats
    yy: Floats

    @classmethod
    def of(cls, x: npt.ArrayLike, y: npt.ArrayLike, *, intercept: bool = False) -> Moments:
        """The moments of samples [n, features] and [n] or [n, outputs]."""
        inputs, outputs = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if not len(inputs) or len(inputs) != len(outputs):
            raise DataError(f"Moments: {len(inputs)} inputs and {len(outputs)} outputs")
        inputs, outputs = inputs.reshape(len(inputs), -1), outputs.reshape(len(outputs), -1)
        if intercept:
            inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        n = len(inputs)
        xx, xy = inputs.T @ inputs / n, inputs.T @ outputs / n
        return cls(xx, xy, np.asarray((outputs**2).sum() / n))


@checks_arguments
def linear(first: Moments, second: Moments, radius: Positive) -> Floats:
    """The discrepancy of linear models h(x) = wᵀx, |w| ≤ radius, with the squared loss.

    The difference of losses is wᵀMw − 2bᵀw + c, a quadratic that may be neither convex nor
    concave. Its largest and smallest values over a ball are trust-region problems.

    >>> a, b = Moments.of([[1.0], [1.0]], [1.0, 1.0]), Moments.of([[1.0]], [0.0])
    >>> float(linear(a, b, radius=3.0))  # |1 − 2w|, largest at w = −3
    7.0
    """
    matrix, vector = first.xx - second.xx, second.xy - first.xy
    rest = first.yy - second.yy
    above = rest + maximum_in_ball(matrix, vector, radius)
    below = -rest + maximum_in_ball(-matrix, -vector, radius)
    return np.maximum(above, below)


def maximum_in_ball(matrix: Floats, vector: Floats, radius: float) -> Floats:
    """The largest wᵀMw + 2bᵀw over |w| ≤ radius, exactly, also where M is not definite.

    At the maximum (νI − M)w = b, where ν ≥ 0 is at least M's largest eigenvalue. The norm of w
    falls with ν, so bisection finds ν. In the hard case, where b is orthogonal to the eigenspace of
    the largest eigenvalue, w goes as far into that space as the ball allows.

    Args:
        matrix: M, symmetric: [..., n, n].
        vector: b: [..., n], or [..., n, k] for k vectors w that share the ball.
        radius: radius of the ball.
    """
    b = vector[..., None] if vector.ndim == matrix.ndim - 1 else vector
    values, basis = np.linalg.eigh(matrix)
    beta2 = ((np.swapaxes(basis, -1, -2) @ b) ** 2).sum(axis=-1)  # [..., n]
    least = np.maximum(values[..., -1], 0.0)
    below = least[..., None] - values

    def parts(t: Floats) -> Floats:
        """|w|² in each direction of M's basis, for ν = least + t: [..., n]."""
        gap = t[..., None] + below
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(beta2 > 0, beta2 / gap**2, 0.0)

    # The bisection is for t, not for ν: a small t would be lost next to a large eigenvalue.
    far = np.sqrt(beta2.sum(axis=-1)) / radius
    part = parts(_bisect(lambda t: parts(t).sum(axis=-1) > radius**2, far))
    total = part.sum(axis=-1)
    inside = np.minimum(total, radius**2)
    part *= np.divide(inside, total, out=np.ones_like(inside), where=total > 0)[..., None]
    # wᵀMw + 2bᵀw with w = (νI − M)⁻¹b, in M's basis. The rest of the ball goes to the largest
    # eigenvalue (the hard case).
    value = (part * values).sum(axis=-1) + 2 * np.sqrt(part * beta2).sum(axis=-1)
    return np.asarray(value + least * (radius**2 - inside))


@checks_arguments
def categorical(first: npt.ArrayLike, second: npt.ArrayLike, bound: Positive) -> Floats:
    """The discrepancy of densities over symbols, with the log-loss and probabilities ≥ e^−bound.

    The difference of losses is Σ_y c_y·log h(y) with c = D2 − D1. At its maximum, symbols with
    c ≤ 0 have the least probability, and the others share the rest in proportion to c.

    Args:
        first: frequencies of the symbols in D1: [..., symbols].
        second: those in D2.
        bound: the largest loss.
    """
    a, b = _shares(first), _shares(second)
    check_largest_loss(bound, a.shape[-1])
    if a.shape[-1] < 2:
        return np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    return np.maximum(_most(b - a, bound), _most(a - b, bound))


def _most(weights: Floats, bound: float) -> Floats:
    """The largest Σ c_y·log h(y) over densities with h ≥ e^−bound."""
    floor, symbols = math.exp(-bound), weights.shape[-1]
    positive = np.maximum(weights, 0.0)
    # h_y = max(floor, c_y/ν), where ν is such that they add up to 1.
    rest = max(1 - symbols * floor, 0.0)
    most = positive.max(axis=-1) / floor if rest == 0 else positive.sum(axis=-1) / rest

    def shares(nu: Floats) -> Floats:
        return positive / np.where(nu > 0, nu, 1.0)[..., None]

    share = shares(_bisect(lambda nu: np.maximum(shares(nu), floor).sum(axis=-1) > 1, most))
    log_h = np.maximum(np.log(np.where(share > 0, share, 1.0)), -bound)
    return np.asarray((weights * np.where(share > 0, log_h, -bound)).sum(axis=-1))


def _bisect(too_small: Callable[[Floats], Bools], high: Floats) -> Floats:
    """The smallest number from 0 to ``high`` that is not too small, for each entry."""
    low = np.zeros_like(high)
    for _ in range(ITERATIONS):
        middle = (low + high) / 2
        small = too_small(middle)
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return high


def _shares(frequencies: npt.ArrayLike) -> Floats:
    shares = np.asarray(frequencies, np.float64)
    total = shares.sum(axis=-1, keepdims=True)
    if (shares < 0).any() or not (total > 0).all():
        raise DataError("frequencies must be at least 0, and some of them more; a client is empty")
    return shares / total


def label_frequencies(y: Any, classes: int) -> Floats:
    """The share of each label."""
    labels = np.asarray(y).reshape(-1)
    if not len(labels):
        raise DataError("there are no labels; leave empty clients out")
    return np.bincount(labels.astype(np.int64), minlength=classes).astype(np.float64) / len(labels)
