"""A model for every client, a block of clients at a time: memory is that of one block.

Rounds sum what clients upload, so their jobs can take turns in few lanes. Here every job's model
is a result of its own. So a block has one job in each lane, and ends with one model in each lane.
Jobs are sorted by length first: those of a block take about the same number of steps, and little
is idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import PartitionSpec

from sartor.caching import made_once
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine.columns import source
from sartor.engine.engine import Engine
from sartor.engine.job import Ended, Held, Job
from sartor.engine.lanes import LANES, each, plan_specs, spread, where
from sartor.engine.objectives import asking
from sartor.engine.programs import HELD, Recipe, ask_ahead, examiner, personal, recorded
from sartor.engine.schedule import (
    Room,
    Schedule,
    Spans,
    listed,
    one_each,
    padded,
    roomy,
    schedule,
    steps_of,
)
from sartor.engine.states import ClientStates
from sartor.models import Params
from sartor.randomness import Words, key_data, mix
from sartor.types import Bools, Ints

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
        hypothesis: [jobs] the central hypothesis that it belongs to.
        values: what the objective knows of each job, by name: [jobs, ...].
        held: the examples that each job is tried on in the end, if it is a trial.
        fold: [jobs] whether these are a fold of the client's training part.
    """

    client: Ints
    train: Spans
    words: Words
    hypothesis: Ints
    values: dict[str, npt.NDArray[Any]]
    held: Spans | None = None
    fold: Bools | None = None

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.client)

    def take(self, chosen: Ints) -> Jobs:
        """Some of them."""
        return Jobs(
            self.client[chosen],
            self.train.take(chosen),
            self.words[chosen],
            self.hypothesis[chosen],
            {name: values[chosen] for name, values in self.values.items()},
            None if self.held is None else self.held.take(chosen),
            None if self.fold is None else self.fold[chosen],
        )

    def cost(self, data: ClientData, recipe: Recipe, mixing: Mixing | None) -> Cost:
        """What the jobs ask of the clients they belong to."""
        sizes = self.train.sizes
        wide = (mixing.width(recipe.batch) if mixing else recipe.batch) // recipe.batch
        touched = wide * recipe.epochs * sizes + (0 if self.held is None else self.held.sizes)
        cost = Cost.nothing(data.ids)
        np.add.at(cost.examples, self.client, touched)
        np.add.at(cost.steps, self.client, steps_of(sizes, recipe.batch, recipe.epochs))
        return cost


class Block(NamedTuple):
    """Some jobs and what became of them.

    Attributes:
        jobs: which ones.
        params: the leaves that were trained; none of a trial.
        loss: each job's mean training loss.
        finite: whether each job's model is finite.
        held_loss: of a trial, [jobs, 2] the mean plain loss on the examples that were held out,
            and on every second one of them.
    """

    jobs: Ints
    params: Stack
    loss: npt.NDArray[Any]
    finite: Bools
    held_loss: npt.NDArray[Any] | None


class Mixing(Protocol):
    """Replaces or adds rows in the plan of a block: how Dapper mixes data."""

    @property
    def data(self) -> ClientData:
        """What the rows refer to: the clients' data, and perhaps more after it."""

    def width(self, batch: int) -> int:
        """Rows in a step."""

    def __call__(self, rows: npt.NDArray[Any], jobs: Jobs, batch: int) -> npt.NDArray[Any]:
        """Rows [steps, lanes, width] from the clients' own [steps, lanes, batch]."""


def everybody(
    data: ClientData, seed: int, hypothesis: Ints, *, until: str = "train", **values: Any
) -> Jobs:
    """One job for each client, on its examples up to the end of a part.

    The randomness is the same for every algorithm: what two of them do differently is then not
    blurred by what they drew differently.
    """
    end = data.bounds[:, 1 if until == "train" else 2]
    train = Spans(data.bounds[:, 0], end - data.bounds[:, 0])
    words = mix(seed, "personal", data.hashes)
    return Jobs(np.arange(len(data)), train, words, hypothesis, values)


