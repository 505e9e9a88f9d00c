"""The cost ledger of central training: bytes, examples and steps of every client."""

import jax
import numpy as np

from sartor.cost import Cost
from sartor.engine import Planner, steps_of
from sartor.models import Params


def rounds_cost(planner: Planner, hypotheses: Params) -> Cost:
    """What the rounds of a run ask of every client.

    A client that scores q hypotheses receives all of them. It sends a block for each, of which all
    but one are zero: the server sees only sums, and does not learn whose cluster is which.
    """
    data, scored, times = planner.data, planner.scored, planner.visits
    touched = scored * data.sizes("train")
    steps, received, up = np.zeros(len(data), np.int64), 0, 0
    for one in planner.passes:
        spec, sizes = one.spec, one.train.sizes  # [clients, jobs]
        if spec.bytes_up:
            blocks = spec.q if scored > 1 else spec.jobs
            received += blocks
            up += blocks * spec.bytes_up
        if spec.counted:
            touched = touched + spec.epochs * sizes.sum(axis=1)
            steps += steps_of(sizes, spec.batch, spec.epochs).sum(axis=1)
            if one.held is not None:
                touched += spec.copies * one.held.sizes.sum(axis=1)
    leaves = jax.tree.leaves(hypotheses)
    down = max(received, scored) * sum(leaf.nbytes // len(leaf) for leaf in leaves)
    return Cost(data.ids, down * times, up * times, times * touched, times * steps)
