"""Where a clustering begins: hypotheses that are the models of single clients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.central.bregman import spread_out
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Engine
from sartor.engine.blocks import Recipe, everybody, train_each
from sartor.engine.objectives import Own
from sartor.engine.optimizers import rates
from sartor.engine.schedule import steps_of
from sartor.engine.scoring import losses_by_client
from sartor.models import Model, Params, parameter_bytes
from sartor.randomness import mix
from sartor.trees import flatten, unflatten

CANDIDATES = 8
"""For each centre that ``kmeans++`` draws, how many clients it has to choose from."""


def lent_models(
    algorithm: Any, model: Model, data: ClientData, first: Params, seed: int, engine: Engine
) -> Params:
    """A hypothesis for every cluster of every clustering: the model of a client that lends it.

    ``"clients"`` draws them at random, different ones within each clustering. ``"kmeans++"`` draws
    one after another, in proportion to what the ones before cost a client: its excess loss,
    min_i L_k(h_i) − L_k(own model), which is the KL divergence for densities. So a client that is a
    centre already is never drawn again.
    """
    lenders = _lenders(algorithm, data, seed)
    own = _own_models(algorithm, model, data, lenders, first, seed, engine)
    if algorithm.start == "clients":
        drawn = np.concatenate(_drawn(algorithm, data, seed))
        return jax.tree.map(lambda a: a[np.searchsorted(lenders, drawn)], own)
    losses = losses_by_client(model, data, lenders, own, engine)
    excess = np.maximum(losses - np.diag(losses)[:, None], 0)  # [client, whose model]
    weights = data.sizes("train")[lenders] if algorithm.weights == "size" else 1.0

    def cost(chosen: list[int]) -> npt.NDArray[np.float64]:
        return weights * (excess[:, chosen].min(axis=1) if chosen else np.ones(len(lenders)))

    centres = [
        centre
        for block, q in enumerate(algorithm.blocks)
        for centre in spread_out(cost, q, mix(seed, "kmeans++", block))
    ]
    return jax.tree.map(lambda a: a[np.array(centres)], own)


def lending_cost(algorithm: Any, model: Model, data: ClientData, seed: int) -> Cost:
    """What the lenders did."""
    lenders, one = _lenders(algorithm, data, seed), parameter_bytes(model)
    others = len(lenders) if algorithm.start == "kmeans++" else 0  # all score the models of all
    size, cost = data.sizes("train")[lenders], Cost.nothing(data.ids)
    cost.down[lenders] = (1 + others) * one
    cost.up[lenders] = one
    cost.examples[lenders] = (algorithm.start_epochs + others) * size
    cost.steps[lenders] = steps_of(size, algorithm.batch, algorithm.start_epochs)
    return cost


def _lenders(algorithm: Any, data: ClientData, seed: int) -> npt.NDArray[np.int64]:
    """The clients that train a model to lend: those drawn, or those that could be."""
    if algorithm.start == "clients":
        return np.unique(np.concatenate(_drawn(algorithm, data, seed)))
    count = max(CANDIDATES * max(algorithm.blocks), algorithm.cohort)
    return _draw(data, min(count, int(data.seen.sum())), mix(seed, "candidates"))


def _drawn(algorithm: Any, data: ClientData, seed: int) -> list[npt.NDArray[np.int64]]:
    """The clients of every clustering, drawn at random."""
    blocks = enumerate(algorithm.blocks)
    return [_draw(data, q, mix(seed, "start", block)) for block, q in blocks]


def _draw(data: ClientData, count: int, word: Any) -> npt.NDArray[np.int64]:
    """Some of the seen clients, without replacement, whatever their order in the data."""
    seen = np.flatnonzero(data.seen)
    order = np.argsort(mix(word, data.hashes[seen]), kind="stable")
    return seen[order[:count]]


def _own_models(
    algorithm: Any,
    model: Model,
    data: ClientData,
    clients: npt.NDArray[np.int64],
    first: Params,
    seed: int,
    engine: Engine,
) -> Params:
    """Models that clients train from a common start on their own data: [clients, ...]."""
    names = tuple(flatten(first))
    recipe = Recipe(
        Own(model, names), algorithm.client_sgd, algorithm.start_epochs, algorithm.batch
    )
    some = data.select([data.ids[k] for k in clients])
    step_sizes = rates(algorithm.client_optimizer, algorithm.learning_rate, len(some))
    jobs = everybody(some, int(mix(seed, "start")), np.zeros(len(some), np.int64))
    jobs = jobs._replace(values={**jobs.values, **step_sizes})
    nobody = np.zeros(len(some), bool)
    leaves: dict[str, npt.NDArray[Any]] = {}
    for block in train_each(some, recipe, jobs, central=first, done=nobody, engine=engine):
        for name, leaf in block.params.items():
            whole = leaves.setdefault(name, np.empty((len(some), *leaf.shape[1:]), leaf.dtype))
            whole[block.jobs] = leaf
    return unflatten(first, leaves)
