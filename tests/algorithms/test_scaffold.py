"""SCAFFOLD (Karimireddy et al., 2020), as a user would write it: control variates of clients."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from algorithm_cases import (
    CLIENTS,
    as_vector,
    check_resume,
    cohorts_of,
    examples,
    first_state,
    gradient,
    tiny_data,
)

import sartor
from sartor.engine import ClientProgram, Ended


class State(NamedTuple):
    hypotheses: Any
    control: Any  # c
    clients: jax.Array  # N


@dataclasses.dataclass(frozen=True)
class Scaffold(sartor.Central, listed=False):  # other tests list all algorithms
    epochs: int = 1
    batch: int = 20
    learning_rate: float = 0.05

    def init(self, model, data, key):
        x = jax.tree.map(lambda a: a[None], model.init(key))
        return State(x, jax.tree.map(jnp.zeros_like, x), jnp.float32(data.seen.sum()))

    def clients(self, state, cohort):
        x, c = jax.tree.map(lambda a: a[0], (state.hypotheses, state.control))
        rate, tree = self.learning_rate, jax.tree.map

        def loss(y, batch):
            return batch.mean(cohort.model.loss(y, batch.x, batch.y, batch.key))

        def start(job):
            return x, 0.0, 0.0

        def step(carry, batch, job):
            y, steps, total = carry
            value, g = jax.value_and_grad(loss)(y, batch)
            y = tree(lambda y, g, own, c: y - rate * (g - own + c), y, g, job.kept, c)
            return y, steps + 1.0, total + value

        def end(carry, job):
            y, steps, total = carry
            new = tree(
                lambda own, c, x, y: own - c + (x - y) / (steps * rate), job.kept, c, x, y
            )  # fmt: skip
            change = tree(jnp.subtract, (y, new), (x, job.kept))
            return Ended(change, {"loss": total / steps}, keep=new)

        passed = cohort.run(
            ClientProgram(start, step, end), epochs=self.epochs, batch=self.batch,
            weights=jnp.ones_like(cohort.sizes), keep=lambda job: tree(jnp.zeros_like, c),
        )  # fmt: skip
        return (passed.total, passed.weight), {"loss": passed.record["loss"]}

    def server(self, state, upload):
        (change, control), count = upload
        x = jax.tree.map(lambda x, d: x + d / count[0], state.hypotheses, change)
        c = jax.tree.map(lambda c, d: c + d / state.clients, state.control, control)
        return state._replace(hypotheses=x, control=c)


ALGORITHM = Scaffold(rounds=12, cohort=3, epochs=3)
MODEL = sartor.models.linear(2, scale=False)


def test_equals_a_plain_loop():
    data = tiny_data()
    fitted, cohorts = cohorts_of(ALGORITHM, MODEL, data)
    x = as_vector(jax.tree.map(lambda a: a[0], first_state(ALGORITHM, MODEL, data).hypotheses))
    c, own = np.zeros_like(x), np.zeros((CLIENTS, len(x)))
    for cohort in cohorts:
        changes, controls = [], []
        for k in cohort:
            y = x.copy()
            for _ in range(3):
                y -= 0.05 * (gradient(y, *examples(data, k)) - own[k] + c)
            new = own[k] - c + (x - y) / (3 * 0.05)
            changes.append(y - x)
            controls.append(new - own[k])
            own[k] = new
        x, c = x + np.mean(changes, axis=0), c + np.sum(controls, axis=0) / CLIENTS
    np.testing.assert_allclose(as_vector(fitted.params), x, atol=1e-5)
    for k, client in enumerate(data.ids):
        np.testing.assert_allclose(as_vector(fitted.kept[client]), own[k], atol=1e-5)


def test_resumes_to_the_same_bits(tmp_path):
    check_resume(ALGORITHM, MODEL, tiny_data(), tmp_path / "run.safetensors")


def test_costs_two_models_up():
    fitted = ALGORITHM.fit(MODEL, tiny_data(), seed=3)
    assert fitted.cost.total()["up"] == 12 * 3 * 2 * 4 * 3
