"""The host's part of rounds: who takes part, what they read, and with which randomness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.engine.cohort import Examples, Inputs, Kept, Pass, PassInput, Rehearsal, sample_cohorts
from sartor.engine.columns import source
from sartor.engine.engine import Engine
from sartor.engine.job import Held
from sartor.engine.programs import HELD
from sartor.engine.schedule import (
    NOBODY,
    Ints,
    Room,
    Spans,
    pack,
    padded,
    ragged,
    room,
    roomy,
    schedule,
    steps_of,
)
from sartor.engine.states import ClientStates, no_states
from sartor.models import Model
from sartor.randomness import Words, key_data, mix

MOST_ROUNDS = 256
"""Rounds that one call to the device makes room for."""

BATCH = 128
"""Examples that a score pass takes at a time."""


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


class Planner:
    """Makes the host's part of every chunk: cohorts, keys and schedules, all in one shape.

    Args:
        rehearsal: what a round consists of.
        states: what clients keep, if they keep anything.
        model: the hypothesis class.
        data: the clients.
        engine: how it is run.
        seed: seed of all randomness.
        rounds: all rounds of the run; there is room for any of them.
        cohort: clients in a round.
        attributes: what the algorithm knows of every client, by name: [clients, ...].
    """

    def __init__(
        self,
        rehearsal: Rehearsal,
        states: ClientStates | None,
        model: Model,
        data: ClientData,
        engine: Engine,
        *,
        seed: int,
        rounds: range,
        cohort: int,
        attributes: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self.data, self.seed, self.states = data, seed, states
        self.rounds, self.cohort = rounds, cohort
        self.devices = len(engine.local_devices())
        self.seen = in_order(data)
        self.hashes = data.hashes[self.seen]
        self.sizes = data.sizes("train")[self.seen]
        self.scores = rehearsal.scored > 0
        self.attributes = {name: np.asarray(a)[self.seen] for name, a in attributes.items()}
        self.clients = min(cohort, len(self.seen))
        self.passes = [
            PassPlanner(spec, model, data, seed, engine, self.clients) for spec in rehearsal.passes
        ]
        largest = self._extent()
        self.batches = -(-roomy(largest) // (BATCH * self.devices)) * self.devices
        round_bytes = max(sum(p.round_bytes for p in self.passes), 1)
        self.most_rounds = max(1, min(MOST_ROUNDS, len(rounds), 2**26 // round_bytes))
        if states is not None:
            self.most_rounds = min(self.most_rounds, states.most(self.clients))
        # Streamed data has to fit too: a chunk holds the examples of all its cohorts.
        if any(p.held is not None for p in self.passes):
            held = data.bounds[self.seen, 2] - data.bounds[self.seen, 1]
            largest += self.clients * int(held.max())
        streamed = source(engine, data, 0).columns is None
        if streamed:
            example = sum(c.nbytes // max(len(c), 1) for c in data.columns.values())
            fitting = engine.budget() // 8 // max(example * largest, 1)
            self.most_rounds = max(1, min(self.most_rounds, fitting))
        self.source = source(engine, data, largest * self.most_rounds)

    @property
    def form(self) -> tuple[tuple[bool, ...], bool]:
        """Which passes are trials, and whether clients score: the form of a round's inputs."""
        return tuple(p.held is not None for p in self.passes), self.scores

    def _extent(self) -> int:
        """Make room in every pass for any round of the run; the most examples in a cohort."""
        largest = 1
        for begin in range(0, len(self.rounds), 4096):
            cohorts = self._cohorts(self.rounds[begin : begin + 4096])
            for p in self.passes:
                p.make_room(self.seen[cohorts])
            largest = max(largest, int(self.sizes[cohorts].sum(axis=1).max()))
            if self.cohort >= len(self.seen):
                break  # every round is the same
        return largest

    def _cohorts(self, rounds: range) -> Ints:
        return sample_cohorts(self.seed, rounds, len(self.seen), self.cohort)

    def plan(self, rounds: range) -> tuple[Ints, Any, Inputs]:
        """The clients of some rounds, and what the compiled program needs to run them."""
        cohorts = self._cohorts(rounds)
        clients, sizes = self.seen[cohorts], self.sizes[cohorts]
        numbers = np.arange(rounds.start, rounds.stop)[:, None]
        words = mix(self.seed, "train", numbers, self.hashes[cohorts])
        passes = [p.plan(clients, words) for p in self.passes]
        examples = self._examples(clients, sizes) if self.scores else None
        # All rows at once, so that streamed columns hold them all.
        rows = [p.plan.order for p in passes]
        rows += [p.held.rows for p in passes if p.held is not None]
        rows += [] if examples is None else [examples.rows]
        columns, *places = self.source.load(*rows)
        found = iter(places)
        passes = [p._replace(plan=p.plan._replace(order=next(found))) for p in passes]
        passes = [
            p if p.held is None else p._replace(held=p.held._replace(rows=next(found)))
            for p in passes
        ]
        if examples is not None:
            examples = examples._replace(rows=next(found))
        attributes = {name: values[cohorts] for name, values in self.attributes.items()}
        place = np.zeros(clients.shape, np.int32)
        inputs = Inputs(tuple(passes), examples, sizes.astype(np.float32), place, attributes)
        return clients, columns, jax.tree.map(lambda a: padded(a, self.most_rounds), inputs)

    def with_states(self, clients: Ints, inputs: Inputs) -> tuple[Kept, Inputs]:
        """The table of what these clients keep, which has to be there before their rounds."""
        if self.states is None:
            return no_states(), inputs
        table, place = self.states.load(clients, self.most_rounds * self.clients)
        return table, inputs._replace(place=padded(place.astype(np.int32), self.most_rounds))

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


