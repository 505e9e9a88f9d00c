"""What an algorithm sees of one round: a cohort of clients, and passes over their examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.engine.lanes import Batch, Program, fold
from sartor.engine.schedule import Schedule
from sartor.models import Model, Params
from sartor.randomness import mix
from sartor.trees import Tree


def trainer(
    model: Model,
    optimizer: optax.GradientTransformation,
    start: Callable[[Tree], Params],
    merge: Callable[[Params, Tree], Params] = lambda trained, job: trained,
) -> Program:
    """A job that trains parameters by gradient steps on batches.

    Args:
        model: the hypothesis class.
        optimizer: the client's optimizer; its state starts anew with every job.
        start: ``start(job)`` gives the parameters that the job trains.
        merge: ``merge(trained, job)`` makes a whole hypothesis of them, where others stay frozen.

    Returns:
        A program that ends with the trained parameters and reports the mean training loss over
        all examples seen, and whether everything stayed finite.
    """

    def begin(job: Tree) -> Tree:
        params = start(job)
        return params, optimizer.init(params), jnp.zeros(()), jnp.zeros(())

    def step(carry: Tree, batch: Batch, job: Tree) -> Tree:
        params, memory, total, seen = carry

        def objective(trained: Params) -> jax.Array:
            return batch.mean(model.loss(merge(trained, job), batch.x, batch.y, batch.key))

        loss, gradient = jax.value_and_grad(objective)(params)
        updates, memory = optimizer.update(gradient, memory, params)
        count = batch.mask.sum().astype(jnp.float32)
        params = optax.apply_updates(params, updates)
        return params, memory, total + loss * count, seen + count

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        params, _, total, seen = carry
        loss = total / jnp.maximum(seen, 1)
        sound = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]
        return params, {"loss": loss, "finite": jnp.isfinite(loss) & jnp.stack(sound).all()}

    return Program(begin, step, end)


class Trained(NamedTuple):
    """What a cohort's training gives.

    Attributes:
        change: the sum over clients of weight · (trained − start), as one upload.
        loss: each client's mean training loss.
        finite: whether each client's update is finite. A sum could not tell whose is not.
    """

    change: Params
    loss: jax.Array
    finite: jax.Array


class Cohort(NamedTuple):
    """One round's clients, inside ``jit``. Where and how many at once they run is not seen here.

    Attributes:
        model: the hypothesis class.
        sizes: [clients] numbers of training examples m_k.
        plan: the round's schedule.
        columns: the examples.
        jobs: one entry for each client: its random key, and what else a pass needs.
        devices: over how many devices the lanes are spread.
    """

    model: Model
    sizes: jax.Array
    plan: Schedule
    columns: dict[str, jax.Array]
    jobs: Tree
    devices: int

    def train(
        self, params: Params, optimizer: optax.GradientTransformation, weights: jax.Array
    ) -> Trained:
        """Every client starts from ``params`` and trains on its own examples."""
        program = trainer(self.model, optimizer, start=lambda job: params)

        def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
            trained, report = program.end(carry, job)
            change = jax.tree.map(lambda new, old: job["weight"] * (new - old), trained, params)
            return change, report

        jobs = {**self.jobs, "weight": weights}
        change, report = fold(
            program._replace(end=end), self.plan, self.columns, jobs, self.devices
        )
        return Trained(change, report["loss"], report["finite"].astype(bool))


def sample_cohorts(seed: int, rounds: range, population: int, size: int) -> npt.NDArray[np.int64]:
    """Which clients take part in each round, without replacement: [rounds, size].

    The cost is that of the cohort, not of the population.

    >>> sample_cohorts(0, range(2), population=1_000_000, size=5).shape
    (2, 5)
    """
    if size >= population:
        return np.broadcast_to(np.arange(population), (len(rounds), population))
    few = 4 * size < population
    draws = 2 * size + 32 if few else population
    cohorts = np.empty((len(rounds), size), np.int64)
    for place, round_ in enumerate(rounds):
        words = mix(seed, "cohort", round_, np.arange(draws))
        if few:  # draw with replacement and keep the first of each: enough are left
            picks, first = np.unique(words % np.uint64(population), return_index=True)
            cohorts[place] = picks[np.argsort(first)][:size]
        else:
            cohorts[place] = np.argsort(words, kind="stable")[:size]
    return cohorts
