"""Rounds in chunks: the host plans and reports, the device runs many rounds in one call.

An algorithm is what a cohort computes, and what the server does with the sum of its uploads.
This file turns that into a run: it samples cohorts, packs them, compiles one program for all
chunks, and plans the next chunk in a thread of its own while the device works.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from sartor.data import ClientData
from sartor.engine.cohort import Cohort, Examples, sample_cohorts
from sartor.engine.engine import Engine, on_every_device, source
from sartor.engine.lanes import LANES
from sartor.engine.schedule import (
    NOBODY,
    Ints,
    Room,
    Schedule,
    pack,
    padded,
    ragged,
    room,
    schedule,
    steps_of,
)
from sartor.models import Model, in_precision
from sartor.randomness import key_data, mix
from sartor.trees import Tree

MOST_ROUNDS = 256
"""Rounds that one call to the device makes room for."""

BATCH = 128
"""Examples that a score pass takes at a time."""

CHUNK_SECONDS = 1.0
"""About how long a chunk should take: what a kill loses, and how often progress moves."""


class Algorithm(Protocol):
    """What the engine needs of a central algorithm; it must be hashable."""

    @property
    def rounds(self) -> int:
        """Communication rounds."""

    @property
    def cohort(self) -> int:
        """Clients in a round."""

    @property
    def epochs(self) -> int:
        """Passes of a client over its data in a round."""

    @property
    def batch(self) -> int:
        """Examples in a client's step."""

    @property
    def jobs(self) -> int:
        """How many jobs a client has in a round; all of them read the same examples."""

    @property
    def scores(self) -> bool:
        """Whether clients score hypotheses on their examples before they train."""

    def __hash__(self) -> int:
        """Compiled programs are found again by it."""

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What the algorithm has to know about every client, by name: [clients, ...]."""

    def clients(self, state: Tree, cohort: Cohort) -> tuple[Tree, dict[str, jax.Array]]:
        """What a cohort uploads, summed; and metrics, ``loss`` and ``finite`` among them."""

    def server(self, state: Tree, upload: Tree) -> Tree:
        """The next state."""


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
    state = on_every_device(engine, state)
    count, per_round = 1, math.inf
    began = time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as host:

        def ahead(begin: int) -> Future[tuple[Ints, Any]] | None:
            rounds = range(begin, min(begin + count, algorithm.rounds))
            return host.submit(planner.plan, rounds) if rounds else None

        planned = ahead(start)
        while planned:
            clients, arguments = planned.result()
            stop = start + len(clients)
            planned = ahead(stop)
            state, metrics = run(state, np.int32(stop - start), *arguments)
            fetched = {name: np.asarray(values)[: stop - start] for name, values in metrics.items()}
            seconds, began = time.perf_counter() - began, time.perf_counter()
            yield Chunk(start, stop, state, clients, fetched, seconds)
            # The least time of a round so far: the first chunks hold the compilation.
            per_round = min(per_round, seconds / (stop - start))
            count = max(1, min(int(CHUNK_SECONDS / per_round), 4 * count, planner.most_rounds))
            start = stop


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
        self.attributes = {
            name: np.asarray(values)[self.seen]
            for name, values in algorithm.attributes(data).items()
        }
        jobs = min(algorithm.cohort, len(self.seen)) * algorithm.jobs
        self.lanes = self.devices * engine.lanes_for(model, data, algorithm.batch, jobs)
        self.space, largest = self._extent()
        self.batches = -(-largest // (BATCH * self.devices)) * self.devices
        round_bytes = self.space.steps * self.lanes * algorithm.batch * 4
        self.most_rounds = max(1, min(MOST_ROUNDS, algorithm.rounds, 2**26 // round_bytes))
        # Streamed data has to fit too: a chunk holds the examples of all its cohorts.
        streamed = source(engine, data, 0).columns is None
        if streamed:
            example = sum(c.nbytes // max(len(c), 1) for c in data.columns.values())
            fitting = engine.budget() // 8 // max(example * largest, 1)
            self.most_rounds = max(1, min(self.most_rounds, fitting))
        self.source = source(engine, data, largest * self.most_rounds)

    def _extent(self) -> tuple[Room, int]:
        """The most steps and turns of any round of the run, and the most examples in a cohort."""
        steps, turns, largest = 1, 1, 1
        for begin in range(0, self.algorithm.rounds, 4096):
            rounds = range(begin, min(begin + 4096, self.algorithm.rounds))
            sizes = self.sizes[self._cohorts(rounds)]
            lengths = steps_of(self._jobs(sizes), self.algorithm.batch, self.algorithm.epochs)
            needed = room(pack(lengths, self.lanes, self.devices))
            steps, turns = max(steps, needed.steps), max(turns, needed.turns)
            largest = max(largest, int(sizes.sum(axis=1).max()))
            if self.algorithm.cohort >= len(self.seen):
                break  # every round is the same
        # Rounded up, so that another seed of the same run finds the compiled program again.
        return Room(-(-steps // 8) * 8, -(-turns // 4) * 4), largest

    def _cohorts(self, rounds: range) -> Ints:
        return sample_cohorts(self.seed, rounds, len(self.seen), self.algorithm.cohort)

    def plan(self, rounds: range) -> tuple[Ints, tuple[Any, ...]]:
        """The clients of some rounds, and what the compiled program needs to run them."""
        cohorts = self._cohorts(rounds)
        clients, sizes = self.seen[cohorts], self.sizes[cohorts]
        numbers = np.arange(rounds.start, rounds.stop)[:, None]
        words = mix(self.seed, "train", numbers, self.hashes[cohorts])
        first = self.data.bounds[clients, 0]
        plan = schedule(
            self._jobs(first),
            self._jobs(sizes),
            self._jobs(words),
            batch=self.algorithm.batch,
            epochs=self.algorithm.epochs,
            lanes=self.lanes,
            devices=self.devices,
            copies=self.algorithm.jobs,
            space=self.space,
        )
        examples = self._examples(first, sizes) if self.algorithm.scores else None
        if examples is None:
            columns, places = self.source.load(plan.rows)
        else:
            columns, places, scored = self.source.load(plan.rows, examples.rows)
            examples = examples._replace(rows=scored)
        plan = plan._replace(rows=places)
        jobs = {"key": key_data(words), "size": sizes.astype(np.float32)}
        jobs |= {name: values[cohorts] for name, values in self.attributes.items()}
        shaped = jax.tree.map(lambda a: padded(a, self.most_rounds), (plan, examples, jobs))
        return clients, (columns, *shaped)

    def _jobs(self, by_client: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[rounds, clients] as [rounds, jobs]."""
        return np.repeat(by_client, self.algorithm.jobs, axis=1)

    def _examples(self, first: Ints, sizes: Ints) -> Examples:
        """All examples of each round's cohort, client by client, in batches."""
        rounds, clients = sizes.shape
        room = self.batches * BATCH
        rows = np.zeros((rounds, room), np.int32)
        owner = np.full((rounds, room), NOBODY, np.int32)
        flat = sizes.reshape(-1)
        whose, place = ragged(flat)
        before = (np.cumsum(sizes, axis=1) - sizes).reshape(-1)
        at = (whose // clients, before[whose] + place)
        rows[at] = first.reshape(-1)[whose] + place
        owner[at] = whose % clients

        def dealt(grid: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            """Batches dealt out to the devices in turn; each device's lie end to end."""
            dealt = grid.reshape(rounds, -1, self.devices, BATCH).swapaxes(1, 2)
            return dealt.reshape(rounds, self.batches, BATCH)

        needed = -(-sizes.sum(axis=1, keepdims=True) // (BATCH * self.devices))
        batches = np.broadcast_to(needed, (rounds, self.devices)).astype(np.int32)
        return Examples(dealt(rows), dealt(owner), batches)


@functools.lru_cache(maxsize=32)
def _compiled(algorithm: Algorithm, model: Model, engine: Engine, rounds: int, lanes: int) -> Any:
    """The program that runs up to ``rounds`` rounds; jit compiles it once for a run."""
    devices = engine.local_devices()
    lowered = in_precision(model, engine.precision)

    def one(
        state: Tree, columns: Any, plan: Schedule, examples: Examples | None, clients: Tree
    ) -> tuple[Tree, Tree]:
        cohort = Cohort(lowered, clients, plan, examples, columns, len(devices))
        upload, metrics = algorithm.clients(state, cohort)
        return algorithm.server(state, upload), metrics

    def many(state: Tree, count: jax.Array, columns: Any, *by_round: Tree) -> tuple[Tree, Tree]:
        def at(r: Any) -> tuple[Any, ...]:
            return columns, *jax.tree.map(lambda a: a[r], by_round)

        _, shapes = jax.eval_shape(one, state, *at(0))
        empty = jax.tree.map(lambda m: jnp.zeros((rounds, *m.shape), m.dtype), shapes)

        def body(r: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            state, metrics = carry
            state, new = one(state, *at(r))
            return state, jax.tree.map(lambda m, v: m.at[r].set(v), metrics, new)

        out: tuple[Tree, Tree] = jax.lax.fori_loop(0, count, body, (state, empty))
        return out

    if len(devices) == 1:
        return jax.jit(many)
    mesh = Mesh(np.array(devices), (LANES,))
    everywhere, by_lane = PartitionSpec(), PartitionSpec(None, None, LANES)
    shared = PartitionSpec(None, LANES)
    split: Any = [shared] + [by_lane] * 7
    examples: Any = Examples(*[shared] * 3) if algorithm.scores else None
    inputs = (everywhere, everywhere, everywhere, Schedule(*split), examples, everywhere)
    # Lanes of different devices take different numbers of steps, and meet in the psum of `fold`.
    spread = jax.shard_map(many, mesh=mesh, in_specs=inputs, out_specs=everywhere, check_vma=False)
    return jax.jit(spread)
