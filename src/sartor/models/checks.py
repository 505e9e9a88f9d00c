"""Whether a model and a data set fit together, checked before any work starts."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.caching import made_once
from sartor.checking import checks_arguments
from sartor.data import ClientData
from sartor.data.names import refuse_words
from sartor.errors import ConfigError, DataError
from sartor.models.base import Model
from sartor.models.inputs import Shapes, column_shapes, device_dtype, example_shapes, take
from sartor.trees import flatten, traced_hash


@checks_arguments
def check(model: Model, data: ClientData) -> None:
    """Refuse data that the model cannot take, before any work starts."""
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
            f"client {data.ids[data.owner_of(position)]!r}, column 'y': label {used[position]} is "
            f"out of range for a model of {classes} classes (0 to {classes - 1}); use "
            f"classes={int(used.max()) + 1} or correct the label"
        )
    if model.spec is None:  # the ready models need no proof
        _check_predictions(model, data)


def _check_range(data: ClientData) -> None:
    """Devices compute with 32 bits; a wider integer would wrap silently."""
    limits = np.iinfo(np.int32)
    for name, column in data.columns.items():
        if column.dtype.kind not in "iu" or column.dtype.itemsize < 4 or not column.size:
            continue
        for value in (column.min(), column.max()):
            if not limits.min <= int(value) <= limits.max:
                raise DataError(
                    f"column {name!r} holds {value}, which does not fit 32 bits; give it as floats"
                )


def _check_predictions(model: Model, data: ClientData) -> None:
    """Run the model on two examples, and check what it predicts."""
    rows = data.rows[[0, -1]]
    two = {n: jnp.asarray(c[rows], device_dtype(c)) for n, c in data.columns.items()}
    x, y = take(two, jnp.arange(2))
    with _own_code(f"x of shape {jax.tree.map(jnp.shape, x)}: apply(params, x, key)"):
        predicted = model.apply(model.init(jax.random.key(0)), x, None)
    found = getattr(predicted, "shape", None)  # of whatever it is
    if model.training_loss is not None:
        with _own_code("its own loss: training_loss(prediction, y)"):
            losses = jnp.shape(model.training_loss(predicted, y))
        if losses != (2,):
            raise ConfigError(
                f"training_loss gave the shape {losses} for two examples, but it must be (2,): a "
                "loss for each"
            )
    if model.kind == "regression":
        if found != y.shape:
            raise DataError(
                f"column 'y': a target has shape {y.shape[1:]}, but the model predicts "
                f"{found and found[1:]} for an example; make them the same"
            )
        return
    wanted = (model.classes,) if model.kind == "density" else (2, model.classes)
    if found != wanted:
        raise ConfigError(
            f"apply gave the shape {found} for two examples, but with "
            f"classes={model.classes} it must be {wanted}"
        )
    total = float(jnp.exp(predicted).sum(axis=-1).reshape(-1)[0])
    if not abs(total - 1) < 0.01:
        raise ConfigError(
            f"apply must return log-probabilities, but the exponentials of a row sum to {total:.4g}"
            ", not 1; end it with jax.nn.log_softmax"
        )


@contextlib.contextmanager
def _own_code(what: str) -> Iterator[None]:
    """Turn whatever the user's functions raise into an error that says which of them it was."""
    try:
        yield
    except Exception as error:
        raise ConfigError(
            f"the model failed on two examples, {what} raised {type(error).__name__}: {error}; "
            "correct the function"
        ) from error


def _check_inputs(model: Model, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    found = {name: column.shape[1:] for name, column in columns.items() if name != "y"}
    wanted = {} if model.kind == "density" else {"x": model.input_shape}
    if model.input_shape is not None and found != wanted:
        raise DataError(
            f"this {model.kind} model takes {wanted or 'no inputs'}, but an example has "
            f"{found or 'no inputs'} (shapes by column); choose another model or leave out columns"
        )


def model_identity(model: Model, data: ClientData) -> dict[str, str]:
    """What makes a model the same one for a checkpoint: its leaves, and what its loss computes."""
    return dict(_model_identity(model, column_shapes(data)))


@made_once(maxsize=256)
def _model_identity(model: Model, columns: Shapes) -> dict[str, str]:
    params = jax.eval_shape(model.init, jax.random.key(0))
    leaves = {name: str(leaf.shape) for name, leaf in flatten(params).items()}
    x, y = example_shapes(columns, 2)
    return {**leaves, "loss": traced_hash(model.loss, params, x, y, jax.random.key(0))}
