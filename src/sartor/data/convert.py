"""Write client data in another format, one that `sartor.data.open` reads."""

import contextlib
import json
import math
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import numpy.typing as npt

from sartor.checking import AnyPath, checks_arguments
from sartor.data.dataset import PARTS, ClientData, shape_of
from sartor.data.example_proto import make_example
from sartor.data.federated import LABELS, as_bytes, native, writer_domains
from sartor.data.files import open as open_data
from sartor.data.leaf import PIXELS, is_doubled
from sartor.data.store import write_store
from sartor.errors import ConfigError, DataError, warn
from sartor.files import replacing, write_atomic

Arrays = dict[str, npt.NDArray[Any]]


@checks_arguments
def convert(data: ClientData, path: AnyPath, format: str) -> None:
    """Write a data set to a directory in another format, which `sartor.data.open` can read.

    Args:
        data: the data set. Labels are written as `label`, a single input as `pixels`, and bytes k
            as the floats k/255. The format "sartor" keeps everything unchanged.
        path: the directory; it must be new or empty.
        format: TensorFlow Federated's "hdf5" or "sqlite", "fedjax", "leaf", or "sartor", the
            native directory.

    >>> import tempfile
    >>> from sartor.data import from_dict, open
    >>> data = from_dict({who: {"x": [[30.0, 1.5]], "y": [1]} for who in ("ann", "bob")})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     convert(data, folder + "/toy", "hdf5")
    ...     open(folder + "/toy")
    ClientData(2 clients, 2 examples: x float32[2], y int64)
    """
    if format not in FORMATS:
        raise ConfigError(f"format={format!r}: choose one of {', '.join(FORMATS)}")
    _refuse(data, format)
    with replacing(path, lambda _: False) as folder:
        changed = [] if format == "sartor" else _changed(data, format, folder)
        FORMATS[format](data, folder)
    lost = [] if format == "sartor" else _lost(data)
    if lost:
        warn(f"{format} has no place for {', '.join(lost)}: left out; the format sartor keeps all")
    if changed:
        warn(f"read again from {format}, {', '.join(changed)}; the format sartor keeps all")


def _refuse(data: ClientData, format: str) -> None:
    """Refuse data that could be written but not read back unchanged."""
    if format != "sartor" and "label" in data.columns:
        raise ConfigError(f"column 'label': in {format}, 'y' gets this name; give it another")
    if format == "hdf5":
        for what, names in (("client", data.ids), ("column", data.columns)):
            for name in names:
                if name in ("", ".") or "/" in name or "\0" in name:
                    raise ConfigError(
                        f"{what} {name!r}: HDF5 has no such names; choose the format sqlite, "
                        "fedjax or sartor"
                    )
    if format in ("sqlite", "leaf") and data.columns["y"].dtype.kind in "iu":
        labels = data.columns["y"][data.rows]
        if labels.max() > LABELS.max:
            k = data.owner_of(int(labels.argmax()))
            raise DataError(
                f"client {data.ids[k]!r}: the label {labels.max()} is beyond {LABELS.max}, the "
                f"largest that is read from {format}; choose the format hdf5, fedjax or sartor"
            )


def _changed(data: ClientData, format: str, folder: Path) -> list[str]:
    """What the format gives another name, type or shape, tried on the first client."""
    with tempfile.TemporaryDirectory(dir=folder) as trial:
        FORMATS[format](data.select(data.ids[:1]), Path(trial))
        again = open_data(trial, memory_limit=sys.maxsize).columns
        new = {name: shape_of(column) for name, column in again.items()}
    changed = []
    for name, column in data.columns.items():
        if name not in new:
            changed.append(f"{name!r} has another name, among {', '.join(map(repr, new))}")
        elif new[name] != shape_of(column):
            bytes_ = again[name].dtype == np.uint8 and column.dtype.kind == "f"
            if not bytes_ or _all_bytes(data, name):
                changed.append(f"{name!r} is {new[name]} and not {shape_of(column)}")
    if format == "leaf" and (doubled := _doubled(data)):
        changed.append(
            f"the first image is there once and not twice, as LEAF doubles it, for {len(doubled)} "
            f"clients ({doubled[0]!r} is the first)"
        )
    return changed


def _all_bytes(data: ClientData, name: str) -> bool:
    """Whether all clients' pixels are k/255, which are read as the bytes k."""
    return all(as_bytes(data.client(c, part)[name]) is not None for c in data.ids for part in PARTS)


def _doubled(data: ClientData) -> list[str]:
    """The clients whose first two images are alike, in some part."""
    y = data.columns["y"]
    (x,) = (column for name, column in data.columns.items() if name != "y")
    if math.prod(x.shape[1:]) != PIXELS:
        return []
    firsts = {c: [data.part(k, part)[:2] for part in PARTS] for k, c in enumerate(data.ids)}
    return [c for c, several in firsts.items() if any(is_doubled(x[i], y[i]) for i in several)]


