"""The host's part of rounds: who takes part, what they read, and with which randomness.

An algorithm is *rehearsed* first, which says what its rounds consist of. Then the rounds of a run
are planned a chunk at a time, all in one shape, so that one compiled program runs them all.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.engine.arguments import separate, unite
from sartor.engine.cohort import NOTHING, Cohort, Examples, Inputs, Kept, Pass, PassInput, Rehearsal
from sartor.engine.columns import source
from sartor.engine.engine import Engine
from sartor.engine.job import Held
from sartor.engine.programs import HELD
from sartor.engine.sampling import Sampler, in_order
from sartor.engine.schedule import (
    NOBODY,
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
from sartor.engine.states import ClientStates
from sartor.errors import ConfigError
from sartor.models import Model, Shapes, column_shapes
from sartor.randomness import Words, key_data, mix
from sartor.trees import Tree, form
from sartor.types import Ints

MOST_ROUNDS = 256
"""Rounds that one call to the device makes room for. Fewer may run: their number is an argument."""

BATCH = 128
"""Examples that a score pass takes at a time."""


class Algorithm(Protocol):
    """What the engine needs of a central algorithm; it must be hashable."""

    @property
    def rounds(self) -> int:
        """Communication rounds."""

    @property
    def cohort(self) -> int:
        """Clients in a round."""

    def __hash__(self) -> int:
        """Compiled programs are found again by it."""

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What the algorithm has to know about every client, by name: [clients, ...]."""

    def strata(self, data: ClientData) -> Ints | None:
        """[clients] the stratum of each, if rare ones are to be in more cohorts than others."""

    def clients(self, state: Tree, cohort: Cohort) -> tuple[Tree, dict[str, jax.Array]]:
        """What a cohort uploads, summed; and metrics, with every client's ``loss`` among them."""

    def server(self, state: Tree, upload: Tree) -> Tree:
        """The next state."""


def rehearse(
    algorithm: Algorithm,
    model: Model,
    data: ClientData,
    state: Tree,
    engine: Engine,
    clients: int,
    attributes: Mapping[str, npt.NDArray[Any]],
) -> Rehearsal:
    """What a round of an algorithm consists of: its passes, and what clients keep.

    The algorithm's ``clients`` and ``server`` are traced once, without any data.
    """
    same, numbers = separate(algorithm)
    known = {}
    for name, values in attributes.items():
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or array.shape[:1] != (len(data),):
            raise ConfigError(
                f"attribute {name!r} must be an array of numbers, with an entry for each of the "
                f"{len(data)} clients (got {array.dtype}{list(array.shape)})"
            )
        known[name] = np.zeros((clients, *array.shape[1:]), array.dtype)
    leaves, structure = jax.tree.flatten((state, numbers, known))
    # Only shapes decide, so a run rehearses once, and the cost ledger after it not again.
    leaves = [jax.ShapeDtypeStruct(np.shape(a), jax.dtypes.result_type(a)) for a in leaves]
    return _rehearse(same, model, column_shapes(data), engine, clients, structure, *leaves)


@made_once(maxsize=128)
def _rehearse(
    same: Any,
    model: Model,
    columns: Shapes,
    engine: Engine,
    clients: int,
    structure: Any,
    *leaves: jax.ShapeDtypeStruct,
) -> Rehearsal:
    rehearsal, name = Rehearsal(), type(same).__name__

    def round_(state: Tree, numbers: Any, attributes: dict[str, Any]) -> Tree:
        algorithm = unite(same, numbers)
        nobody = jnp.zeros(clients, jnp.int32)
        inputs = Inputs((), None, jnp.ones(clients), nobody, attributes, jnp.zeros((), jnp.int32))
        data = {name: jnp.zeros((1, *shape), dtype) for name, shape, dtype in columns}
        cohort = Cohort(model, engine, inputs, data, rehearsal=rehearsal)
        match algorithm.clients(state, cohort):
            case (upload, {"loss": loss}) if jnp.shape(loss) == (clients,):
                return algorithm.server(state, upload)
        raise ConfigError(
            f"{name}.clients must return (upload, metrics), and metrics must have the 'loss' of "
            f"every client: an array of shape ({clients},) here"
        )

    given = jax.tree.unflatten(structure, leaves)
    before, after = form(given[0]), form(jax.eval_shape(round_, *given))
    if before != after:
        raise ConfigError(
            f"{name}.server must return a state of the same form as {name}.init: it was {before} "
            f"and becomes {after}"
        )
    return rehearsal


