"""Features on one scale: the statistics that a model's features are scaled by.

Step sizes depend on the scale of features: a column in milliseconds makes training diverge, and one
in kilometres makes it crawl. So the ready models take features that are centred and scaled by
statistics of the training parts. Whitened features are also uncorrelated. That changes the path of
training, and not what a linear model can express.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from sartor.types import Floats, Ints

if TYPE_CHECKING:
    from sartor.data.dataset import ClientData

Scale = Literal["standardize", "whiten"]

MOST_WHITENED = 64
"""Features up to which all of them are made uncorrelated: their correlations are sent and saved."""

SMALLEST = 1e-6
"""Directions with a smaller share of the variance hold rounding errors, and are left out."""

_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class Scaling:
    """Turns features x into (x − shift) · matrix; or times a vector, feature by feature.

    Attributes:
        shift: [features] their means.
        matrix: [features] the inverse standard deviations, or [features, features].

    >>> Scaling(np.array([1.0]), np.array([0.5]))(np.array([[3.0], [1.0]])).tolist()
    [[1.0], [0.0]]
    """

    shift: Floats
    matrix: Floats

    def __post_init__(self) -> None:
        features = self.shift.shape
        if len(features) != 1 or self.matrix.shape not in (features, features * 2):
            raise ValueError(f"a scaling of shapes {features} and {self.matrix.shape}")

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Examples [n, features], scaled."""
        centred = np.asarray(x, np.float64) - self.shift
        scaled = centred * self.matrix if self.matrix.ndim == 1 else centred @ self.matrix
        with np.errstate(over="ignore"):  # infinite, as what is too large for 32 bits is
            return scaled.astype(np.float32)

    @property
    def digest(self) -> str:
        """A hash of its numbers."""
        digest = hashlib.blake2b(self.shift.tobytes(), digest_size=16)
        digest.update(self.matrix.tobytes())
        return digest.hexdigest()

    @property
    def bytes_up(self) -> int:
        """What a client sends for it: its number of examples, sums, and sums of products."""
        features, products = len(self.shift), self.matrix.size
        return 8 * (
            1 + features + (products if self.matrix.ndim == 1 else products // 2 + features)
        )

    def to_dict(self) -> dict[str, Any]:
        """In plain values."""
        return {"shift": self.shift.tolist(), "matrix": self.matrix.tolist()}

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> Scaling:
        """Back from plain values."""
        return cls(np.array(table["shift"], np.float64), np.array(table["matrix"], np.float64))

    @classmethod
    def of(cls, data: ClientData, scale: Scale) -> Scaling:
        """By the statistics of the seen clients' training parts.

        >>> from sartor.data import from_arrays
        >>> data = from_arrays([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]], [0, 1, 1], ["a", "a", "b"])
        >>> Scaling.of(data, "standardize").shift.tolist()
        [3.0, 20.0]
        """
        rows = _training_rows(data)
        x = data.columns["x"]
        features = x.shape[1]
        whiten = scale == "whiten" and features <= MOST_WHITENED
        total, shift = np.zeros(features), np.zeros(features)
        products = np.zeros((features, features) if whiten else features)
        for begin in range(0, len(rows), _ROWS):
            total += np.asarray(x[rows[begin : begin + _ROWS]], np.float64).sum(axis=0)
        shift = total / len(rows)
        for begin in range(0, len(rows), _ROWS):  # a second pass: large offsets would cancel
            centred = np.asarray(x[rows[begin : begin + _ROWS]], np.float64) - shift
            products += centred.T @ centred if whiten else (centred**2).sum(axis=0)
        covariance = products / len(rows)
        variance = np.diag(covariance) if whiten else covariance
        # A constant feature says nothing, and its rounding errors should not either.
        constant = variance <= (1e-6 * np.abs(shift)) ** 2
        inverse = np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, variance)))
        if not whiten:
            return cls(shift, inverse)
        values, vectors = np.linalg.eigh(covariance * inverse * inverse[:, None])
        kept = values > SMALLEST * max(float(values.max(initial=0.0)), 1e-300)
        root = vectors[:, kept] / np.sqrt(values[kept])
        return cls(shift, inverse[:, None] * (root @ vectors[:, kept].T))


def _training_rows(data: ClientData) -> Ints:
    """The rows of the seen clients' training parts; of all clients, if none is seen."""
    clients = np.flatnonzero(data.seen) if data.seen.any() else np.arange(len(data))
    sizes = data.sizes("train")
    if len(clients) == len(data) and int(sizes.sum()) == len(data.rows):
        return np.asarray(data.rows)
    return np.concatenate([data.part(int(k)) for k in clients])
