"""A tiny problem, and what every algorithm of one's own has to do on it."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import sartor
from sartor.central import fitting

CLIENTS = 6


def tiny_data() -> sartor.ClientData:
    """Regression with a slope of its own for every client; all clients fit into one batch."""
    rng = np.random.default_rng(0)
    clients = {}
    for k in range(CLIENTS):
        x = rng.normal(size=(5 + 3 * k, 2)).astype(np.float32)
        clients[f"c{k}"] = {"x": x, "y": (x @ rng.normal(size=2) + 0.3).astype(np.float32)}
    return sartor.data.from_dict(clients)


def cohorts_of(algorithm, model, data):
    """The fitted model, and which clients took part in each round."""
    found: list[np.ndarray] = []
    fitted = algorithm.fit(model, data, seed=3, on_chunk=lambda chunk: found.extend(chunk.clients))
    return fitted, found


def first_state(algorithm, model, data):
    """What the algorithm begins with, for the seed of these tests."""
    return fitting.first_state(algorithm, fitting.Fit(model, data, 3, sartor.Engine()))


def check_resume(algorithm, model, data, path: Path) -> None:
    """A run that is killed half-way ends with the same bits as one that is not."""
    whole = algorithm.fit(model, data, seed=3)

    def kill(chunk):
        if chunk.stop > algorithm.rounds // 2:
            raise SystemExit("killed")

    with pytest.raises(SystemExit):
        algorithm.fit(model, data, seed=3, checkpoint=path, on_chunk=kill)
    for _ in range(2):  # the second time there is no round left to run
        resumed = algorithm.fit(model, data, seed=3, checkpoint=path)
        assert dict(whole.kept).keys() == dict(resumed.kept).keys()
        before, after = ((m.hypotheses, dict(m.kept)) for m in (whole, resumed))
        jax.tree.map(np.testing.assert_array_equal, before, after)


def examples(data, k):
    """Features with a constant at the end, and targets, of one client."""
    begin, end = data.bounds[k, :2]
    x = np.asarray(data.columns["x"][data.rows[begin:end]], np.float64)
    y = np.asarray(data.columns["y"][data.rows[begin:end]], np.float64)
    return np.concatenate([x, np.ones((len(x), 1))], axis=1), y


def as_vector(params) -> np.ndarray:
    """A linear model's weights, with its intercept at the end."""
    layer = params["dense_1"]
    w, b = np.ravel(np.asarray(layer["w"])), np.ravel(np.asarray(layer["b"]))
    return np.concatenate([w, b]).astype(np.float64)


def gradient(theta, x, y):
    """Of the mean squared error."""
    return 2 * x.T @ (x @ theta - y) / len(y)
