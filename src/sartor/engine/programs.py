"""What jobs do: train, take one gradient, and be tried on examples that were held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sartor.engine.lanes import Batch, Program, take
from sartor.engine.objectives import Leaves, Objective
from sartor.engine.optimizers import Averaged
from sartor.models import Params
from sartor.trees import Tree

HELD = 32
"""Examples that a job is tried on at a time."""

SAID = 128
"""Examples that the central hypotheses are asked about at a time."""

Loss = Callable[[Params, Batch, Tree], jax.Array]
"""``loss(params, batch, job)``: what a step descends."""


def trainer(
    loss: Loss, optimizer: optax.GradientTransformation, start: Callable[[Tree], Params]
) -> Program:
    """A job that trains parameters by gradient steps on batches.

    Args:
        loss: what a step descends.
        optimizer: the client's optimizer; its state starts anew with every job, and its updates
            are scaled by the job's ``rate``, if it has one.
        start: ``start(job)`` gives the parameters that the job trains.

    Returns:
        A program that ends with the trained parameters and reports the mean training loss over
        all examples seen, and whether everything stayed finite.
    """

    def begin(job: Tree) -> Tree:
        params = start(job)
        return params, optimizer.init(params), jnp.zeros(()), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Tree) -> Tree:
        params, memory, total, seen = carry
        value, gradient = jax.value_and_grad(loss)(params, batch, job)
        updates, memory = optimizer.update(gradient, memory, params)
        if "rate" in job:
            updates = jax.tree.map(lambda u: (job["rate"] * u).astype(u.dtype), updates)
        count = batch.mask.sum().astype(jnp.float32)
        params = optax.apply_updates(params, updates)
        return params, memory, total + value * count, seen + count

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        params, memory, total, seen = carry
        if isinstance(memory, Averaged):
            params = memory.average
        return params, _report(params, total, seen)

    return Program(begin, step, end)


def personal(
    objective: Objective, optimizer: optax.GradientTransformation, central: Params
) -> Program:
    """A job that trains a client's own leaves, or finds them at once where that is possible."""
    if not objective.exact:
        return trainer(
            lambda own, batch, job: objective.loss(own, central, batch, job),
            optimizer,
            lambda job: dict(objective.start(central, job)),
        )

    def begin(job: Tree) -> Tree:
        return dict(objective.start(central, job)), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Tree) -> Tree:
        own = dict(objective.solve(central, batch, job))
        return own, objective.loss(own, central, batch, job)

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        own, value = carry
        return own, {"loss": value, "finite": ~jnp.isnan(value)}

    return Program(begin, step, end)


def single_step(loss: Loss, start: Callable[[Tree], Params]) -> Program:
    """A job that takes one gradient step, on all of its examples, batch by batch."""

    def begin(job: Tree) -> Tree:
        nothing = jax.tree.map(jnp.zeros_like, start(job))
        return nothing, jnp.zeros(()), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Tree) -> Tree:
        gradients, total, seen = carry
        value, gradient = jax.value_and_grad(loss)(start(job), batch, job)
        count = batch.mask.sum().astype(jnp.float32)
        gradients = jax.tree.map(lambda g, new: g + count * new, gradients, gradient)
        return gradients, total + value * count, seen + count

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        gradients, total, seen = carry
        scale = job["rate"] / jnp.maximum(seen, 1)
        params = jax.tree.map(lambda p, g: p - scale * g, start(job), gradients)
        return params, _report(params, total, seen)

    return Program(begin, step, end)


def tried(program: Program, objective: Objective, central: Params, columns: Tree) -> Program:
    """The same job, ending in a trial: it reports the mean plain loss on what was held out.

    Of what was trained nothing is kept.
    """
    score = examiner(objective, central, columns)

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        own, report = program.end(carry, job)
        return {}, {**report, "held_loss": score(job, own)}

    return program._replace(end=end)


def examiner(
    objective: Objective, central: Params, columns: Tree
) -> Callable[[Tree, Leaves], jax.Array]:
    """A function of a job and what it has trained: the mean plain loss on what was held out.

    The job says what that is: rows ``held``, of which the first ``held_size`` count.
    """

    def score(job: Tree, own: Leaves) -> jax.Array:
        def add(s: jax.Array, total: jax.Array) -> jax.Array:
            place = s * HELD + jnp.arange(HELD)
            x, y = take(columns, job["held"][place])
            told = {**job, "said": job["held said"][place]} if "held said" in job else job
            loss, _ = objective.model.score_of(objective.predict(own, central, x, told), y)
            return total + jnp.where(place < job["held_size"], loss, 0).sum()

        batches = -(-job["held_size"] // HELD)
        total = jax.lax.fori_loop(0, batches, add, jnp.zeros(()))
        return total / jnp.maximum(job["held_size"], 1)

    return score


def said_of(
    objective: Objective, central: Params, columns: Tree, rows: Any, count: Any = None
) -> jax.Array:
    """What the central hypotheses say of the examples in the first ``count`` rows: [q, rows, ...].

    All of them if not given; schedules have room for more examples than there are.
    """
    batches = -(-len(rows) // SAID)
    grid = jnp.pad(rows, (0, batches * SAID - len(rows))).reshape(batches, SAID)

    def ask(b: Any) -> jax.Array:
        return objective.says(central, take(columns, grid[b])[0])  # [q, batch, ...]

    shape = jax.eval_shape(ask, 0)
    nothing = jnp.zeros((batches, *shape.shape), shape.dtype)
    needed = batches if count is None else -(-count // SAID)
    said = jax.lax.fori_loop(0, needed, lambda b, out: out.at[b].set(ask(b)), nothing)
    said = jnp.moveaxis(said, 0, 1)  # [q, batches, batch, ...]
    return said.reshape(said.shape[0], -1, *said.shape[3:])[:, : len(rows)]


def _report(params: Params, total: jax.Array, seen: jax.Array) -> Tree:
    mean = total / jnp.maximum(seen, 1)
    sound = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]
    return {"loss": mean, "finite": jnp.isfinite(mean) & jnp.stack(sound).all()}
