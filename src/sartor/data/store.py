"""The native directory: columns and index arrays as .npy files, and a manifest `data.json`.

It is opened memory-mapped, so that data may be larger than memory. Reading it runs no code.
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from sartor.data.dataset import ClientData, Column
from sartor.errors import FileError, SartorError
from sartor.files import explaining, replacing

_FORMAT = "sartor-data"
_VERSION = 1
_MANIFEST = "data.json"
_INDEX = ("rows", "bounds", "seen")


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
    for name in _INDEX:
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
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def open_store(path: str | os.PathLike[str]) -> ClientData:
    """Memory-map a native directory."""
    path = Path(path)
    manifest = _manifest(path)
    with _damaged(path):
        columns = {name: _load(path / column_file(i)) for i, name in enumerate(manifest["columns"])}
        metadata = {
            name: np.array(entry["values"], dtype=_plain(entry["dtype"]))
            for name, entry in manifest["metadata"].items()
        }
        labels, features = manifest["label_names"], manifest.get("feature_names")
        return ClientData(
            columns,
            **{name: _load(path / f"{name}.npy") for name in _INDEX},
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
    with _damaged(file):
        manifest = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise FileError(f"{file}: not a manifest of format {_FORMAT!r}, made by something else")
    if manifest.get("version") != _VERSION:
        raise FileError(
            f"{file}: version {manifest.get('version')!r}, this Sartor reads {_VERSION}; "
            "upgrade Sartor or make the directory again"
        )
    return manifest


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


def _only_a_store(path: Path) -> bool:
    """Whether a directory holds nothing but the files of a native directory."""
    files = set(os.listdir(path))
    try:
        columns = _manifest(path)["columns"]
    except (SartorError, KeyError):
        return False
    ours = {_MANIFEST, *(f"{name}.npy" for name in _INDEX)}
    return files <= ours | {column_file(i) for i in range(len(columns))}


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
