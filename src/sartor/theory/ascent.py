"""Label discrepancy of any model, from below: gradient ascent on ±(L_D1 − L_D2) within a ball.

Every pair of distributions has a few starts for each sign, and the best hypothesis of all steps
counts (the last one, where steps see only a few examples): what is found is reached by a
hypothesis, and is a lower bound of the discrepancy.
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
from sartor.errors import ConfigError, DataError
from sartor.models import Model, Params

Loss = Callable[[Params, Any, jax.Array], jax.Array]
"""``loss(params, x, y)``: of every example."""


class Ascent(NamedTuple):
    """How hypotheses are searched.

    Attributes:
        radius: of the ball of parameters.
        starts: for each sign: the ball's centre, and others at random.
        steps: from each start; they are normalised, and shorten to a thousandth of the radius: from
            a hundredth, since losses saturate far away, for other starts from more, up to a fifth.
        lanes: searches that run side by side.
        batch: examples whose losses are computed at once: what a search has in memory.
        draw: take so many examples of each distribution for a step, drawn at random; all if not
            given. What is found is always measured on all.
    """

    radius: float
    starts: int = 4
    steps: int = 200
    lanes: int = 32
    batch: int = 128
    draw: int | None = None


class Pairs(NamedTuple):
    """Pairs of distributions: weighted rows of the same columns.

    Attributes:
        first: rows of D1: [pairs, n].
        first_weights: their weights, which add up to 1; 0 fills up.
        second: rows of D2: [pairs, m].
        second_weights: their weights.
        word: of each pair's randomness: [pairs].
    """

    first: npt.NDArray[np.int32] | jax.Array
    first_weights: npt.NDArray[np.float32] | jax.Array
    second: npt.NDArray[np.int32] | jax.Array
    second_weights: npt.NDArray[np.float32] | jax.Array
    word: npt.NDArray[np.uint32] | jax.Array


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
    counts = how.starts, how.steps, 1 if how.draw is None else how.draw
    if not (how.radius > 0 and bound > 0) or min(counts) < 1:
        raise ConfigError(f"bound, radius, starts and steps must be positive (got {bound}, {how})")
    run = _program(model, bound, how)
    inputs = None if x is None else jnp.asarray(x)
    found = np.asarray(run(centre, inputs, jnp.asarray(y), pairs, key), np.float64)
    if not np.isfinite(found).all():
        raise DataError("losses are not finite; scale the inputs, or give a smaller radius")
    return found


@made_once(maxsize=16)
def _program(model: Model, bound: float, how: Ascent) -> Any:
    """One compiled search for all pairs of a shape."""
    loss = bounded_loss(model, bound)
    first = np.geomspace(0.01, 0.2, how.starts) if how.starts > 1 else [0.01]
    lengths = how.radius * jnp.stack([jnp.geomspace(a, 0.001, how.steps) for a in first])

    def run(centre: Params, x: Any, y: jax.Array, pairs: Pairs, key: jax.Array) -> jax.Array:
        middle, unravel = ravel_pytree(centre)

        @jax.checkpoint  # a batch's activations are made again for its gradient
        def of_batch(params: jax.Array, rows: jax.Array, weights: jax.Array) -> jax.Array:
            inputs = None if x is None else x[rows]
            return jnp.vdot(weights, loss(unravel(params), inputs, y[rows]))

        def mean(params: jax.Array, rows: Any, weights: Any) -> jax.Array:
            def add(total: jax.Array, batch: Any) -> Any:
                return total + of_batch(params, *batch), None

            return jax.lax.scan(add, jnp.zeros(()), _batches(rows, weights, how.batch))[0]

        def climb(pair: Pairs, start: jax.Array, sign: jax.Array, key: jax.Array) -> jax.Array:
            begin = begins[start]

            def gap(params: jax.Array, of: Pairs) -> jax.Array:
                one = mean(params, of.first, of.first_weights)
                return sign * (one - mean(params, of.second, of.second_weights))

            def step(carry: Any, now: Any) -> Any:
                (params, most), (length, number) = carry, now
                seen = pair if how.draw is None else _drawn(pair, how.draw, key, number)
                value, gradient = jax.value_and_grad(gap)(params, seen)
                norm = jnp.linalg.norm(gradient)
                moved = params + length * gradient / jnp.where(norm > 0, norm, 1.0)
                away = moved - middle
                far = jnp.maximum(jnp.linalg.norm(away) / how.radius, 1.0)
                return (middle + away / far, jnp.maximum(most, value)), None

            numbered = lengths[start], jnp.arange(how.steps)
            (end, most), _ = jax.lax.scan(step, (begin, jnp.zeros(())), numbered)
            # Of a few drawn examples the largest difference is mostly chance.
            return jnp.maximum(0.0 if how.draw is not None else most, gap(end, pair))

        begins, count = _starts(middle, how, key), len(pairs.first)

        def search(n: jax.Array) -> jax.Array:
            pair, which = n // (2 * how.starts), n % (2 * how.starts)
            mine = Pairs(*(column[pair] for column in map(jnp.asarray, pairs)))
            own = jax.random.fold_in(jax.random.fold_in(key, mine.word), which)
            return climb(mine, which // 2, 1.0 - 2.0 * (which % 2), own)

        found = jax.lax.map(search, jnp.arange(2 * how.starts * count), batch_size=how.lanes)
        return found.reshape(count, -1).max(axis=1)

    return jax.jit(run)


def _drawn(pair: Pairs, count: int, key: jax.Array, step: jax.Array) -> Pairs:
    """Some rows of each distribution, as likely as they weigh."""
    one, other = jax.random.split(jax.random.fold_in(key, step))
    even = jnp.full(count, 1 / count)

    def some(rows: Any, weights: Any, key: jax.Array) -> jax.Array:
        up_to = jnp.cumsum(weights)
        where = jnp.searchsorted(up_to, up_to[-1] * jax.random.uniform(key, (count,)), "right")
        return rows[jnp.minimum(where, len(rows) - 1)]

    return Pairs(some(pair.first, pair.first_weights, one), even,
                 some(pair.second, pair.second_weights, other), even, pair.word)  # fmt: skip


def _batches(rows: Any, weights: Any, size: int) -> tuple[jax.Array, jax.Array]:
    """Rows and weights in batches, filled up with weight 0."""
    size = min(size, len(rows))
    count = -(-len(rows) // size)
    fill = (0, count * size - len(rows))
    return tuple(jnp.pad(a, fill).reshape(count, size) for a in (rows, weights))  # type: ignore[return-value]


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
