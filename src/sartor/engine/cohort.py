"""What an algorithm sees of one round: a cohort of clients, and passes over their examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.engine.lanes import LANES, Batch, Program, fold, take
from sartor.engine.schedule import Schedule
from sartor.models import Model, Params
from sartor.randomness import mix
from sartor.trees import Tree

SMALL = 2**16
"""Numbers in a model up to which several are evaluated side by side."""


def trainer(
    loss: Callable[[Params, Batch, Tree], jax.Array],
    optimizer: optax.GradientTransformation,
    start: Callable[[Tree], Params],
) -> Program:
    """A job that trains parameters by gradient steps on batches.

    Args:
        loss: ``loss(params, batch, job)`` is what a step descends.
        optimizer: the client's optimizer; its state starts anew with every job.
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
        count = batch.mask.sum().astype(jnp.float32)
        params = optax.apply_updates(params, updates)
        return params, memory, total + value * count, seen + count

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        params, _, total, seen = carry
        mean = total / jnp.maximum(seen, 1)
        sound = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]
        return params, {"loss": mean, "finite": jnp.isfinite(mean) & jnp.stack(sound).all()}

    return Program(begin, step, end)


class Trained(NamedTuple):
    """What a cohort's training gives.

    Attributes:
        change: the sums over jobs of weight · (trained − start), by hypothesis: [q, ...].
        weight: the sums of the weights, by hypothesis: [q].
        loss: each client's mean training loss.
        finite: whether each client's update is finite. A sum could not tell whose is not.
    """

    change: Params
    weight: jax.Array
    loss: jax.Array
    finite: jax.Array


class Examples(NamedTuple):
    """A cohort's training examples in batches, whoever's they are: what a score pass reads.

    Attributes:
        rows: [batches, batch] rows of the data.
        owner: [batches, batch] the client in the cohort that each belongs to, or nobody.
        batches: [devices] how many batches there really are.
    """

    rows: Any
    owner: Any
    batches: Any


class Cohort(NamedTuple):
    """One round's clients, inside ``jit``. Where and how many at once they run is not seen here.

    Attributes:
        model: the hypothesis class.
        clients: one entry for each client: its random ``key``, its number of training examples
            ``size`` (m_k), and what else the algorithm has asked for.
        plan: the round's schedule, with the same number of jobs for every client.
        examples: what a score pass reads; ``None`` if the algorithm has not asked for it.
        columns: the data's columns.
        devices: over how many devices the lanes are spread.
    """

    model: Model
    clients: Tree
    plan: Schedule
    examples: Examples | None
    columns: dict[str, jax.Array]
    devices: int

    @property
    def sizes(self) -> jax.Array:
        """[clients] numbers of training examples m_k."""
        sizes: jax.Array = self.clients["size"]
        return sizes

    def score(self, hypotheses: Params) -> jax.Array:
        """Every client's mean loss under every hypothesis, in evaluation mode: [clients, q]."""
        if self.examples is None:
            raise ValueError("the algorithm has not asked for a score pass")
        rows, owner, batches = self.examples
        everyone = jnp.arange(len(self.sizes))[:, None]

        def add(b: jax.Array, sums: jax.Array) -> jax.Array:
            x, y = take(self.columns, rows[b])
            losses = over_hypotheses(lambda h: self.model.loss(h, x, y), hypotheses)
            mine = (owner[b] == everyone).astype(losses.dtype)
            # A product and not a scatter: the order of additions is the same in every run.
            return sums + jnp.einsum("kb,qb->kq", mine, losses, precision="highest")

        q = jax.tree.leaves(hypotheses)[0].shape[0]
        sums = jax.lax.fori_loop(0, batches[0], add, jnp.zeros((len(self.sizes), q)))
        if self.devices > 1:
            sums = jax.lax.psum(sums, LANES)
        return sums / self.sizes[:, None]

    def train(
        self,
        hypotheses: Params,
        optimizer: optax.GradientTransformation,
        weights: jax.Array,
        cluster: jax.Array | None = None,
    ) -> Trained:
        """Every client starts from its hypothesis and trains on its own examples.

        Args:
            hypotheses: stacked: [q, ...].
            optimizer: the client's optimizer.
            weights: [clients].
            cluster: [clients] the hypothesis of each client, or [clients, n] for n jobs of each;
                the first one for all if not given.
        """
        clients = len(self.sizes)
        if cluster is None:
            cluster = jnp.zeros(clients, jnp.int32)
        cluster = cluster.reshape(clients, -1)
        copies = cluster.shape[1]

        def loss(params: Params, batch: Batch, job: Tree) -> jax.Array:
            return batch.mean(self.model.loss(params, batch.x, batch.y, batch.key))

        program = trainer(loss, optimizer, start=lambda job: _pick(hypotheses, job["group"]))

        def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
            trained, report = program.end(carry, job)
            start = _pick(hypotheses, job["group"])
            change = jax.tree.map(lambda new, old: job["weight"] * (new - old), trained, start)
            return change, report

        jobs = jax.tree.map(
            lambda a: jnp.repeat(a, copies, axis=0),
            {"key": self.clients["key"], "weight": weights},
        )
        jobs["group"] = cluster.reshape(-1)
        q = jax.tree.leaves(hypotheses)[0].shape[0]
        change, report = fold(
            program._replace(end=end), self.plan, self.columns, jobs, q, self.devices
        )
        member = jobs["group"] == jnp.arange(q)[:, None]
        by_client = {name: a.reshape(clients, copies) for name, a in report.items()}
        return Trained(
            change,
            jnp.where(member, jobs["weight"], 0).sum(axis=1),
            by_client["loss"].mean(axis=1),
            by_client["finite"].astype(bool).all(axis=1),
        )


def _pick(hypotheses: Params, k: jax.Array) -> Params:
    return jax.tree.map(lambda a: a[k], hypotheses)


def over_hypotheses(f: Callable[[Params], Tree], hypotheses: Params) -> Tree:
    """A function of each of q hypotheses: small models side by side, large ones in turn."""
    numbers = sum(leaf[0].size for leaf in jax.tree.leaves(hypotheses))
    return jax.vmap(f)(hypotheses) if numbers < SMALL else jax.lax.map(f, hypotheses)


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
