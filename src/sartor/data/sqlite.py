"""Federated data in SQLite: TensorFlow Federated's examples, and FedJAX's clients.

TensorFlow Federated keeps one row for each example, a serialized ``tf.train.Example``, in the table
`examples(split_name, client_id, serialized_example_proto)`, beside `client_metadata(client_id,
split_name, num_examples)`. FedJAX keeps one row for each client, in `federated_data(client_id,
data, num_examples)`, where data is a dictionary of arrays in msgpack, compressed by zlib.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from sartor.data.dataset import PARTS, ClientData
from sartor.data.example_proto import parse_example
from sartor.data.federated import (
    Arrays,
    Columns,
    Part,
    as_labels,
    check_columns,
    check_sizes,
    native,
    parts_bytes,
    read_parts,
    reading,
)
from sartor.errors import DataError, FileError

_ERRORS = (
    sqlite3.Error, zlib.error, ValueError, TypeError, KeyError, OverflowError,
    SyntaxError, msgpack.UnpackException,
)  # fmt: skip
"""What damaged files raise."""

_MOST = 1 << 30
"""Bytes of a client of FedJAX when it is decompressed, lest a small file fill the memory."""

_ARRAY = 1
"""The code of an array in FedJAX's msgpack: (shape, type, bytes)."""

SHAPES = {"pixels": (28, 28)}
"""Examples are flat lists of numbers; what has another shape, by its name."""


def read_sqlite(path: str | os.PathLike[str], store: Path | None = None) -> ClientData:
    """Client data from a file, or a directory with one, or `*_train.sqlite` and `*_test.sqlite`.

    One file of TensorFlow Federated holds the splits `train` and `test` (or `all_train` and
    `all_test`), each of which becomes a part.
    """
    return read_parts(sqlite_parts(Path(path)), store)


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as SQLite's files do."""
    with path.open("rb") as handle:
        return handle.read(16) == b"SQLite format 3\0"


def sqlite_bytes(path: Path) -> int:
    """The size of a dataset in memory, before pixels are turned to bytes."""
    return parts_bytes(sqlite_parts(path))


def sqlite_parts(path: Path) -> list[Part]:
    """The parts of a dataset."""
    files = [("train", path)]
    if path.is_dir():
        files = [(p, file) for p in PARTS for file in sorted(path.glob(f"*_{p}.sqlite"))]
        alone = list(path.glob("*.sqlite"))
        if not files and len(alone) == 1:
            files = [("train", alone[0])]  # as TensorFlow Federated has it, all parts in one file
        if len({part for part, _ in files}) < len(files):
            raise FileError(f"{path}: holds several datasets; keep one in a directory")
        if not files or files[0][0] != "train":
            raise FileError(f"{path}: no file *_train.sqlite in it; name a single file instead")
    parts: list[Part] = []
    for part, file in files:
        tables = _tables(file)
        if "federated_data" in tables:
            parts.append(FedJaxPart(file, part))
        elif {"examples", "client_metadata"} <= tables:
            parts += _tff_parts(file)
        else:
            raise DataError(
                f"{file}: has the tables {sorted(tables)}; needed are `examples` and "
                "`client_metadata` as TensorFlow Federated has them, or `federated_data` as FedJAX"
            )
    return parts


class TffPart:
    """One split of a file of TensorFlow Federated."""

    def __init__(self, file: Path, part: str, split: str) -> None:
        self.file, self.part, self._split = file, part, split
        rows = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?"
        with reading(file, None, *_ERRORS), _opened(file) as data:
            found = data.execute(f"{rows} ORDER BY client_id", [split]).fetchall()
            self.sizes = _sizes(file, found)
        self._keys = {_text(client): client for client, _ in found}  # text or bytes, as they are
        self.columns: Columns = {}
        for _, arrays in self._rows():
            self.columns = {name: (a.dtype, a.shape[1:]) for name, a in arrays.items()}
            break
        check_sizes(self)

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        yield from self._rows()

    def _rows(self) -> Iterator[tuple[str, Arrays]]:
        query = (
            "SELECT serialized_example_proto FROM examples WHERE split_name = ? AND client_id = ? "
            "ORDER BY rowid"
        )
        first = next(iter(self.sizes), None)
        with reading(self.file, None, *_ERRORS), _opened(self.file) as data:
            for client, size in self.sizes.items():
                with reading(self.file, client, *_ERRORS):
                    key = [self._split, self._keys[client]]
                    rows = [parse_example(row) for (row,) in data.execute(query, key)]
                    if not rows:
                        raise ValueError("there are no examples")
                    arrays = {n: _column(n, [row[n] for row in rows]) for n in sorted(rows[0])}
                    label = arrays.get("label", np.zeros(0))
                    if label.ndim == 1 and label.dtype.kind == "i":  # others: of a regression
                        arrays["label"] = as_labels(self.file, client, label)
                _check(self.file, client, arrays, self.columns, first, size)
                yield client, arrays


