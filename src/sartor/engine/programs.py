"""What jobs do: train, take one gradient step, and be tried on examples that were held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sartor.engine.job import Ask, Batch, ClientProgram, Ended, Held, Job
from sartor.engine.objectives import Leaves, Objective, lowered, over_hypotheses
from sartor.engine.optimizers import Chosen, build
from sartor.engine.schedule import Schedule
from sartor.models import Params, take
from sartor.trees import Tree

HELD = 32
"""Examples that a job is tried on at a time."""

ASKED = 128
"""Examples that the central hypotheses are asked about at a time."""

Loss = Callable[[Params, Batch, Job], jax.Array]
"""``loss(params, batch, job)``: what a step descends."""

ChooseOptimizer = Callable[[Job], optax.GradientTransformation]
"""A job's optimizer. Step sizes may differ from job to job without another compilation."""


class Recipe(NamedTuple):
    """How a client trains leaves of its own.

    Attributes:
        objective: what it minimises.
        optimizer: its optimizer; SGD with the job's ``values["learning_rate"]`` if there is none.
        epochs: passes over its examples.
        batch: examples in a step.
        final: gives the result from the last leaves and the optimizer's memory, if it is not just
            the last leaves.
        capped: whether steps of SGD are cut where they would make the loss explode.
    """

    objective: Objective
    optimizer: Chosen
    epochs: int
    batch: int
    final: Callable[[Params, Any], Params] | None = None
    capped: bool = False

    def optimizer_of(self, job: Job) -> optax.GradientTransformation:
        """The optimizer of a job."""
        rate = None if self.optimizer else job.values["learning_rate"]
        return build(self.optimizer, rate, self.capped)

    def lowered(self, precision: Literal["f32", "bf16"]) -> Recipe:
        """The same recipe, computing in another precision."""
        return self._replace(objective=lowered(self.objective, precision))


def trainer(
    loss: Loss,
    optimizer: ChooseOptimizer,
    start: Callable[[Job], Params],
    final: Callable[[Params, Any], Params] | None = None,
) -> ClientProgram:
    """A job that trains parameters by gradient steps on batches.

    Args:
        loss: what a step descends.
        optimizer: the job's optimizer; its state starts anew with every job.
        start: ``start(job)`` gives the parameters that the job trains.
        final: ``final(params, memory)`` gives the result of the job, from the last parameters and
            the optimizer's memory; the last parameters if not given.

    Returns:
        A program that uploads the trained parameters, and records the mean training ``loss`` over
        all examples that it read.
    """

    def begin(job: Job) -> Tree:
        params = start(job)
        return params, optimizer(job).init(params), jnp.zeros(()), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Job) -> Tree:
        params, memory, total, seen = carry
        value, gradient = jax.value_and_grad(loss)(params, batch, job)
        rule = optax.with_extra_args_support(optimizer(job))
        updates, memory = rule.update(gradient, memory, params, value=value)
        count = batch.mask.sum().astype(jnp.float32)
        params = optax.apply_updates(params, updates)
        return params, memory, total + value * count, seen + count

    def end(carry: Tree, job: Job) -> Ended:
        params, memory, total, seen = carry
        params = params if final is None else final(params, memory)
        return Ended(params, {"loss": total / jnp.maximum(seen, 1)})

    return ClientProgram(begin, step, end)


def single_step(
    loss: Loss, learning_rate: Any, start: Callable[[Job], Params]
) -> ClientProgram:  # fmt: skip
    """A job that takes one gradient step, on all of its examples, batch by batch."""

    def begin(job: Job) -> Tree:
        nothing = jax.tree.map(jnp.zeros_like, start(job))
        return nothing, jnp.zeros(()), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Job) -> Tree:
        gradients, total, seen = carry
        value, gradient = jax.value_and_grad(loss)(start(job), batch, job)
        count = batch.mask.sum().astype(jnp.float32)
        gradients = jax.tree.map(lambda g, new: g + count * new, gradients, gradient)
        return gradients, total + value * count, seen + count

    def end(carry: Tree, job: Job) -> Ended:
        gradients, total, seen = carry
        scale = learning_rate / jnp.maximum(seen, 1)
        params = jax.tree.map(lambda p, g: p - scale * g, start(job), gradients)
        return Ended(params, {"loss": total / jnp.maximum(seen, 1)})

    return ClientProgram(begin, step, end)


def personal(recipe: Recipe, central: Params) -> ClientProgram:
    """A job that trains a client's own leaves, or finds them at once where that is possible.

    It starts from what the client has kept, if it keeps anything.
    """
    objective = recipe.objective

    def start(job: Job) -> dict[str, Any]:
        return dict(objective.start(central, job) if job.kept is None else job.kept)

    if not objective.exact:
        return trainer(
            lambda own, batch, job: objective.loss(own, central, batch, job),
            recipe.optimizer_of, start, recipe.final,
        )  # fmt: skip

    def begin(job: Job) -> Tree:
        return start(job), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Job) -> Tree:
        own = dict(objective.solve(central, batch, job))
        return own, objective.loss(own, central, batch, job)

    def end(carry: Tree, job: Job) -> Ended:
        own, value = carry
        return Ended(own, {"loss": value}, finite=~jnp.isnan(value))  # log 0 is a fine parameter

    return ClientProgram(begin, step, end)


