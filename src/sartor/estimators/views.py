"""What an estimator sees of a table: numbers for trees, numbers for linear models, or the frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from sartor.data.preparing import Preparation
from sartor.estimators.frames import Table
from sartor.estimators.rows import Rows
from sartor.types import Floats, Ints

Sees = Literal["trees", "linear", "frame"]


@dataclass(frozen=True, eq=False)
class View:
    """How tables become rows.

    Attributes:
        sees: what the estimator takes.
        preparation: what was learned of the columns.
    """

    sees: Sees
    preparation: Preparation

    def categories(self, most: int) -> tuple[int, ...]:
        """The columns for trees that hold codes of categories, if they have no more than most."""
        if self.sees != "trees":
            return ()
        several = [len(getattr(kind, "levels", ())) for kind in self.preparation.kinds
                   for _ in kind.tree_names]  # fmt: skip
        codes = self.preparation.categorical & (np.array(several, np.int64) <= most)
        return tuple(np.flatnonzero(codes).tolist())

    @classmethod
    def learn(cls, table: Table, estimator: Any, columns: Literal["auto"] | None) -> View:
        """Learn from training rows.

        Pipelines prepare columns themselves. Estimators that allow gaps get the columns for trees,
        and all others those for linear models.
        """
        preparation = Preparation.of(table.features)
        if columns is None or isinstance(estimator, Pipeline):
            return cls("frame", preparation)
        trees = estimator is None or get_tags(estimator).input_tags.allow_nan
        return cls("trees" if trees else "linear", preparation)

    def rows(
        self, table: Table, owner: Ints, y: Floats, weight: Floats | None = None,
        second: Ints | None = None,
    ) -> Rows:  # fmt: skip
        """The rows of a table."""
        found = self.preparation.for_linear(table.features)
        linear = np.concatenate([np.ones((len(found), 1)), found], axis=1)
        if self.sees == "trees":
            x: Any = self.preparation.for_trees(table.features)
        else:
            x = found if self.sees == "linear" else table.frame
        return Rows(x, linear, owner, y, weight, second)
