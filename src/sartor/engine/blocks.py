"""A model for every client, a block of clients at a time: memory is that of one block.

Jobs of about the same length go through the lanes together, one job a lane, so that little is
idle and each lane ends holding one client's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import numpy.typing as npt
import optax
from jax.sharding import Mesh, PartitionSpec

from sartor.caching import made_once
from sartor.data import ClientData
from sartor.engine.engine import Engine, source
from sartor.engine.lanes import LANES, each, read_by
from sartor.engine.objectives import Objective
from sartor.engine.programs import HELD, personal, said_of, tried
from sartor.engine.schedule import (
    Ints,
    Room,
    Schedule,
    Spans,
    one_each,
    orders,
    padded,
    ragged,
    roomy,
    schedule,
    steps_of,
)
from sartor.engine.together import Program
from sartor.models import Params
from sartor.randomness import Words, key_data, mix
from sartor.trees import Tree

PLAN_BYTES = 2**28
"""The most bytes that the plan of a block takes, unless a single client needs more."""

Stack = dict[str, npt.NDArray[Any]]
"""Parameters of several clients by leaf name, each [clients, ...]."""


class Jobs(NamedTuple):
    """Work for the lanes; a client may have several jobs.

    Attributes:
        client: [jobs] positions of clients in the data.
        train: the examples that each job trains on.
        words: [jobs] its randomness.
        values: what the objective has to know of each job, by name: [jobs, ...].
        held: the examples that each job is tried on in the end, if it is a trial.
    """

    client: Ints
    train: Spans
    words: Words
    values: dict[str, npt.NDArray[Any]]
    held: Spans | None = None

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.client)


class Block(NamedTuple):
    """Some jobs and what became of them.

    Attributes:
        jobs: which ones.
        params: the leaves that were trained; none of a trial.
        loss: each job's mean training loss.
        finite: whether each job's model is finite.
        held_loss: of a trial, the mean plain loss on the examples that were held out.
    """

    jobs: Ints
    params: Stack
    loss: npt.NDArray[Any]
    finite: npt.NDArray[np.bool_]
    held_loss: npt.NDArray[Any] | None


class Mix(Protocol):
    """Replaces or adds rows in the plan of a block: :meth:`sartor.Dapper` mixes data this way."""

    @property
    def data(self) -> ClientData:
        """What the rows refer to: the clients' data, and perhaps more after it."""

    def width(self, batch: int) -> int:
        """Rows in a step."""

    def __call__(self, rows: npt.NDArray[Any], jobs: Jobs, batch: int) -> npt.NDArray[Any]:
        """Rows [steps, lanes, width] from the clients' own [steps, lanes, batch]."""


