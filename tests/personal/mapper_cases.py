"""Clients and models for the tests of Mapper."""

from __future__ import annotations

import numpy as np

import sartor

MODEL = sartor.models.mlp(4, (6,), classes=3, scale=False)
LOGISTIC = sartor.models.logistic(4, 3, scale=False)


def clients(sizes=(23, 6, 60, 8, 40, 17), seed=0):
    draw = np.random.default_rng(seed)
    client = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    x = draw.standard_normal((len(client), 4)).astype(np.float32)
    y = draw.integers(0, 3, len(client))
    return sartor.data.from_arrays(x, y, client)
