"""The native directory: columns and index arrays as .npy files, and a manifest `data.json`.

It is opened memory-mapped, so that data may be larger than memory. Reading it runs no code.
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from sartor.data.dataset import ClientData, Column
from sartor.documents import check_schema, check_seal, sealed
from sartor.errors import FileError, SartorError, warn
from sartor.files import (
    explaining,
    is_unfinished,
    read_json,
    replacing,
    sha256_of,
    write_atomic,
)

_FORMAT = "sartor-data"
_VERSION = 1
_MANIFEST = "data.json"
_INDEX = ("rows", "bounds", "seen")
_FACTS = ("time", "groups")
"""What is known of rows besides their columns, if it is."""

VERIFIED = 2**28
"""The largest column, in bytes, that is compared with its checksum when a directory is opened.

Reading a larger one whole would undo the point of mapping it.
"""


class Metadata(TypedDict):
    """One value for each client."""

    dtype: str
    values: list[bool | int | float | str]


class Manifest(TypedDict):
    """What ``data.json`` says. Those of earlier versions have no checksums."""

    columns: list[str]
    label_names: list[str] | None
    feature_names: NotRequired[list[str] | None]
    metadata: dict[str, Metadata]
    ids: list[str]
    files: NotRequired[dict[str, str]]
    digest: NotRequired[str]


def column_file(i: int) -> str:
    """The file of the i-th column: by number, since a column's name may be no file name."""
    return f"column-{i}.npy"


def is_store(path: Path) -> bool:
    """Whether a path looks like a native directory."""
    return (path / _MANIFEST).is_file()


def write_store(data: ClientData, folder: Path) -> None:
    """Write a dataset's files into a folder; column files that are there already are kept.

    Columns are written whole, including rows that a selection of clients does not use.
    """
    for i, column in enumerate(data.columns.values()):
        if not (folder / column_file(i)).exists():
            np.save(folder / column_file(i), column, allow_pickle=False)
    known = [name for name in _FACTS if getattr(data, name) is not None]
    for name in (*_INDEX, *known):
        np.save(folder / f"{name}.npy", getattr(data, name), allow_pickle=False)
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "columns": list(data.columns),
        "label_names": data.label_names,
        "feature_names": data.feature_names,
        "metadata": {
            name: {"dtype": values.dtype.str, "values": values.tolist()}
            for name, values in data.metadata.items()
        },
        "ids": data.ids,
        "files": {
            name: sha256_of(folder / name)
            for name in sorted(_files(len(data.columns)))
            if (folder / name).exists()
        },
    }
    write_atomic(folder / _MANIFEST, json.dumps(sealed(manifest)))


def open_store(path: str | os.PathLike[str]) -> ClientData:
    """Memory-map a native directory.

    Its files are compared with their checksums, columns above ``VERIFIED`` bytes excepted.
    """
    path = Path(path)
    manifest = _manifest(path)
    for name, digest in manifest.get("files", {}).items():
        _check_file(path / name, digest)
    with _damaged(path):
        columns = {name: _load(path / column_file(i)) for i, name in enumerate(manifest["columns"])}
        metadata = {
            name: np.array(entry["values"], dtype=_plain(entry["dtype"]))
            for name, entry in manifest["metadata"].items()
        }
        labels, features = manifest["label_names"], manifest.get("feature_names")
        known = [name for name in _FACTS if f"{name}.npy" in manifest.get("files", {})]
        if len(known) > 1:  # of an earlier version
            warn(f"{path} has times and groups, of which the times are taken")
            known = known[:1]
        index = {name: _load(path / f"{name}.npy") for name in (*_INDEX, *known)}
        return ClientData(
            columns,
            index["rows"],
            index["bounds"],
            seen=index["seen"],
            time=index.get("time"),
            groups=index.get("groups"),
            ids=tuple(manifest["ids"]),
            metadata=metadata,
            label_names=None if labels is None else tuple(labels),
            feature_names=None if features is None else tuple(features),
        )


