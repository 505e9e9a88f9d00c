"""Rounds in chunks: the host plans and reports, the device runs many rounds in one call.

An algorithm is what a cohort computes, and what the server does with the sum of its uploads.
This file turns that into a run: it samples cohorts, packs them, compiles one program for all
chunks, and plans the next chunk in a thread of its own while the device works.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.engine.cohort import Cohort, Examples, Held, sample_cohorts
from sartor.engine.engine import Engine, on_every_device, source
from sartor.engine.lanes import LANES
from sartor.engine.programs import HELD
from sartor.engine.schedule import (
    NOBODY,
    Ints,
    Room,
    Schedule,
    Spans,
    pack,
    padded,
    ragged,
    room,
    roomy,
    schedule,
    steps_of,
)
from sartor.engine.together import Program, together
from sartor.models import Model, in_precision
from sartor.randomness import Words, key_data, mix
from sartor.trees import Tree

MOST_ROUNDS = 256
"""Rounds that one call to the device makes room for."""

BATCH = 128
"""Examples that a score pass takes at a time."""

CHUNK_SECONDS = 1.0
"""About how long a chunk should take: what a kill loses, and how often progress moves."""


class Pass(NamedTuple):
    """How a cohort goes over its examples.

    Attributes:
        epochs: passes of a job over its examples.
        batch: examples in a step.
        jobs: how many jobs a client has.
        copies: so many jobs in a row share their draws.
        train: what every job reads, [clients of the data, jobs]; the client's training part if not
            given.
        held: what every group of copies is tried on, [clients of the data, jobs / copies].
    """

    epochs: int
    batch: int
    jobs: int = 1
    copies: int = 1
    train: Spans | None = None
    held: Spans | None = None


class Algorithm(Protocol):
    """What the engine needs of a central algorithm; it must be hashable."""

    @property
    def rounds(self) -> int:
        """Communication rounds."""

    @property
    def cohort(self) -> int:
        """Clients in a round."""

    @property
    def scores(self) -> bool:
        """Whether clients score hypotheses on their examples before they train."""

    def __hash__(self) -> int:
        """Compiled programs are found again by it."""

    def bare(self) -> Algorithm:
        """The algorithm without the numbers that make no other program."""

    def passes(self, data: ClientData, seed: int) -> dict[str, Pass]:
        """How a cohort goes over its examples in a round, by name."""

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
    run = _compiled(algorithm.bare(), model, engine, planner.most_rounds, planner.shapes)
    state = on_every_device(engine, state)
    # Those who work side by side take the same steps, whatever the clock says.
    count, per_round = planner.most_rounds if together() else 1, math.inf
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
            if not together():
                count = max(1, min(int(CHUNK_SECONDS / per_round), 4 * count, planner.most_rounds))
            start = stop


def visits(data: ClientData, seed: int, rounds: int, cohort: int) -> Ints:
    """[clients of the data] in how many rounds of a run each takes part."""
    seen = in_order(data)
    counts = np.zeros(len(data), np.int64)
    for begin in range(0, rounds, 4096):
        some = sample_cohorts(seed, range(begin, min(begin + 4096, rounds)), len(seen), cohort)
        counts[seen] += np.bincount(some.reshape(-1), minlength=len(seen))
    return counts


def in_order(data: ClientData) -> Ints:
    """The seen clients by their hashes: so draws do not depend on their order in the data."""
    seen = np.flatnonzero(data.seen)
    return seen[np.argsort(data.hashes[seen], kind="stable")]


class _Planner:
    """Makes the host's part of every chunk: cohorts, keys and schedules, all in one shape."""

    def __init__(
        self, algorithm: Algorithm, model: Model, data: ClientData, seed: int, engine: Engine
    ) -> None:
        self.algorithm, self.data, self.seed = algorithm, data, seed
        self.devices = len(engine.local_devices())
        self.seen = in_order(data)
        self.hashes = data.hashes[self.seen]
        self.sizes = data.sizes("train")[self.seen]
        self.attributes = {
            name: np.asarray(values)[self.seen]
            for name, values in algorithm.attributes(data).items()
        }
        clients = min(algorithm.cohort, len(self.seen))
        self.passes = [
            _Pass(name, spec, model, data, engine, clients)
            for name, spec in algorithm.passes(data, seed).items()
        ]
        largest = self._extent()
        self.batches = -(-roomy(largest) // (BATCH * self.devices)) * self.devices
        round_bytes = sum(p.round_bytes for p in self.passes)
        self.most_rounds = max(1, min(MOST_ROUNDS, algorithm.rounds, 2**26 // round_bytes))
        # Streamed data has to fit too: a chunk holds the examples of all its cohorts.
        if any(p.spec.held is not None for p in self.passes):
            largest += clients * int((data.bounds[self.seen, 2] - data.bounds[self.seen, 1]).max())
        streamed = source(engine, data, 0).columns is None
        if streamed:
            example = sum(c.nbytes // max(len(c), 1) for c in data.columns.values())
            fitting = engine.budget() // 8 // max(example * largest, 1)
            self.most_rounds = max(1, min(self.most_rounds, fitting))
        self.source = source(engine, data, largest * self.most_rounds)

    @property
    def shapes(self) -> tuple[tuple[str, int], ...]:
        """The passes, and how many examples each has in a step."""
        return tuple((p.name, p.spec.batch) for p in self.passes)

    def _extent(self) -> int:
        """Make room in every pass for any round of the run; the most examples in a cohort."""
        largest = 1
        for begin in range(0, self.algorithm.rounds, 4096):
            rounds = range(begin, min(begin + 4096, self.algorithm.rounds))
            cohorts = self._cohorts(rounds)
            for p in self.passes:
                p.make_room(self.seen[cohorts])
            largest = max(largest, int(self.sizes[cohorts].sum(axis=1).max()))
            if self.algorithm.cohort >= len(self.seen):
                break  # every round is the same
        return largest

    def _cohorts(self, rounds: range) -> Ints:
        return sample_cohorts(self.seed, rounds, len(self.seen), self.algorithm.cohort)

    def plan(self, rounds: range) -> tuple[Ints, tuple[Any, ...]]:
        """The clients of some rounds, and what the compiled program needs to run them."""
        cohorts = self._cohorts(rounds)
        clients, sizes = self.seen[cohorts], self.sizes[cohorts]
        numbers = np.arange(rounds.start, rounds.stop)[:, None]
        words = mix(self.seed, "train", numbers, self.hashes[cohorts])
        plans = {p.name: p.plan(clients, words) for p in self.passes}
        held = {p.name: p.held(clients) for p in self.passes if p.spec.held is not None}
        examples = self._examples(clients, sizes) if self.algorithm.scores else None
        # All rows at once, so that streamed columns hold them all.
        parts: list[Any] = [
            *plans.values(),
            *held.values(),
            *([] if examples is None else [examples]),
        ]
        columns, *places = self.source.load(*(_rows(part) for part in parts))
        found: list[Any] = [
            part._replace(order=rows) if isinstance(part, Schedule) else part._replace(rows=rows)
            for part, rows in zip(parts, places, strict=True)
        ]
        plans = dict(zip(plans, found, strict=False))
        held = dict(zip(held, found[len(plans) :], strict=False))
        examples = None if examples is None else found[-1]
        entries = {"key": key_data(words), "size": sizes.astype(np.float32)}
        entries |= {name: values[cohorts] for name, values in self.attributes.items()}
        for p in self.passes:
            entries |= p.keys(words)
        by_round = (plans, held, examples, entries)
        return clients, (columns, *jax.tree.map(lambda a: padded(a, self.most_rounds), by_round))

    def _examples(self, clients: Ints, sizes: Ints) -> Examples:
        """All examples of each round's cohort, client by client, in batches."""
        rounds, members = sizes.shape
        room_ = self.batches * BATCH
        rows = np.zeros((rounds, room_), np.int32)
        owner = np.full((rounds, room_), NOBODY, np.int32)
        whose, place = ragged(sizes.reshape(-1))
        before = (np.cumsum(sizes, axis=1) - sizes).reshape(-1)
        at = (whose // members, before[whose] + place)
        rows[at] = self.data.bounds[clients, 0].reshape(-1)[whose] + place
        owner[at] = whose % members

        def dealt(grid: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            """Batches dealt out to the devices in turn; each device's lie end to end."""
            dealt = grid.reshape(rounds, -1, self.devices, BATCH).swapaxes(1, 2)
            return dealt.reshape(rounds, self.batches, BATCH)

        needed = -(-sizes.sum(axis=1, keepdims=True) // (BATCH * self.devices))
        batches = np.broadcast_to(needed, (rounds, self.devices)).astype(np.int32)
        return Examples(dealt(rows), dealt(owner), batches)


class _Pass:
    """The host's part of one pass."""

    def __init__(
        self, name: str, spec: Pass, model: Model, data: ClientData, engine: Engine, clients: int
    ) -> None:
        self.name, self.spec = name, spec
        self.devices = len(engine.local_devices())
        jobs = clients * spec.jobs
        self.lanes = self.devices * engine.lanes_for(model, data, spec.batch, jobs)
        self.train = spec.train or Spans(
            np.repeat(data.bounds[:, :1], spec.jobs, axis=1),
            np.repeat(data.sizes("train")[:, None], spec.jobs, axis=1),
        )
        self.space = Room(1, 1, 1)
        self.share = np.arange(jobs) // spec.copies
        self.most_held = 0
        if spec.held is not None:
            self.most_held = -(-int(spec.held.sizes.max()) // HELD) * HELD

    def make_room(self, clients: Ints) -> None:
        """Make room for the cohorts of some rounds."""
        batch, epochs = self.spec.batch, self.spec.epochs
        sizes = self._flat(self.train.sizes[clients])
        packing = pack(steps_of(sizes, batch, epochs), self.lanes, self.devices)
        steps, turns, examples = room(packing, sizes, batch, epochs, self.share)
        # Rounded up, so that another seed of the same run finds the compiled program again.
        needed = -(-steps // 8) * 8, -(-turns // 4) * 4, roomy(examples)
        self.space = Room(*map(max, self.space, needed))

    @property
    def round_bytes(self) -> int:
        """About how many bytes the plan of a round takes."""
        return 4 * (4 * self.space.steps * self.lanes + self.space.examples)

    def words(self, words: Words) -> Words:
        """The randomness of groups of copies: [rounds, clients, jobs / copies]."""
        if self.name == "train":
            return np.repeat(words[:, :, None], self.spec.jobs // self.spec.copies, axis=2)
        groups = np.arange(self.spec.jobs // self.spec.copies)
        # What was tried can be had again: the same draws on the same examples.
        return mix(words[:, :, None], "trial", groups)

    def keys(self, words: Words) -> dict[str, npt.NDArray[Any]]:
        """The random keys of groups of copies, by name."""
        if self.name == "train":
            return {}
        mine = self.words(words)
        return {
            f"{self.name} key": key_data(mine),
            f"{self.name} init": key_data(mix(mine, "init")),
        }

    def plan(self, clients: Ints, words: Words) -> Schedule:
        """The schedules of some rounds."""
        keys = np.repeat(self.words(words), self.spec.copies, axis=2)
        plan = schedule(
            self._flat(self.train.first[clients]),
            self._flat(self.train.sizes[clients]),
            self._flat(keys),
            batch=self.spec.batch,
            epochs=self.spec.epochs,
            lanes=self.lanes,
            devices=self.devices,
            share=self.share,
            space=self.space,
        )
        return plan._replace(order=self.train.at(plan.order).astype(np.int32))

    def held(self, clients: Ints) -> Held:
        """What the trials of some rounds are tried on."""
        assert self.spec.held is not None
        first, sizes = self.spec.held.first[clients], self.spec.held.sizes[clients]
        rows = np.zeros((*sizes.shape, self.most_held), np.int32)
        owner, place = ragged(sizes.reshape(-1))
        positions = self.spec.held.at(first.reshape(-1)[owner] + place)
        rows.reshape(-1, self.most_held)[owner, place] = positions
        return Held(rows, sizes.astype(np.int32))

    def _flat(self, by_job: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[rounds, clients, jobs] as [rounds, clients · jobs]."""
        return by_job.reshape(len(by_job), -1)


def _rows(part: Any) -> npt.NDArray[np.int32]:
    """The rows of the data that a part of a plan reads."""
    rows: npt.NDArray[np.int32] = part.order if isinstance(part, Schedule) else part.rows
    return rows


@made_once(maxsize=32)
def _compiled(
    algorithm: Algorithm,
    model: Model,
    engine: Engine,
    rounds: int,
    shapes: tuple[tuple[str, int], ...],
) -> Any:
    """The program that runs up to ``rounds`` rounds; jit compiles it once for a run."""
    devices = engine.local_devices()
    lowered = in_precision(model, engine.precision)

    def one(state: Tree, columns: Any, plans: Any, held: Any, examples: Any, clients: Any) -> Tree:
        cohort = Cohort(
            lowered, clients, plans, dict(shapes), held, examples, columns, len(devices),
            engine.precision,
        )  # fmt: skip
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
        return Program(many)
    mesh = Mesh(np.array(devices), (LANES,))
    everywhere, by_lane = PartitionSpec(), PartitionSpec(None, None, LANES)
    shared = PartitionSpec(None, LANES)
    specs: Any = [shared, by_lane, by_lane, by_lane, everywhere] + [by_lane] * 4
    examples: Any = Examples(*[shared] * 3) if algorithm.scores else None
    plans = {name: Schedule(*specs) for name, _ in shapes}
    inputs = (everywhere, everywhere, everywhere, plans, everywhere, examples, everywhere)
    # Lanes of different devices take different numbers of steps, and meet in the psum of `fold`.
    spread = jax.shard_map(many, mesh=mesh, in_specs=inputs, out_specs=everywhere, check_vma=False)
    return Program(spread)
