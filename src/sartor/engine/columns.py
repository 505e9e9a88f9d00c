"""Where the data lives: on the device as a whole, or streamed there chunk by chunk."""

import weakref
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sartor.data import ClientData
from sartor.engine.engine import Engine
from sartor.engine.lanes import LANES
from sartor.engine.schedule import padded
from sartor.models import column_shapes
from sartor.trees import Tree
from sartor.types import Ints

Columns = dict[str, jax.Array]


class Source(NamedTuple):
    """Where schedules find their rows: on the device as a whole, or streamed chunk by chunk.

    Attributes:
        engine: how to run it.
        data: the data set.
        columns: all columns on the device in the order of ``data.rows``; ``None`` when streamed.
        capacity: rows that a streamed chunk makes room for.
    """

    engine: Engine
    data: ClientData
    columns: Columns | None
    capacity: int

    def load(self, rows: Tree) -> tuple[Columns, Any]:
        """Columns that hold all rows in a tree of arrays; and where in them these rows are."""
        if self.columns is not None:
            return self.columns, rows
        leaves, structure = jax.tree.flatten(rows)
        flat = np.concatenate([leaf.reshape(-1) for leaf in leaves])
        used, where = np.unique(flat, return_inverse=True)
        columns = gather(self.engine, self.data, padded(used, self.capacity))
        cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
        places = np.split(where.reshape(-1).astype(np.int32), cuts)
        shaped = [p.reshape(leaf.shape) for p, leaf in zip(places, leaves, strict=True)]
        return columns, jax.tree.unflatten(structure, shaped)


_RESIDENT: weakref.WeakKeyDictionary[ClientData, dict[int, Columns]] = weakref.WeakKeyDictionary()
"""Columns on the device, by data set and number of devices: a second fit finds them there."""


def source(engine: Engine, data: ClientData, capacity: int) -> Source:
    """Put the data where the engine wants it; ``capacity`` rows are enough for any one chunk."""
    bytes_ = sum(
        column.nbytes // max(len(column), 1) * len(data.rows) for column in data.columns.values()
    )
    resident = engine.resident if engine.resident is not None else bytes_ <= engine.budget() // 4
    if not resident:
        return Source(engine, data, None, capacity + 2)  # idle lanes and padding read a row, too
    copies = _RESIDENT.setdefault(data, {})
    count = len(engine.local_devices())
    if count not in copies:
        copies[count] = gather(engine, data, np.arange(len(data.rows)))
    return Source(engine, data, copies[count], capacity)


def gather(engine: Engine, data: ClientData, positions: Ints) -> Columns:
    """Columns of examples, by their positions in ``data.rows``, on every device in use."""
    rows = data.rows[positions]
    in_order = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    where: Any = slice(rows[0], rows[-1] + 1) if in_order else rows
    columns = {
        name: np.asarray(data.seen_by_models(name, where), dtype)
        for name, _, dtype in column_shapes(data)
    }
    return on_every_device(engine, columns)


def on_every_device(engine: Engine, tree: Tree) -> Tree:
    """The same arrays on every device in use, so that no call has to move them again."""
    devices = engine.local_devices()
    if len(devices) == 1:
        return jax.device_put(tree, devices[0])
    mesh = Mesh(np.array(devices), (LANES,))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