class FedJaxPart:
    """A file of FedJAX."""

    def __init__(self, file: Path, part: str) -> None:
        self.file, self.part = file, part
        query = "SELECT client_id, num_examples FROM federated_data ORDER BY rowid"
        with reading(file, None, *_ERRORS), _opened(file) as data:
            self.sizes = _sizes(file, data.execute(query))
        self.columns: Columns = {}
        for _, arrays in self._rows():
            self.columns = {name: (a.dtype, a.shape[1:]) for name, a in sorted(arrays.items())}
            break
        check_sizes(self)

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        yield from self._rows()

    def _rows(self) -> Iterator[tuple[str, Arrays]]:
        query = "SELECT client_id, data FROM federated_data ORDER BY rowid"
        first = next(iter(self.sizes), None)
        with reading(self.file, None, *_ERRORS), _opened(self.file) as data:
            for key, packed in data.execute(query):
                client = _text(key)
                with reading(self.file, client, *_ERRORS):
                    arrays = _unpacked(packed)
                _check(self.file, client, arrays, self.columns, first, self.sizes[client])
                yield client, arrays


def _check(
    file: Path, client: str, arrays: Arrays, columns: Columns, first: str | None, size: int
) -> None:
    found = {name: (a.dtype, a.shape[1:]) for name, a in sorted(arrays.items())}
    check_columns(file, client, found, columns, first)
    lengths = {name: len(a) for name, a in arrays.items()}
    if set(lengths.values()) != {size}:
        raise DataError(
            f"{file}, client {client!r}: columns of {lengths} examples, but it should have {size}; "
            "the file is damaged: copy or download it again"
        )


def _tff_parts(file: Path) -> list[Part]:
    with reading(file, None, *_ERRORS), _opened(file) as data:
        splits = {
            str(s) for (s,) in data.execute("SELECT DISTINCT split_name FROM client_metadata")
        }
    named = {part: {part, f"all_{part}"} & splits for part in PARTS}
    several = [part for part, found in named.items() if len(found) > 1]
    if several or not named["train"]:
        raise DataError(
            f"{file}: has the splits {sorted(splits)}; one for each part is needed, `train` or "
            "`all_train` among them"
        )
    return [TffPart(file, part, found.pop()) for part, found in named.items() if found]


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The file, to be read only."""
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    try:
        yield connection
    finally:
        connection.close()


def _tables(file: Path) -> set[str]:
    with reading(file, None, *_ERRORS), _opened(file) as data:
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        return {str(name) for (name,) in data.execute(query)}


def _text(client: Any) -> str:
    return client.decode("utf-8") if isinstance(client, bytes) else str(client)


def _sizes(file: Path, rows: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    """How many examples each client has; its id may be text or bytes, but be there only once."""
    sizes: dict[str, int] = {}
    for key, size in rows:
        client = _text(key)
        if client in sizes:
            raise DataError(f"{file}, client {client!r}: it is there twice; remove one")
        sizes[client] = int(size)
    return sizes


def _column(name: str, values: list[Any]) -> npt.NDArray[Any]:
    """One column of a client: numbers of one length, in their shape; single ones as they are."""
    if any(isinstance(value, list) for value in values):
        raise ValueError(f"the feature {name!r} is text, and numbers are needed")
    if len({value.dtype for value in values}) > 1:
        raise ValueError(
            f"the feature {name!r} is whole numbers in some examples, floats in others"
        )
    column = np.stack(values)
    if name in SHAPES and column.shape[1] == np.prod(SHAPES[name]):
        return column.reshape(len(values), *SHAPES[name])
    return column[:, 0] if column.shape[1] == 1 else column


def _unpacked(packed: bytes) -> dict[str, npt.NDArray[Any]]:
    """FedJAX's arrays."""
    found = msgpack.unpackb(_inflated(packed), ext_hook=_array, raw=False)
    if not isinstance(found, dict) or not all(isinstance(a, np.ndarray) for a in found.values()):
        raise ValueError("a dictionary of arrays is needed")
    if not found or any(a.ndim == 0 for a in found.values()):
        raise ValueError("columns are needed, with a row for each example")
    return {str(name): a for name, a in found.items()}


def _inflated(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(packed, _MOST)
    if not stream.eof:
        full = len(content) == _MOST
        raise ValueError(f"more than {_MOST:,} bytes, decompressed" if full else "cut short")
    return content


def _array(code: int, data: bytes) -> Any:
    if code != _ARRAY:
        raise ValueError(f"an entry of the unknown kind {code}: only arrays of numbers are read")
    shape, kind, content = msgpack.unpackb(data, raw=False)
    return native(np.frombuffer(content, np.dtype(kind)).reshape(shape))
