"""What clients keep between rounds: on the device while it fits, else on the host or in a file.

A compiled program sees a *table* of states (:class:`~sartor.engine.cohort.Kept`), and for every
client of a round its place in that table. If states are resident, the table holds all clients and
stays on the device from chunk to chunk. If not, it holds only the clients of a chunk: ``load``
gathers their states on the host, and ``store`` writes them back after the chunk.
"""

import functools
import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.engine.cohort import Kept
from sartor.engine.columns import on_every_device
from sartor.engine.engine import Engine
from sartor.engine.schedule import padded
from sartor.errors import DataError
from sartor.trees import Tree, flatten, unflatten
from sartor.types import Bools, Ints

IN_MEMORY = min(2**32, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""Bytes of states kept in the host's memory; more of them live in a memory-mapped file."""


class ClientStates(Mapping[str, Tree]):
    """The state of every client that has one, by client.

    Args:
        shapes: a pytree of what one client keeps; anything with ``shape`` and ``dtype``.
        data: the clients.
        engine: how it is run.

    Memory of the host is taken only for clients that have a state: pages of an array that nobody
    has written to do not exist yet.
    """

    def __init__(self, shapes: Tree, data: ClientData, engine: Engine) -> None:
        self.shapes, self.ids, self.engine = shapes, data.ids, engine
        self.visited = np.zeros(len(data), bool)
        leaves = jax.tree.leaves(shapes)
        self.bytes = sum(int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in leaves)
        total = self.bytes * len(data)
        self.resident = not on_host(engine) and total <= engine.budget() // 8
        self._device: Kept | None = None  # the table on the device, once it is there
        folder: Path | None = None
        if not self.resident and total > IN_MEMORY:
            folder = Path(tempfile.mkdtemp(prefix="sartor-states-"))
            self._cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        arrays = [_zeros((len(data), *a.shape), a.dtype, folder, n) for n, a in enumerate(leaves)]
        self._host = jax.tree.unflatten(jax.tree.structure(shapes), arrays)
        self._stale = False  # whether the device knows more than the host

    def most(self, cohort: int) -> int:
        """For how many rounds the states of the cohorts fit on the device."""
        if self.resident:
            return 2**31
        return max(1, self.engine.budget() // 8 // max(cohort * self.bytes, 1))

    def load(self, clients: Ints, places: int) -> tuple[Kept, Ints]:
        """A table with the states of some clients, [rounds, cohort]; and where in it each is.

        Args:
            clients: positions in the data.
            places: how many places the table has. It is a shape of the compiled program, so it is
                the same for all chunks.
        """
        if self.resident:
            if self._device is None:
                # Copies, as a device may share memory with the host, which is written to later.
                kept = jax.tree.map(np.copy, Kept(self._host, self.visited))
                self._device = on_every_device(self.engine, kept)
            return self._device, clients
        # A client that is in several rounds of the chunk has one place, so that a later round finds
        # what an earlier one has left there.
        used, where = np.unique(clients, return_inverse=True)
        everyone = Kept(self._host, self.visited)
        kept = jax.tree.map(lambda leaf: padded(leaf[used], places), everyone)
        return kept, where.reshape(clients.shape)

    def store(self, clients: Ints, kept: Kept) -> None:
        """Take back a table that :meth:`load` has given, after rounds of these clients."""
        used = np.unique(clients)
        self.visited[used] = True
        if self.resident:
            self._device, self._stale = kept, True
            return
        self._write(used, kept.table, slice(len(used)))  # the rest of the table is padding

    def recall(self, clients: Ints) -> tuple[Tree, Bools]:
        """The states of some clients, [clients, ...]; and which of them have one."""
        if self._stale and self._device is not None:
            there = np.flatnonzero(self.visited)
            self._write(there, self._device.table, there)
            self._stale = False
        rows = jax.tree.map(lambda leaf: np.asarray(leaf[clients]), self._host)
        return rows, self.visited[clients]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What a checkpoint holds: which clients have a state, and their states by leaf name."""
        (there,) = np.nonzero(self.visited)
        rows, _ = self.recall(there)
        return {"client": there, **{f"leaf/{name}": a for name, a in flatten(rows).items()}}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take over what a checkpoint holds."""
        there = arrays["client"]
        leaves = {name.removeprefix("leaf/"): a for name, a in arrays.items() if name != "client"}
        self._write(there, unflatten(self.shapes, leaves), slice(None))
        self.visited[there] = True
        self._device = None

    def _write(self, clients: Ints, table: Tree, places: Any) -> None:
        """Put the states at some places of a table into the host's arrays."""
        for leaf, new in zip(jax.tree.leaves(self._host), jax.tree.leaves(table), strict=True):
            leaf[clients] = np.asarray(new)[places]

    @functools.cached_property
    def _place(self) -> dict[str, int]:
        return {client: k for k, client in enumerate(self.ids)}

    def __getitem__(self, client: str) -> Tree:
        place = self._place[client]
        if not self.visited[place]:
            raise KeyError(client)
        rows, _ = self.recall(np.array([place]))
        return jax.tree.map(lambda a: a[0], rows)

    def __iter__(self) -> Iterator[str]:
        return (self.ids[k] for k in np.flatnonzero(self.visited))

    def __len__(self) -> int:
        return int(self.visited.sum())

    def __repr__(self) -> str:
        return f"ClientStates({len(self):,} of {len(self.ids):,} clients)"


def on_host(engine: Engine) -> bool:
    """Whether the device's memory is the host's, so that nothing is gained by staying on it."""
    return engine.local_devices()[0].platform == "cpu"


def _zeros(
    shape: tuple[int, ...], dtype: Any, folder: Path | None, number: int
) -> npt.NDArray[Any]:
    if 0 in shape:
        return np.zeros(shape, dtype)
    if folder is None:
        pages = mmap.mmap(-1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # else a client would take the memory of thousands
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        return np.frombuffer(pages, dtype).reshape(shape)
    try:
        return np.memmap(folder / f"leaf-{number}", dtype, "w+", shape=shape)
    except OSError as error:
        raise DataError(
            f"there is no room in {folder.parent} for what clients keep: {error}; set TMPDIR to a "
            "directory on a larger disk"
        ) from error
