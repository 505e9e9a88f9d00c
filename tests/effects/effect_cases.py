"""Clients with effects that are known, for the tests of effects/."""

from __future__ import annotations

import numpy as np
from scipy import special


def drawn(seed=0, clients=60, most=40, noise=1.0, spread=1.0):
    """Rows of clients with an intercept and a slope of their own."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), draw.integers(2, most, clients))
    owner = draw.permutation(owner)
    x = np.c_[np.ones(len(owner)), draw.normal(size=(len(owner), 2)) * [1.0, 3.0]]
    own = spread * draw.normal(size=(clients, 2)) @ np.array([[1.5, 0.4], [0.0, 0.6]])
    score = x @ [1.0, 2.0, 0.3] + (x[:, :2] * own[owner]).sum(axis=1)
    return x, score + noise * draw.normal(size=len(owner)), owner, own, draw


def as_labels(score, draw):
    return (draw.random(len(score)) < special.expit(score)).astype(float)
