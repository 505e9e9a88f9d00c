"""Clients of a cohort train leaves of their own, and try candidates on what they hold out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sartor.engine.cohort import Cohort, Pass, Reading
from sartor.engine.job import Job
from sartor.engine.objectives import Leaves, asking, leaf_shapes
from sartor.engine.programs import Recipe, examiner, personal, recorded
from sartor.models import Params

SIDE_BY_SIDE = 32
"""Models that are scored side by side on what was held out."""

DRAWS = "trial"
"""The purpose of the draws, the same in trials and after them: what was tried can be made again."""


class Trial(NamedTuple):
    """What became of a cohort's trials.

    Attributes:
        losses: [clients, candidates] the mean plain loss on what each client holds out.
        tried: [clients] who holds anything out.
        take: ``take(best)`` gives the leaves of the candidates of these numbers: [clients, ...].
    """

    losses: jax.Array
    tried: jax.Array
    take: Callable[[jax.Array], Leaves]


def personalize(
    cohort: Cohort,
    recipe: Recipe,
    central: Params,
    *,
    hypothesis: jax.Array,
    values: dict[str, Any],
    keeps: bool = False,
    counted: bool = True,
) -> Leaves:
    """Every client trains leaves of its own: [clients, ...]. They stay with the client.

    Args:
        cohort: the clients.
        recipe: how they train.
        central: the central hypotheses, stacked.
        hypothesis: [clients] the hypothesis of each client.
        values: what the objective knows of every client, by name: [clients, ...].
        keeps: whether a client keeps its leaves, and starts from them in its next round.
        counted: whether it is work of the client's, or only of the simulation.
    """
    recipe = recipe.lowered(cohort.engine.precision)
    passed, _ = cohort.run_pass(
        recorded(personal(recipe, central), "own", _itself, keeps),
        Pass(recipe.epochs, recipe.batch, draws=DRAWS, counted=counted),
        hypothesis=hypothesis, values=values, keep=_begins(recipe, central, keeps),
        ask=asking(recipe.objective, central),
    )  # fmt: skip
    cohort.finite = cohort.finite & passed.finite
    own: Leaves = passed.record["own"]
    return own


def trial(
    cohort: Cohort,
    recipe: Recipe,
    central: Params,
    candidates: dict[str, Any],
    reads: Reading,
    folds: int,
    *,
    hypothesis: jax.Array,
    values: dict[str, Any],
    keeps: bool = False,
) -> Trial:
    """Every client trains leaves for each candidate, and tries them on what it holds out.

    Args:
        cohort: the clients.
        recipe: how they train.
        central: the central hypotheses, stacked.
        candidates: values to choose from, by name: [candidates]. They share draws, so the first
            one has to read at least as much as any other.
        reads: what jobs train on and are tried on: by fold, and inside a fold by candidate.
        folds: on how many folds each candidate is tried.
        hypothesis: [clients] the hypothesis of each client.
        values: what else the objective knows of every client, by name: [clients, ...].
        keeps: whether trials start from the leaves that a client has kept.
    """
    recipe = recipe.lowered(cohort.engine.precision)
    objective, ask = recipe.objective, asking(recipe.objective, central)
    clients, several = len(cohort.sizes), len(next(iter(candidates.values())))
    jobs = folds * several
    # The models of all candidates are remembered if there is room, and scored after the pass. If
    # not, each is scored as it ends and forgotten, and the chosen one is trained again: it draws
    # the same. In folds a trial has not read everything, so the chosen one is always trained again.
    shapes = leaf_shapes(objective).values()
    room = clients * jobs * sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
    remember = reads.whole and room <= cohort.engine.budget() // 8

    known = {name: jnp.repeat(a[:, None], jobs, axis=1) for name, a in values.items()}
    known |= {name: jnp.tile(a, (clients, folds)) for name, a in candidates.items()}
    score = examiner(objective, central, cohort.columns, ask)
    program = personal(recipe, central)
    passed, all_jobs = cohort.run_pass(
        recorded(program, "own", _itself) if remember else recorded(program, "held_loss", score),
        Pass(recipe.epochs, recipe.batch, jobs, several, DRAWS, reads),
        hypothesis=hypothesis, values=known, keep=_begins(recipe, central, keeps),
        ask=ask,
    )  # fmt: skip
    if remember:
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), passed.record["own"])
        each = jax.lax.map(lambda a: score(*a), (all_jobs, flat), batch_size=SIDE_BY_SIDE)
    else:
        each = passed.record["held_loss"]
    losses = each[..., 0].reshape(clients, folds, several)
    finite = passed.finite.reshape(losses.shape)
    losses = jnp.where(finite & ~jnp.isnan(losses), losses, jnp.inf)  # never chosen
    # A candidate's loss is the mean over its folds, weighted by their held-out examples.
    assert all_jobs.held is not None
    sizes = all_jobs.held.size.reshape(losses.shape)[:, :, :1]
    total = sizes.sum(axis=1)
    share = sizes / jnp.maximum(total[:, None], 1)
    means = jnp.where(share > 0, losses * share, 0).sum(axis=1)

    def take(best: jax.Array) -> Leaves:
        chosen = {name: jnp.asarray(options)[best] for name, options in candidates.items()}
        if not remember:
            return personalize(
                cohort, recipe, central, hypothesis=hypothesis, values={**values, **chosen},
                keeps=keeps, counted=not reads.whole,
            )  # fmt: skip
        mine = jnp.arange(clients), best
        cohort.finite = cohort.finite & passed.finite[mine]
        own: Leaves = jax.tree.map(lambda a: a[mine], passed.record["own"])
        if keeps:
            cohort.keep(own)
        return own

    return Trial(means, total[:, 0] > 0, take)


def _begins(recipe: Recipe, central: Params, keeps: bool) -> Callable[[Job], dict[str, Any]] | None:
    """How the leaves that a client keeps begin."""
    return (lambda job: dict(recipe.objective.start(central, job))) if keeps else None


def _itself(job: Job, own: Leaves) -> Leaves:
    """What a job has trained, as it is."""
    return own
