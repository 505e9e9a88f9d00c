"""Clients, models and comparisons for the tests of Dapper."""

from __future__ import annotations

import jax
import numpy as np

import sartor

SIZES = (23, 1, 60, 8, 40, 17)
MODEL = sartor.models.mlp(4, (6,), classes=3, scale=False)
DENSITY = sartor.models.categorical(symbols=8)


def clients(sizes=SIZES, seed=0, classes=3):
    draw = np.random.default_rng(seed)
    client = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    x = draw.standard_normal((len(client), 4)).astype(np.float32)
    y = draw.integers(0, classes, len(client))
    return sartor.data.from_arrays(x, y, client)


def same(a, b, tolerance=0.0):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=tolerance, rtol=0), a, b)


def trial_losses(solver, jobs):
    """What a solver finds for trials on what they hold out."""
    (block,) = solver.train(None, None, jobs, np.zeros(jobs.number, bool), fetch=True)
    return block.held_loss[:, 0]
