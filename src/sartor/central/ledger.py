"""The cost ledger of central training: bytes, examples and steps of every client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sartor.cost import Cost
from sartor.engine import Pass, rehearse, steps_of, visits
from sartor.types import Ints

if TYPE_CHECKING:
    from sartor.central.base import Central
    from sartor.central.fitting import Fit


def rounds_cost(algorithm: Central, what: Fit, state: Any) -> Cost:
    """What the rounds of a run ask of every client.

    A client that scores q hypotheses receives all of them. It sends a block for each, of which all
    but one are zero: the server sees only sums, and does not learn whose cluster is which.
    """
    data = what.data
    seen = int(data.seen.sum())
    rehearsal = rehearse(
        algorithm, what.model, data, state, what.engine,
        min(algorithm.cohort, seen), algorithm.attributes(data),
    )  # fmt: skip
    touched = rehearsal.scored * data.sizes("train")
    steps, received, up = np.zeros(len(data), np.int64), 0, 0
    for one in rehearsal.passes:
        if one.bytes_up:
            blocks = one.q if rehearsal.scored > 1 else one.jobs
            received += blocks
            up += blocks * one.bytes_up
        if one.counted:
            sizes, held = _read(one, what)
            touched = touched + one.epochs * sizes.sum(axis=1) + one.copies * held
            steps += steps_of(sizes, one.batch, one.epochs).sum(axis=1)
    received = max(received, rehearsal.scored)
    leaves = jax.tree.leaves(state.hypotheses)
    down = received * sum(leaf.nbytes // len(leaf) for leaf in leaves)
    times = visits(data, what.seed, algorithm.rounds, algorithm.cohort)
    return Cost(data.ids, down * times, up * times, times * touched, times * steps)


def _read(one: Pass, what: Fit) -> tuple[Ints, Ints]:
    """How many examples the jobs of a pass read, [clients, jobs]; and are tried on, [clients]."""
    own = what.data.sizes("train")
    if one.reads is None:
        return np.repeat(own[:, None], one.jobs, axis=1), np.zeros_like(own)
    train, held = one.reads.spans(what.data, what.seed)
    return train.sizes, np.zeros_like(own) if held is None else held.sizes.sum(axis=1)