def recorded(
    program: ClientProgram, name: str, note: Callable[[Job, Leaves], Tree], keeps: bool = False
) -> ClientProgram:
    """The same job, uploading nothing: it records ``note(job, own)`` under a name.

    Where the client ``keeps`` what it has trained, it starts from that in its next round.
    """

    def end(carry: Tree, job: Job) -> Ended:
        ended = program.end(carry, job)
        record = {**ended.record, name: note(job, ended.upload)}
        return Ended(record=record, keep=ended.upload if keeps else None, finite=ended.well())

    return program._replace(end=end)


def examiner(
    objective: Objective, central: Params, columns: Tree, ask: Ask | None
) -> Callable[[Job, Leaves], jax.Array]:
    """A function of a job and what it has trained: the mean plain loss on what was held out.

    It returns two means: over all of it, and over every second example, counted from the second.
    How much the halves differ says how much chance there is in the mean.
    """

    def score(job: Job, own: Leaves) -> jax.Array:
        held = job.held
        assert held is not None

        def add(s: jax.Array, total: jax.Array) -> jax.Array:
            place = s * HELD + jnp.arange(HELD)
            x, y = take(columns, held.rows[place])
            said = None
            if held.central is not None:
                said = held.central[place]
            elif ask is not None:
                said = ask.one(job.hypothesis, x)
            batch = Batch(x, y, place < held.size, None, said)
            loss, _ = objective.model.score_of(objective.predict(own, central, batch, job), y)
            counted = jnp.stack([batch.mask, batch.mask & (place % 2 == 1)])
            return total + jnp.where(counted, loss, 0).sum(axis=1)

        batches = -(-held.size // HELD)
        total = jax.lax.fori_loop(0, batches, add, jnp.zeros(2))
        return total / jnp.maximum(jnp.stack([held.size, held.size // 2]), 1)

    return score


def ask_ahead(
    ask: Ask | None, columns: Tree, plan: Schedule, readers: int, hypothesis: Any, held: Held | None
) -> tuple[Ask | None, Held | None]:
    """The central predictions of a pass, computed once for all its jobs where that pays.

    Candidates λ of a client read the same examples, so each would ask the same questions again.

    Args:
        ask: who predicts, if anybody has to.
        columns: the data's columns.
        plan: which examples jobs read.
        readers: how many jobs read each example.
        hypothesis: [n] the central hypothesis that belongs to each entry of ``held``.
        held: what was held out: [n, ..., rows].
    """
    if ask is None or not it_pays(ask, columns, readers):
        return ask, held
    read = jnp.max(jnp.asarray(plan.at) + plan.valid)  # what is behind that is only room
    ask = ask._replace(answers=answers(ask, columns, plan.order, read))
    if held is not None:
        said = answers(ask, columns, held.rows.reshape(-1))
        said = said.reshape(-1, *held.rows.shape, *said.shape[2:])
        held = held._replace(central=said[hypothesis, jnp.arange(len(held.rows))])
    return ask, held


def answers(ask: Ask, columns: Tree, rows: Any, count: Any = None) -> jax.Array:
    """What all hypotheses predict for the examples in the first ``count`` rows: [q, rows, ...].

    For all rows if ``count`` is not given; schedules have room for more than there are.
    """
    batches = -(-len(rows) // ASKED)
    grid = jnp.pad(rows, (0, batches * ASKED - len(rows))).reshape(batches, ASKED)

    def answer(b: Any) -> jax.Array:
        x, _ = take(columns, grid[b])
        said: jax.Array = over_hypotheses(lambda h: ask.predict(h, x), ask.hypotheses)
        return said  # [q, batch, ...]

    shape = jax.eval_shape(answer, 0)
    nothing = jnp.zeros((batches, *shape.shape), shape.dtype)
    needed = batches if count is None else -(-count // ASKED)
    said = jax.lax.fori_loop(0, needed, lambda b, out: out.at[b].set(answer(b)), nothing)
    said = jnp.moveaxis(said, 0, 1)  # [q, batches, batch, ...]
    return said.reshape(said.shape[0], -1, *said.shape[3:])[:, : len(rows)]


def it_pays(ask: Ask, columns: Tree, readers: int) -> bool:
    """Whether to ask all hypotheses about all examples once, before jobs read them.

    It does where more jobs read each example than there are hypotheses. It does not where
    predictions are the same for all examples, since the data has no features.
    """
    if ask.once or set(columns) == {"y"}:
        return False
    return bool(jax.tree.leaves(ask.hypotheses)[0].shape[0] < readers)
