"""Rounds in chunks: the host plans and reports, the device runs many rounds in one call.

An algorithm is what a cohort computes, and what the server does with the sum of its uploads.
This file turns that into a run: it samples cohorts, packs them, compiles one program for all
chunks, and plans the next chunk while the device works on the last.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from sartor.data import ClientData
from sartor.engine.cohort import Cohort, sample_cohorts
from sartor.engine.engine import Engine, source
from sartor.engine.lanes import LANES
from sartor.engine.schedule import Ints, Schedule, pack, schedule, steps_of
from sartor.models import Model, in_precision
from sartor.randomness import key_data, mix
from sartor.trees import Tree

MOST_ROUNDS = 64
"""Rounds that one call to the device makes room for."""

CHUNK_SECONDS = 1.0
"""About how long a chunk should take: what a kill loses, and how often progress moves."""


class Algorithm(Protocol):
    """What the engine needs of a central algorithm; it must be hashable."""

    @property
    def rounds(self) -> int: ...
    @property
    def cohort(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...

    def clients(self, state: Tree, cohort: Cohort) -> tuple[Tree, dict[str, jax.Array]]:
        """What a cohort uploads, summed; and metrics, ``loss`` and ``finite`` among them."""
        ...

    def server(self, state: Tree, upload: Tree) -> Tree:
        """The next state."""
        ...


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some finished rounds.

    Attributes:
        start: the first round.
        stop: one past the last round.
        state: the algorithm's state after them, on the device.
        clients: [rounds, cohort] positions of the clients that took part.
        metrics: the algorithm's metrics, each [rounds, ...].
        seconds: since the chunk before was finished.
    """

    start: int
    stop: int
    state: Tree
    clients: Ints
    metrics: dict[str, npt.NDArray[Any]]
    seconds: float


def run_rounds(
    algorithm: Algorithm,
    model: Model,
    data: ClientData,
    state: Tree,
    *,
    seed: int,
    engine: Engine,
    start: int = 0,
) -> Iterator[Chunk]:
    """Run an algorithm from round ``start`` on, a chunk at a time.

    Where chunks begin and end depends on the clock; the numbers do not depend on it.
    """
    planner = _Planner(algorithm, model, data, seed, engine)
    run = _compiled(algorithm, model, engine, planner.most_rounds, planner.lanes)
    if start >= algorithm.rounds:
        return
    per_round, first, began = CHUNK_SECONDS, True, time.perf_counter()
    waiting: tuple[int, int, Tree, Ints, Any] | None = None
    while waiting or start < algorithm.rounds:
        launched = None
        if start < algorithm.rounds:
            wanted = max(1, int(CHUNK_SECONDS / per_round))
            stop = min(start + min(wanted, planner.most_rounds), algorithm.rounds)
            clients, arguments = planner.plan(range(start, stop))
            state, metrics = run(state, np.int32(stop - start), *arguments)
            launched = (start, stop, state, clients, metrics)
            start = stop
        if waiting:
            chunk = _finish(waiting, began)
            now = time.perf_counter()
            if not first:  # the first chunk's time is mostly compilation
                per_round = min(max(chunk.seconds / (chunk.stop - chunk.start), 1e-6), 2 * per_round)
            first, began = False, now
            yield chunk
        waiting = launched


def _finish(launched: tuple[int, int, Tree, Ints, Any], began: float) -> Chunk:
    start, stop, state, clients, metrics = launched
    host = {name: np.asarray(values)[: stop - start] for name, values in metrics.items()}
    return Chunk(start, stop, state, clients, host, time.perf_counter() - began)


