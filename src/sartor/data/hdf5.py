"""TensorFlow Federated's HDF5 files: `examples/<client>/<column>`, one file for each part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sartor.data.dataset import PARTS, ClientData
from sartor.data.federated import (
    Arrays,
    Columns,
    check_columns,
    check_sizes,
    native,
    parts_bytes,
    read_parts,
    reading,
)
from sartor.errors import DataError, FileError

_ERRORS = OSError, RuntimeError, KeyError, ValueError, AttributeError
"""What h5py raises on damaged files."""


def read_hdf5(path: str | os.PathLike[str], store: Path | None = None) -> ClientData:
    """Client data from one file, or from a directory with `*_train.h5` and `*_test.h5`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(folder + "/toy.h5", "w") as file:
    ...         file["examples/ann/label"] = np.array([0, 1], np.int32)
    ...         file["examples/ann/pixels"] = np.ones((2, 28, 28), np.float32)
    ...     read_hdf5(folder + "/toy.h5")
    ClientData(1 clients, 2 examples: x uint8[28, 28], y int32)
    """
    return read_parts([Hdf5Part(file, part) for part, file in hdf5_files(Path(path))], store)


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 files do."""
    with path.open("rb") as handle:
        return handle.read(8) == b"\x89HDF\r\n\x1a\n"


def hdf5_files(path: Path) -> list[tuple[str, Path]]:
    """The files of a dataset and the part each of them holds."""
    if not path.is_dir():
        return [("train", path)]
    files = []
    for part in PARTS:
        found = sorted(path.glob(f"*_{part}.h5"))
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise FileError(f"{path}: holds several datasets ({names}); keep one in a directory")
        files += [(part, file) for file in found]
    if not files or files[0][0] != "train":
        raise FileError(f"{path}: no file *_train.h5 in it; name a single .h5 file instead")
    return files


def hdf5_bytes(path: Path) -> int:
    """The size of a dataset in memory, before pixels are turned to bytes."""
    return parts_bytes([Hdf5Part(file, part) for part, file in hdf5_files(path)])


class Hdf5Part:
    """One file."""

    def __init__(self, file: Path, part: str) -> None:
        self.file, self.part = file, part
        self.sizes: dict[str, int] = {}
        self.columns: Columns = {}
        with reading(file, None, *_ERRORS), h5py.File(file) as h5:
            examples = h5.get("examples")
            if not isinstance(examples, h5py.Group):
                raise DataError(
                    f"{file}: no group 'examples' but {sorted(h5)}; the layout of TensorFlow "
                    "Federated is needed, examples/<client>/<column>"
                )
            for client in examples:
                self._scan(client, examples)
        check_sizes(self)

    def _scan(self, client: str, examples: Any) -> None:
        with reading(self.file, client, *_ERRORS):
            group = examples[client]
            if not isinstance(group, h5py.Group) or not group:
                raise DataError(f"{self.file}, client {client!r}: a group of columns is needed")
            if any(isinstance(name, bytes) for name in (client, *group)):
                raise ValueError("a name that is no text")  # which h5py gives as bytes
            facts = {name: (column.dtype, column.shape) for name, column in group.items()}
        lengths = {name: shape[0] if shape else None for name, (_, shape) in facts.items()}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            raise DataError(f"{self.file}, client {client!r}: columns of unequal lengths {lengths}")
        found = {name: (kind.newbyteorder("="), shape[1:]) for name, (kind, shape) in facts.items()}
        check_columns(self.file, client, found, self.columns, next(iter(self.sizes), None))
        self.columns = self.columns or found
        self.sizes[client] = int(next(iter(facts.values()))[1][0])

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        with reading(self.file, None, *_ERRORS), h5py.File(self.file) as h5:
            for client in self.sizes:
                with reading(self.file, client, *_ERRORS):
                    group = h5["examples"][client]
                    arrays = {name: native(np.asarray(group[name][()])) for name in self.columns}
                yield client, arrays
