"""Label discrepancy of any model, from below: gradient ascent on ±(L_D1 − L_D2) within a ball.

Every pair of distributions has a few starts for each sign, and the best hypothesis of all steps
counts, so that what is found is reached by a hypothesis: it is a lower bound of the discrepancy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.flatten_util import ravel_pytree

from sartor.caching import made_once
from sartor.errors import ConfigError
from sartor.models import Model, Params

Loss = Callable[[Params, Any, jax.Array], jax.Array]
"""``loss(params, x, y)``: of every example."""


class Ascent(NamedTuple):
    """How hypotheses are searched.

    Attributes:
        radius: of the ball of parameters.
        starts: for each sign: the ball's centre, and others at random.
        steps: from each start; they are normalised, and shorten from a fifth of the radius to a
            thousandth.
        lanes: pairs that are searched side by side.
    """

    radius: float
    starts: int = 4
    steps: int = 200
    lanes: int = 64


class Pairs(NamedTuple):
    """Pairs of distributions: weighted rows of the same columns.

    Attributes:
        first: rows of D1: [pairs, n].
        first_weights: their weights, which add up to 1; 0 fills up.
        second: rows of D2: [pairs, m], or [m] if all pairs have the same.
        second_weights: their weights.
    """

    first: npt.NDArray[np.int32]
    first_weights: npt.NDArray[np.float32]
    second: npt.NDArray[np.int32]
    second_weights: npt.NDArray[np.float32]


def ascend(
    model: Model,
    bound: float,
    centre: Params,
    x: Any,
    y: Any,
    pairs: Pairs,
    how: Ascent,
    key: jax.Array,
) -> npt.NDArray[np.float64]:
    """The largest |L_D1(h) − L_D2(h)| that was found, for every pair: [pairs].

    Args:
        model: the hypothesis class.
        bound: the largest loss; see :func:`bounded_loss`.
        centre: of the ball of parameters.
        x: inputs of all examples, or ``None``.
        y: labels of all examples.
        pairs: rows of them.
        how: the search.
        key: of the random starts; the same for all pairs.
    """
    if how.radius <= 0 or how.starts < 1 or how.steps < 1:
        raise ConfigError(f"radius, starts and steps must be positive (got {how})")
    run = _program(model, bound, how)
    inputs = None if x is None else jnp.asarray(x)
    return np.asarray(run(centre, inputs, jnp.asarray(y), pairs, key), np.float64)


@made_once(maxsize=16)
def _program(model: Model, bound: float, how: Ascent) -> Any:
    """One compiled search for all pairs of a shape."""
    loss = bounded_loss(model, bound)
    lengths = how.radius * jnp.geomspace(0.2, 0.001, how.steps)

    def run(centre: Params, x: Any, y: jax.Array, pairs: Pairs, key: jax.Array) -> jax.Array:
        middle, unravel = ravel_pytree(centre)
        shared = pairs.second.ndim == 1

        def mean(params: jax.Array, rows: Any, weights: Any) -> jax.Array:
            inputs = None if x is None else x[rows]
            return jnp.vdot(weights, loss(unravel(params), inputs, y[rows]))

        def best(pair: Any) -> jax.Array:
            first, first_weights, *rest = pair
            second, second_weights = (pairs.second, pairs.second_weights) if shared else rest

            def gap(params: jax.Array, sign: jax.Array) -> jax.Array:
                one = mean(params, first, first_weights)
                return sign * (one - mean(params, second, second_weights))

            def step(carry: Any, length: jax.Array) -> Any:
                params, sign, most = carry
                value, gradient = jax.value_and_grad(gap)(params, sign)
                norm = jnp.linalg.norm(gradient)
                moved = params + length * gradient / jnp.where(norm > 0, norm, 1.0)
                away = moved - middle
                far = jnp.maximum(jnp.linalg.norm(away) / how.radius, 1.0)
                return (middle + away / far, sign, jnp.fmax(most, value)), None

            def climb(start: jax.Array, sign: jax.Array) -> jax.Array:
                begin = start, sign, jnp.zeros(())
                (end, _, most), _ = jax.lax.scan(step, begin, lengths)
                return jnp.fmax(most, gap(end, sign))

            begins = _starts(middle, how, key)
            return jax.vmap(lambda s: jax.vmap(lambda b: climb(b, s))(begins))(_SIGNS).max()

        each = tuple(pairs[:2] if shared else pairs)
        return jax.lax.map(best, each, batch_size=how.lanes)

    return jax.jit(run)


_SIGNS = np.array([1.0, -1.0], np.float32)


def _starts(middle: jax.Array, how: Ascent, key: jax.Array) -> jax.Array:
    """The centre, and points at random distances from it."""
    towards, far = jax.random.split(key)
    directions = jax.random.normal(towards, (how.starts, middle.size))
    directions /= jnp.linalg.norm(directions, axis=1, keepdims=True)
    distance = how.radius * jax.random.uniform(far, (how.starts, 1), minval=0.1)
    # Where parameters are all alike, gradients may vanish: the centre itself is left a little.
    return middle + directions * distance.at[0].set(0.01 * how.radius)


def bounded_loss(model: Model, bound: float) -> Loss:
    """The plain loss, made at most ``bound``.

    Probabilities are mixed with the uniform ones, so that none is below e^−bound: these models are
    hypotheses, too, and have gradients everywhere. A squared error is cut off.
    """
    if model.kind == "regression":
        return lambda params, x, y: jnp.minimum(model.score(params, x, y)[0], bound)
    classes = model.classes or 1
    floor = np.exp(-bound)
    if classes * floor > 1:
        raise ConfigError(
            f"bound={bound}: with {classes} classes a guess already loses {np.log(classes):.3f}; "
            "give a larger one"
        )
    rest = np.log(max(1 - classes * floor, 1e-30))

    def loss(params: Params, x: Any, y: jax.Array) -> jax.Array:
        log_probs = jnp.logaddexp(model.apply(params, x, None) + rest, -bound)
        return model.score_of(log_probs, y)[0]

    return loss
