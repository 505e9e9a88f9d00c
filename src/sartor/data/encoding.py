"""Values of tables and arrays as columns: words become numbers, missing values become errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sartor.data.dataset import ClientData, Column, assemble
from sartor.errors import DataError
from sartor.types import Ints


def text_of(value: Any) -> str:
    """A client's id as a text; a whole number is the same client as an integer or as a float.

    >>> text_of(1005.0), text_of(1005), text_of(b"ann"), text_of(0.5)
    ('1005', '1005', 'ann', '0.5')
    """
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


@dataclass
class Coder:
    """Numbers values in the order of their first appearance, over any number of batches.

    >>> coder = Coder()
    >>> coder.add(pa.array(["b", "a", "b"]), "pet", Place()).tolist(), coder.texts()
    ([0, 1, 0], ['b', 'a'])
    """

    values: dict[Any, int] = field(default_factory=dict)
    batches: list[Ints] = field(default_factory=list)

    def add(self, values: Any, column: str, place: Place) -> Ints:
        """The numbers of some more values."""
        refuse_missing(values, column, place)
        coded = values.dictionary_encode()
        known = self.values
        numbers = [known.setdefault(value, len(known)) for value in coded.dictionary.to_pylist()]
        self.batches.append(np.array(numbers, dtype=np.int64)[coded.indices.to_numpy()])
        return self.batches[-1]

    def codes(self) -> Ints:
        """The numbers of all values that were added."""
        return np.concatenate(self.batches)

    def texts(self) -> list[str]:
        """The values as texts, by number."""
        return [text_of(value) for value in self.values]

    def sorted(self) -> tuple[Column, tuple[str, ...]]:
        """The class numbers of all values, by their sorted order, and the sorted words."""
        names = sorted(self.values)
        rank = np.empty(len(names), dtype=np.int32)
        rank[[self.values[name] for name in names]] = np.arange(len(names))
        return rank[self.codes()], tuple(names)

    def constant(self, owner: Ints, ids: Sequence[str], column: str) -> list[Any]:
        """The one value of each client, of values that were added row by row."""
        codes, values = self.codes(), list(self.values)
        _, first = np.unique(owner, return_index=True)
        for i in np.flatnonzero(codes != codes[first[owner]])[:1]:
            k = owner[i]
            raise DataError(
                f"client {ids[k]!r}, column {column!r}: {values[codes[first[k]]]!r} in row "
                f"{first[k]} but {values[codes[i]]!r} in row {i}; a client needs one value"
            )
        return [values[code] for code in codes[first]]


@dataclass(frozen=True)
class Place:
    """Where a batch lies in its table, to say where a wrong value is."""

    row: int = 0
    owner: Ints | None = None
    clients: Coder = field(default_factory=Coder)

    def of(self, i: int, column: str) -> str:
        """The place of the batch's i-th value."""
        client = "" if self.owner is None else f"client {self.clients.texts()[self.owner[i]]!r}, "
        return f"{client}column {column!r}, row {self.row + i}"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds texts."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def refuse_missing(values: Any, column: str, place: Place) -> None:
    """Nulls, NaN and empty texts are missing values."""
    missing = pc.is_null(values, nan_is_null=True)
    if is_text(values.type):
        missing = pc.or_kleene(missing, pc.equal(values, ""))
    i = pc.index(missing, True).as_py()
    if i >= 0:
        raise DataError(f"{place.of(i, column)}: the value is missing; fill it or drop the row")


def as_column(values: npt.ArrayLike) -> Column:
    """As an array; floats of 64 bits become floats of 32, the accuracy models train in."""
    array = np.asarray(values)
    with np.errstate(over="ignore"):  # infinities are refused later, by client and row
        return array.astype(np.float32) if array.dtype == np.float64 else array


def as_arrow(values: npt.ArrayLike, name: str) -> Any:
    """As an Arrow array."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{name}: one value for each row is needed, got shape {array.shape}")
    try:
        return pa.array(array if array.dtype.kind in "biuf" else array.tolist())
    except pa.ArrowException as error:
        raise DataError(f"{name}: values of one type are needed ({error})") from error


def finish(
    columns: Mapping[str, Column], owner: Ints, clients: Coder, metadata: Mapping[str, Any]
) -> ClientData:
    """Number labels that are words, then assemble."""
    columns, label_names = dict(columns), None
    if "y" in columns and columns["y"].dtype.kind in "OUT":
        words, texts = Coder(), as_arrow(columns["y"], "y")
        if not is_text(texts.type) and not pa.types.is_null(texts.type):
            raise DataError(f"column 'y': labels must be numbers or words, got {texts.type}")
        words.add(texts, "y", Place(0, owner, clients))
        columns["y"], label_names = words.sorted()
    return assemble(columns, owner, clients.texts(), metadata=metadata, label_names=label_names)
