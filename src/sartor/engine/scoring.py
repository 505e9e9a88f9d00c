"""Losses of examples under models: one model for all clients, or one for each."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import PartitionSpec

from sartor.data import PARTS, ClientData
from sartor.engine.blocks import Stack, spread
from sartor.engine.engine import Engine, source
from sartor.engine.lanes import LANES, take
from sartor.engine.schedule import Ints, padded
from sartor.models import Model, Params, in_precision
from sartor.trees import Tree, flatten, unflatten

BATCH = 128
"""Examples scored at a time."""

CHUNK = 16
"""Batches scored in one call when a model is shared."""


class Scored(NamedTuple):
    """Results by example: the plain loss, and whether the most probable label is right."""

    loss: npt.NDArray[np.float32]
    correct: npt.NDArray[np.bool_]


def positions(data: ClientData, clients: Ints, part: str) -> Ints:
    """Positions in ``data.rows`` of all examples in a part of these clients, client by client."""
    sizes = data.sizes(part)[clients]
    starts = np.cumsum(sizes) - sizes
    first = data.bounds[clients, PARTS.index(part)]
    return np.asarray(np.arange(sizes.sum()) + np.repeat(first - starts, sizes))


def score_shared(
    model: Model, data: ClientData, rows: Ints, hypotheses: Params, engine: Engine
) -> Scored:
    """Score rows under each of q hypotheses: arrays [q, rows]."""
    q = jax.tree.leaves(hypotheses)[0].shape[0]
    run = _shared(model, engine)
    reader = source(engine, data, CHUNK * BATCH)
    results = []
    for begin in range(0, len(rows), CHUNK * BATCH):
        some = rows[begin : begin + CHUNK * BATCH]
        grid = padded(some, CHUNK * BATCH).reshape(CHUNK, BATCH).astype(np.int32)
        columns, places = reader.load(grid)
        results.append((len(some), run(hypotheses, columns, places)))
    loss = np.empty((q, len(rows)), np.float32)
    correct = np.empty((q, len(rows)), np.bool_)
    begin = 0
    for count, result in results:
        for out, values in zip((loss, correct), result, strict=True):
            out[:, begin : begin + count] = np.asarray(values)[:, :count]
        begin += count
    return Scored(loss, correct)


@functools.lru_cache(maxsize=32)
def _shared(model: Model, engine: Engine) -> Any:
    model = in_precision(model, engine.precision)

    def run(hypotheses: Params, columns: Any, rows: jax.Array) -> tuple[jax.Array, ...]:
        def batch(places: jax.Array) -> tuple[jax.Array, jax.Array]:
            x, y = take(columns, places)
            return jax.vmap(lambda h: model.score(h, x, y))(hypotheses)

        loss, correct = jax.lax.map(batch, rows)  # [batches, q, batch]
        return tuple(a.transpose(1, 0, 2).reshape(a.shape[1], -1) for a in (loss, correct))

    return jax.jit(run)


class EachScorer:
    """Scores clients' own models, a block of clients at a time, with one compilation.

    Args:
        model: the hypothesis class.
        data: the data set.
        start: hypotheses [q, ...] that hold the leaves which clients do not have of their own.
        engine: how to run it.
        lanes: the most clients in a block.
        most: the most rows of a client.
    """

    def __init__(
        self, model: Model, data: ClientData, start: Params | None, engine: Engine,
        *, lanes: int, most: int,
    ) -> None:  # fmt: skip
        devices = len(engine.local_devices())
        self.lanes = -(-lanes // devices) * devices
        self.steps = -(-most // BATCH)
        self.start = start
        self.run = _each(model, engine)
        self.reader = source(engine, data, self.lanes * most + 1)

    def score(self, params: Stack, cluster: Ints, first: Ints, sizes: Ints) -> list[Scored]:
        """Score the rows ``first … first + size`` of each client under its own model."""
        place = np.arange(self.steps * BATCH)
        inside = place < sizes[:, None]
        grid = np.where(inside, first[:, None] + place, 0)
        return self._score(params, cluster, grid, sizes)

    def score_same(self, params: Stack, cluster: Ints, rows: Ints) -> list[Scored]:
        """Score the same rows under each client's own model."""
        grid = np.broadcast_to(padded(rows, self.steps * BATCH), (len(cluster), self.steps * BATCH))
        return self._score(params, cluster, grid, np.full(len(cluster), len(rows)))

    def _score(self, params: Stack, cluster: Ints, rows: Ints, sizes: Ints) -> list[Scored]:
        """Score rows [clients, steps · BATCH], of which the first ``sizes`` count."""
        grid = padded(rows, self.lanes).reshape(self.lanes, self.steps, BATCH)
        columns, places = self.reader.load(grid.transpose(1, 0, 2).astype(np.int32))
        stack = {name: padded(np.asarray(leaf), self.lanes) for name, leaf in params.items()}
        needed = np.int32(-(-int(sizes.max()) // BATCH))
        clusters = padded(cluster.astype(np.int32), self.lanes)
        loss, correct = self.run(self.start, columns, places, needed, stack, clusters)
        loss, correct = np.asarray(loss), np.asarray(correct)
        return [Scored(loss[k, :n], correct[k, :n]) for k, n in enumerate(sizes)]


@functools.lru_cache(maxsize=32)
def _each(model: Model, engine: Engine) -> Any:
    shape = jax.eval_shape(model.init, jax.random.key(0))
    model = in_precision(model, engine.precision)

    def run(
        start: Params,
        columns: Any,
        rows: jax.Array,
        steps: jax.Array,
        params: Tree,
        cluster: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        def whole(trained: Tree, k: jax.Array) -> Params:
            leaves = {name: leaf[k] for name, leaf in flatten(start).items() if name not in params}
            return unflatten(shape, {**leaves, **trained})

        def one(trained: Tree, k: jax.Array, places: jax.Array) -> tuple[jax.Array, jax.Array]:
            return model.score(whole(trained, k), *take(columns, places))

        def body(s: jax.Array, out: Tree) -> Tree:
            results = jax.vmap(one)(params, cluster, rows[s])
            return tuple(o.at[s].set(r) for o, r in zip(out, results, strict=True))

        empty = (jnp.zeros(rows.shape, jnp.float32), jnp.zeros(rows.shape, bool))
        out = jax.lax.fori_loop(0, steps, body, empty)  # [steps, lanes, batch]
        return tuple(a.transpose(1, 0, 2).reshape(a.shape[1], -1) for a in out)

    every, lanes = PartitionSpec(), PartitionSpec(LANES)
    return spread(run, engine, (every, every, PartitionSpec(None, LANES), every, lanes, lanes))
