"""TensorFlow Federated's HDF5 files: `examples/<client>/<column>`, one file for each part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sartor.data.dataset import equal_length
from sartor.data.federated import Arrays, Part, native, part_files, reading
from sartor.errors import DataError


def hdf5_parts(path: Path) -> list[Part]:
    """The parts in one file, or in a directory with `*_train.h5` and `*_test.h5`.

    >>> import tempfile
    >>> from sartor.data import open
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(folder + "/toy.h5", "w") as file:
    ...         file["examples/ann/label"] = np.array([0, 1], np.int32)
    ...         file["examples/ann/pixels"] = np.ones((2, 28, 28), np.float32)
    ...     open(folder + "/toy.h5")
    ClientData(1 clients, 2 examples: x uint8[28, 28], y int32)
    """
    return [Hdf5Part(file, part) for part, file in part_files(path, ".h5")]


class Hdf5Part(Part):
    """One file."""

    def __init__(self, file: Path, part: str) -> None:
        super().__init__(file, part)
        with reading(self.file), h5py.File(file) as h5:
            examples = h5.get("examples")
            if not isinstance(examples, h5py.Group):
                raise DataError(
                    f"{file}: no group 'examples' but {sorted(h5)}; the layout of TensorFlow "
                    "Federated is needed, examples/<client>/<column>"
                )
            for client in examples:
                with reading(file, client):
                    self._scan(client, examples[client])
        self.check_sizes()

    def _scan(self, client: str, group: Any) -> None:
        where = f"{self.file}, client {client!r}: "
        if not isinstance(group, h5py.Group) or not group:
            raise DataError(f"{where}a group of columns is needed")
        if any(isinstance(name, bytes) for name in (client, *group)):
            raise ValueError("a name that is no text")  # which h5py gives as bytes
        found = {n: (c.dtype.newbyteorder("="), c.shape[1:]) for n, c in group.items()}
        self.check_columns(client, found)
        self.add(client, equal_length(group, where))

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        with reading(self.file), h5py.File(self.file) as h5:
            for client in self.sizes:
                with reading(self.file, client):
                    group = h5["examples"][client]
                    arrays = {name: native(np.asarray(group[name][()])) for name in self.columns}
                yield client, arrays
