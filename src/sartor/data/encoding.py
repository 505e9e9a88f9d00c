"""Values of tables and arrays as columns: words become numbers, missing values become errors."""

from collections.abc import Mapping, Sequence
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


def numbered(values: Any, column: str, clients: Any = None) -> tuple[Ints, list[Any]]:
    """Number the values of an Arrow column in the order of their first appearance.

    Args:
        values: the values; none may be missing.
        column: the column's name, for an error.
        clients: the client of each row, if it is known, for an error.

    >>> codes, values = numbered(as_arrow(["b", "a", "b"], "pet"), "pet")
    >>> codes.tolist(), values
    ([0, 1, 0], ['b', 'a'])
    """
    refuse_missing(values, column, clients)
    if not len(values):  # perhaps of Arrow's null type, which has no dictionaries
        return np.zeros(0, np.int64), []
    coded = values.dictionary_encode().combine_chunks()
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist()


def numbered_words(values: Any, column: str, clients: Any) -> tuple[Column, tuple[str, ...]]:
    """Number words in their sorted order, and list them."""
    codes, words = numbered(values, column, clients)
    names, rank = np.unique(np.array(words, dtype=object), return_inverse=True)
    return rank.astype(np.int32)[codes], tuple(names)


def constant(values: Any, column: str, owner: Ints, clients: Any) -> list[Any]:
    """The one value of each client, of an Arrow column with one for each row."""
    codes, found = numbered(values, column, clients)
    _, first = np.unique(owner, return_index=True)
    for i in np.flatnonzero(codes != codes[first[owner]])[:1]:
        k = first[owner[i]]
        raise DataError(
            f"client {text_of(clients[i].as_py())!r}, column {column!r}: {found[codes[k]]!r} in "
            f"row {k} but {found[codes[i]]!r} in row {i}; a client needs one value"
        )
    return [found[code] for code in codes[first]]


def place(i: int, column: str, clients: Any = None, row: int = 0) -> str:
    """Where the i-th value of a batch is that begins at a row of its table, for an error."""
    client = "" if clients is None else f"client {text_of(clients[i].as_py())!r}, "
    return f"{client}column {column!r}, row {row + i}"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds texts."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def refuse_missing(values: Any, column: str, clients: Any = None, row: int = 0) -> None:
    """Nulls, NaN and empty texts are missing values; an error names the :func:`place`."""
    missing = pc.is_null(values, nan_is_null=True)
    if is_text(values.type):
        missing = pc.or_kleene(missing, pc.equal(values, ""))
    i = pc.index(missing, True).as_py()
    if i >= 0:
        where = place(i, column, clients, row)
        raise DataError(f"{where}: the value is missing; fill it or drop the row")


def as_column(values: npt.ArrayLike) -> Column:
    """As an array; floats of 64 bits become floats of 32, the accuracy models train in."""
    array = np.asarray(values)
    with np.errstate(over="ignore"):  # infinities are refused later, by client and row
        return array.astype(np.float32) if array.dtype == np.float64 else array


def as_arrow(values: npt.ArrayLike, name: str) -> Any:
    """As an Arrow column."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{name}: one value for each row is needed, got shape {array.shape}")
    try:
        return pa.chunked_array([array if array.dtype.kind in "biuf" else array.tolist()])
    except pa.ArrowException as error:
        raise DataError(f"{name}: values of one type are needed ({error})") from error


def finish(
    columns: Mapping[str, Column], owner: Ints, ids: Sequence[str], metadata: Mapping[str, Any]
) -> ClientData:
    """Number labels that are words, then assemble."""
    columns, label_names = dict(columns), None
    if columns["y"].dtype.kind in "OUT":
        words = as_arrow(columns["y"], "y")
        if not is_text(words.type) and not pa.types.is_null(words.type):
            raise DataError(f"column 'y': labels must be numbers or words, got {words.type}")
        clients = pa.DictionaryArray.from_arrays(owner, ids)
        columns["y"], label_names = numbered_words(words, "y", clients)
    return assemble(columns, owner, ids, metadata=metadata, label_names=label_names)