class Planner:
    """Makes the host's part of every chunk: cohorts, keys and schedules, all in one shape.

    Args:
        algorithm: what is run.
        model: the hypothesis class.
        data: the clients.
        state: the server's state; only its shapes matter here.
        engine: how it is run.
        seed: seed of all randomness.
        rounds: all rounds of the run, for any of which there is room; the algorithm's if not given.
        cohort: clients in a round; the algorithm's number if not given.
        attributes: what the algorithm knows of every client, by name: [clients, ...]; what it finds
            out about the data if not given.
        states: what clients have kept so far, if anything.

    Attributes:
        scored: how many hypotheses a client scores in a round.
        passes: the passes of a round.
        states: what clients keep; ``None`` if they keep nothing.
        visits: [clients of the data] in how many of the rounds each takes part.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        model: Model,
        data: ClientData,
        state: Tree,
        engine: Engine,
        *,
        seed: int,
        rounds: range | None = None,
        cohort: int | None = None,
        attributes: Mapping[str, npt.NDArray[Any]] | None = None,
        states: ClientStates | None = None,
    ) -> None:
        self.algorithm, self.model, self.engine = algorithm, model, engine
        self.data, self.seed = data, seed
        self.rounds = range(algorithm.rounds) if rounds is None else rounds
        self.cohort = cohort or algorithm.cohort
        if attributes is None:
            attributes = algorithm.attributes(data)
        self.devices = len(engine.local_devices())
        self.seen = in_order(data)
        strata = algorithm.strata(data) if self.cohort < len(self.seen) else None
        if strata is not None and np.shape(strata) != (len(data),):
            raise ConfigError(
                f"strata must name the stratum of each of the {len(data)} clients (got an array of "
                f"shape {np.shape(strata)})"
            )
        mine = None if strata is None else np.asarray(strata)[self.seen]
        self.sampler = Sampler(seed, len(self.seen), self.cohort, mine)
        if self.sampler.stands_for is not None:
            stands_for = np.zeros(len(data), np.float32)
            stands_for[self.seen] = self.sampler.stands_for
            attributes = {**attributes, "stands_for": stands_for}
        self.hashes = data.hashes[self.seen]
        self.sizes = data.sizes("train")[self.seen]
        self.attributes = {name: np.asarray(a)[self.seen] for name, a in attributes.items()}
        self.clients = self.sampler.size
        found = rehearse(algorithm, model, data, state, engine, self.clients, attributes)
        self.scored = found.scored
        self.states = states
        if states is None and found.keeps is not None:
            self.states = ClientStates(found.keeps, data, engine)
        self.passes = [
            PassPlanner(spec, model, data, seed, engine, self.clients) for spec in found.passes
        ]
        largest = self._extent()
        self.batches = -(-roomy(largest) // (BATCH * self.devices)) * self.devices
        # A chunk's plans, its client states and, if data is streamed, its examples must all fit.
        round_bytes = max(sum(p.round_bytes for p in self.passes), 1)
        self.most_rounds = max(1, min(MOST_ROUNDS, len(self.rounds), 2**26 // round_bytes))
        if self.states is not None:
            self.most_rounds = min(self.most_rounds, self.states.most(self.clients))
        if any(p.held is not None for p in self.passes):
            held = data.bounds[self.seen, 2] - data.bounds[self.seen, 1]
            largest += self.clients * int(held.max())
        if source(engine, data, 0).columns is None:  # streamed
            example = sum(c.nbytes // max(len(c), 1) for c in data.columns.values())
            fitting = engine.budget() // 8 // max(example * largest, 1)
            self.most_rounds = max(1, min(self.most_rounds, fitting))
        self.source = source(engine, data, largest * self.most_rounds)

    def _extent(self) -> int:
        """Make room in every pass for any round of the run; the most examples in a cohort.

        All cohorts are sampled once, just for that and to count visits. It is cheap, and a shape
        that grew during the run would mean another compilation.
        """
        everybody, largest = self.cohort >= len(self.seen), 1
        rounds = self.rounds[:1] if everybody else self.rounds  # all are the same
        self.visits = np.zeros(len(self.data), np.int64)
        for begin in range(0, len(rounds), 4096):  # some at a time, to save memory
            some = rounds[begin : begin + 4096]
            cohorts = self.sampler.draw(some)
            self.visits[self.seen] += np.bincount(cohorts.reshape(-1), minlength=len(self.seen))
            for p in self.passes:
                p.make_room(self.seen[cohorts])
            largest = max(largest, int(self.sizes[cohorts].sum(axis=1).max()))
        if everybody:
            self.visits *= len(self.rounds)
        return largest

    def plan(self, rounds: range) -> tuple[Ints, Any, Inputs]:
        """The clients of some rounds, and what the compiled program needs to run them."""
        cohorts = self.sampler.draw(rounds)
        clients, sizes = self.seen[cohorts], self.sizes[cohorts]
        numbers = np.arange(rounds.start, rounds.stop, dtype=np.int32)
        # A client's randomness depends on who it is and on the round, not on its place in a cohort.
        words = mix(self.seed, "train", numbers[:, None], self.hashes[cohorts])
        passes = [p.plan(clients, words) for p in self.passes]
        examples = self._examples(clients, sizes) if self.scored else None
        # All rows at once: if data is streamed, the columns of a chunk hold nothing but them.
        rows = [(p.plan.order, p.held and p.held.rows) for p in passes]
        columns, (places, scored) = self.source.load((rows, examples and examples.rows))
        for n, (order, held) in enumerate(places):
            plan, key, init, trial = passes[n]
            trial = trial and trial._replace(rows=held)
            passes[n] = PassInput(plan._replace(order=order), key, init, trial)
        examples = examples and examples._replace(rows=scored)
        attributes = {name: values[cohorts] for name, values in self.attributes.items()}
        place = np.zeros(clients.shape, np.int32)  # known when these rounds are next: with_states
        weights = sizes.astype(np.float32)
        inputs = Inputs(tuple(passes), examples, weights, place, attributes, numbers)
        return clients, columns, jax.tree.map(lambda a: padded(a, self.most_rounds), inputs)

    def with_states(self, clients: Ints, inputs: Inputs) -> tuple[Kept, Inputs]:
        """The table of what these clients keep, and the inputs that say who is where in it.

        It is not part of :meth:`plan`, which runs while the rounds before are still under way.
        """
        if self.states is None:
            return NOTHING, inputs
        table, place = self.states.load(clients, self.most_rounds * self.clients)
        return table, inputs._replace(place=padded(place.astype(np.int32), self.most_rounds))

    def _examples(self, clients: Ints, sizes: Ints) -> Examples:
        """All examples of each round's cohort, client by client, in batches.

        Scoring trains nothing, so a batch may hold examples of several clients, and no schedule of
        lanes is needed.
        """
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
    """The host's part of one pass: what its jobs read, and the schedule of any round."""

    def __init__(
        self, spec: Pass, model: Model, data: ClientData, seed: int, engine: Engine, clients: int
    ) -> None:
        self.spec = spec
        self.devices = len(engine.local_devices())
        jobs = clients * spec.jobs
        self.lanes = self.devices * engine.lanes_for(model, data, spec.batch, jobs)
        if spec.reads is None:
            whole = data.bounds[:, :1], data.sizes("train")[:, None]
            self.train = Spans(*(np.repeat(a, spec.jobs, axis=1) for a in whole))
            self.held = None
        else:
            self.train, self.held = spec.reads.spans(data, seed)
        self.space = Room(1, 1, 1)
        self.share = np.arange(jobs) // spec.copies

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
        # Without a purpose of its own, a pass draws with the words of the client itself.
        draws = np.arange(self.spec.jobs // self.spec.copies)
        if self.spec.draws is None:
            mine = np.repeat(words[:, :, None], len(draws), axis=2)
        else:
            mine = mix(words[:, :, None], self.spec.draws, draws)
        plan = schedule(
            _flat(self.train.first[clients]), _flat(self.train.sizes[clients]),
            _flat(np.repeat(mine, self.spec.copies, axis=2)),
            batch=self.spec.batch, epochs=self.spec.epochs, lanes=self.lanes,
            devices=self.devices, share=self.share, space=self.space,
        )  # fmt: skip
        plan = plan._replace(order=self.train.at(plan.order).astype(np.int32))
        held = None
        if self.held is not None:
            now = self.held.take(clients)
            held = Held(now.rows(self.held.most(HELD)), now.sizes.astype(np.int32))
        return PassInput(plan, key_data(mine), key_data(mix(mine, "init")), held)


def _flat(by_job: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[rounds, clients, jobs] as [rounds, clients · jobs]."""
    return by_job.reshape(len(by_job), -1)
