"""Rows of a table, as numbers: what every approach is fitted to, and what it predicts for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing

from sartor.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table.

    Attributes:
        x: what the central estimator takes: an array or a frame.
        linear: [rows, columns] for linear models: a column of ones, and others on one scale.
        owner: [rows] the number of each row's client; −1 for clients that the fit has not seen.
        y: [rows] the label: a target, or the number of a class.
        weight: [rows] how much each row counts; ``None`` if all count the same.
        second: [rows] the level of each row in a second grouping; −1 for unknown ones. ``None``
            if there is none.
    """

    x: Any
    linear: Floats
    owner: Ints
    y: Floats
    weight: Floats | None
    second: Ints | None = None

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, which: npt.NDArray[Any]) -> Rows:
        """Some rows, by a mask or by numbers."""
        which = np.flatnonzero(which) if which.dtype == np.bool_ else which
        x = _safe_indexing(self.x, which)
        weight = None if self.weight is None else self.weight[which]
        second = None if self.second is None else self.second[which]
        return Rows(x, self.linear[which], self.owner[which], self.y[which], weight, second)
