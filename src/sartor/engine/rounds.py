"""Rounds in chunks: the host plans and reports, the device runs many rounds in one call.

An algorithm is what a cohort computes, and what the server does with the sum of its uploads.
This file turns that into a run: it samples cohorts, packs them, compiles one program for all
chunks, and plans the next chunk in a thread of its own while the device works.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, PartitionSpec

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.engine.arguments import separate, unite
from sartor.engine.cohort import Cohort, Examples, Inputs, Kept, PassInput, Rehearsal
from sartor.engine.columns import on_every_device
from sartor.engine.engine import Engine
from sartor.engine.job import Held
from sartor.engine.lanes import LANES
from sartor.engine.planning import Planner
from sartor.engine.schedule import Ints, Schedule
from sartor.engine.states import ClientStates
from sartor.engine.vectorize import Compiled, vectorizing
from sartor.errors import ConfigError
from sartor.models import Model, Shapes, column_shapes
from sartor.trees import Tree

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

    def __hash__(self) -> int:
        """Compiled programs are found again by it."""

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What the algorithm has to know about every client, by name: [clients, ...]."""

    def clients(self, state: Tree, cohort: Cohort) -> tuple[Tree, dict[str, jax.Array]]:
        """What a cohort uploads, summed; and metrics, with every client's ``loss`` among them."""

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
        metrics: the algorithm's metrics, each [rounds, ...]; and ``finite``, [rounds, cohort].
        seconds: since the chunk before was finished.
        kept: what clients keep between rounds; ``None`` if they keep nothing.
    """

    start: int
    stop: int
    state: Tree
    clients: Ints
    metrics: dict[str, npt.NDArray[Any]]
    seconds: float
    kept: ClientStates | None = None


def run_rounds(
    algorithm: Algorithm,
    model: Model,
    data: ClientData,
    state: Tree,
    *,
    seed: int,
    engine: Engine,
    start: int = 0,
    kept: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Iterator[Chunk]:
    """Run an algorithm from round ``start`` on, a chunk at a time.

    Where chunks begin and end depends on the clock; the numbers do not depend on it. ``kept`` are
    the client states of a checkpoint, if the run goes on from one.
    """
    attributes = algorithm.attributes(data)
    clients = min(algorithm.cohort, int(data.seen.sum()))
    rehearsal = rehearse(algorithm, model, data, state, engine, clients, attributes)
    states = None if rehearsal.keeps is None else ClientStates(rehearsal.keeps, data, engine)
    if states is not None and kept:
        states.restore(kept)
    planner = Planner(
        rehearsal, states, model, data, engine,
        seed=seed, rounds=range(algorithm.rounds), cohort=algorithm.cohort, attributes=attributes,
    )  # fmt: skip
    same, numbers = separate(algorithm)
    run = _compiled(same, model, engine, planner.most_rounds, planner.form)
    state = on_every_device(engine, state)
    # Those who work side by side take the same steps, whatever the clock says.
    count, per_round = planner.most_rounds if vectorizing() else 1, math.inf
    began = time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as host:

        def ahead(begin: int) -> Future[Any] | None:
            rounds = range(begin, min(begin + count, algorithm.rounds))
            return host.submit(planner.plan, rounds) if rounds else None

        planned = ahead(start)
        while planned:
            clients, columns, inputs = planned.result()
            stop = start + len(clients)
            planned = ahead(stop)
            table, inputs = planner.with_states(clients, inputs)
            count_now = np.int32(stop - start)
            state, table, metrics = run(state, table, numbers, columns, inputs, count_now)
            if states is not None:
                states.store(clients, table)
            fetched = {name: np.asarray(values)[: stop - start] for name, values in metrics.items()}
            seconds, began = time.perf_counter() - began, time.perf_counter()
            yield Chunk(start, stop, state, clients, fetched, seconds, states)
            # The least time of a round so far: the first chunks hold the compilation.
            per_round = min(per_round, seconds / (stop - start))
            if not vectorizing():
                count = max(1, min(int(CHUNK_SECONDS / per_round), 4 * count, planner.most_rounds))
            start = stop


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

    The algorithm's ``clients`` is traced once, without any data; that is where it says so.
    """
    same, numbers = separate(algorithm)
    known = tuple((name, np.shape(a)[1:], np.asarray(a).dtype) for name, a in attributes.items())
    leaves, structure = jax.tree.flatten((state, numbers))
    shapes = tuple((np.shape(a), jax.dtypes.result_type(a)) for a in leaves)
    columns = column_shapes(data)
    return _rehearse(same, model, columns, engine, clients, known, shapes, structure)