def train_each(
    data: ClientData,
    recipe: Recipe,
    jobs: Jobs,
    *,
    central: Params | None,
    done: Bools,
    engine: Engine,
    mixing: Mixing | None = None,
    kept: ClientStates | None = None,
    fetch: bool = True,
) -> Iterator[Block]:
    """Run every job by itself.

    Args:
        data: the data set.
        recipe: how they train.
        jobs: what there is to do.
        central: the central hypotheses [q, ...]; ``None`` where there are none.
        done: jobs that are not needed. The blocks stay the same, so that interrupted work
            resumes with the same bits.
        engine: how to run it.
        mixing: what else is mixed into the batches, if anything.
        kept: what jobs start from, where clients have kept it from earlier rounds.
        fetch: whether trained leaves come to the host, or stay on the device.

    Yields:
        Blocks of jobs, the longest first.
    """
    data = mixing.data if mixing else data  # what is mixed in may come after the clients' own rows
    devices = len(engine.local_devices())
    width = mixing.width(recipe.batch) if mixing else recipe.batch
    lanes = lanes_of(data, recipe, jobs, engine, mixing)
    steps = steps_of(jobs.train.sizes, recipe.batch, recipe.epochs)
    share = _shared(jobs)
    # Examples that are mixed in are read once, so nothing is gained by asking about them ahead.
    readers = 0 if width > recipe.batch else jobs.number // (int(share.max(initial=0)) + 1)
    run = _runner(recipe, engine, width - recipe.batch, readers)
    most_held = 0 if jobs.held is None else jobs.held.most(HELD)
    # Streamed blocks hold their own rows, what is mixed into them, and what is held out.
    room = np.sort(jobs.train.sizes)[-lanes:].sum() + lanes * most_held
    if mixing:
        room += int(steps.max()) * lanes * width
    reader = source(engine, data, int(room))
    blocks = list(_in_blocks(steps, lanes, devices, width))
    # The longest list of examples that a block reads: all blocks make room for it.
    shared = [
        listed(jobs.train.sizes[chosen], recipe.batch, recipe.epochs, share[chosen])
        for chosen, _, _ in blocks
    ]
    examples = roomy(int(max(shared)))
    launched = None
    for chosen, lanes_here, most in blocks:
        if done[chosen].all():  # a block with any job left runs whole, with the same neighbours
            continue
        now = jobs.take(chosen)
        plan = _plan(now, share[chosen], recipe, lanes_here, devices, Room(most, 1, examples))
        plan = plan._replace(order=now.train.at(plan.order))
        if mixing:
            plan = _mixed(plan, mixing, now, recipe.batch)
        held = None if now.held is None else now.held.rows(most_held)
        columns, (places, held) = reader.load((plan.order.astype(np.int32), held))
        job = _jobs(now, held, kept)
        job = jax.tree.map(lambda a, n=lanes_here: padded(np.asarray(a), n), job)
        result = chosen, run(central, columns, plan._replace(order=places), job)
        # The device works on this block while the one before is fetched.
        if launched:
            yield _fetch(*launched, fetch)
        launched = result
    if launched:
        yield _fetch(*launched, fetch)


def lanes_of(
    data: ClientData, recipe: Recipe, jobs: Jobs, engine: Engine, mixing: Mixing | None = None
) -> int:
    """The most jobs in a block."""
    width = mixing.width(recipe.batch) if mixing else recipe.batch
    each_device = engine.lanes_for(recipe.objective.model, data, width, jobs.number)
    return len(engine.local_devices()) * each_device


