"""Lower triangular factors of covariances, as the points that an optimiser moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.types import Floats


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

    def seen(self, value: float, gradient: Floats) -> tuple[float, Floats]:
        """A value, and its gradient in the entries that there are."""
        return value, gradient[self.places]

    def start(self) -> Floats:
        """Clients that differ as much as their rows scatter, in columns of unit size."""
        return np.eye(self.size)[self.places]

    def bounds(self) -> list[tuple[float | None, None]]:
        """The diagonal is not negative, as signs say nothing."""
        rows, columns = self.places
        return [(0.0 if i == j else None, None) for i, j in zip(rows, columns, strict=True)]


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
