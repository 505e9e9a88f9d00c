"""What users may give as data: as columns, in which words become numbers.

Everything that is neither numbers nor words, or is missing, becomes an error that says what to do.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sartor.checking import shown
from sartor.data.dataset import ClientData, Column, assemble
from sartor.data.dataset import text_of as text_of  # of all that users give, ids are texts
from sartor.errors import DataError
from sartor.types import Floats, Ints


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
    refuse_nested(values.type, column)
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


def refuse_nested(kind: Any, column: str) -> None:
    """Refuse ids, domains and metadata that are lists, tables or intervals."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        raise DataError(
            f"column {column!r} holds {kind}, and one text or number for each row is needed; make "
            "texts of it"
        )


def is_date(kind: Any) -> bool:
    """Whether an Arrow type holds dates, with or without the time of day."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def as_times(values: Any, column: str, clients: Any = None) -> Floats:
    """An Arrow column of dates, which may be texts, as seconds, and of numbers as they are.

    >>> as_times(as_arrow(["2026-11-18", "2026-11-18 00:01:00"], "date"), "date").tolist()
    [1794960000.0, 1794960060.0]
    """
    refuse_missing(values, column, clients)
    if is_text(values.type):
        values = _dates(values, column, clients)
    if is_date(values.type):
        fine = pa.types.is_timestamp(values.type) and values.type.unit == "ns"  # which are cut off
        values = values.cast(pa.timestamp("us"), safe=not fine).cast(pa.int64())
        return np.asarray(values, np.float64) / 1e6
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{column}: a date or a number is needed for each row, got {values.type}"
        ) from error


def _dates(values: Any, column: str, clients: Any) -> Any:
    """Texts as dates; all of them say their time zone, or none does."""
    # Nanoseconds, where texts have them, leave room for a few hundred years only.
    kinds = [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
    for kind in kinds:
        if _castable(values, kind):
            return values.cast(kind)
    kind = next((kind for kind in kinds if _castable(values[:1], kind)), kinds[0])
    good, wrong = 0, len(values)  # the first text that is no date is in between
    while wrong - good > 1:
        middle = (good + wrong) // 2
        good, wrong = (middle, wrong) if _castable(values[:middle], kind) else (good, middle)
    like = " like those before it" if good else ""
    raise DataError(
        f"{place(good, column, clients)}: {shown(values[good].as_py())} is no date{like}; write "
        "all as 2026-11-18 or 2026-11-18 09:30:00, or make dates of them, such as by pd.to_datetime"
    )


def _castable(values: Any, kind: Any) -> bool:
    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def whole(ids: Sequence[str]) -> list[str]:
    """Ids as texts, without ".0" if all are whole numbers, as pandas writes them beside gaps.

    >>> whole(["7.0", "12.0"]), whole(["7.0", "7.5"])
    (['7', '12'], ['7.0', '7.5'])
    """
    floats = all(word.endswith(".0") and word[:-2].lstrip("-").isdecimal() for word in ids)
    return [word.removesuffix(".0") for word in ids] if floats else list(ids)


def missing(values: Any) -> Any:
    """Which values are missing: nulls, NaN and empty texts."""
    found = pc.is_null(values, nan_is_null=True)
    if is_text(values.type):
        found = pc.or_kleene(found, pc.equal(values, "")).fill_null(True)
    return found


def refuse_missing(values: Any, column: str, clients: Any = None, row: int = 0) -> None:
    """Refuse values that are missing; an error names the :func:`place`."""
    i = pc.index(missing(values), True).as_py()
    if i >= 0:
        where = place(i, column, clients, row)
        raise DataError(f"{where}: the value is missing; fill it or drop the row")


def as_column(values: npt.ArrayLike, name: str) -> Column:
    """What a user gives as a column: as an array of numbers, or of words.

    >>> as_column([[1, 2], [3]], "x")
    Traceback (most recent call last):
        ...
    sartor.errors.DataError: column 'x' has rows of different lengths; make them equal
    """
    array = _as_array(values, name)
    if array.dtype.kind == "O":
        array = _of_objects(array, name)
    if array.dtype.kind in REMEDIES:
        raise DataError(f"column {name!r} holds {array.dtype}: {REMEDIES[array.dtype.kind]}")
    if array.ndim > 1 and len(array) and not array[:1].size:
        raise DataError(
            f"column {name!r} has no values in a row (its shape is {array.shape}); give some, or "
            "leave it out"
        )
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64)
    return array


def _as_array(values: Any, name: str) -> Column:
    """An array of whatever can be one, in the byte order of this machine; bytes are texts."""
    if hasattr(values, "toarray"):
        raise DataError(f"column {name!r} is sparse; make it dense, such as by .toarray()")
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise DataError(f"column {name!r} has masked values; fill them or drop the rows")
        values = values.data
    kinds = set(map(type, values)) if isinstance(values, list | tuple) else set()
    words = next((kind for kind in (str, bytes) if any(issubclass(k, kind) for k in kinds)), None)
    if words and not all(issubclass(k, words | NoneType) for k in kinds):  # numpy would mix them
        several = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(f"column {name!r}: values of one type are needed (got {several})")
    try:
        # As objects, since the texts of numpy end before a NUL.
        array = np.array(values, object) if words else np.asarray(values)
    except Exception as error:  # whatever the object does when it is made an array
        if "inhomogeneous" in str(error):
            raise DataError(
                f"column {name!r} has rows of different lengths; make them equal"
            ) from None
        raise DataError(f"column {name!r} is no array: {error}") from error
    if array.dtype.kind == "S" or (array.dtype.kind == "O" and _all_are(bytes, array)):
        return np.array([text_of(word) for word in array.ravel()]).reshape(array.shape)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _all_are(kind: type, array: Column) -> bool:
    return bool(array.size) and all(isinstance(value, kind) for value in array.ravel())


DATES = (
    "dates and times are no numbers; give for instance the days since a date, "
    "(time - start) / numpy.timedelta64(1, 'D')"
)
REMEDIES = {
    "M": DATES,
    "m": "spans of time are no numbers; divide them by a unit, such as numpy.timedelta64(1, 's')",
    "c": "complex numbers cannot be used; give the real and the imaginary part as two columns",
    "V": "arrays with named fields cannot be used; give a dict of columns, or a frame",
}
"""What to do with values that are no column, by the kind of numpy's type."""


