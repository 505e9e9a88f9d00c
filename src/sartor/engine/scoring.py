"""Losses of examples under models: one model for all clients, or one for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import PartitionSpec

from sartor.caching import made_once
from sartor.data import PARTS, ClientData
from sartor.engine.blocks import Stack
from sartor.engine.columns import source
from sartor.engine.engine import Engine
from sartor.engine.job import Job
from sartor.engine.lanes import LANES, spread
from sartor.engine.objectives import Objective, lowered, over_hypotheses, predict
from sartor.engine.schedule import Spans, padded, ragged
from sartor.engine.vectorize import Compiled
from sartor.models import Model, Params, in_precision, take
from sartor.trees import Tree
from sartor.types import Bools, Floats, Ints

BATCH = 128
"""Examples scored at a time, at most."""

CHUNK = 16
"""Batches scored in one call when a model is shared."""

NUMBERS = 2**24
"""About how many losses are held while they are averaged by client."""


class Scored(NamedTuple):
    """Results by example.

    Attributes:
        loss: the plain loss.
        correct: whether the most probable label is right.
        central: the same under a central hypothesis, if there was one to compare with.
        gain_range: [examples, 2] then, the least and the most by which the loss could have been
            below the central one, over all labels that the example might have had.
    """

    loss: npt.NDArray[np.float32]
    correct: Bools
    central: Scored | None = None
    gain_range: npt.NDArray[np.float32] | None = None


def positions(data: ClientData, clients: Ints, part: str) -> Ints:
    """Positions in ``data.rows`` of all examples in a part of these clients, client by client."""
    owner, place = ragged(data.sizes(part)[clients])
    return np.asarray(data.bounds[clients, PARTS.index(part)][owner] + place)


def score_shared(
    model: Model,
    data: ClientData,
    rows: Ints,
    hypotheses: Params,
    engine: Engine,
    *,
    plain: bool = True,
) -> Scored:
    """Score rows under each of q hypotheses, by plain or training loss: arrays [q, rows]."""
    run = _shared(model, engine, plain)
    at_once = CHUNK * BATCH
    reader = source(engine, data, at_once)
    begins = range(0, len(rows), at_once)
    results = []  # on the device: calls do not wait for each other
    for begin in begins:
        some = padded(rows[begin : begin + at_once], at_once)
        columns, places = reader.load(some.reshape(CHUNK, BATCH).astype(np.int32))
        results.append(run(hypotheses, columns, places))
    shape = jax.tree.leaves(hypotheses)[0].shape[0], len(rows)
    scored = Scored(np.empty(shape, np.float32), np.empty(shape, np.bool_))
    for begin, result in zip(begins, results, strict=True):
        for out, values in zip(scored[:2], result, strict=True):
            out[:, begin : begin + at_once] = np.asarray(values)[:, : len(rows) - begin]
    return scored


def losses_by_client(
    model: Model,
    data: ClientData,
    clients: Ints,
    hypotheses: Params,
    engine: Engine,
    *,
    part: str = "train",
    plain: bool = False,
) -> Floats:
    """Every client's mean loss in a part under each of q hypotheses: [clients, q].

    It is the training loss in evaluation mode, label smoothing included; or the plain one. A
    client without examples in that part has NaN.
    """
    q = jax.tree.leaves(hypotheses)[0].shape[0]
    means = np.full((len(clients), q), np.nan)
    sizes = data.sizes(part)[clients]
    some = np.flatnonzero(sizes)
    group = np.cumsum(sizes[some]) * q // NUMBERS  # clients whose losses fit in memory together
    for number in np.unique(group):
        here = some[group == number]
        rows = positions(data, clients[here], part)
        losses = score_shared(model, data, rows, hypotheses, engine, plain=plain).loss
        starts = np.cumsum(sizes[here]) - sizes[here]
        sums = np.add.reduceat(losses.astype(np.float64), starts, axis=1)
        means[here] = sums.T / sizes[here][:, None]
    return means


@made_once(maxsize=32)
def _shared(model: Model, engine: Engine, plain: bool) -> Any:
    model = in_precision(model, engine.precision)

    def run(hypotheses: Params, columns: Any, rows: jax.Array) -> tuple[jax.Array, ...]:
        def batch(places: jax.Array) -> tuple[jax.Array, jax.Array]:
            x, y = take(columns, places)

            def score(h: Params) -> tuple[jax.Array, jax.Array]:
                loss, correct = model.score(h, x, y)
                return loss if plain else model.loss(h, x, y), correct

            scored: tuple[jax.Array, jax.Array] = over_hypotheses(score, hypotheses)
            return scored

        loss, correct = jax.lax.map(batch, rows)  # [batches, q, batch]
        return tuple(a.transpose(1, 0, 2).reshape(a.shape[1], -1) for a in (loss, correct))

    return Compiled(run)


class Against(NamedTuple):
    """The central model that clients' own models are compared with.

    Attributes:
        hypotheses: stacked: [q, ...].
        chosen: [clients] which of them is the client's.
        labels: the least and the largest label that examples might have, for regression.
    """

    hypotheses: Params
    chosen: Any
    labels: Any


class EachScorer:
    """Scores clients' own models, a block of clients at a time, with one compilation.

    Args:
        objective: what a client's leaves predict.
        data: the data set.
        central: the central hypotheses [q, ...], if there are any.
        engine: how to run it.
        lanes: the most clients in a block.
        most: the most rows of a client.
    """

    def __init__(
        self, objective: Objective, data: ClientData, central: Params | None, engine: Engine,
        *, lanes: int, most: int,
    ) -> None:  # fmt: skip
        devices = len(engine.local_devices())
        self.lanes = -(-lanes // devices) * devices
        self.batch = min(BATCH, 1 << (most - 1).bit_length())  # few sizes, so few programs
        self.steps = -(-most // self.batch)
        self.central = central
        self.run = _each(objective, engine)
        self.reader = source(engine, data, self.lanes * most + 1)

    def score(
        self, params: Stack, jobs: Job, spans: Spans, against: Against | None = None
    ) -> list[Scored]:
        """Score some examples of each client under its own model, and under a central one."""
        sizes, rows = spans.sizes, spans.rows(self.steps * self.batch)
        grid = padded(rows, self.lanes).reshape(self.lanes, self.steps, self.batch)
        columns, places = self.reader.load(grid.transpose(1, 0, 2))
        chosen = None if against is None else against.chosen
        stack, jobs, chosen = jax.tree.map(
            lambda leaf: _filled(leaf, self.lanes), (params, jobs, chosen)
        )
        rest = None if against is None else against._replace(chosen=None)
        needed = np.int32(-(-int(sizes.max()) // self.batch))
        found = self.run(self.central, rest, columns, places, needed, stack, jobs, chosen)
        found = [np.asarray(values) for values in found]
        return [_scored([values[k, :n] for values in found]) for k, n in enumerate(sizes)]


def _scored(columns: list[npt.NDArray[Any]]) -> Scored:
    """What a program that `_each` makes returns about one client."""
    loss, correct, *others = columns
    if not others:
        return Scored(loss, correct)
    central_loss, central_correct, least, most = others
    central = Scored(central_loss, central_correct)
    return Scored(loss, correct, central, np.stack([least, most], axis=1))


def _filled(leaf: Any, lanes: int) -> Any:
    """A leaf padded to one entry for each lane. A leaf on the device stays there."""
    if isinstance(leaf, jax.Array):
        return jnp.pad(leaf, [(0, lanes - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))
    return padded(np.asarray(leaf), lanes)


@made_once(maxsize=32)
def _each(objective: Objective, engine: Engine) -> Any:
    objective = lowered(objective, engine.precision)

    def run(
        central: Params, against: Against | None, columns: Any, rows: jax.Array, steps: jax.Array,
        params: Tree, jobs: Job, chosen: jax.Array | None,
    ) -> tuple[jax.Array, ...]:  # fmt: skip
        model = objective.model

        def one(own: Tree, job: Job, places: jax.Array, mine: Any) -> tuple[jax.Array, ...]:
            x, y = take(columns, places)
            said = predict(objective, own, central, x, job)
            scored = model.score_of(said, y)
            if against is None:
                return scored
            # Of one hypothesis there is no choice, so all lanes share it.
            alone = jax.tree.leaves(against.hypotheses)[0].shape[0] == 1
            which = 0 if alone else mine
            other = model.apply(jax.tree.map(lambda a: a[which], against.hypotheses), x, None)
            ends = model.gain_range(other, said, y, against.labels)
            return (*scored, *model.score_of(other, y), *ends)

        def body(s: jax.Array, out: Tree) -> Tree:
            results = jax.vmap(one)(params, jobs, rows[s], chosen)
            return tuple(o.at[s].set(r) for o, r in zip(out, results, strict=True))

        kinds = (jnp.float32, bool, jnp.float32, bool, jnp.float32, jnp.float32)
        empty = tuple(jnp.zeros(rows.shape, kind) for kind in kinds[: 2 if against is None else 6])
        out = jax.lax.fori_loop(0, steps, body, empty)  # [steps, lanes, batch]
        return tuple(a.transpose(1, 0, 2).reshape(a.shape[1], -1) for a in out)

    every, lanes = PartitionSpec(), PartitionSpec(LANES)
    specs = (every, every, every, PartitionSpec(None, LANES), every, lanes, lanes, lanes)
    return spread(run, engine, specs, lanes)
