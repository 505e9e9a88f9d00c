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
from sartor.engine.schedule import steps_of
from sartor.engine.scoring import losses_by_client
from sartor.models import Model, Params, parameter_bytes
from sartor.randomness import mix
from sartor.trees import flatten, unflatten

CANDIDATES = 8
"""For each centre that ``kmeans++`` draws, how many clients it has to choose from."""


def clients_start(
    algorithm: Any,
    model: Model,
    data: ClientData,
    first: Params,
    blocks: tuple[int, ...],
    seed: int,
    engine: Engine,
) -> Params:
    """Models of clients drawn at random, different ones within each clustering."""
    drawn = [_draw(data, q, mix(seed, "start", block)) for block, q in enumerate(blocks)]
    needed, places = np.unique(np.concatenate(drawn), return_inverse=True)
    own = _own_models(algorithm, model, data, needed, first, seed, engine)
    return jax.tree.map(lambda a: a[places], own)


def plus_plus_start(
    algorithm: Any,
    model: Model,
    data: ClientData,
    first: Params,
    blocks: tuple[int, ...],
    seed: int,
    engine: Engine,
) -> Params:
    """Models of clients drawn one by one, in proportion to what the ones before cost them.

    The cost is a client's excess loss, min_i L_k(h_i) − L_k(own model), which is the KL
    divergence for densities; so a client that is a centre already is never drawn again.
    """
    candidates = _candidates(algorithm, data, blocks, seed)
    own = _own_models(algorithm, model, data, candidates, first, seed, engine)
    losses = losses_by_client(model, data, candidates, own, engine)
    excess = np.maximum(losses - np.diag(losses)[:, None], 0)  # [client, whose model]
    weights = data.sizes("train")[candidates] if algorithm.weights == "size" else 1.0

    def cost(chosen: list[int]) -> npt.NDArray[np.float64]:
        return weights * (excess[:, chosen].min(axis=1) if chosen else np.ones(len(candidates)))

    centres = [
        centre
        for block, q in enumerate(blocks)
        for centre in spread_out(cost, q, mix(seed, "kmeans++", block))
    ]
    return jax.tree.map(lambda a: a[np.array(centres)], own)


def start_cost(
    algorithm: Any, model: Model, data: ClientData, blocks: tuple[int, ...], seed: int
) -> Cost:
    """What the clients did whose models were drawn, or could have been."""
    chosen, others = _clients_of(data, blocks, seed), 0
    if algorithm.start == "kmeans++":
        chosen = _candidates(algorithm, data, blocks, seed)
        others = len(chosen)  # every candidate scores the models of all
    size, one = data.sizes("train")[chosen], parameter_bytes(model)
    cost = Cost.nothing(data.ids)
    cost.down[chosen] = (1 + others) * one
    cost.up[chosen] = one
    cost.examples[chosen] = (algorithm.start_epochs + others) * size
    cost.steps[chosen] = steps_of(size, algorithm.batch, algorithm.start_epochs)
    return cost


def _clients_of(data: ClientData, blocks: tuple[int, ...], seed: int) -> npt.NDArray[np.int64]:
    drawn = [_draw(data, q, mix(seed, "start", block)) for block, q in enumerate(blocks)]
    return np.unique(np.concatenate(drawn))


def _candidates(
    algorithm: Any, data: ClientData, blocks: tuple[int, ...], seed: int
) -> npt.NDArray[np.int64]:
    count = max(CANDIDATES * max(blocks), algorithm.cohort)
    return _draw(data, min(count, int(data.seen.sum())), mix(seed, "candidates"))


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
    jobs = everybody(some, int(mix(seed, "start")), np.zeros(len(some), np.int64))
    nobody = np.zeros(len(some), bool)
    leaves: dict[str, npt.NDArray[Any]] = {}
    for block in train_each(some, recipe, jobs, central=first, done=nobody, engine=engine):
        for name, leaf in block.params.items():
            whole = leaves.setdefault(name, np.empty((len(some), *leaf.shape[1:]), leaf.dtype))
            whole[block.jobs] = leaf
    return unflatten(first, leaves)