@made_once(maxsize=128)
def _rehearse(
    same: Any,
    model: Model,
    columns: Shapes,
    engine: Engine,
    clients: int,
    attributes: tuple[Any, ...],
    shapes: tuple[Any, ...],
    structure: Any,
) -> Rehearsal:
    rehearsal, name = Rehearsal(), type(same).__name__

    def round_(state: Tree, numbers: Any) -> Tree:
        algorithm = unite(same, numbers)
        inputs = Inputs(
            (), None, jnp.ones(clients), jnp.zeros(clients, jnp.int32),
            {name: jnp.zeros((clients, *shape), dtype) for name, shape, dtype in attributes},
        )  # fmt: skip
        data = {name: jnp.zeros((1, *shape), dtype) for name, shape, dtype in columns}
        cohort = Cohort(model, engine, inputs, data, rehearsal=rehearsal)
        upload, metrics = algorithm.clients(state, cohort)
        if "loss" not in metrics or jnp.shape(metrics["loss"]) != (clients,):
            raise ConfigError(
                f"{name}.clients must return (upload, metrics), and metrics must have the 'loss' "
                f"of every client: an array of shape ({clients},) here"
            )
        return algorithm.server(state, upload)

    given = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    before, after = (
        jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", tree)
        for tree in (given[0], jax.eval_shape(round_, *given))
    )
    if before != after:
        raise ConfigError(
            f"{name}.server must return a state of the same form as {name}.init: it was {before} "
            f"and becomes {after}"
        )
    return rehearsal


class Told(NamedTuple):
    """What the clients of one round send and keep.

    Attributes:
        upload: the sums that the server receives.
        metrics: what was measured, by name; ``finite`` says whose work ended well.
        kept: what clients keep for their next round; ``None`` if they keep nothing.
    """

    upload: Tree
    metrics: dict[str, npt.NDArray[Any]]
    kept: ClientStates | None


def one_round(
    algorithm: Algorithm,
    model: Model,
    data: ClientData,
    state: Tree,
    *,
    round: int,
    seed: int,
    engine: Engine,
    attributes: Mapping[str, npt.NDArray[Any]] | None = None,
    kept: ClientStates | None = None,
) -> Told:
    """What all clients of a data set compute in a round, without the server.

    On a network, a client calls this with its own data alone. Uploads of several clients add up to
    what they would upload together.

    Args:
        algorithm: the algorithm.
        model: the hypothesis class.
        data: the clients that take part; no others are looked at.
        state: the server's state before the round.
        round: the number of the round, counted from 0: draws depend on it.
        seed: seed of all randomness.
        engine: how to run it.
        attributes: what the server knows of these clients, where it cannot be found out from their
            data alone; see ``attributes`` of the algorithm.
        kept: what these clients have kept from earlier rounds.
    """
    known = algorithm.attributes(data) if attributes is None else attributes
    data = dataclasses.replace(data, seen=np.ones(len(data), bool))
    rehearsal = rehearse(algorithm, model, data, state, engine, len(data), known)
    if kept is None and rehearsal.keeps is not None:
        kept = ClientStates(rehearsal.keeps, data, engine)
    here = range(round, round + 1)
    planner = Planner(
        rehearsal, kept, model, data, engine,
        seed=seed, rounds=here, cohort=len(data), attributes=known,
    )  # fmt: skip
    clients, columns, inputs = planner.plan(here)
    table, inputs = planner.with_states(clients, inputs)
    same, numbers = separate(algorithm)
    run = _compiled_once(same, model, engine, planner.form)
    upload, table, metrics = run(on_every_device(engine, state), table, numbers, columns, inputs)
    if kept is not None:
        kept.store(clients, table)
    return Told(upload, {name: np.asarray(a) for name, a in metrics.items()}, kept)


