"""Modules of flax (linen and nnx) and equinox as Sartor models.

The libraries are optional and imported only when an adapter is called. A module may use dropout;
layers that carry state from batch to batch (batch norm) have no place in federated averaging and
are refused: use group or layer norm.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sartor.checking import Count, Part, checks_arguments, shown
from sartor.errors import ConfigError
from sartor.models.base import Model, Params
from sartor.models.layers import log_softmax

Kind = Literal["classification", "regression"]


@checks_arguments
def from_flax(
    module: Any,
    *,
    input_shape: Sequence[Count],
    classes: Count | None = None,
    input_dtype: Any = jnp.float32,
    smoothing: Part = 0.0,
) -> Model:
    """A ``flax.linen`` module that returns logits (with ``classes``) or a mean (without).

    A ``train`` or ``deterministic`` argument of ``__call__`` is set to the mode at hand.

    >>> import flax.linen as nn
    >>> model = from_flax(nn.Dense(3), input_shape=(4,), classes=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 4)), None).shape
    (2, 3)
    """
    if not (hasattr(module, "init") and hasattr(module, "apply")):
        raise ConfigError(f"module must be a flax.linen module (got {shown(module)})")
    accepted = inspect.signature(type(module).__call__).parameters

    def mode(training: bool) -> dict[str, bool]:
        flags = {"train": training, "training": training, "deterministic": not training}
        return {name: value for name, value in flags.items() if name in accepted}

    def init(key: jax.Array) -> Params:
        variables = module.init(key, jnp.zeros((1, *input_shape), input_dtype), **mode(False))
        _refuse_state(module, sorted(set(variables) - {"params"}))
        return variables["params"]

    def forward(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        rngs = {} if key is None else {"dropout": key}
        return module.apply({"params": params}, x, rngs=rngs, **mode(key is not None))

    return _finish(init, forward, input_shape, classes, smoothing)


@checks_arguments
def from_nnx(
    make: Callable[[Any], Any],
    *,
    input_shape: Sequence[Count],
    classes: Count | None = None,
    smoothing: Part = 0.0,
) -> Model:
    """A ``flax.nnx`` module, given as a function of ``nnx.Rngs`` that builds it.

    >>> from flax import nnx
    >>> model = from_nnx(lambda rngs: nnx.Linear(4, 3, rngs=rngs), input_shape=(4,), classes=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 4)), None).shape
    (2, 3)
    """
    from flax import nnx

    def split(key: jax.Array) -> tuple[Any, Params, Any]:
        parts: Any = nnx.split(make(nnx.Rngs(key)), nnx.Param, ...)
        return parts[0], nnx.to_pure_dict(parts[1]), parts[2]

    graph, _, rest = split(jax.random.key(0))
    state = nnx.to_flat_state(rest)
    _refuse_state(make, [path for path, leaf in state if not issubclass(leaf.type, nnx.RngState)])

    def init(key: jax.Array) -> Params:
        return split(key)[1]

    def forward(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        here = jax.tree.map(lambda leaf: leaf, rest)  # a copy that may be changed in this trace
        module = nnx.merge(graph, nnx.State(params), here)
        if key is None:
            module.eval()
        else:
            module.train()
            nnx.reseed(module, default=key, dropout=key)
        return module(x)

    return _finish(init, forward, input_shape, classes, smoothing)


@checks_arguments
def from_equinox(
    make: Callable[[jax.Array], Any],
    *,
    input_shape: Sequence[Count],
    classes: Count | None = None,
    smoothing: Part = 0.0,
) -> Model:
    """An ``equinox`` module, given as a function of a key that builds it.

    As usual in equinox the module takes one example; it is vmapped over the batch, and given a
    ``key`` of its own for every example if its ``__call__`` takes one.

    >>> import equinox as eqx
    >>> model = from_equinox(lambda key: eqx.nn.Linear(4, 3, key=key), input_shape=(4,), classes=3)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 4)), None).shape
    (2, 3)
    """
    import equinox as eqx

    if isinstance(make, eqx.Module):
        raise ConfigError(
            "from_equinox takes a function of a key that builds the module, such as "
            f"lambda key: {type(make).__name__}(..., key=key); it got a module"
        )
    example = make(jax.random.key(0))
    leaves = jax.tree.leaves(example, is_leaf=lambda leaf: isinstance(leaf, eqx.nn.StateIndex))
    _refuse_state(example, [leaf for leaf in leaves if isinstance(leaf, eqx.nn.StateIndex)])
    static = eqx.partition(example, eqx.is_inexact_array)[1]
    takes_key = "key" in inspect.signature(example.__call__).parameters

    def init(key: jax.Array) -> Params:
        return eqx.filter(make(key), eqx.is_inexact_array)

    def forward(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        module = eqx.combine(params, static)
        if key is None:
            return jax.vmap(eqx.nn.inference_mode(module))(x)
        if not takes_key:
            return jax.vmap(module)(x)
        keys = jax.random.split(key, x.shape[0])
        return jax.vmap(lambda one, k: module(one, key=k))(x, keys)

    return _finish(init, forward, input_shape, classes, smoothing)


def _refuse_state(module: Any, state: list[Any]) -> None:
    if state:
        raise ConfigError(
            f"{getattr(module, '__name__', type(module).__name__)} keeps state ({state}), which "
            "cannot be averaged over clients; replace batch norm by group or layer norm"
        )


def _finish(
    init: Callable[[jax.Array], Params],
    forward: Callable[[Params, Any, jax.Array | None], jax.Array],
    input_shape: Sequence[int],
    classes: int | None,
    smoothing: float,
) -> Model:
    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        out = forward(params, x, key)
        if classes is None:
            return out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
        return log_softmax(out)

    kind: Kind = "regression" if classes is None else "classification"
    shape = tuple(input_shape)
    return Model(init, apply, kind=kind, classes=classes, input_shape=shape, smoothing=smoothing)