def _jobs(jobs: Jobs, held: Any, kept: ClientStates | None) -> tuple[Job, Any]:
    """The jobs of a block as the lanes take them; and who has kept something to start from."""
    values = {name: np.asarray(a) for name, a in jobs.values.items()}
    state, visited = kept.recall(jobs.client) if kept is not None else (None, None)
    trial = None if jobs.held is None else Held(held, jobs.held.sizes.astype(np.int32))
    job = Job(
        jobs.hypothesis.astype(np.int32), key_data(jobs.words),
        jobs.train.sizes.astype(np.float32), key_data(mix(jobs.words, "init")),
        state, values, trial,
    )  # fmt: skip
    return job, visited


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
    """[jobs] jobs with the same number read the same examples in the same order.

    These are a client's trials of several candidates, which follow each other: the same rows, and
    the same random words.
    """
    same = np.ones(max(jobs.number - 1, 0), bool)
    for a in (jobs.train.first, jobs.train.sizes, jobs.words):
        same &= a[1:] == a[:-1]
    return np.concatenate([[0], np.cumsum(~same)])[: jobs.number]


def _mixed(plan: Schedule, mixing: Mixing, jobs: Jobs, batch: int) -> Schedule:
    """The plan with other rows mixed in, where ``mixing`` has made the batches of every step.

    Jobs can no longer share stretches of the list, so it holds a batch for every step and lane.
    """
    place = np.clip(np.arange(batch), 0, np.maximum(plan.valid - 1, 0)[..., None])
    rows = mixing(plan.order[plan.at[..., None] + place], jobs, batch)
    at = np.arange(plan.at.size, dtype=np.int32).reshape(plan.at.shape) * rows.shape[-1]
    return plan._replace(order=rows.reshape(-1), at=at)


def _plan(
    jobs: Jobs, share: Ints, recipe: Recipe, lanes: int, devices: int, space: Room
) -> Schedule:
    """The schedule of one block, which is a round of its own with a single turn."""
    first, sizes, keys = (
        padded(a, lanes)[None] for a in (jobs.train.first, jobs.train.sizes, jobs.words)
    )
    idle = np.full(lanes - len(share), -1)  # the last block is filled up with empty jobs
    plan = schedule(
        first, sizes, keys,
        batch=recipe.batch, epochs=recipe.epochs, lanes=lanes, devices=devices,
        share=np.concatenate([share, idle]), space=space,
        packing=one_each(steps_of(sizes, recipe.batch, recipe.epochs), devices),
    )  # fmt: skip
    return Schedule(*(a[0] for a in plan))


def _fetch(jobs: Ints, ended: Ended, fetch: bool) -> Block:
    """The results of a block, which wait until the device is done; without idle lanes."""
    ended = jax.tree.map(lambda a: a[: len(jobs)], ended)
    params = jax.tree.map(np.asarray, ended.upload) if fetch else ended.upload
    record = jax.tree.map(np.asarray, ended.record)
    finite = np.asarray(ended.finite)
    return Block(jobs, params, record["loss"], finite, record.get("held_loss"))


@made_once(maxsize=32)
def _runner(recipe: Recipe, engine: Engine, extra: int, readers: int) -> Any:
    """The compiled program that runs one block.

    Args:
        recipe: how jobs train.
        engine: how to run it.
        extra: examples that are mixed into every step, after the job's own.
        readers: how many jobs read each example.
    """
    recipe = recipe.lowered(engine.precision)
    objective = recipe.objective

    def run(central: Params, columns: Any, plan: Schedule, given: tuple[Job, Any]) -> Ended:
        jobs, visited = given
        ask, held = ask_ahead(
            asking(objective, central), columns, plan, readers, jobs.hypothesis, jobs.held
        )
        jobs = jobs._replace(held=held)
        if visited is not None:  # the others begin
            begin = jax.vmap(lambda job: dict(objective.start(central, job)))(jobs)
            jobs = jobs._replace(kept=where(visited, jobs.kept, begin))
        program = personal(recipe, central)
        if held is not None:
            program = recorded(program, "held_loss", examiner(objective, central, columns, ask))
        return each(program, plan, columns, jobs, recipe.batch, extra=extra, ask=ask)

    every, lanes = PartitionSpec(), PartitionSpec(LANES)
    return spread(run, engine, (every, every, plan_specs(), lanes), lanes)
