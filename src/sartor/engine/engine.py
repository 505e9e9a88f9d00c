"""How work meets the machine: lanes, devices, precision, and where the data lives."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.data.names import refuse_words
from sartor.engine.lanes import LANES, take
from sartor.engine.schedule import padded
from sartor.errors import ConfigError, DataError
from sartor.models import Model
from sartor.trees import Tree, flatten, traced_hash

Columns = dict[str, jax.Array]
Rows = npt.NDArray[np.int32]
Shapes = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
"""The columns of a data set: name, shape of an example, type on the device."""


@dataclasses.dataclass(frozen=True)
class Engine:
    """How clients are run. Results do not depend on it beyond rounding; speed and memory do.

    Attributes:
        lanes: clients trained side by side on one device; chosen from the model and the device's
            memory if not given.
        devices: how many local devices to spread the lanes over; all of them if not given.
        precision: ``"f32"``, or ``"bf16"`` for arithmetic in bfloat16 with parameters in float32.
        resident: whether the data lives on the device (``True``) or is streamed there as rounds
            need it (``False``); resident if it fits, when not given.
        memory: bytes of device memory to plan with; asked from the device if not given.

    >>> Engine(lanes=4).lanes
    4
    """

    lanes: int | None = None
    devices: int | None = None
    precision: Literal["f32", "bf16"] = "f32"
    resident: bool | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("lanes", "devices", "memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"engine.{name} must be at least 1 (got {value})")
        if self.precision not in ("f32", "bf16"):
            raise ConfigError(f"engine.precision must be 'f32' or 'bf16' (got {self.precision!r})")

    def local_devices(self) -> list[jax.Device]:
        """The devices in use."""
        available: list[jax.Device] = jax.local_devices()
        wanted = self.devices or len(available)
        if wanted > len(available):
            raise ConfigError(
                f"engine.devices is {wanted}, but this machine has {len(available)} "
                f"({available[0].platform}); leave it out to use all"
            )
        return available[:wanted]

    def budget(self) -> int:
        """Bytes of memory on one device."""
        if self.memory is not None:
            return self.memory
        stats = self.local_devices()[0].memory_stats() or {}
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(stats.get("bytes_limit", physical))

    def lanes_for(self, model: Model, data: ClientData, batch: int, jobs: int) -> int:
        """Lanes on one device for jobs that step through batches of this model and data."""
        wanted = -(-jobs // len(self.local_devices()))  # more lanes than jobs would idle
        if self.lanes is not None:
            return min(self.lanes, max(wanted, 1))
        lane = lane_bytes(model, data, batch)
        # What keeps a device busy: on a CPU as much as its cache holds, on a GPU enough to fill
        # its multiprocessors (bench/RESULTS.md).
        on_cpu = self.local_devices()[0].platform == "cpu"
        # With many jobs little is lost where the last ones end, so more lanes pay.
        filling = 2**20 // lane if on_cpu else max(2**29 // lane, 12 if wanted < 48 else 32)
        fitting = self.budget() // 4 // lane
        if fitting < 1:
            raise ConfigError(
                f"one client's training step takes about {lane / 2**20:.0f} MiB, more than a "
                f"quarter of the device's {self.budget() / 2**20:.0f} MiB; make the batch "
                f"(now {batch}) smaller"
            )
        return max(1, min(filling, fitting, wanted, 512))


def lane_bytes(model: Model, data: ClientData, batch: int) -> int:
    """About how many bytes one training step of one client takes: parameters and activations."""
    return _lane_bytes(model, _columns(data), batch)


@made_once(maxsize=256)
def _lane_bytes(model: Model, columns: Shapes, batch: int) -> int:
    def step(params: Any, x: Any, y: jax.Array) -> Any:
        key = jax.random.key(0)
        return jax.grad(lambda p: model.loss(p, x, y, key).mean())(params)

    params = jax.eval_shape(model.init, jax.random.key(0))
    jaxpr = jax.make_jaxpr(step)(params, *_examples(columns, batch))
    results = [v.aval for equation in jaxpr.eqns for v in equation.outvars]
    # Not every intermediate lives at once, but the carry is held several times: near enough.
    return int(
        sum(
            getattr(a, "size", 0) * getattr(a, "dtype", np.dtype(np.int32)).itemsize
            for a in results
        )
    )


def _columns(data: ClientData) -> Shapes:
    return tuple((name, c.shape[1:], _device_dtype(c)) for name, c in data.columns.items())


def _examples(columns: Shapes, batch: int) -> tuple[Any, Any]:
    """Features and labels of a batch, as shapes."""
    shapes = {name: jax.ShapeDtypeStruct((batch, *s), dtype) for name, s, dtype in columns}
    x, y = jax.eval_shape(take, shapes, jax.ShapeDtypeStruct((batch,), jnp.int32))
    return x, y


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

    def load(self, *rows: Rows) -> tuple[Any, ...]:
        """Columns that hold all these rows; and for each array of rows, where they are in them."""
        if self.columns is not None:
            return self.columns, *rows
        used, where = np.unique(np.concatenate([r.reshape(-1) for r in rows]), return_inverse=True)
        columns = gather(self.engine, self.data, padded(used, self.capacity))
        cuts = np.cumsum([r.size for r in rows])[:-1]
        places = np.split(where.reshape(-1).astype(np.int32), cuts)
        return columns, *(p.reshape(r.shape) for p, r in zip(places, rows, strict=True))


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


def gather(engine: Engine, data: ClientData, positions: npt.NDArray[np.int64]) -> Columns:
    """Columns of examples, by their positions in ``data.rows``, on every device in use."""
    rows = data.rows[positions]
    in_order = len(rows) > 0 and bool((np.diff(rows) == 1).all())
    where: Any = slice(rows[0], rows[-1] + 1) if in_order else rows
    columns = {
        name: np.asarray(column[where], _device_dtype(column))
        for name, column in data.columns.items()
    }
    return on_every_device(engine, columns)


def on_every_device(engine: Engine, tree: Tree) -> Tree:
    """The same arrays on every device in use, so that no call has to move them again."""
    devices = engine.local_devices()
    if len(devices) == 1:
        return jax.device_put(tree, devices[0])
    mesh = Mesh(np.array(devices), (LANES,))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def _device_dtype(column: npt.NDArray[Any]) -> np.dtype[Any]:
    """64-bit columns become 32-bit: labels fit, and JAX would do so silently."""
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    return np.dtype(narrow.get(column.dtype, column.dtype))


def check(model: Model, data: ClientData) -> None:
    """Refuse data that the model cannot take, before any work starts."""
    if not isinstance(model, Model):
        raise ConfigError(f"a sartor.Model is needed first (got {type(model).__name__})")
    if not isinstance(data, ClientData):
        raise DataError(
            f"the data must be sartor's ClientData (got {type(data).__name__}); make it with "
            "sartor.data.from_frame, from_arrays, from_dict or open"
        )
    y = data.columns["y"]
    _check_range(data)
    _check_inputs(model, data.columns)
    if model.kind == "regression":
        refuse_words(data)
        _check_predictions(model, data)
        return
    if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1:
        raise DataError(
            f"column 'y' holds {y.dtype} of shape {y.shape[1:]}, but a {model.kind} model needs "
            "one class number for each example; use a regression model, or make the labels "
            "integers or words"
        )
    classes = model.classes or 0
    used = y[data.rows]
    if used.size and used.max() >= classes:
        position = int(np.argmax(used >= classes))
        raise DataError(
            f"client {_owner(data, position)!r}, column 'y': label {used[position]} is out of "
            f"range for a model of {classes} classes (0 to {classes - 1}); use "
            f"classes={int(used.max()) + 1} or correct the label"
        )
    if model.spec is None:  # the ready models need no proof
        _check_predictions(model, data)


def _owner(data: ClientData, position: int) -> str:
    return data.ids[int(np.searchsorted(data.bounds[:, 3], position, side="right"))]


def _check_range(data: ClientData) -> None:
    """Devices compute with 32 bits; a wider integer would wrap silently."""
    for name, column in data.columns.items():
        if column.dtype.kind not in "iu" or column.dtype.itemsize < 4 or not column.size:
            continue
        limits = np.iinfo(np.int32)
        for value in (column.min(), column.max()):
            if not limits.min <= int(value) <= limits.max:
                raise DataError(
                    f"column {name!r} holds {value}, which does not fit 32 bits; give it as floats"
                )


def _check_predictions(model: Model, data: ClientData) -> None:
    """What the model says of two examples must be what its kind promises."""
    x, y = _two_examples(data)
    try:
        params = model.init(jax.random.key(0))
        predicted = model.apply(params, x, None)
    except Exception as error:
        shapes = jax.tree.map(jnp.shape, x)
        raise ConfigError(
            f"the model failed on two examples, x of shape {shapes}: apply(params, x, key) raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if model.kind == "regression":
        if predicted.shape != y.shape:
            raise DataError(
                f"column 'y': a target has shape {y.shape[1:]}, but the model predicts "
                f"{predicted.shape[1:]} for an example; make them the same"
            )
        return
    wanted = (model.classes,) if model.kind == "density" else (2, model.classes)
    if predicted.shape != wanted:
        raise ConfigError(
            f"apply gave the shape {predicted.shape} for two examples, but with "
            f"classes={model.classes} it must be {wanted}"
        )
    total = float(jnp.exp(predicted).sum(axis=-1).reshape(-1)[0])
    if not abs(total - 1) < 0.01:
        raise ConfigError(
            f"apply must return log-probabilities, but the exponentials of a row sum to {total:.4g}"
            ", not 1; end it with jax.nn.log_softmax"
        )


def _two_examples(data: ClientData) -> tuple[Any, jax.Array]:
    rows = data.rows[[0, -1]]
    columns = {
        name: jnp.asarray(np.asarray(column[rows], _device_dtype(column)))
        for name, column in data.columns.items()
    }
    return take(columns, jnp.arange(2))


def _check_inputs(model: Model, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    features = {name: column.shape[1:] for name, column in columns.items() if name != "y"}
    if model.input_shape is None:
        return
    if model.kind == "density":
        if features:
            raise DataError(
                f"a density model takes no inputs, but the data has the columns {sorted(features)};"
                " use a classification model or leave them out"
            )
        return
    if list(features) != ["x"]:
        raise DataError(
            f"the model takes one input column 'x' of shape {model.input_shape}, but the data has "
            f"{sorted(features) or 'no input columns'}"
        )
    if features["x"] != model.input_shape:
        raise DataError(
            f"column 'x': an example has shape {features['x']}, but the model takes "
            f"{model.input_shape}"
        )


def model_identity(model: Model, data: ClientData) -> dict[str, str]:
    """What makes a model the same one for a checkpoint: its leaves, and what its loss computes."""
    return dict(_model_identity(model, _columns(data)))


@made_once(maxsize=256)
def _model_identity(model: Model, columns: Shapes) -> dict[str, str]:
    params = jax.eval_shape(model.init, jax.random.key(0))
    leaves = {name: str(leaf.shape) for name, leaf in flatten(params).items()}
    x, y = _examples(columns, 2)
    return {**leaves, "loss": traced_hash(model.loss, params, x, y, jax.random.key(0))}
