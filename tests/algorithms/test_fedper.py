"""FedPer (Arivazhagan et al., 2019), as a user would write it: a private last layer."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from algorithm_cases import check_resume, cohorts_of, examples, first_state, tiny_data

import sartor
from sartor.engine import ClientProgram, Ended


class State(NamedTuple):
    hypotheses: Any


@dataclasses.dataclass(frozen=True)
class FedPer(sartor.Central, listed=False):  # other tests list all algorithms
    private: str = "dense_2"
    epochs: int = 1
    batch: int = 20
    learning_rate: float = 0.05

    def init(self, model, data, key):
        return State(jax.tree.map(lambda a: a[None], model.init(key)))

    def clients(self, state, cohort):
        central = jax.tree.map(lambda a: a[0], state.hypotheses)
        shared = {name: layer for name, layer in central.items() if name != self.private}

        def loss(params, batch):
            return batch.mean(cohort.model.loss(params, batch.x, batch.y, batch.key))

        def start(job):
            return {**shared, self.private: job.kept}, 0.0, 0.0

        def step(carry, batch, job):
            params, steps, total = carry
            value, g = jax.value_and_grad(loss)(params, batch)
            params = jax.tree.map(lambda p, g: p - self.learning_rate * g, params, g)
            return params, steps + 1.0, total + value

        def end(carry, job):
            params, steps, total = carry
            change = jax.tree.map(
                lambda old, new: new - old, shared, {n: params[n] for n in shared}
            )
            return Ended(change, {"loss": total / steps}, keep=params[self.private])

        passed = cohort.run(
            ClientProgram(start, step, end), epochs=self.epochs, batch=self.batch,
            keep=lambda job: central[self.private],
        )  # fmt: skip
        return (passed.total, passed.weight), {"loss": passed.record["loss"]}

    def server(self, state, upload):
        change, weight = upload
        step = jax.tree.map(lambda a: a / weight[0], change)
        moved = {n: jax.tree.map(jnp.add, state.hypotheses[n], step[n]) for n in step}
        return State({**state.hypotheses, **moved})


ALGORITHM = FedPer(rounds=12, cohort=3, epochs=3)
MODEL = sartor.models.mlp(2, (4,), outputs=1, scale=False)


def backward(params, x, y):
    """The gradient of a network with one hidden layer, by hand."""
    w1, b1, w2, b2 = params
    hidden = x @ w1 + b1
    active = np.maximum(hidden, 0)
    error = 2 * (active @ w2 + b2 - y[:, None]) / len(y)
    back = (error @ w2.T) * (hidden > 0)
    return x.T @ back, back.sum(axis=0), active.T @ error, error.sum(axis=0)


def leaves(tree):
    """Weights and biases of the layers, in order."""
    return [np.asarray(tree[n][p], np.float64) for n in ("dense_1", "dense_2") for p in "wb"]


def test_equals_a_plain_loop():
    data = tiny_data()
    fitted, cohorts = cohorts_of(ALGORITHM, MODEL, data)
    start = leaves(jax.tree.map(lambda a: a[0], first_state(ALGORITHM, MODEL, data).hypotheses))
    shared, own = start[:2], dict.fromkeys(range(len(data)), start[2:])
    for cohort in cohorts:
        changes, sizes = [], []
        for k in cohort:
            x, y = examples(data, k)
            params = [a.copy() for a in (*shared, *own[k])]
            for _ in range(3):
                steps = backward(params, x[:, :2], y)
                params = [p - 0.05 * g for p, g in zip(params, steps, strict=True)]
            changes.append([a - b for a, b in zip(params, shared, strict=False)])
            sizes.append(len(y))
            own[k] = params[2:]
        shared = [
            a + np.average([c[i] for c in changes], axis=0, weights=sizes)
            for i, a in enumerate(shared)
        ]
    for found, wanted in zip(leaves(fitted.params)[:2], shared, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    for k, client in enumerate(data.ids):
        for name, wanted in zip("wb", own[k], strict=True):
            np.testing.assert_allclose(fitted.kept[client][name], wanted, atol=1e-5)


def test_resumes_to_the_same_bits(tmp_path):
    check_resume(ALGORITHM, MODEL, tiny_data(), tmp_path / "run.safetensors")


def test_the_private_layer_is_never_sent():
    fitted = ALGORITHM.fit(MODEL, tiny_data(), seed=3)
    assert fitted.cost.total()["up"] == 12 * 3 * 4 * (2 * 4 + 4)
