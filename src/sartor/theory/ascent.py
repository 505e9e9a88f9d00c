"""A lower bound of the label discrepancy of any model, by gradient ascent within a ball.

The ascent maximises ±(L_D1 − L_D2). Each pair of distributions has a few starts for each sign. The
result is the best hypothesis of all steps, or the last one if each step sees only a few examples.
A hypothesis reaches the result, so the discrepancy is at least that.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.flatten_util import ravel_pytree

from sartor.caching import made_once
from sartor.models import Model, Params
from sartor.theory.bound import check_largest_loss


class Ascent(NamedTuple):
    """How to search for hypotheses.

    Attributes:
        radius: radius of the ball of parameters.
        starts: starts for each sign: the ball's centre, and random points.
        steps: steps from each start. They are normalised. Their lengths fall to a thousandth of the
            radius. The first start begins with a hundredth, since losses saturate far away, and the
            others with more, up to a fifth.
        lanes: searches that run at the same time.
        batch: examples whose losses are computed at once. It limits the memory of a search.
        draw: random examples of each distribution that a step sees (default: all). The result is
            always measured on all examples.
    """

    radius: float
    starts: int = 4
    steps: int = 200
    lanes: int = 32
    batch: int = 128
    draw: int | None = None


class Sample(NamedTuple):
    """Distributions as weighted rows: [n], or [distributions, n] for several.

    Attributes:
        rows: row numbers of examples.
        weights: their weights, which add up to 1; padding has weight 0.
    """

    rows: npt.NDArray[np.int32] | jax.Array
    weights: npt.NDArray[np.float32] | jax.Array


class Pairs(NamedTuple):
    """Pairs of distributions.

    Attributes:
        first: D1 of each pair.
        second: D2 of each pair.
        word: decides the randomness of each pair: [pairs].
    """

    first: Sample
    second: Sample
    word: npt.NDArray[np.uint32] | jax.Array


@made_once(maxsize=16)
def search_program(model: Model, bound: float, how: Ascent) -> Any:
    """The compiled search for all pairs at once.

    Args:
        model: the hypothesis class.
        bound: the largest loss; see :func:`bounded_loss`.
        how: the search.

    Returns:
        ``run(centre, x, y, pairs, key)``, the largest |L_D1(h) − L_D2(h)| that was found for each
        pair: [pairs]. ``centre`` is the centre of the ball, ``x`` (or ``None``) and ``y`` are all
        examples, and ``key`` draws the random starts, which are the same for all pairs.
    """
    loss = bounded_loss(model, bound)
    first = np.geomspace(0.01, 0.2, how.starts) if how.starts > 1 else [0.01]
    lengths = how.radius * jnp.stack([jnp.geomspace(a, 0.001, how.steps) for a in first])

    def run(centre: Params, x: Any, y: jax.Array, pairs: Pairs, key: jax.Array) -> jax.Array:
        middle, unravel = ravel_pytree(centre)

        @jax.checkpoint  # a batch's activations are computed again for its gradient
        def of_batch(params: jax.Array, rows: jax.Array, weights: jax.Array) -> jax.Array:
            inputs = None if x is None else x[rows]
            return jnp.vdot(weights, loss(unravel(params), inputs, y[rows]))

        def mean(params: jax.Array, sample: Sample) -> jax.Array:
            def add(total: jax.Array, batch: Sample) -> Any:
                return total + of_batch(params, *batch), None

            return jax.lax.scan(add, jnp.zeros(()), _batches(sample, how.batch))[0]

        def climb(pair: Pairs, start: jax.Array, sign: jax.Array, key: jax.Array) -> jax.Array:
            def gap(params: jax.Array, of: Pairs) -> jax.Array:
                return sign * (mean(params, of.first) - mean(params, of.second))

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
            (end, most), _ = jax.lax.scan(step, (begins[start], jnp.zeros(())), numbered)
            # The largest difference on a few drawn examples is mostly chance.
            return jnp.maximum(0.0 if how.draw is not None else most, gap(end, pair))

        begins, count = _starts(middle, how, key), len(pairs.word)

        def search(n: jax.Array) -> jax.Array:
            pair, which = n // (2 * how.starts), n % (2 * how.starts)
            mine = jax.tree.map(lambda column: column[pair], pairs)
            own = jax.random.fold_in(jax.random.fold_in(key, mine.word), which)
            return climb(mine, which // 2, 1.0 - 2.0 * (which % 2), own)

        found = jax.lax.map(search, jnp.arange(2 * how.starts * count), batch_size=how.lanes)
        return found.reshape(count, -1).max(axis=1)

    return jax.jit(run)


def _drawn(pair: Pairs, count: int, key: jax.Array, step: jax.Array) -> Pairs:
    """Some random rows of each distribution, drawn with probabilities equal to their weights."""
    one, other = jax.random.split(jax.random.fold_in(key, step))
    even = jnp.full(count, 1 / count)

    def some(sample: Sample, key: jax.Array) -> Sample:
        up_to = jnp.cumsum(sample.weights)
        where = jnp.searchsorted(up_to, up_to[-1] * jax.random.uniform(key, (count,)), "right")
        return Sample(sample.rows[jnp.minimum(where, len(sample.rows) - 1)], even)

    return Pairs(some(pair.first, one), some(pair.second, other), pair.word)


def _batches(sample: Sample, size: int) -> Sample:
    """The rows and weights in batches, padded with weight 0: [batches, size]."""
    size = min(size, len(sample.rows))
    count = -(-len(sample.rows) // size)
    fill = (0, count * size - len(sample.rows))
    return Sample(*(jnp.pad(a, fill).reshape(count, size) for a in sample))


def _starts(middle: jax.Array, how: Ascent, key: jax.Array) -> jax.Array:
    """The centre, and points at random distances from it: [starts, parameters]."""
    towards, far = jax.random.split(key)
    directions = jax.random.normal(towards, (how.starts, middle.size))
    directions /= jnp.linalg.norm(directions, axis=1, keepdims=True)
    distance = how.radius * jax.random.uniform(far, (how.starts, 1), minval=0.1)
    # Gradients may vanish where all parameters are equal, so the first start is near the centre.
    return middle + directions * distance.at[0].set(0.01 * how.radius)


def bounded_loss(model: Model, bound: float) -> Callable[[Params, Any, jax.Array], jax.Array]:
    """The plain loss ``loss(params, x, y)`` of each example, limited to ``bound``.

    Probabilities are mixed with the uniform distribution, so that none is below e^−bound. The
    mixtures are hypotheses, too, and have gradients everywhere. A squared error is cut off.
    """
    if model.kind == "regression":
        return lambda params, x, y: jnp.minimum(model.score(params, x, y)[0], bound)
    classes = model.classes or 1
    check_largest_loss(bound, classes)
    rest = np.log(max(1 - classes * np.exp(-bound), 1e-30))

    def loss(params: Params, x: Any, y: jax.Array) -> jax.Array:
        log_probs = jnp.logaddexp(model.apply(params, x, None) + rest, -bound)
        return model.score_of(log_probs, y)[0]

    return loss
