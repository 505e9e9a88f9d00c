"""What a model sees of a data set: features and labels of rows, in the types of a device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.data import ClientData

Shapes = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
"""The columns of a data set: name, shape of an example, type on the device."""


def take(columns: dict[str, jax.Array], rows: jax.Array) -> tuple[Any, jax.Array]:
    """Features and labels of rows: one feature column as it is, several as a dict, none as None."""
    features = {name: column[rows] for name, column in columns.items() if name != "y"}
    x = None if not features else features["x"] if list(features) == ["x"] else features
    return x, columns["y"][rows]


def device_dtype(column: npt.NDArray[Any]) -> np.dtype[Any]:
    """64-bit columns become 32-bit: labels fit, and JAX would do so silently."""
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    return np.dtype(narrow.get(column.dtype, column.dtype))


def column_shapes(data: ClientData) -> Shapes:
    """The columns of a data set, without their values."""
    scaled = {"x"} if data.scaling is not None else set()
    return tuple(
        (name, c.shape[1:], np.dtype(np.float32) if name in scaled else device_dtype(c))
        for name, c in data.columns.items()
    )


def example_shapes(columns: Shapes, batch: int) -> tuple[Any, Any]:
    """Features and labels of a batch, as shapes."""
    shapes = {name: jax.ShapeDtypeStruct((batch, *s), dtype) for name, s, dtype in columns}
    x, y = jax.eval_shape(take, shapes, jax.ShapeDtypeStruct((batch,), jnp.int32))
    return x, y
