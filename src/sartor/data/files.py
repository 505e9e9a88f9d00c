"""Opening data by path: the format is recognised, and what does not fit in memory is mapped."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sartor.data.dataset import ClientData
from sartor.data.femnist import femnist_bytes, is_femnist, read_femnist
from sartor.data.hdf5 import hdf5_bytes, is_hdf5, read_hdf5
from sartor.data.leaf import is_leaf, leaf_bytes, read_leaf
from sartor.data.sqlite import is_sqlite, read_sqlite, sqlite_bytes
from sartor.data.store import is_store, open_store
from sartor.data.tables import is_parquet, read_table, table_bytes
from sartor.errors import ConfigError, FileError
from sartor.files import cache_root

_UNDERSTOOD = (
    "understood are: a directory written by data.save(), an HDF5 file of TensorFlow Federated or a "
    "directory with *_train.h5 and *_test.h5, SQLite of TensorFlow Federated or FedJAX (a file, a "
    "directory with it, or one with *_train.sqlite and *_test.sqlite), LEAF's .json shards (a "
    "file, a directory, or one with train/ and test/), a .csv file, a Parquet file, Parquet of "
    "flwrlabs/femnist"
)

_log = logging.getLogger(__name__)


def open(
    path: str | os.PathLike[str],
    *,
    client: str | None = None,
    label: str | None = None,
    features: Sequence[str] | None = None,
    domain: str | None = None,
    metadata: Sequence[str] = (),
    memory_limit: int | None = None,
    cache: str | os.PathLike[str] | None = None,
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
        memory_limit: bytes; larger data is written once to a native directory under `cache` and
            memory-mapped from there. None for half of the machine's memory.
        cache: where to; None for ~/.cache/sartor. It can be deleted at any time.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "toy.csv")
    ...     _ = file.write_text("user,age,bought\\nann,30,1\\nbob,40,0\\n")
    ...     open(file, client="user", label="bought")
    ClientData(2 clients, 2 examples: x float32[1], y int64)
    """
    path = Path(path).expanduser()
    kind = _recognise(path)
    roles = {"client": client, "label": label, "features": features, "domain": domain}
    roles["metadata"] = tuple(metadata) or None
    if kind == "table":
        for role in ("client", "label"):
            if roles[role] is None:
                raise ConfigError(
                    f"{role}: name the column of {path} that holds the {role} (on the command "
                    f"line, --{role} COLUMN)"
                )
    else:
        for role, value in roles.items():
            if value is not None:
                raise ConfigError(f"{role}={value!r}: only for CSV and Parquet, not for {path}")
    if kind == "store":
        return open_store(path)

    limit = _half_of_memory() if memory_limit is None else memory_limit
    sizes = {
        "table": table_bytes, "hdf5": hdf5_bytes, "sqlite": sqlite_bytes, "leaf": leaf_bytes,
        "femnist": femnist_bytes,
    }  # fmt: skip
    size = sizes[kind](path)
    store = None
    if size > limit:
        store = _cached(path, cache, repr(roles))
        if is_store(store):
            return open_store(store)
        _log.info("%s: about %d MB, mapped from %s", path, size >> 20, store)
    readers: dict[str, Callable[[Path, Path | None], ClientData]] = {
        "hdf5": read_hdf5, "sqlite": read_sqlite, "leaf": read_leaf, "femnist": read_femnist
    }  # fmt: skip
    if kind in readers:
        return readers[kind](path, store)
    return read_table(
        path,
        client=str(client),
        label=str(label),
        features=features,
        domain=domain,
        metadata=metadata,
        store=store,
    )


def _recognise(path: Path) -> str:
    try:
        if path.is_dir():
            if is_store(path):
                return "store"
            if any(path.glob("*.h5")):
                return "hdf5"
            if any(path.glob("*.sqlite")):
                return "sqlite"
            if is_femnist(path):  # before LEAF: on Hugging Face, JSON may lie beside it
                return "femnist"
            if is_leaf(path):
                return "leaf"
        elif is_hdf5(path):
            return "hdf5"
        elif is_sqlite(path):
            return "sqlite"
        elif is_leaf(path):
            return "leaf"
        elif is_parquet(path) and is_femnist(path):
            return "femnist"
        elif is_parquet(path) or path.suffix.lower() == ".csv":
            return "table"
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file; {_UNDERSTOOD}") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from error
    what = "the format is not known" if path.is_file() or any(path.iterdir()) else "it is empty"
    raise FileError(f"{path}: {what}; {_UNDERSTOOD}")


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _cached(path: Path, cache: str | os.PathLike[str] | None, arguments: str) -> Path:
    """A name that changes with the file's place, time and size and with the arguments."""
    path = path.resolve()
    files = sorted(file for file in path.rglob("*") if file.is_file()) or [path]
    facts = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    key = hashlib.blake2b(f"{facts}{arguments}".encode(), digest_size=8).hexdigest()
    return cache_root(cache) / f"{path.stem}-{key}"
