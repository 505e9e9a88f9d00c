"""Predictions for any number of examples, each under some model, by a few compiled programs.

Examples are laid out in *tiles*: batches of a fixed size, each with examples of one model. The
number of tiles in a call, and that of models, is a power of two. So a handful of programs predicts
for any number of examples and models. What fills up a tile is cut off again, and as models predict
example by example it has no influence on the rest.
"""

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.caching import made_once
from sartor.engine.blocks import Stack
from sartor.engine.job import Job
from sartor.engine.objectives import Objective, predict
from sartor.engine.schedule import padded, ragged
from sartor.engine.vectorize import Compiled
from sartor.models import Params
from sartor.trees import Tree
from sartor.types import Ints

SMALL_TILE, TILE = 16, 256
"""Examples in a tile, where models have few examples each, and where they have more."""

AT_ONCE = 2**15
"""The most examples in a call."""


def predict_each(
    objective: Objective, own: Stack, central: Params | None, jobs: Job, x: Tree, model: Ints
) -> npt.NDArray[np.float32]:
    """What models predict for examples, in evaluation mode: [examples, ...].

    Args:
        objective: how a client predicts with its own leaves and the central hypotheses.
        own: the clients' own leaves, stacked: [models, ...].
        central: the central hypotheses, stacked, if there are any.
        jobs: what the objective knows of each client: [models, ...].
        x: features of the examples: [examples, ...].
        model: [examples] the number of each example's model.
    """
    x = jax.tree.map(np.asarray, x)
    counts = np.bincount(model)
    counts, used = counts[counts > 0], np.flatnonzero(counts)
    own, jobs = jax.tree.map(lambda a: a[used], (own, jobs))
    size = SMALL_TILE if counts.mean() <= SMALL_TILE else TILE
    # Examples by model; then, of each tile, its model and where its examples begin.
    order = np.argsort(model, kind="stable")
    number, place = ragged(-(-counts // size))
    begin = (np.cumsum(counts) - counts)[number] + place * size
    filled = np.minimum(counts[number] - place * size, size)
    run, found = _program(objective), []
    for first in range(0, len(number), AT_ONCE // size):
        here = slice(first, first + AT_ONCE // size)
        low, high = number[here][0], number[here][-1] + 1
        inside = np.arange(size) < filled[here, None]
        rows = order[np.where(inside, begin[here, None] + np.arange(size), 0)]
        tiles = _power_of_two(len(rows))
        batches = jax.tree.map(lambda a, rows=rows, tiles=tiles: padded(a[rows], tiles), x)
        models = jax.tree.map(
            lambda a, low=low, high=high: padded(
                np.asarray(a[low:high]), _power_of_two(high - low)
            ),
            (own, jobs),
        )
        said = run(*models, central, batches, padded(number[here] - low, tiles).astype(np.int32))
        found.append(np.asarray(said)[: len(rows)][inside])
    together = np.concatenate(found)
    prediction = np.empty_like(together)
    prediction[order] = together
    return prediction


@made_once(maxsize=32)
def _program(objective: Objective) -> Any:
    def run(own: Tree, jobs: Job, central: Params, x: Tree, model: jax.Array) -> jax.Array:
        def tile(given: tuple[Tree, jax.Array]) -> jax.Array:
            batch, number = given
            mine, job = jax.tree.map(lambda a: a[number], (own, jobs))
            return predict(objective, mine, central, batch, job)

        said: jax.Array = jax.lax.map(tile, (x, model))
        return said

    return Compiled(run)


def _power_of_two(count: int) -> int:
    """The smallest power of two that is at least so large."""
    return 1 << int(count - 1).bit_length()
