"""The one compiled loop: lanes step through a schedule, and take turns where it says.

Two forms. ``fold`` packs many jobs into few lanes and sums what they end with (a round of
federated averaging). ``each`` gives every lane one job and keeps what it ends with
(personalization). Both run any ``start`` / ``step`` / ``end`` over any carry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sartor.engine.schedule import Schedule
from sartor.trees import Tree

LANES = "lanes"
"""Name of the mesh axis that lanes are spread over when there are several devices."""


class Batch(NamedTuple):
    """What a step sees: some examples, which of them count, and a random key of its own."""

    x: Any
    y: jax.Array
    mask: jax.Array
    key: jax.Array

    def mean(self, values: jax.Array) -> jax.Array:
        """The mean over the examples that count."""
        total = jnp.where(self.mask, values, 0).sum()
        return total / jnp.maximum(self.mask.sum(), 1)


class Program(NamedTuple):
    """What a job does.

    Attributes:
        start: ``start(job) -> carry``, where ``job`` is the job's row of the jobs' arrays.
        step: ``step(carry, batch, job) -> carry``.
        end: ``end(carry, job) -> (contribution, report)``: what is summed over jobs, and a small
            record that is kept for each job.
    """

    start: Callable[[Tree], Tree]
    step: Callable[[Tree, Batch, Tree], Tree]
    end: Callable[[Tree, Tree], tuple[Tree, Tree]]


def fold(
    program: Program,
    plan: Schedule,
    columns: dict[str, jax.Array],
    jobs: Tree,
    batch: int,
    groups: int = 1,
    devices: int = 1,
    said: jax.Array | None = None,
) -> tuple[Tree, Tree]:
    """Run one round: the sum of all jobs' contributions by group, and each job's report.

    Called inside ``jit`` (and, with several devices, inside ``shard_map`` over ``LANES``) with the
    round's slice of a schedule. ``jobs`` is a pytree of arrays [jobs, ...] with the jobs' keys
    under ``"key"`` and the groups that they are summed in under ``"group"``. Sums are
    [groups, ...]; reports [jobs, ...]. ``said`` is what the central hypotheses say of the
    schedule's examples, [q, examples, ...]: a step is told what the one of its job's ``"cluster"``
    says.
    """
    lanes = plan.valid.shape[1]
    members = jobs["group"].shape[0]
    start, step, end = (_over_lanes(f, lanes) for f in program)
    every = jnp.arange(groups)[:, None]

    def of(who: jax.Array) -> Tree:
        return jax.tree.map(lambda a: a[jnp.maximum(who, 0)], jobs)

    def work(s: jax.Array, carry: Tree) -> Tree:
        job = _told(of(plan.job[s]), plan, s, batch, said)
        examples = _batch(plan, s, batch, columns, job)
        return _where(plan.valid[s] > 0, step(carry, examples, job), carry)

    def turn(n: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        carry, total, reports = state
        carry = jax.lax.fori_loop(plan.bounds[n, 0], plan.bounds[n + 1, 0], work, carry)
        who = plan.hands_in[n]
        job = of(who)
        contribution, report = end(carry, job)
        mine = (who >= 0) & (job["group"] == every)  # [groups, lanes]
        total = jax.tree.map(
            lambda t, c: t + jnp.where(_like(mine, c[None]), c[None], 0).sum(axis=1),
            total,
            contribution,
        )
        place = jnp.where(who >= 0, who, members)  # out of bounds: dropped
        reports = jax.tree.map(lambda r, v: r.at[place].set(v, mode="drop"), reports, report)
        after = plan.takes[n + 1]
        return _where(after >= 0, start(of(after)), carry), total, reports

    carry = start(of(plan.takes[0]))
    contribution, report = jax.eval_shape(end, carry, of(plan.takes[0]))
    total = jax.tree.map(lambda c: jnp.zeros((groups, *c.shape[1:]), c.dtype), contribution)
    reports = jax.tree.map(lambda r: jnp.zeros((members, *r.shape[1:]), r.dtype), report)
    _, total, reports = jax.lax.fori_loop(0, plan.turns[0], turn, (carry, total, reports))
    if devices > 1:
        total, reports = jax.lax.psum((total, reports), LANES)
    return total, reports


def each(
    program: Program,
    plan: Schedule,
    columns: dict[str, jax.Array],
    jobs: Tree,
    batch: int,
    beside: int = 0,
    said: jax.Array | None = None,
) -> tuple[Tree, Tree]:
    """Run one job in each lane: what every job ends with, and its report.

    Like :func:`fold`, with ``jobs`` in the order of the lanes and a single turn. In every step
    ``beside`` examples follow the job's own, to be read as they are.
    """
    lanes = plan.valid.shape[1]
    start, step, end = (_over_lanes(f, lanes) for f in program)

    def work(s: jax.Array, carry: Tree) -> Tree:
        examples = _batch(plan, s, batch, columns, jobs, beside)
        told = _told(jobs, plan, s, batch + beside, said)
        return _where(plan.valid[s] > 0, step(carry, examples, told), carry)

    carry = jax.lax.fori_loop(0, plan.bounds[1, 0], work, start(jobs))
    result: tuple[Tree, Tree] = end(carry, jobs)
    return result


def _batch(
    plan: Schedule,
    s: jax.Array,
    batch: int,
    columns: dict[str, jax.Array],
    job: Tree,
    beside: int = 0,
) -> Batch:
    """The batches of all lanes at step s."""
    place, valid = jnp.arange(batch + beside), plan.valid[s][:, None]
    x, y = take(columns, plan.order[_places(plan, s, batch, beside)])
    mask = place < valid
    # Threefry gives a lane the same bits whether it runs alone or beside others; `rbg` does not.
    keys = jax.random.wrap_key_data(job["key"], impl="threefry2x32")
    return Batch(x, y, mask, jax.vmap(jax.random.fold_in)(keys, plan.tick[s]))


def _places(plan: Schedule, s: jax.Array, batch: int, beside: int) -> jax.Array:
    """Where the batches of all lanes are in the list of examples."""
    place, valid = jnp.arange(batch + beside), plan.valid[s][:, None]
    # What is masked is a job's own last example, not a stranger's.
    read = jnp.where(place < batch, jnp.clip(place, 0, valid - 1), place)
    return plan.at[s][:, None] + read


def read_by(plan: Schedule) -> jax.Array:
    """How many of a schedule's examples are read by anybody."""
    return jnp.max(jnp.asarray(plan.at) + plan.valid)


def _told(job: Tree, plan: Schedule, s: jax.Array, batch: int, said: jax.Array | None) -> Tree:
    """The jobs of all lanes, with what the central hypothesis of each says of its batch."""
    if said is None:
        return job
    places = _places(plan, s, batch, 0)
    return {**job, "said": said[job["cluster"][:, None], places]}


def take(columns: dict[str, jax.Array], rows: jax.Array) -> tuple[Any, jax.Array]:
    """Features and labels of rows: one feature column as it is, several as a dict, none as None."""
    features = {name: column[rows] for name, column in columns.items() if name != "y"}
    x = None if not features else features["x"] if list(features) == ["x"] else features
    return x, columns["y"][rows]


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


def _where(flag: jax.Array, new: Tree, old: Tree) -> Tree:
    return jax.tree.map(lambda a, b: jnp.where(_like(flag, a), a, b), new, old)
