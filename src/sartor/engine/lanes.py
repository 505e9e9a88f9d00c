"""The one compiled loop: lanes step through a schedule, and take turns where it says.

There are two forms. ``fold`` packs many jobs into few lanes and sums what they upload (a round of
federated averaging). ``each`` gives every lane one job and returns what it uploads
(personalization). Both run any :class:`~sartor.engine.job.ClientProgram`.

A step of all lanes is one ``vmap``-ed call of the program's ``step``. Idle lanes compute, too: a
vectorised program cannot leave some out. Their results are thrown away by :func:`where`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from sartor.engine.engine import Engine
from sartor.engine.job import Ask, Batch, ClientProgram, Ended, Job, judged
from sartor.engine.schedule import Schedule
from sartor.engine.vectorize import Compiled
from sartor.models import take
from sartor.trees import Tree

LANES = "lanes"
"""Name of the mesh axis that lanes are spread over when there are several devices."""


def fold(
    program: ClientProgram,
    plan: Schedule,
    columns: dict[str, jax.Array],
    jobs: Job,
    weights: jax.Array,
    batch: int,
    *,
    q: int = 1,
    devices: int = 1,
    ask: Ask | None = None,
) -> tuple[Tree, Tree]:
    """Run one round: the weighted sums of all uploads by hypothesis, and every job's other results.

    Called inside ``jit`` (and, with several devices, inside ``shard_map`` over ``LANES``) with the
    round's slice of a schedule.

    Args:
        program: what a job does.
        plan: who works when.
        columns: the data's columns.
        jobs: all jobs, [jobs, ...].
        weights: [jobs] how much each upload counts.
        batch: examples in a step.
        q: how many hypotheses uploads are summed for.
        devices: over how many devices the lanes are spread.
        ask: who predicts ``Batch.central``.

    Returns:
        The sums, [q, ...]; and what jobs record and keep, [jobs, ...], with whether all that they
        end with is ``finite``.
    """
    lanes = plan.valid.shape[1]
    members = weights.shape[0]
    start, step, end = (_over_lanes(f, lanes) for f in judged(program))
    every = jnp.arange(q)[:, None]

    def of(who: jax.Array) -> Job:
        """The jobs in the lanes: [lanes, ...]. Nobody stands for any job, and is masked later."""
        return jax.tree.map(lambda a: a[jnp.maximum(who, 0)], jobs)

    def work(s: jax.Array, carry: Tree) -> Tree:
        job = of(plan.job[s])
        examples = _batch(plan, s, batch, columns, job, ask=ask)
        return where(plan.valid[s] > 0, step(carry, examples, job), carry)

    def hand_in(carry: Tree, job: Job) -> tuple[Tree, Tree]:
        ended = end(carry, job)
        return ended.upload, (ended.record, ended.keep, ended.finite)

    def turn(n: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        carry, total, results = state
        carry = jax.lax.fori_loop(plan.bounds[n, 0], plan.bounds[n + 1, 0], work, carry)
        who = plan.hands_in[n]
        job, weight = of(who), weights[jnp.maximum(who, 0)]
        upload, result = hand_in(carry, job)
        mine = (who >= 0) & (job.hypothesis == every)  # [q, lanes]

        # A masked sum and not a scatter: it adds in the same order in every run. It is also no
        # product with the mask, as a job that diverged must not make other hypotheses NaN.
        def add(sums: jax.Array, one: jax.Array) -> jax.Array:
            one = _like(weight, one) * one
            return sums + jnp.where(_like(mine, one[None]), one[None], 0).sum(axis=1)

        total = jax.tree.map(add, total, upload)
        place = jnp.where(who >= 0, who, members)  # out of bounds: dropped
        results = jax.tree.map(lambda r, v: r.at[place].set(v, mode="drop"), results, result)
        # Whoever takes a new job starts; a lane in the middle of one keeps its carry.
        after = plan.takes[n + 1]
        return where(after >= 0, start(of(after)), carry), total, results

    carry = start(of(plan.takes[0]))
    # Shapes of what jobs end with, to begin the sums and tables that the loop fills.
    upload, result = jax.eval_shape(hand_in, carry, of(plan.takes[0]))
    total = jax.tree.map(
        lambda c: jnp.zeros((q, *c.shape[1:]), jnp.result_type(weights, c)), upload
    )
    results = jax.tree.map(lambda r: jnp.zeros((members, *r.shape[1:]), r.dtype), result)
    _, total, results = jax.lax.fori_loop(0, plan.turns[0], turn, (carry, total, results))
    if devices > 1:  # rows of jobs that ran on other devices are zero here
        total, summed = jax.lax.psum((total, results), LANES)
        results = jax.tree.map(lambda a, b: a.astype(b.dtype), summed, results)  # bools stay bools
    return total, results


def each(
    program: ClientProgram,
    plan: Schedule,
    columns: dict[str, jax.Array],
    jobs: Job,
    batch: int,
    *,
    extra: int = 0,
    ask: Ask | None = None,
) -> Ended:
    """Run one job in each lane: what every job ends with.

    Like :func:`fold`, with ``jobs`` in the order of the lanes and a single turn. In every step
    ``extra`` examples follow the job's own.
    """
    lanes = plan.valid.shape[1]
    start, step, end = (_over_lanes(f, lanes) for f in judged(program))

    def work(s: jax.Array, carry: Tree) -> Tree:
        examples = _batch(plan, s, batch, columns, jobs, extra, ask)
        return where(plan.valid[s] > 0, step(carry, examples, jobs), carry)

    carry = jax.lax.fori_loop(0, plan.bounds[1, 0], work, start(jobs))
    ended: Ended = end(carry, jobs)
    return ended


def spread(
    run: Callable[..., Tree], engine: Engine, in_specs: tuple[Any, ...], out_specs: Any
) -> Compiled:
    """Compile a function of lanes; with several devices, each runs its share of the lanes."""
    devices = engine.local_devices()
    if len(devices) > 1:
        mesh = Mesh(np.array(devices), (LANES,))
        # Lanes of different devices take different numbers of steps, and meet in the psum of
        # `fold`: nothing to check while they are apart.
        run = jax.shard_map(run, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return Compiled(run)


def plan_specs(*before: None) -> Schedule:
    """How a schedule is spread over devices; ``None`` for each axis before those of a round."""
    every: Any = PartitionSpec()
    device: Any = PartitionSpec(*before, LANES)
    lane: Any = PartitionSpec(*before, None, LANES)
    return Schedule(device, lane, lane, lane, every, lane, lane, lane, lane)


def _batch(
    plan: Schedule,
    s: jax.Array,
    batch: int,
    columns: dict[str, jax.Array],
    job: Job,
    extra: int = 0,
    ask: Ask | None = None,
) -> Batch:
    """The batches of all lanes at step s."""
    place, valid = jnp.arange(batch + extra), plan.valid[s][:, None]
    # A batch that is not full repeats the job's own last example. The rows behind it in the list
    # belong to another client, whose numbers must not even pass through this one's model.
    read = jnp.where(place < batch, jnp.clip(place, 0, valid - 1), place)
    places = plan.at[s][:, None] + read
    x, y = take(columns, plan.order[places])
    # Threefry gives a lane the same bits whether it runs alone or beside others; `rbg` does not.
    keys = jax.random.wrap_key_data(job.key, impl="threefry2x32")
    keys = jax.vmap(jax.random.fold_in)(keys, plan.tick[s])
    central = None
    if ask is not None and ask.answers is not None:
        central = ask.answers[job.hypothesis[:, None], places]
    elif ask is not None:
        central = _over_lanes(ask.one, len(valid))(job.hypothesis, x)
    return Batch(x, y, place < valid, keys, central)


def _over_lanes(f: Callable[..., Tree], lanes: int) -> Callable[..., Tree]:
    """Vectorise over lanes; a single lane runs as it is, which is the fastest on a CPU."""
    if lanes > 1:
        return jax.vmap(f)

    def single(*args: Tree) -> Tree:
        out = f(*jax.tree.map(lambda a: a[0], args))
        return jax.tree.map(lambda a: a[None], out)

    return single


def _like(flag: jax.Array, array: Any) -> jax.Array:
    return flag.reshape(flag.shape + (1,) * (array.ndim - flag.ndim))


def where(flag: jax.Array, new: Tree, old: Tree) -> Tree:
    """For leaves [n, ...], the new ones where the flag [n] is set, and the old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(_like(flag, a), a, b), new, old)