class PassPlanner:
    """The host's part of one pass."""

    def __init__(
        self, spec: Pass, model: Model, data: ClientData, seed: int, engine: Engine, clients: int
    ) -> None:
        self.spec = spec
        self.devices = len(engine.local_devices())
        jobs = clients * spec.jobs
        self.lanes = self.devices * engine.lanes_for(model, data, spec.batch, jobs)
        self.train = Spans(
            np.repeat(data.bounds[:, :1], spec.jobs, axis=1),
            np.repeat(data.sizes("train")[:, None], spec.jobs, axis=1),
        )
        self.held: Spans | None = None
        if spec.reads is not None:
            self.train, self.held = spec.reads.spans(data, seed)
        self.space = Room(1, 1, 1)
        self.share = np.arange(jobs) // spec.copies
        self.most_held = 0
        if self.held is not None:
            self.most_held = -(-int(self.held.sizes.max()) // HELD) * HELD

    def make_room(self, clients: Ints) -> None:
        """Make room for the cohorts of some rounds."""
        batch, epochs = self.spec.batch, self.spec.epochs
        sizes = _flat(self.train.sizes[clients])
        packing = pack(steps_of(sizes, batch, epochs), self.lanes, self.devices)
        steps, turns, examples = room(packing, sizes, batch, epochs, self.share)
        # Rounded up, so that another seed of the same run finds the compiled program again.
        needed = -(-steps // 8) * 8, -(-turns // 4) * 4, roomy(examples)
        self.space = Room(*map(max, self.space, needed))

    @property
    def round_bytes(self) -> int:
        """About how many bytes the plan of a round takes."""
        return 4 * (4 * self.space.steps * self.lanes + self.space.examples)

    def plan(self, clients: Ints, words: Words) -> PassInput:
        """The schedules of some rounds, with the randomness of their jobs."""
        draws = np.arange(self.spec.jobs // self.spec.copies)
        if self.spec.draws is None:
            mine = np.repeat(words[:, :, None], len(draws), axis=2)
        else:
            mine = mix(words[:, :, None], self.spec.draws, draws)
        plan = schedule(
            _flat(self.train.first[clients]),
            _flat(self.train.sizes[clients]),
            _flat(np.repeat(mine, self.spec.copies, axis=2)),
            batch=self.spec.batch,
            epochs=self.spec.epochs,
            lanes=self.lanes,
            devices=self.devices,
            share=self.share,
            space=self.space,
        )
        plan = plan._replace(order=self.train.at(plan.order).astype(np.int32))
        return PassInput(plan, key_data(mine), key_data(mix(mine, "init")), self._held(clients))

    def _held(self, clients: Ints) -> Held | None:
        """What the trials of some rounds are tried on."""
        if self.held is None:
            return None
        first, sizes = self.held.first[clients], self.held.sizes[clients]
        rows = np.zeros((*sizes.shape, self.most_held), np.int32)
        owner, place = ragged(sizes.reshape(-1))
        positions = self.held.at(first.reshape(-1)[owner] + place)
        rows.reshape(-1, self.most_held)[owner, place] = positions
        return Held(rows, sizes.astype(np.int32))


def _flat(by_job: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[rounds, clients, jobs] as [rounds, clients · jobs]."""
    return by_job.reshape(len(by_job), -1)