def _lost(data: ClientData) -> list[str]:
    """What only the native directory can hold."""
    again = writer_domains(data.ids)  # which are read off the clients' names
    lost = [repr(name) for name, values in data.metadata.items() if list(values) != again.get(name)]
    lost += ["the labels' names"] if data.label_names else []
    lost += ["the features' names"] if data.feature_names else []
    lost += ["the rows' times"] if data.time is not None else []
    lost += ["the rows' groups"] if data.groups is not None else []
    return lost + ([] if data.seen.all() else ["which clients are unseen"])


def _clients(data: ClientData, part: str) -> Iterator[tuple[str, Arrays]]:
    """The clients that have examples in a part, with arrays as other projects name them."""
    image = set(data.columns) == {"x", "y"}
    names = {"y": "label", "x": "pixels"} if image else {"y": "label"}
    for client, size in zip(data.ids, data.sizes(part), strict=True):
        if size:
            found = data.client(client, part)
            arrays = {names.get(name, name): np.asarray(values) for name, values in found.items()}
            if image and arrays["pixels"].dtype == np.uint8:
                arrays["pixels"] = arrays["pixels"] / np.float32(255)
            yield client, arrays


def _parts(data: ClientData) -> list[str]:
    return [part for part in PARTS if data.sizes(part).any()]


def _hdf5(data: ClientData, folder: Path) -> None:
    for part in _parts(data):
        with h5py.File(folder / f"data_{part}.h5", "w") as file:
            for client, arrays in _clients(data, part):
                for name, values in arrays.items():
                    file[f"examples/{client}/{name}"] = values


def _sqlite(data: ClientData, folder: Path) -> None:
    with _database(folder / "data.sqlite") as file:
        file.execute(
            "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, "
            "serialized_example_proto BLOB NOT NULL)"
        )
        file.execute("CREATE INDEX idx_examples ON examples (split_name, client_id)")
        file.execute(
            "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, "
            "num_examples INTEGER NOT NULL)"
        )
        for part in _parts(data):
            for client, arrays in _clients(data, part):
                size = len(arrays["label"])
                file.execute("INSERT INTO client_metadata VALUES (?, ?, ?)", [client, part, size])
                rows = (
                    [part, client, make_example({n: a[i].reshape(-1) for n, a in arrays.items()})]
                    for i in range(size)
                )
                file.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)


def _fedjax(data: ClientData, folder: Path) -> None:
    def packed(values: npt.NDArray[Any]) -> msgpack.ExtType:
        values = native(values)  # whose name does not tell the byte order
        content = (values.shape, values.dtype.name, np.ascontiguousarray(values).tobytes())
        return msgpack.ExtType(1, msgpack.packb(content))

    for part in _parts(data):
        with _database(folder / f"data_{part}.sqlite") as file:
            file.execute(
                "CREATE TABLE federated_data (client_id BLOB NOT NULL PRIMARY KEY, "
                "data BLOB NOT NULL, num_examples INTEGER NOT NULL)"
            )
            for client, arrays in _clients(data, part):
                content = msgpack.packb({name: packed(values) for name, values in arrays.items()})
                row = [client.encode(), zlib.compress(content), len(arrays["label"])]
                file.execute("INSERT INTO federated_data VALUES (?, ?, ?)", row)


def _leaf(data: ClientData, folder: Path) -> None:
    """In shards of some clients, since a shard is read as a whole."""
    for part in _parts(data):
        clients = list(_clients(data, part))
        for number in range(0, len(clients), SHARD):
            some = clients[number : number + SHARD]
            content = {
                "users": [client for client, _ in some],
                "num_samples": [len(arrays["label"]) for _, arrays in some],
                "user_data": {client: _plain(arrays) for client, arrays in some},
            }
            name = f"all_data_{number // SHARD}.json"
            write_atomic(folder / part / name, json.dumps(content))


SHARD = 100
"""Clients in a shard of LEAF."""

FORMATS: dict[str, Callable[[ClientData, Path], None]] = {
    "hdf5": _hdf5, "sqlite": _sqlite, "fedjax": _fedjax, "leaf": _leaf, "sartor": write_store
}  # fmt: skip
"""The formats that can be written."""


def _plain(arrays: Arrays) -> dict[str, Any]:
    values = arrays.get("pixels", arrays.get("x"))
    if values is None or set(arrays) - {"label", "pixels", "x"}:
        raise ConfigError(f"LEAF has one input and a label, not the columns {sorted(arrays)}")
    if arrays["label"].dtype.kind == "f":
        raise ConfigError(
            "LEAF has whole numbers as labels, not the floats of a regression; choose another "
            "format"
        )
    if values.dtype.kind == "f":
        exact = np.rint(values.astype(np.float64) * 255) / 255
        if (exact.astype(np.float32) == values).all():  # k/255, without the noise of floats
            values = exact
    return {"x": values.reshape(len(values), -1).tolist(), "y": arrays["label"].tolist()}


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            yield connection
    except sqlite3.Error as error:  # a full disk, for the most part
        raise OSError(str(error)) from error
