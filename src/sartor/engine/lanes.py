"""The one compiled loop: lanes step through a schedule, jobs start and end where it says.

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
    program: Program, plan: Schedule, columns: dict[str, jax.Array], jobs: Tree, devices: int = 1
) -> tuple[Tree, Tree]:
    """Run one round: the sum of all jobs' contributions, and each job's report.

    Called inside ``jit`` (and, with several devices, inside ``shard_map`` over ``LANES``) with the
    round's slice of a schedule: arrays lead with [steps, lanes]. ``jobs`` is a pytree of arrays
    [jobs, ...] with the jobs' keys under ``"key"``.
    """
    lanes = plan.count.shape[1]
    total_jobs = jax.tree.leaves(jobs)[0].shape[0]
    start, step, end = (_over_lanes(f, lanes) for f in program)

    def lane_jobs(s: jax.Array) -> Tree:
        return jax.tree.map(lambda a: a[plan.job[s]], jobs)

    def body(s: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        carry, total, reports = state
        job, last = lane_jobs(s), plan.last[s]
        carry = step(carry, _batch(plan, s, columns, job), job)
        contribution, report = end(carry, job)
        total = jax.tree.map(
            lambda t, c: t + jnp.where(_like(last, c), c, 0).sum(axis=0), total, contribution
        )
        place = jnp.where(last, plan.job[s], total_jobs)  # jobs that go on write nowhere
        reports = jax.tree.map(lambda r, v: r.at[place].set(v, mode="drop"), reports, report)
        # Where a job ends its lane starts the next one. Doing this here, not at the next step's
        # beginning, lets the compiler fuse it with the update of the parameters.
        carry = _where(last, start(lane_jobs(s + 1)), carry)
        return carry, total, reports

    carry = start(lane_jobs(jnp.zeros((), jnp.int32)))
    contribution, report = jax.eval_shape(end, carry, lane_jobs(jnp.zeros((), jnp.int32)))
    total = jax.tree.map(lambda c: jnp.zeros(c.shape[1:], c.dtype), contribution)
    reports = jax.tree.map(lambda r: jnp.zeros((total_jobs, *r.shape[1:]), r.dtype), report)
    _, total, reports = jax.lax.fori_loop(0, plan.steps[0], body, (carry, total, reports))
    return jax.lax.psum((total, reports), LANES) if devices > 1 else (total, reports)


def each(
    program: Program, plan: Schedule, columns: dict[str, jax.Array], jobs: Tree
) -> tuple[Tree, Tree]:
    """Run one job in each lane: what every job ends with, and its report.

    Like :func:`fold`, with ``jobs`` in the order of the lanes.
    """
    lanes = plan.count.shape[1]
    start, step, end = (_over_lanes(f, lanes) for f in program)

    def body(s: jax.Array, carry: Tree) -> Tree:
        return _where(plan.count[s] > 0, step(carry, _batch(plan, s, columns, jobs), jobs), carry)

    carry = jax.lax.fori_loop(0, plan.steps[0], body, start(jobs))
    return end(carry, jobs)


def _batch(plan: Schedule, s: jax.Array, columns: dict[str, jax.Array], job: Tree) -> Batch:
    """The batches of all lanes at step s."""
    rows = plan.rows[s]
    x, y = take(columns, rows)
    mask = jnp.arange(rows.shape[-1]) < plan.count[s][:, None]
    # Threefry gives a lane the same bits whether it runs alone or beside others; `rbg` does not.
    keys = jax.random.wrap_key_data(job["key"], impl="threefry2x32")
    return Batch(x, y, mask, jax.vmap(jax.random.fold_in)(keys, plan.tick[s]))


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