Form = tuple[tuple[bool, ...], bool]
"""Which passes are trials, and whether clients score: the form of a round's inputs."""


def _clients(same: Any, model: Model, engine: Engine) -> Any:
    """What a cohort computes: a function of one round's inputs."""

    def clients(
        state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs
    ) -> tuple[Tree, Kept, dict[str, jax.Array]]:
        cohort = Cohort(model, engine, inputs, columns, kept)
        upload, metrics = unite(same, numbers).clients(state, cohort)
        assert cohort.kept is not None
        finite = cohort.finite & metrics.get("finite", True)
        return upload, cohort.kept, {**metrics, "finite": finite}

    return clients


@made_once(maxsize=32)
def _compiled(same: Any, model: Model, engine: Engine, rounds: int, form: Form) -> Any:
    """The program that runs up to ``rounds`` rounds; jit compiles it once for a run."""
    clients = _clients(same, model, engine)

    def many(
        state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs, count: jax.Array
    ) -> tuple[Tree, Kept, Tree]:
        def at(r: Any) -> Inputs:
            return jax.tree.map(lambda a: a[r], inputs)

        _, _, shapes = jax.eval_shape(clients, state, kept, numbers, columns, at(0))
        empty = jax.tree.map(lambda m: jnp.zeros((rounds, *m.shape), m.dtype), shapes)

        def body(r: jax.Array, carry: tuple[Tree, Kept, Tree]) -> tuple[Tree, Kept, Tree]:
            state, kept, metrics = carry
            upload, kept, new = clients(state, kept, numbers, columns, at(r))
            state = unite(same, numbers).server(state, upload)
            return state, kept, jax.tree.map(lambda m, v: m.at[r].set(v), metrics, new)

        out: tuple[Tree, Kept, Tree] = jax.lax.fori_loop(0, count, body, (state, kept, empty))
        return out

    return _spread(many, engine, form, more=1)


@made_once(maxsize=32)
def _compiled_once(same: Any, model: Model, engine: Engine, form: Form) -> Any:
    """The program that runs the clients of a single round, and no server."""
    clients = _clients(same, model, engine)

    def once(state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs) -> Any:
        return clients(state, kept, numbers, columns, jax.tree.map(lambda a: a[0], inputs))

    return _spread(once, engine, form)


def _spread(run: Any, engine: Engine, form: Form, more: int = 0) -> Compiled:
    """Compile a function of rounds; with several devices, each runs its share of the lanes."""
    devices = engine.local_devices()
    if len(devices) == 1:
        return Compiled(run)
    mesh = Mesh(np.array(devices), (LANES,))
    every, by_lane = PartitionSpec(), PartitionSpec(None, None, LANES)
    shared: Any = PartitionSpec(None, LANES)
    plan: Any = [shared, by_lane, by_lane, by_lane, every] + [by_lane] * 4
    trials, scores = form
    passes = tuple(
        PassInput(Schedule(*plan), every, every, Held(every, every) if trial else None)
        for trial in trials
    )
    inputs: Any = Inputs(passes, Examples(*[shared] * 3) if scores else None, every, every, {})
    specs: Any = (*[every] * 4, inputs._replace(attributes=every), *[every] * more)
    # Lanes of different devices take different numbers of steps, and meet in the psum of `fold`.
    return Compiled(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=every, check_vma=False))
