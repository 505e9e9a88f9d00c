"""Federated data in SQLite: TensorFlow Federated's examples, and FedJAX's clients.

TensorFlow Federated keeps one row for each example, a serialized ``tf.train.Example``, in the table
`examples(split_name, client_id, serialized_example_proto)`, beside `client_metadata(client_id,
split_name, num_examples)`. FedJAX keeps one row for each client, in `federated_data(client_id,
data, num_examples)`, where data is a dictionary of arrays in msgpack, compressed by zlib.
"""

import contextlib
import sqlite3
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgpack
import numpy as np
import numpy.typing as npt

from sartor.data.dataset import PARTS
from sartor.data.encoding import text_of
from sartor.data.example_proto import parse_example
from sartor.data.federated import Arrays, Part, as_labels, columns_of, native, part_files, reading
from sartor.errors import DataError

_MOST = 1 << 30
"""The most bytes of a decompressed client of FedJAX: a small file must not fill the memory."""

_ARRAY = 1
"""The code of an array in FedJAX's msgpack: (shape, type, bytes)."""

SHAPES = {"pixels": (28, 28)}
"""The shapes of features, by name; others stay flat lists of numbers."""


def sqlite_parts(path: Path) -> list[Part]:
    """The parts in a file, a directory with one, or one with `*_train.sqlite` and `*_test.sqlite`.

    One file of TensorFlow Federated holds the splits `train` and `test` (or `all_train` and
    `all_test`), each of which becomes a part.
    """
    files = list(path.glob("*.sqlite"))
    if len(files) == 1 and not files[0].stem.endswith(("_validation", "_test")):
        path = files[0]
    parts: list[Part] = []
    for part, file in part_files(path, ".sqlite"):
        tables = _names(file, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
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


class SqlitePart(Part):
    """One part in SQLite. The sizes are in a table, the columns are those of the first client.

    Attributes:
        sizes_query: for every client's key and number of examples.
        content_query: for the content of one client; its last parameter is the key.
    """

    sizes_query: ClassVar[str]
    content_query: ClassVar[str]

    def __init__(self, file: Path, part: str, *split: str) -> None:
        super().__init__(file, part)
        self._split = split
        self._keys = []  # text or bytes, as they are in the file
        with reading(self.file), _opened(file) as data:
            for key, size in data.execute(self.sizes_query, split):
                self.add(text_of(key), int(size))
                self._keys.append(key)
        next(self.clients(), None)
        self.check_sizes()

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        with reading(self.file), _opened(self.file) as data:
            for key, client in zip(self._keys, self.sizes, strict=True):
                with reading(self.file, client):
                    rows = data.execute(self.content_query, (*self._split, key))
                    arrays = self.arrays(client, [content for (content,) in rows])
                self.check_columns(client, columns_of(arrays))
                lengths = {name: len(a) for name, a in arrays.items()}
                if set(lengths.values()) != {self.sizes[client]}:
                    raise DataError(
                        f"{self.file}, client {client!r}: columns of {lengths} examples, but it "
                        f"should have {self.sizes[client]}; the file is damaged: copy or download "
                        "it again"
                    )
                yield client, arrays

    @abstractmethod
    def arrays(self, client: str, rows: list[bytes]) -> dict[str, npt.NDArray[Any]]:
        """A client's arrays, out of its rows in the file."""


class TffPart(SqlitePart):
    """One split of a file of TensorFlow Federated: a row for each example."""

    sizes_query = """
        SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY client_id
    """
    content_query = """
        SELECT serialized_example_proto FROM examples WHERE split_name = ? AND client_id = ?
        ORDER BY rowid
    """

    def arrays(self, client: str, rows: list[bytes]) -> dict[str, npt.NDArray[Any]]:
        """A client's arrays, out of serialized examples."""
        examples = [parse_example(row) for row in rows]
        if not examples:
            raise ValueError("there are no examples")
        arrays = {name: _column(name, [e[name] for e in examples]) for name in examples[0]}
        label = arrays.get("label", np.zeros(0))
        if label.ndim == 1 and label.dtype.kind == "i":  # others: of a regression
            arrays["label"] = as_labels(self.file, client, label)
        return arrays


class FedJaxPart(SqlitePart):
    """A file of FedJAX: a row for each client."""

    sizes_query = "SELECT client_id, num_examples FROM federated_data ORDER BY rowid"
    content_query = "SELECT data FROM federated_data WHERE client_id = ?"

    def arrays(self, client: str, rows: list[bytes]) -> dict[str, npt.NDArray[Any]]:
        """A client's arrays, out of compressed msgpack."""
        (packed,) = rows
        found = msgpack.unpackb(_inflated(packed), ext_hook=_array, raw=False)
        if not isinstance(found, dict) or not all(
            isinstance(a, np.ndarray) for a in found.values()
        ):
            raise ValueError("a dictionary of arrays is needed")
        if not found or any(a.ndim == 0 for a in found.values()):
            raise ValueError("columns are needed, with a row for each example")
        return {str(name): a for name, a in found.items()}


def _tff_parts(file: Path) -> list[Part]:
    splits = _names(file, "SELECT DISTINCT split_name FROM client_metadata")
    named = {part: {part, f"all_{part}"} & splits for part in PARTS}
    if not named["train"] or any(len(found) > 1 for found in named.values()):
        raise DataError(
            f"{file}: has the splits {sorted(splits)}; one for each part is needed, `train` or "
            "`all_train` among them"
        )
    return [TffPart(file, part, found.pop()) for part, found in named.items() if found]


def _opened(file: Path) -> contextlib.closing[sqlite3.Connection]:
    """The file, to be read only."""
    uri = f"{file.resolve().as_uri()}?mode=ro"
    return contextlib.closing(sqlite3.connect(uri, uri=True))


def _names(file: Path, query: str) -> set[str]:
    """The names that a query finds."""
    with reading(file), _opened(file) as data:
        return {str(name) for (name,) in data.execute(query)}


def _column(name: str, values: list[Any]) -> npt.NDArray[Any]:
    """One column of a client, in its shape; lists of one number become that number."""
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


def _inflated(packed: bytes) -> bytes:
    """Decompressed, unless that would fill the memory."""
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
