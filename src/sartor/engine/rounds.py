"""Rounds in chunks: the host plans and reports, the device runs many rounds in one call.

An algorithm is what a cohort computes, and what the server does with the sum of its uploads.
This file turns that into a run: it samples cohorts, packs them, compiles one program for all
chunks, and plans the next chunk in a thread of its own while the device works.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import PartitionSpec

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.engine.arguments import separate, unite
from sartor.engine.cohort import Cohort, Inputs, Kept, PassInput
from sartor.engine.columns import on_every_device
from sartor.engine.engine import Engine
from sartor.engine.lanes import LANES, plan_specs, spread
from sartor.engine.planning import Algorithm, Planner
from sartor.engine.states import ClientStates
from sartor.engine.vectorize import vectorizing
from sartor.errors import ConfigError
from sartor.models import Model
from sartor.trees import Tree
from sartor.types import Ints

CHUNK_SECONDS = 1.0
"""About how long a chunk should take: what a kill loses, and how often progress moves."""


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
    """

    start: int
    stop: int
    state: Tree
    clients: Ints
    metrics: dict[str, npt.NDArray[Any]]
    seconds: float


def run_rounds(planner: Planner, state: Tree, start: int = 0) -> Iterator[Chunk]:
    """Run an algorithm from round ``start`` on, a chunk at a time.

    Where chunks begin and end depends on the clock; the numbers do not depend on it. The planner's
    client states change with every chunk.
    """
    algorithm, states = planner.algorithm, planner.states
    same, numbers = separate(algorithm)
    run = _compiled(same, planner.model, planner.engine, len(planner.passes), planner.most_rounds)
    state = on_every_device(planner.engine, state)
    # The first chunk is one round, since nobody knows yet how long a round takes. Those who work
    # side by side must make the same calls, so their chunks do not depend on the clock.
    count, per_round = planner.most_rounds if vectorizing() else 1, math.inf
    began = time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as host:

        def ahead(begin: int) -> Future[Any] | None:
            """Start to plan the chunk that begins with this round, if there is one."""
            rounds = range(begin, min(begin + count, algorithm.rounds))
            return host.submit(planner.plan, rounds) if rounds else None

        planned = ahead(start)
        while planned:
            clients, columns, inputs = planned.result()
            stop = start + len(clients)
            planned = ahead(stop)  # while the device runs this chunk
            # Client states are loaded only now: the chunk before has just changed them.
            table, inputs = planner.with_states(clients, inputs)
            count_now = np.int32(stop - start)
            state, table, metrics = run(state, table, numbers, columns, inputs, count_now)
            if states is not None:
                states.store(clients, table)
            # Here the host waits for the device.
            fetched = {name: np.asarray(values)[: stop - start] for name, values in metrics.items()}
            seconds, began = time.perf_counter() - began, time.perf_counter()
            yield Chunk(start, stop, state, clients, fetched, seconds)
            # The least time of a round so far: the first chunks hold the compilation.
            per_round = min(per_round, seconds / (stop - start))
            if not vectorizing():
                count = max(1, min(int(CHUNK_SECONDS / per_round), 4 * count, planner.most_rounds))
            start = stop


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
        kept: what these clients have kept from earlier rounds; it is brought up to date.
    """
    if kept is not None and kept.ids != data.ids:
        raise ConfigError(
            f"kept holds the states of {len(kept.ids)} clients that are not the {len(data)} "
            "clients of the data; give what an earlier round of the same clients has returned"
        )
    known = algorithm.attributes(data) if attributes is None else attributes
    data = dataclasses.replace(data, seen=np.ones(len(data), bool))
    here = range(round, round + 1)
    planner = Planner(
        algorithm, model, data, state, engine,
        seed=seed, rounds=here, cohort=len(data), attributes=known, states=kept,
    )  # fmt: skip
    clients, columns, inputs = planner.plan(here)
    table, inputs = planner.with_states(clients, inputs)
    same, numbers = separate(algorithm)
    run = _compiled(same, model, engine, len(planner.passes))
    upload, table, metrics = run(on_every_device(engine, state), table, numbers, columns, inputs)
    if planner.states is not None:
        planner.states.store(clients, table)
    return Told(upload, {name: np.asarray(a) for name, a in metrics.items()}, planner.states)


@made_once(maxsize=32)
def _compiled(same: Any, model: Model, engine: Engine, passes: int, rounds: int = 0) -> Any:
    """The program that runs up to ``rounds`` rounds; jit compiles it once for a run.

    With no rounds, it is what the clients of a single one do, without the server.
    """

    def clients(
        state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs
    ) -> tuple[Tree, Kept, dict[str, jax.Array]]:
        cohort = Cohort(model, engine, inputs, columns, kept)
        upload, metrics = unite(same, numbers).clients(state, cohort)
        finite = cohort.finite & metrics.get("finite", True)
        return upload, cohort.kept, {**metrics, "finite": finite}

    def once(state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs) -> Any:
        return clients(state, kept, numbers, columns, jax.tree.map(lambda a: a[0], inputs))

    def many(
        state: Tree, kept: Kept, numbers: Any, columns: Any, inputs: Inputs, count: jax.Array
    ) -> tuple[Tree, Kept, Tree]:
        def at(r: Any) -> Inputs:
            return jax.tree.map(lambda a: a[r], inputs)

        # Metrics have room for all rounds, of which only the first `count` run.
        _, _, shapes = jax.eval_shape(clients, state, kept, numbers, columns, at(0))
        empty = jax.tree.map(lambda m: jnp.zeros((rounds, *m.shape), m.dtype), shapes)

        def body(r: jax.Array, carry: tuple[Tree, Kept, Tree]) -> tuple[Tree, Kept, Tree]:
            state, kept, metrics = carry
            upload, kept, new = clients(state, kept, numbers, columns, at(r))
            state = unite(same, numbers).server(state, upload)
            return state, kept, jax.tree.map(lambda m, v: m.at[r].set(v), metrics, new)

        out: tuple[Tree, Kept, Tree] = jax.lax.fori_loop(0, count, body, (state, kept, empty))
        return out

    # Of all that goes in, only schedules and examples to score are divided between devices. A spec
    # stands for all that is below it, even if that is nothing: no trials, or nothing to score.
    every: Any = PartitionSpec()
    by_device: Any = PartitionSpec(None, LANES)
    a_pass = PassInput(plan_specs(None), every, every, every)
    inputs = Inputs((a_pass,) * passes, by_device, every, every, every, every)
    specs = (every, every, every, every, inputs)
    if rounds:
        return spread(many, engine, (*specs, every), every)
    return spread(once, engine, specs, every)
