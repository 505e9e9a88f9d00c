"""Lower triangular factors of covariances, as the points that an optimiser moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from sartor.types import Bools, Floats

LARGEST = 1e3
"""Clients differ at most so many times as much as their rows scatter, in columns of unit size.

Beyond that, effects are hardly shrunk, and differences of large numbers would lose all digits.
"""

SMALL = 0.01
"""Where a search begins again that ended below, and should not have."""

Loss = Callable[[list[Any]], tuple[float, Sequence[Any]]]
"""The criterion of some factors, and its gradients in them."""


@dataclass(frozen=True)
class Factors:
    """Lower triangular or diagonal matrices, as vectors.

    Attributes:
        size: rows of the matrix.
        correlated: whether it has entries below the diagonal.
    """

    size: int
    correlated: bool

    @property
    def places(self) -> tuple[Any, ...]:
        """Rows and columns of the entries."""
        return np.tril_indices(self.size) if self.correlated else np.diag_indices(self.size)

    def matrix(self, point: Floats) -> Floats:
        """The matrix of a vector.

        >>> Factors(2, True).matrix(np.array([1.0, 2.0, 3.0])).tolist()
        [[1.0, 0.0], [2.0, 3.0]]
        """
        matrix = np.zeros((self.size, self.size))
        matrix[self.places] = point
        return matrix

    def start(self) -> Floats:
        """Clients that differ as much as their rows scatter, in columns of unit size."""
        return np.eye(self.size)[self.places]

    def diagonal(self) -> Bools:
        """Which entries are on the diagonal."""
        rows, columns = self.places
        return np.asarray(rows == columns)


def least(loss: Loss, several: Sequence[Factors], clients: int) -> list[Any]:
    """The factors with the least criterion.

    Where a factor is zero, its gradient is zero, too: so a search that stepped there stays, even
    if it should not. The gradient a little above says whether it should; if not, a second search
    begins there.

    Args:
        loss: what to minimise.
        several: the kinds of factors.
        clients: how many there are. Criteria and gradients grow with them, and a search takes its
            first step in proportion: so it looks at the criterion of one client.
    """
    ends = np.cumsum([len(factors.start()) for factors in several])[:-1]

    def matrices(point: Floats) -> list[Any]:
        parts = np.split(point, ends)
        return [factors.matrix(part) for factors, part in zip(several, parts, strict=True)]

    def seen(point: Floats) -> tuple[float, Floats]:
        value, gradients = loss(matrices(point))
        slopes = [g[factors.places] for g, factors in zip(gradients, several, strict=True)]
        return value / clients, np.concatenate(slopes) / clients

    diagonal = np.concatenate([factors.diagonal() for factors in several])
    bounds = [(-LARGEST, LARGEST)] * len(diagonal)  # signs say nothing, but zero is no wall
    options = {"ftol": 1e-13, "gtol": 1e-4 / clients**0.5, "maxiter": 200}

    def search(start: Floats) -> Any:
        return optimize.minimize(
            seen, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )

    best = search(np.concatenate([factors.start() for factors in several]))
    low = diagonal & (np.abs(best.x) < SMALL)
    if low.any() and (grows := low & (seen(np.where(low, SMALL, best.x))[1] < 0)).any():
        again = search(np.where(grows, SMALL, best.x))
        best = min(best, again, key=lambda found: float(found.fun))
    return matrices(best.x)


def factor_of(covariance: Floats) -> Floats:
    """The lower triangular factor of a covariance."""
    return np.asarray(np.linalg.cholesky(covariance), np.float64)


def inverse_of(matrices: Floats) -> Floats:
    """The inverses of small matrices, [..., n, n]."""
    return np.asarray(np.linalg.inv(matrices), np.float64)


def times(matrices: Floats, vectors: Floats) -> Floats:
    """Each client's vector, [clients, n], times a matrix: that of all, or of each."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0], np.float64)


def root_of(covariances: Floats) -> Floats:
    """Factors of covariances, [..., n, n], which may be singular."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :], np.float64)