class _Planner:
    """Makes the host's part of every chunk: cohorts, keys and schedules, all in one shape."""

    def __init__(
        self, algorithm: Algorithm, model: Model, data: ClientData, seed: int, engine: Engine
    ) -> None:
        self.algorithm, self.data, self.seed = algorithm, data, seed
        self.devices = len(engine.local_devices())
        # In the order of their hashes, draws do not depend on the order of clients in the data.
        seen = np.flatnonzero(data.seen)
        self.seen = seen[np.argsort(data.hashes[seen], kind="stable")]
        self.hashes = data.hashes[self.seen]
        self.sizes = data.sizes("train")[self.seen]
        jobs = min(algorithm.cohort, len(self.seen))
        self.lanes = self.devices * engine.lanes_for(model, data, algorithm.batch, jobs)
        longest, largest = self._extent()
        self.capacity = longest
        round_bytes = longest * self.lanes * algorithm.batch * 4
        self.most_rounds = max(1, min(MOST_ROUNDS, algorithm.rounds, 2**26 // round_bytes))
        # Streamed data has to fit too: a chunk holds the examples of all its cohorts.
        streamed = source(engine, data, 0).columns is None
        if streamed:
            example = sum(c.nbytes // max(len(c), 1) for c in data.columns.values())
            fitting = engine.budget() // 8 // max(example * largest, 1)
            self.most_rounds = max(1, min(self.most_rounds, fitting))
        self.source = source(engine, data, largest * self.most_rounds)

    def _extent(self) -> tuple[int, int]:
        """Over all rounds of the run: the most steps a lane takes, the most examples a cohort has."""
        longest, largest = 1, 1
        for begin in range(0, self.algorithm.rounds, 4096):
            rounds = range(begin, min(begin + 4096, self.algorithm.rounds))
            sizes = self.sizes[self._cohorts(rounds)]
            packing = pack(steps_of(sizes, self.algorithm.batch, self.algorithm.epochs), self.lanes)
            longest = max(longest, int(packing.steps.max()))
            largest = max(largest, int(sizes.sum(axis=1).max()))
            if self.algorithm.cohort >= len(self.seen):
                break  # every round is the same
        return longest, largest

    def _cohorts(self, rounds: range) -> Ints:
        return sample_cohorts(self.seed, rounds, len(self.seen), self.algorithm.cohort)

    def plan(self, rounds: range) -> tuple[Ints, tuple[Any, ...]]:
        """The clients of some rounds, and what the compiled program needs to run them."""
        cohorts = self._cohorts(rounds)
        clients, sizes = self.seen[cohorts], self.sizes[cohorts]
        numbers = np.arange(rounds.start, rounds.stop)[:, None]
        words = mix(self.seed, "train", numbers, self.hashes[cohorts])
        plan = schedule(
            self.data.bounds[clients, 0],
            sizes,
            words,
            batch=self.algorithm.batch,
            epochs=self.algorithm.epochs,
            lanes=self.lanes,
            devices=self.devices,
            capacity=self.capacity,
        )
        columns, rows = self.source.load(plan.rows)
        plan = plan._replace(rows=rows)
        jobs = {"key": key_data(words), "size": sizes.astype(np.float32)}
        plan, jobs = jax.tree.map(self._padded, (plan, jobs))
        return clients, (columns, plan, jobs)

    def _padded(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros((self.most_rounds, *array.shape[1:]), array.dtype)
        out[: len(array)] = array
        return out


@functools.lru_cache(maxsize=32)
def _compiled(algorithm: Algorithm, model: Model, engine: Engine, rounds: int, lanes: int) -> Any:
    """The program that runs up to ``rounds`` rounds; jit compiles it once for a run."""
    devices = engine.local_devices()
    lowered = in_precision(model, engine.precision)

    def one(state: Tree, columns: Any, plan: Schedule, jobs: Tree) -> tuple[Tree, Tree]:
        cohort = Cohort(lowered, jobs["size"], plan, columns, jobs, len(devices))
        upload, metrics = algorithm.clients(state, cohort)
        return algorithm.server(state, upload), metrics

    def many(
        state: Tree, count: jax.Array, columns: Any, plan: Schedule, jobs: Tree
    ) -> tuple[Tree, Tree]:
        def at(r: Any) -> tuple[Any, Any, Any]:
            return columns, *jax.tree.map(lambda a: a[r], (plan, jobs))

        _, shapes = jax.eval_shape(one, state, *at(0))
        empty = jax.tree.map(lambda m: jnp.zeros((rounds, *m.shape), m.dtype), shapes)

        def body(r: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            state, metrics = carry
            state, new = one(state, *at(r))
            return state, jax.tree.map(lambda m, v: m.at[r].set(v), metrics, new)

        return jax.lax.fori_loop(0, count, body, (state, empty))

    if len(devices) == 1:
        return jax.jit(many)
    mesh = Mesh(np.array(devices), (LANES,))
    everywhere, by_lane = PartitionSpec(), PartitionSpec(None, None, LANES)
    split = Schedule(PartitionSpec(None, LANES), *[by_lane] * 5)
    inputs = (everywhere, everywhere, everywhere, split, everywhere)
    # Lanes of different devices take different numbers of steps, and meet in the psum of `fold`.
    spread = jax.shard_map(
        many, mesh=mesh, in_specs=inputs, out_specs=everywhere, check_vma=False
    )
    return jax.jit(spread)