class Recipe(NamedTuple):
    """How every job trains.

    Attributes:
        objective: what it minimises.
        optimizer: its optimizer.
        epochs: passes over its examples.
        batch: examples in a step.
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    epochs: int
    batch: int


def everybody(
    data: ClientData, seed: int, cluster: Ints, *, until: str = "train", **values: Any
) -> Jobs:
    """One job for each client, on its examples up to the end of a part.

    The randomness is the same for every algorithm: what two of them do differently is then not
    blurred by what they drew differently.
    """
    end = data.bounds[:, 1 if until == "train" else 2]
    train = Spans(data.bounds[:, 0], end - data.bounds[:, 0])
    words = mix(seed, "personal", data.hashes)
    values = {
        "cluster": cluster.astype(np.int32),
        "place": np.arange(len(data), dtype=np.int32),
        "size": train.sizes.astype(np.float32),
        **values,
    }
    return Jobs(np.arange(len(data)), train, words, values)


def train_each(
    data: ClientData,
    recipe: Recipe,
    jobs: Jobs,
    *,
    central: Params | None,
    done: npt.NDArray[np.bool_],
    engine: Engine,
    mix_rows: Mix | None = None,
    fetch: bool = True,
) -> Iterator[Block]:
    """Run every job by itself.

    Args:
        data: the data set.
        recipe: how they train.
        jobs: what there is to do.
        central: the central hypotheses [q, ...]; ``None`` where there are none.
        done: jobs that are not needed. The blocks stay the same, so that work which was stopped
            goes on with the same bits.
        engine: how to run it.
        mix_rows: what else is mixed into the batches, if anything.
        fetch: whether trained leaves come to the host, or stay on the device.

    Yields:
        Blocks of jobs, the longest first.
    """
    data = mix_rows.data if mix_rows else data
    devices = len(engine.local_devices())
    width = mix_rows.width(recipe.batch) if mix_rows else recipe.batch
    lanes = lanes_of(data, recipe, jobs, engine, mix_rows)
    steps = steps_of(jobs.train.sizes, recipe.batch, recipe.epochs)
    share = _shared(jobs)
    readers = jobs.number // (int(share.max(initial=0)) + 1)
    run = _runner(recipe, engine, width - recipe.batch, jobs.held is not None, readers)
    most_held = -(-int(jobs.held.sizes.max()) // HELD) * HELD if jobs.held is not None else 0
    # Streamed blocks hold their own rows, what is mixed into them, and what is held out.
    room = np.sort(jobs.train.sizes)[-lanes:].sum() + lanes * most_held
    if mix_rows:
        room += int(steps.max()) * lanes * width
    reader = source(engine, data, int(room))
    launched = None
    blocks = list(_in_blocks(steps, lanes, devices, width))
    examples = max(_examples(jobs, share, recipe, chosen) for chosen, _, _ in blocks)
    for chosen, lanes_here, most in blocks:
        if done[chosen].all():
            continue
        now = _part(jobs, chosen)
        space = Room(int(most), 1, roomy(examples))
        plan = _plan(now, share[chosen], recipe, lanes_here, devices, space)
        plan = plan._replace(order=now.train.at(plan.order))
        if mix_rows:
            plan = _mixed(plan, mix_rows, now, recipe.batch)
        held = _held(now, lanes_here, most_held)
        columns, places, held_places = reader.load(
            plan.order.astype(np.int32), held["rows"].astype(np.int32)
        )
        values = {
            "key": key_data(now.words),
            "init": key_data(mix(now.words, "init")),
            **now.values,
        }
        shaped = {name: padded(a, lanes_here) for name, a in values.items()}
        shaped |= {"held": held_places, "held_size": held["sizes"]}
        result = chosen, run(central, columns, plan._replace(order=places), shaped)
        # The device works on this block while the one before is fetched.
        if launched:
            yield _fetch(*launched, fetch)
        launched = result
    if launched:
        yield _fetch(*launched, fetch)


def lanes_of(
    data: ClientData, recipe: Recipe, jobs: Jobs, engine: Engine, mix_rows: Mix | None = None
) -> int:
    """The most jobs in a block."""
    width = mix_rows.width(recipe.batch) if mix_rows else recipe.batch
    each_device = engine.lanes_for(recipe.objective.model, data, width, jobs.number)
    return len(engine.local_devices()) * each_device


def _part(jobs: Jobs, chosen: Ints) -> Jobs:
    return Jobs(
        jobs.client[chosen],
        jobs.train.take(chosen),
        jobs.words[chosen],
        {name: values[chosen] for name, values in jobs.values.items()},
        None if jobs.held is None else jobs.held.take(chosen),
    )


def _in_blocks(
    steps: Ints, lanes: int, devices: int, width: int
) -> Iterator[tuple[Ints, int, int]]:
    """Jobs by length, in blocks: which, how many lanes there are, and room for how many steps.

    All blocks share one shape, and so one compilation, unless a few jobs are so long that their
    plans would fill the memory; these go first, in narrow blocks.
    """
    order = np.argsort(-steps, kind="stable")
    long = int((steps * lanes * width * 4 > PLAN_BYTES).sum())
    longest = max(int(steps.max()), 1)
    narrow = max(1, PLAN_BYTES // (4 * width * longest) // devices) * devices
    for group, lanes_here in ((order[:long], narrow), (order[long:], lanes)):
        for begin in range(0, len(group), lanes_here):
            yield group[begin : begin + lanes_here], lanes_here, int(steps[group[0]])


def _shared(jobs: Jobs) -> Ints:
    """[jobs] jobs with the same number read the same examples in the same order."""
    same = np.stack([jobs.train.first, jobs.train.sizes, jobs.words.view(np.int64)])
    return np.asarray(np.unique(same, axis=1, return_inverse=True)[1].reshape(-1))


def _examples(jobs: Jobs, share: Ints, recipe: Recipe, chosen: Ints) -> int:
    """How long the list of examples is that some jobs read."""
    sizes = jobs.train.sizes[chosen[np.unique(share[chosen], return_index=True)[1]]]
    return int((sizes * orders(sizes, recipe.batch, recipe.epochs)).sum())


def _mixed(plan: Schedule, mix_rows: Mix, jobs: Jobs, batch: int) -> Schedule:
    """The plan with other rows mixed in: every batch is read once, by its own job."""
    place = np.clip(np.arange(batch), 0, np.maximum(plan.valid - 1, 0)[..., None])
    rows = mix_rows(plan.order[plan.at[..., None] + place], jobs, batch)
    at = np.arange(plan.at.size, dtype=np.int32).reshape(plan.at.shape) * rows.shape[-1]
    return plan._replace(order=rows.reshape(-1), at=at)


def _plan(
    jobs: Jobs, share: Ints, recipe: Recipe, lanes: int, devices: int, space: Room
) -> Schedule:
    first, sizes, keys = (
        padded(a, lanes)[None] for a in (jobs.train.first, jobs.train.sizes, jobs.words)
    )
    idle = np.full(lanes - len(share), -1)  # empty jobs
    plan = schedule(
        first, sizes, keys,
        batch=recipe.batch, epochs=recipe.epochs, lanes=lanes, devices=devices,
        share=np.concatenate([share, idle]), space=space,
        packing=one_each(steps_of(sizes, recipe.batch, recipe.epochs), devices),
    )  # fmt: skip
    return Schedule(*(a[0] for a in plan))


def _held(jobs: Jobs, lanes: int, most: int) -> dict[str, npt.NDArray[Any]]:
    """The rows that each lane is tried on: [lanes, most], and how many there are."""
    rows = np.zeros((lanes, most), np.int64)
    sizes = np.zeros(lanes, np.int32)
    if jobs.held is not None:
        owner, place = ragged(jobs.held.sizes)
        rows[owner, place] = jobs.held.at(jobs.held.first[owner] + place)
        sizes[: jobs.number] = jobs.held.sizes
    return {"rows": rows, "sizes": sizes}


def _fetch(jobs: Ints, result: tuple[Tree, Tree], fetch: bool) -> Block:
    params, report = jax.tree.map(lambda a: a[: len(jobs)], result)
    report = jax.tree.map(np.asarray, report)
    if fetch:
        params = jax.tree.map(np.asarray, params)
    return Block(jobs, params, report["loss"], report["finite"], report.get("held_loss"))


@made_once(maxsize=32)
def _runner(recipe: Recipe, engine: Engine, beside: int, trial: bool, readers: int) -> Any:
    """The compiled program that runs one block; so many jobs read each example."""
    objective = recipe.objective.in_precision(engine.precision)

    def run(central: Params, columns: Any, plan: Schedule, jobs: Tree) -> tuple[Tree, Tree]:
        program = personal(objective, recipe.optimizer, central)
        if trial:
            program = tried(program, objective, central, columns)
        said = None
        if objective.asks(central, readers) and not beside and set(columns) != {"y"}:
            said = said_of(objective, central, columns, plan.order, read_by(plan))
            if trial:
                jobs = {**jobs, "held said": _held_said(objective, central, columns, jobs)}
        return each(program, plan, columns, jobs, recipe.batch, beside, said)

    every, lanes, by_step = PartitionSpec(), PartitionSpec(LANES), PartitionSpec(None, LANES)
    plan: Any = [lanes, by_step, by_step, by_step, every] + [by_step] * 4
    return spread(run, engine, (every, every, Schedule(*plan), lanes))


def _held_said(objective: Objective, central: Params, columns: Any, jobs: Tree) -> jax.Array:
    """What every job's central hypothesis says of what it is tried on: [jobs, held, ...]."""
    rows = jobs["held"]
    said = said_of(objective, central, columns, rows.reshape(-1))
    said = said.reshape(-1, *rows.shape, *said.shape[2:])
    held: jax.Array = said[jobs["cluster"], jax.numpy.arange(len(rows))]
    return held


def spread(run: Callable[..., Tree], engine: Engine, specs: tuple[Any, ...]) -> Any:
    """Compile a function of lanes; with several devices, each runs its share of the lanes."""
    devices = engine.local_devices()
    if len(devices) == 1:
        return Program(run)
    mesh = Mesh(np.array(devices), (LANES,))
    lanes = PartitionSpec(LANES)
    return Program(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=lanes, check_vma=False))
