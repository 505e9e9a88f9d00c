"""A model for every client, a block of clients at a time: memory is that of one block.

Clients of about the same size go through the lanes together, one client a lane, so that little
is idle and each lane ends holding one client's model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import optax
from jax.sharding import Mesh, PartitionSpec

from sartor.data import ClientData
from sartor.engine.cohort import trainer
from sartor.engine.engine import Engine, source
from sartor.engine.lanes import LANES, each
from sartor.engine.schedule import Ints, Room, Schedule, one_each, padded, schedule, steps_of
from sartor.models import Model, Params, in_precision
from sartor.randomness import key_data, mix
from sartor.trees import Tree, flatten, unflatten

PLAN_BYTES = 2**28
"""The most bytes that the plan of a block takes, unless a single client needs more."""

Stack = dict[str, npt.NDArray[Any]]
"""Parameters of several clients by leaf name, each [clients, ...]."""


class Block(NamedTuple):
    """Some clients and what became of them.

    Attributes:
        clients: positions in the data.
        params: the leaves that were trained.
        loss: each client's mean training loss.
        finite: whether each client's model is finite.
    """

    clients: Ints
    params: Stack
    loss: npt.NDArray[np.float32]
    finite: npt.NDArray[np.bool_]


class Recipe(NamedTuple):
    """How every client trains.

    Attributes:
        optimizer: its optimizer.
        epochs: passes over its training part.
        batch: examples in a step.
        trained: names of the leaves that it trains; the others stay as they were.
        purpose: names the randomness, so that two algorithms do not share draws by accident.
    """

    optimizer: optax.GradientTransformation
    epochs: int
    batch: int
    trained: tuple[str, ...]
    purpose: str


def train_each(
    model: Model,
    data: ClientData,
    recipe: Recipe,
    *,
    start: Params | None,
    cluster: Ints,
    done: npt.NDArray[np.bool_],
    seed: int,
    engine: Engine,
) -> Iterator[Block]:
    """Train a model for each client on its own training part.

    Args:
        model: the hypothesis class.
        data: the data set.
        recipe: how they train.
        start: hypotheses [q, ...] to start from; ``None`` starts every client at random.
        cluster: for each client, which hypothesis it starts from.
        done: clients that are not needed. The blocks stay the same, so that work which was
            stopped goes on with the same bits.
        seed: seed of all randomness.
        engine: how to run it.

    Yields:
        Blocks of clients, the largest first.
    """
    devices = len(engine.local_devices())
    lanes = devices * engine.lanes_for(model, data, recipe.batch, len(data))
    sizes = data.sizes("train")
    steps = steps_of(sizes, recipe.batch, recipe.epochs)
    words = mix(seed, recipe.purpose, data.hashes)
    run = _trainer(model, engine, recipe, start is None)
    rows = source(engine, data, int(np.sort(sizes)[-lanes:].sum()))
    launched = None
    for chosen, width, most in _in_blocks(steps, lanes, devices, recipe.batch):
        if done[chosen].all():
            continue
        plan = _plan(data, chosen, words[chosen], recipe, width, devices, most)
        columns, places = rows.load(plan.rows)
        jobs = {
            "key": key_data(words[chosen]),
            "init": key_data(mix(words[chosen], "init")),
            "cluster": cluster[chosen].astype(np.int32),
        }
        jobs = {name: padded(values, width) for name, values in jobs.items()}
        now = chosen, run(start, columns, plan._replace(rows=places), jobs)
        # The device works on this block while the one before is fetched.
        if launched:
            yield _fetch(*launched)
        launched = now
    if launched:
        yield _fetch(*launched)


def _in_blocks(
    steps: Ints, lanes: int, devices: int, batch: int
) -> Iterator[tuple[Ints, int, int]]:
    """Clients by length, in blocks: who, how many lanes there are, and room for how many steps.

    All blocks share one shape, and so one compilation, unless a few clients are so long that
    their plans would fill the memory; these go first, in narrow blocks.
    """
    order = np.argsort(-steps, kind="stable")
    long = int((steps * lanes * batch * 4 > PLAN_BYTES).sum())
    narrow = max(1, PLAN_BYTES // (4 * batch * int(steps.max())) // devices) * devices
    for group, width in ((order[:long], narrow), (order[long:], lanes)):
        for begin in range(0, len(group), width):
            yield group[begin : begin + width], width, int(steps[group[0]])


def _plan(
    data: ClientData, clients: Ints, words: Any, recipe: Recipe, lanes: int, devices: int, most: int
) -> Schedule:
    first, sizes, keys = (
        padded(a, lanes)[None]
        for a in (data.bounds[clients, 0], data.sizes("train")[clients], words)
    )
    plan = schedule(
        first, sizes, keys,
        batch=recipe.batch, epochs=recipe.epochs, lanes=lanes, devices=devices,
        space=Room(int(most), 1),
        packing=one_each(steps_of(sizes, recipe.batch, recipe.epochs), devices),
    )  # fmt: skip
    return Schedule(*(a[0] for a in plan))


def _fetch(clients: Ints, result: tuple[Tree, Tree]) -> Block:
    params, report = jax.tree.map(lambda a: np.asarray(a)[: len(clients)], result)
    return Block(clients, params, report["loss"], report["finite"])


@functools.lru_cache(maxsize=32)
def _trainer(model: Model, engine: Engine, recipe: Recipe, from_scratch: bool) -> Any:
    """The compiled program that trains one block."""
    computing = in_precision(model, engine.precision)
    shape = jax.eval_shape(model.init, jax.random.key(0))
    frozen = [name for name in flatten(shape) if name not in recipe.trained]

    def run(start: Params, columns: Any, plan: Schedule, jobs: Tree) -> tuple[Tree, Tree]:
        def pick(names: Any, job: Tree) -> Params:
            leaves = flatten(start)
            return {name: leaves[name][job["cluster"]] for name in names}

        def begin(job: Tree) -> Params:
            if from_scratch:
                key = jax.random.wrap_key_data(job["init"], impl="threefry2x32")
                return flatten(model.init(key))
            return pick(recipe.trained, job)

        def merge(trained: Params, job: Tree) -> Params:
            return unflatten(shape, {**trained, **pick(frozen, job)} if frozen else trained)

        return each(trainer(computing, recipe.optimizer, begin, merge), plan, columns, jobs)

    every, lanes, by_step = PartitionSpec(), PartitionSpec(LANES), PartitionSpec(None, LANES)
    plan: Any = [lanes] + [by_step] * 7
    return spread(run, engine, (every, every, Schedule(*plan), lanes))


def spread(run: Callable[..., Tree], engine: Engine, specs: tuple[Any, ...]) -> Any:
    """Compile a function of lanes; with several devices, each runs its share of the lanes."""
    devices = engine.local_devices()
    if len(devices) == 1:
        return jax.jit(run)
    mesh = Mesh(np.array(devices), (LANES,))
    lanes = PartitionSpec(LANES)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=lanes, check_vma=False))
