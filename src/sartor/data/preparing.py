"""Tables with words, gaps and dates, as numbers that models take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sartor.data import encoding
from sartor.data.kinds import Date, Kind, dates_in, learn, names_of
from sartor.errors import DataError, nearest
from sartor.types import Floats


@dataclass(frozen=True)
class Preparation:
    """How each column of a table becomes numbers, as learned from some of its rows.

    Attributes:
        kinds: what each column is.

    >>> table = pa.table({"age": [30.0, None, 50.0], "pet": ["cat", "dog", "cat"]})
    >>> found = Preparation.of(table)
    >>> found.for_trees(table).tolist()
    [[30.0, 0.0], [nan, 1.0], [50.0, 0.0]]
    >>> found.tree_names, found.categorical.tolist()
    (('age', 'pet'), [False, True])
    """

    kinds: tuple[Kind, ...]

    @classmethod
    def of(cls, table: Any) -> Preparation:
        """Learn from an Arrow table."""
        return cls(tuple(learn(name, plain(table[name], name)) for name in table.column_names))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it was learned from."""
        return tuple(kind.name for kind in self.kinds)

    @property
    def tree_names(self) -> tuple[str, ...]:
        """Names of the columns for trees."""
        return names_of(self.kinds, linear=False)

    @property
    def linear_names(self) -> tuple[str, ...]:
        """Names of the columns for linear models."""
        return names_of(self.kinds, linear=True)

    @property
    def categorical(self) -> npt.NDArray[np.bool_]:
        """[columns for trees] which of them hold codes, which have no order."""
        several = [kind.categorical for kind in self.kinds for _ in kind.tree_names]
        return np.array(several, np.bool_)

    def for_trees(self, table: Any) -> Floats:
        """The columns for trees, [rows, columns], where gaps are NaN."""
        self.check(table)
        several = [kind.for_trees(self._values(kind, table)) for kind in self.kinds]
        return np.concatenate([np.zeros((len(table), 0)), *several], axis=1)

    def for_linear(self, table: Any) -> Floats:
        """The columns for linear models, [rows, columns], without gaps and on one scale."""
        self.check(table)
        several = [kind.for_linear(self._values(kind, table)) for kind in self.kinds]
        return np.concatenate([np.zeros((len(table), 0)), *several], axis=1)

    def check(self, table: Any) -> None:
        """Refuse a table without some of the columns; others, and another order, are fine."""
        there = list(table.column_names)
        missing = [name for name in self.names if name not in there]
        if missing:
            hint = nearest(missing[0], [name for name in there if name not in self.names] or there)
            raise DataError(
                f"columns that the model was fitted with are missing: {', '.join(missing[:10])}"
                f"{', …' if len(missing) > 10 else ''}; {hint}"
            )

    def attention(self) -> list[tuple[str, str]]:
        """The columns that people should know something of, and what."""
        return [(kind.name, kind.attention) for kind in self.kinds if kind.attention]

    def to_dict(self) -> list[dict[str, Any]]:
        """In plain values."""
        return [kind.to_dict() for kind in self.kinds]

    @classmethod
    def from_dict(cls, tables: Sequence[dict[str, Any]]) -> Preparation:
        """Back from plain values."""
        return cls(tuple(map(Kind.from_dict, tables)))

    def _values(self, kind: Kind, table: Any) -> Any:
        """A column, in a type that its kind takes."""
        values = plain(table[kind.name], kind.name)
        text, date = encoding.is_text(values.type), encoding.is_date(values.type)
        if pa.types.is_null(values.type) or (text and not pc.any(pc.not_equal(values, "")).as_py()):
            empty = pa.timestamp("us") if isinstance(kind, Date) else pa.string()
            return pa.nulls(len(values), empty)
        if kind.categorical and not text:
            return values.cast(pa.string())
        if isinstance(kind, Date) and not date:
            dates = dates_in(values) if text else None
            if dates is None:
                raise DataError(f"column {kind.name!r} was dates before, and is {values.type} now")
            return dates
        return values


def plain(values: Any, name: str = "") -> Any:
    """A column in one piece; categories are looked up, bytes decoded, and periods are dates."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = plain(values.dictionary, name).take(values.indices)
    if getattr(values.type, "extension_name", "") == "pandas.period":  # so pandas is there
        values = pa.array(values.to_pandas().dt.to_timestamp(), from_pandas=True)
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if encoding.is_text(values.type) or any(test(values.type) for test in tests):
        try:
            values = values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {name!r} has texts that are not UTF-8 ({error}); decode them, or leave "
                "the column out"
            ) from error
    return values
