"""Ready models: categorical density, linear and logistic regression, MLP, and the paper's CNN."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from sartor.caching import made_once
from sartor.checking import Count, Part, check_memory, checks_arguments
from sartor.data.scaling import Scale
from sartor.errors import ConfigError
from sartor.models.base import Model, Params
from sartor.models.layers import conv_conv_pool, dense, dropout, init_layers, log_softmax, to_float

Shape = Count | Sequence[Count]
"""The length of an input, or its shape."""


@checks_arguments
def categorical(symbols: Count, *, smoothing: Part = 0.0) -> Model:
    """A distribution over symbols, without inputs: the paper's density estimation (section 7.1).

    The start is the uniform distribution.

    >>> model = categorical(symbols=4)
    >>> jnp.exp(model.apply(model.init(jax.random.key(0)), None, None)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    _check_size("categorical", (1, symbols))
    return _categorical(symbols, smoothing)


@checks_arguments
def logistic(
    features: Shape, classes: Count, *, smoothing: Part = 0.0, scale: bool = True
) -> Model:
    """Multinomial logistic regression; ``features`` is the length of an input, or its shape.

    Features are whitened by statistics of the training parts, unless ``scale`` is False or an input
    is no vector.

    >>> model = logistic(features=20, classes=5)
    >>> {name: leaf.shape for name, leaf in model.init(jax.random.key(0))["dense_1"].items()}
    {'w': (20, 5), 'b': (5,)}
    """
    return _perceptron(_shape(features), (), classes, False, smoothing, scale)


@checks_arguments
def linear(features: Shape, outputs: Count = 1, *, scale: bool = True) -> Model:
    """Linear regression with squared loss; with one output, predictions have shape [n].

    Features are whitened by statistics of the training parts, unless ``scale`` is False or an input
    is no vector.

    >>> model = linear(features=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 3)), None).shape
    (2,)
    """
    return _perceptron(_shape(features), (), outputs, True, 0.0, scale)


@checks_arguments
def mlp(
    features: Shape,
    hidden: Sequence[Count] = (128,),
    *,
    classes: Count | None = None,
    outputs: Count | None = None,
    smoothing: Part = 0.0,
    scale: bool = True,
) -> Model:
    """A multi-layer perceptron with ReLU: a classifier (``classes``) or a regressor (``outputs``).

    Features are standardized by statistics of the training parts, unless ``scale`` is False or an
    input is no vector.

    >>> sorted(mlp(features=4, hidden=(8, 8), classes=3).init(jax.random.key(0)))
    ['dense_1', 'dense_2', 'dense_3']
    """
    if (classes is None) == (outputs is None):
        raise ConfigError(
            f"mlp needs either classes (a classifier) or outputs (a regressor); "
            f"got classes={classes}, outputs={outputs}"
        )
    out = classes or outputs or 1
    return _perceptron(_shape(features), tuple(hidden), out, outputs is not None, smoothing, scale)


@checks_arguments
def cnn(classes: Count = 62, *, smoothing: Part = 0.0) -> Model:
    """The paper's EMNIST network, layer by layer as in its table (appendix "EMNIST dataset").

    Two 3×3 convolutions (32 and 64 channels), 2×2 max-pooling, dropout keeping 0.75, a dense
    layer of 128, dropout keeping 0.5, and log-softmax: 1,206,590 parameters at 62 classes.
    The paper trains it with ``smoothing=0.1``.

    >>> from sartor.models import count_parameters
    >>> count_parameters(jax.eval_shape(cnn().init, jax.random.key(0)))
    1206590
    """
    _check_size("cnn", (128, classes))
    return _cnn(classes, smoothing)


# Factories are cached, so that the same arguments give the *same* model and compiled programs
# are found again. They take only hashable, already checked arguments.


@made_once(maxsize=128)
def _categorical(symbols: int, smoothing: float) -> Model:
    def init(key: jax.Array) -> Params:
        return {"logits": jnp.zeros(symbols)}

    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        return jax.nn.log_softmax(params["logits"])

    return Model(
        init,
        apply,
        kind="density",
        classes=symbols,
        input_shape=(),
        smoothing=smoothing,
        spec={"name": "categorical", "symbols": symbols, "smoothing": smoothing},
    )


@made_once(maxsize=128)
def _perceptron(
    shape: tuple[int, ...], hidden: tuple[int, ...], out: int, regression: bool, smoothing: float,
    scale: bool,
) -> Model:  # fmt: skip
    widths = (math.prod(shape), *hidden, out)
    _check_size("mlp" if hidden else "linear" if regression else "logistic", widths)
    shapes = {f"dense_{i}": shape for i, shape in enumerate(pairwise(widths), 1)}
    *inner, last = shapes

    def init(key: jax.Array) -> Params:
        return init_layers(key, shapes)

    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        z = to_float(x, params["dense_1"]["w"].dtype).reshape(x.shape[0], -1)
        for name in inner:
            z = jax.nn.relu(dense(params[name], z))
        z = dense(params[last], z)
        if regression:
            return z[:, 0] if out == 1 else z
        return log_softmax(z)

    def informed(params: Params, prediction: jax.Array, unit: jax.Array) -> Params:
        # Weights are in the unit of the labels: with targets near 1e-6, others are far off.
        w, b = params[last]["w"], params[last]["b"]
        start = jnp.broadcast_to(prediction, b.shape).astype(b.dtype)
        return {**params, last: {"w": w if inner else w * unit, "b": start}}

    spec: dict[str, Any] = {"name": "linear" if regression else "logistic"}
    spec["features"] = shape[0] if len(shape) == 1 else shape
    if hidden:
        spec |= {"name": "mlp", "hidden": hidden}
    spec |= {"outputs": out} if regression else {"classes": out, "smoothing": smoothing}
    if not scale:
        spec["scale"] = False
    how: Scale = "standardize" if hidden else "whiten"
    return Model(
        init,
        apply,
        kind="regression" if regression else "classification",
        classes=None if regression else out,
        input_shape=shape,
        smoothing=smoothing,
        scale=how if scale and len(shape) == 1 else None,
        informed=informed,
        spec=spec,
    )


@made_once(maxsize=128)
def _cnn(classes: int, smoothing: float) -> Model:
    shapes = {
        "conv_1": (3, 3, 1, 32),
        "conv_2": (3, 3, 32, 64),
        "dense_1": (12 * 12 * 64, 128),
        "dense_2": (128, classes),
    }

    def init(key: jax.Array) -> Params:
        return init_layers(key, shapes)

    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        z = to_float(x, params["conv_1"]["w"].dtype)
        z = conv_conv_pool(params["conv_1"], params["conv_2"], z)
        key_1, key_2 = (None, None) if key is None else jax.random.split(key)
        z = dropout(z, keep=0.75, key=key_1)
        z = jax.nn.relu(dense(params["dense_1"], z.reshape(z.shape[0], -1)))
        z = dropout(z, keep=0.5, key=key_2)
        return log_softmax(dense(params["dense_2"], z))

    return Model(
        init,
        apply,
        classes=classes,
        input_shape=(28, 28),
        smoothing=smoothing,
        spec={"name": "cnn", "classes": classes, "smoothing": smoothing},
    )


FACTORIES: dict[str, Callable[..., Model]] = {
    factory.__name__: factory for factory in (categorical, logistic, linear, mlp, cnn)
}
"""The ready models by the name that configurations and saved models use."""


@checks_arguments
def rebuild(spec: Mapping[str, Any]) -> Model:
    """A ready model from the name and arguments of its factory.

    >>> rebuild({"name": "logistic", "features": 4, "classes": 2}).classes
    2
    """
    try:
        return FACTORIES[spec["name"]](**{key: v for key, v in spec.items() if key != "name"})
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{dict(spec)!r} is not a ready model with all its arguments, such as "
            f'{{name = "logistic", features = 4, classes = 2}} ({error})'
        ) from error


def _shape(features: int | Sequence[int]) -> tuple[int, ...]:
    shape = tuple(features) if isinstance(features, Sequence) else (features,)
    if not shape:
        raise ConfigError("features is empty; give the length of an input, or its shape")
    return shape


def _check_size(name: str, widths: Sequence[int]) -> None:
    """Refuse layers of these widths if the machine cannot hold them."""
    size = 4.0 * sum(float(a) * b for a, b in pairwise(widths))
    what = f"{name}: parameters of layers of {' × '.join(map(str, widths))} units"
    check_memory(what, size, "make them smaller")
