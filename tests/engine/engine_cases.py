"""Small data and schedules whose results can be computed by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import sartor
from sartor.engine.job import Job
from sartor.engine.schedule import Schedule, schedule
from sartor.randomness import key_data, mix

MODEL = sartor.models.linear(2, scale=False)


def regression(sizes=(5, 1, 8, 3), seed=0) -> sartor.ClientData:
    """Clients of these sizes, with a line of its own for each."""
    draw = np.random.default_rng(seed)
    clients = {}
    for k, size in enumerate(sizes):
        x = draw.normal(size=(size, 2)).astype(np.float32)
        y = x @ draw.normal(size=2) + draw.normal(size=size)
        clients[f"c{k}"] = {"x": x, "y": y.astype(np.float32)}
    return sartor.data.from_dict(clients)


def examples(data, k):
    """Features and targets of one client's training part."""
    rows = data.rows[data.bounds[k, 0] : data.bounds[k, 1]]
    return data.columns["x"][rows], data.columns["y"][rows]


def columns_of(data) -> dict[str, jax.Array]:
    """All columns in the order of ``data.rows``."""
    return {name: jnp.asarray(column[data.rows]) for name, column in data.columns.items()}


def plan_of(data, *, lanes, batch, epochs=1, packing=None) -> tuple[Schedule, Job]:
    """The schedule of one job for each client, and the jobs."""
    words = mix(0, "test", data.hashes)
    plan = schedule(
        data.bounds[None, :, 0], data.sizes("train")[None], words[None],
        batch=batch, epochs=epochs, lanes=lanes, packing=packing,
    )  # fmt: skip
    jobs = Job(
        jnp.zeros(len(data), jnp.int32), jnp.asarray(key_data(words)),
        jnp.asarray(data.sizes("train"), jnp.float32), jnp.asarray(key_data(words)),
    )  # fmt: skip
    return Schedule(*(jnp.asarray(a[0]) for a in plan)), jobs


def descend(theta, x, y, rate):
    """One gradient step of a linear model with an intercept, on the mean squared error."""
    z = np.concatenate([np.asarray(x, np.float64), np.ones((len(x), 1))], axis=1)
    return theta - rate * 2 * z.T @ (z @ theta - y) / len(y)


def as_vector(params) -> np.ndarray:
    """A linear model's weights, with its intercept at the end."""
    layer = params.get("dense_1", params)
    if "dense_1/w" in params:
        layer = {"w": params["dense_1/w"], "b": params["dense_1/b"]}
    return np.concatenate([np.ravel(layer["w"]), np.ravel(layer["b"])]).astype(np.float64)