def _damaged(path: Path) -> AbstractContextManager[None]:
    remedy = "make the directory again from the original data"
    return explaining(f"{path}: missing or damaged", remedy, (FileError,))


def _load(file: Path) -> Column:
    with _damaged(file):
        return np.asanyarray(np.load(file, mmap_mode="r", allow_pickle=False))


def _plain(dtype: str) -> np.dtype[Any]:
    if np.dtype(dtype).kind not in "biufU":
        raise ValueError(f"metadata of type {dtype!r}")
    return np.dtype(dtype)


def _manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    manifest: Any = read_json(file)
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise FileError(
            f"{file}: not a manifest of format {_FORMAT!r}, made by something else or damaged; "
            "make the directory again"
        )
    if manifest.get("version") != _VERSION:
        raise FileError(
            f"{file}: version {manifest.get('version')!r}, this Sartor reads {_VERSION}; "
            "upgrade Sartor or make the directory again"
        )
    with _damaged(file):
        check_seal(manifest)
        check_schema(manifest, Manifest)
    found: dict[str, Any] = manifest
    return found


def _files(columns: int) -> set[str]:
    """The files of arrays in a native directory with some columns."""
    named = {f"{name}.npy" for name in (*_INDEX, *_FACTS)}
    return named | {column_file(i) for i in range(columns)}


def _check_file(file: Path, digest: str) -> None:
    """Refuse a file that is missing or has changed; of a large column only whether it is there."""
    with _damaged(file):
        small = file.stem in (*_INDEX, *_FACTS) or file.stat().st_size <= VERIFIED
        if small and sha256_of(file) != digest:
            raise ValueError("it has changed since it was written")


def through_store(
    store: str | os.PathLike[str] | None, make: Callable[[Path | None], ClientData]
) -> ClientData:
    """What ``make`` returns; with `store`, written to that native directory and mapped from there.

    The directory is written whole or not at all, and an earlier one in its place is replaced.
    ``make`` gets the folder to write large columns to, or None to keep them in memory.
    """
    if store is None:
        return make(None)
    with replacing(store, _only_a_store) as folder:
        write_store(make(folder), folder)
    return open_store(store)


def save_store(data: ClientData, path: str | os.PathLike[str], replace: bool) -> None:
    """Write a dataset to a native directory; one of other data there is kept unless ``replace``."""

    def ours(there: Path) -> bool:
        if not _only_a_store(there):
            return False
        if not (replace or _holds(there, data)):
            raise FileError(
                f"{there} holds other data, which would be lost; choose another directory, or say "
                "save(path, replace=True)"
            )
        return True

    with replacing(path, ours) as folder:
        write_store(data, folder)


def _holds(path: Path, data: ClientData) -> bool:
    """Whether a native directory holds this very dataset; of a damaged one nobody knows."""
    try:
        there = open_store(path)
    except SartorError:
        return False
    return (there.fingerprint, there.feature_names) == (data.fingerprint, data.feature_names)


def _only_a_store(path: Path) -> bool:
    """Whether a directory holds nothing but the files of a native directory."""
    names = {file.name for file in path.iterdir() if not is_unfinished(file)}
    try:
        return names <= {_MANIFEST} | _files(len(_manifest(path)["columns"]))
    except SartorError:
        return False


def joined(blocks: Iterable[Column], file: Path | None) -> Column:
    """Blocks of rows as one array: in memory, or in a .npy file that grows and is mapped then."""
    if file is None:
        return np.concatenate(list(blocks))
    rows = 0
    for block in blocks:
        with file.open("r+b" if rows else "w+b") as handle:
            rows += len(block)
            # numpy pads headers so that the first axis can grow without moving the data.
            header = {
                "descr": block.dtype.str,
                "fortran_order": False,
                "shape": (rows, *block.shape[1:]),
            }
            np.lib.format.write_array_header_1_0(handle, header)
            handle.seek(0, os.SEEK_END)
            block.tofile(handle)
    return _load(file)