def _of_objects(array: Column, name: str) -> Column:
    """Python's objects as numbers, with NaN for what is missing; or as they are if they are words.

    Decimals become floats.
    """
    there = [value for value in array.ravel() if not _is_missing(value)]
    if all(isinstance(value, str) for value in there):
        return array
    for value in there:
        if isinstance(value, datetime.date | datetime.time):
            raise DataError(f"column {name!r} holds {value!r}: {DATES}")
        if isinstance(value, Integral) and not -(2**63) <= int(value) < 2**63:
            raise DataError(f"column {name!r} holds {value}, which does not fit 64 bits; scale it")
        if not isinstance(value, Real | Decimal):
            raise DataError(
                f"column {name!r} holds {shown(value)}, of type {type(value).__name__}, where "
                "numbers or words are needed; encode it as numbers, with one type in a column"
            )
    numbers = [np.nan if _is_missing(value) else value for value in array.ravel()]
    kind = np.int64 if all(isinstance(value, Integral) for value in numbers) else np.float64
    return np.array(numbers, object).astype(kind).reshape(array.shape)


def _is_missing(value: Any) -> bool:
    """Whether it is None, a NaN, or the NA of pandas, which is not even equal to itself."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | Decimal) and bool(value != value)


def as_arrow(values: npt.ArrayLike, name: str) -> Any:
    """What a user gives with one value for each row (ids, words, domains), as an Arrow column."""
    array = _as_array(values, name)
    if array.ndim != 1:
        raise DataError(f"{name}: one value for each row is needed, got {shown(values)}")
    if array.dtype.kind in "cV":
        raise DataError(f"{name}: {REMEDIES[array.dtype.kind]}")
    try:
        plain = array if array.dtype.kind in "biufmM" else array.tolist()
        found = pa.chunked_array([pa.array(plain, from_pandas=True)])  # where NaT is missing
    except Exception as error:  # of Arrow's, and whatever the values do
        raise DataError(f"{name}: values of one type are needed ({error})") from error
    refuse_nested(found.type, name)
    return found


def finish(
    columns: Mapping[str, Column], owner: Ints, ids: Sequence[str], metadata: Mapping[str, Any]
) -> ClientData:
    """Number labels that are words, then assemble."""
    columns, label_names = dict(columns), None
    if columns["y"].dtype.kind in "OUT":
        words = as_arrow(columns["y"], "y")
        clients = pa.DictionaryArray.from_arrays(owner, ids)
        columns["y"], label_names = numbered_words(words, "y", clients)
    return narrowed(assemble(columns, owner, ids, metadata=metadata, label_names=label_names))


def narrowed(data: ClientData) -> ClientData:
    """With floats of 64 bits as floats of 32, the accuracy models train in."""
    wide = {n: c.astype(np.float32) for n, c in data.columns.items() if c.dtype == np.float64}
    return dataclasses.replace(data, columns={**data.columns, **wide}) if wide else data
