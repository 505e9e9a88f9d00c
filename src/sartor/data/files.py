"""Opening data by path: recognises the format, and maps data that does not fit in memory."""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from sartor.checking import AnyPath, Range, checks_arguments, machine_memory
from sartor.data.dataset import ClientData
from sartor.data.federated import Part, parts_bytes, read_parts
from sartor.data.femnist import FemnistPart, is_femnist
from sartor.data.hdf5 import hdf5_parts
from sartor.data.leaf import is_leaf, leaf_parts
from sartor.data.sqlite import sqlite_parts
from sartor.data.store import is_store, open_store
from sartor.data.tables import PARQUET, read_table, table_bytes
from sartor.errors import ConfigError, FileError
from sartor.files import cache_root, settled
from sartor.locks import locked_file

_UNDERSTOOD = (
    "understood are: a directory written by data.save(), an HDF5 file of TensorFlow Federated or a "
    "directory with *_train.h5 and *_test.h5, SQLite of TensorFlow Federated or FedJAX (a file, a "
    "directory with it, or one with *_train.sqlite and *_test.sqlite), LEAF's .json shards (a "
    "file, a directory, or one with train/ and test/), a .csv file, a Parquet file, Parquet of "
    "flwrlabs/femnist"
)

_PARTS: dict[str, Callable[[Path], Sequence[Part]]] = {
    "hdf5": hdf5_parts,
    "sqlite": sqlite_parts,
    "leaf": leaf_parts,
    "femnist": lambda path: [FemnistPart(path)],
}
"""How to find the parts of a data set, by its format; other formats have no parts."""

_MAGIC = {b"\x89HDF\r\n\x1a\n": "hdf5", b"SQLite format 3\0": "sqlite", PARQUET: "table"}
"""What files begin with, by format."""

_log = logging.getLogger(__name__)


@checks_arguments
def open(
    path: AnyPath,
    *,
    client: str | None = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    domain: str | None = None,
    metadata: Sequence[str] = (),
    time: str | None = None,
    groups: str | None = None,
    memory_limit: Annotated[int, Range(0)] | None = None,
    cache: AnyPath | None = None,
) -> ClientData:
    """Client data from a file or a directory.

    Args:
        path: a directory written by `ClientData.save`; HDF5 or SQLite of TensorFlow Federated, or
            SQLite of FedJAX (a file, or a directory with `*_train` and `*_test`); LEAF's JSON
            shards; CSV; or Parquet, that of flwrlabs/femnist included.
        client: for CSV and Parquet, the column that says whose row it is.
        label: for CSV and Parquet, the column with the label.
        features: for CSV and Parquet, the feature columns; None for all others.
        domain: for CSV and Parquet, the column with the client's domain.
        metadata: for CSV and Parquet, other columns with one value for each client.
        time: for CSV and Parquet, the column that says when a row was observed.
        groups: for CSV and Parquet, the column that says which rows belong together.
        memory_limit: bytes; larger data is written once to a native directory under `cache` and
            memory-mapped from there. The default is half of the machine's memory.
        cache: parent of that directory (default: ~/.cache/sartor). It can be deleted at any time.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "toy.csv")
    ...     _ = file.write_text("user,age,bought\\nann,30,1\\nbob,40,0\\n")
    ...     open(file, client="user", label="bought")
    ClientData(2 clients, 2 examples: x float32[1], y int64)
    """
    path = settled(Path(path).expanduser())
    kind = _recognise(path)
    roles = {"client": client, "label": label, "features": features, "domain": domain}
    roles |= {"metadata": tuple(metadata) or None, "time": time, "groups": groups}
    for role, value in roles.items():
        if kind != "table" and value is not None:
            raise ConfigError(f"{role}={value!r}: only for CSV and Parquet, not for {path}")
        if kind == "table" and value is None and role in ("client", "label"):
            raise ConfigError(
                f"{role}: name the column of {path} that holds the {role} (on the command line, "
                f"--{role} COLUMN)"
            )
    if kind == "store":
        return open_store(path)

    parts = _PARTS[kind](path) if kind in _PARTS else []
    size = parts_bytes(parts) if parts else table_bytes(path)
    store = None
    if size > (machine_memory() // 2 if memory_limit is None else memory_limit):
        store = _cached(path, cache, repr(roles))
        if is_store(store):
            return open_store(store)
        _log.info("%s: about %d MB, mapped from %s", path, size >> 20, store)
    with nullcontext() if store is None else locked_file(store, wait=True):
        if store is not None and is_store(store):  # another process has made it meanwhile
            return open_store(store)
        if parts:
            return read_parts(parts, store)
        return read_table(path, store, roles | {"metadata": metadata})


def is_table(path: Path) -> bool:
    """Whether a path is a CSV or Parquet file with a row for each example."""
    return _recognise(settled(Path(path).expanduser())) == "table"


def _recognise(path: Path) -> str:
    try:
        kind = _kind_of_directory(path) if path.is_dir() else _kind_of_file(path)
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file; {_UNDERSTOOD}") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    if kind is None:
        empty = path.is_dir() and not any(path.iterdir())
        what = "it is empty" if empty else "the format is not known"
        raise FileError(f"{path}: {what}; {_UNDERSTOOD}")
    return kind


def _kind_of_directory(path: Path) -> str | None:
    if is_store(path):
        return "store"
    for kind, pattern in {"hdf5": "*.h5", "sqlite": "*.sqlite"}.items():
        if any(path.glob(pattern)):
            return kind
    if is_femnist(path):  # before LEAF: on Hugging Face, JSON may lie beside it
        return "femnist"
    return "leaf" if is_leaf(path) else None


def _kind_of_file(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(16)
    kind = {".json": "leaf", ".csv": "table"}.get(path.suffix.lower())
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), kind)
    return "femnist" if kind == "table" and is_femnist(path) else kind


def _cached(path: Path, cache: str | os.PathLike[str] | None, arguments: str) -> Path:
    """A name that changes with the file's place, time and size and with the arguments."""
    path = path.resolve()
    files = sorted(file for file in path.rglob("*") if file.is_file()) or [path]
    facts = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    key = hashlib.blake2b(f"{facts}{arguments}".encode(), digest_size=8).hexdigest()
    return cache_root(cache) / f"{path.stem}-{key}"
