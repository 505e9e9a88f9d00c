"""APFL (Deng et al., 2020), as a user would write it: a local model and its weight, both kept."""

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


@dataclasses.dataclass(frozen=True)
class APFL(sartor.Central, listed=False):  # other tests list all algorithms
    alpha: float = 0.25
    epochs: int = 1
    batch: int = 20
    learning_rate: float = 0.05

    def init(self, model, data, key):
        return State(jax.tree.map(lambda a: a[None], model.init(key)))

    def clients(self, state, cohort):
        central, tree = jax.tree.map(lambda a: a[0], state.hypotheses), jax.tree.map

        def loss(params, batch):
            return batch.mean(cohort.model.loss(params, batch.x, batch.y, batch.key))

        def mixed(v, w, alpha):
            return tree(lambda v, w: alpha * v + (1 - alpha) * w, v, w)

        def start(job):
            return central, *job.kept, 0.0, 0.0

        def step(carry, batch, job):
            w, v, alpha, steps, total = carry
            value, g = jax.value_and_grad(lambda *at: loss(mixed(*at), batch), (0, 2))(v, w, alpha)
            w = tree(lambda a, g: a - self.learning_rate * g, w, jax.grad(loss)(w, batch))
            v, alpha = tree(lambda a, g: a - self.learning_rate * g, (v, alpha), g)
            return w, v, jnp.clip(alpha, 0, 1), steps + 1.0, total + value

        def end(carry, job):
            w, v, alpha, steps, total = carry
            return Ended(tree(jnp.subtract, w, central), {"loss": total / steps}, keep=(v, alpha))

        passed = cohort.run(
            ClientProgram(start, step, end), epochs=self.epochs, batch=self.batch,
            keep=lambda job: (central, jnp.float32(self.alpha)),
        )  # fmt: skip
        return (passed.total, passed.weight), {"loss": passed.record["loss"]}

    def server(self, state, upload):
        change, weight = upload
        return State(jax.tree.map(lambda h, d: h + d / weight[0], state.hypotheses, change))


ALGORITHM = APFL(rounds=12, cohort=3, epochs=3)
MODEL = sartor.models.linear(2, scale=False)


def test_equals_a_plain_loop():
    data = tiny_data()
    fitted, cohorts = cohorts_of(ALGORITHM, MODEL, data)
    h = as_vector(jax.tree.map(lambda a: a[0], first_state(ALGORITHM, MODEL, data).hypotheses))
    kept: list[Any] = [None] * CLIENTS
    for cohort in cohorts:
        changes, sizes = [], []
        for k in cohort:
            x, y = examples(data, k)
            w, (v, alpha) = h.copy(), kept[k] or (h.copy(), 0.25)
            for _ in range(3):
                g = gradient(alpha * v + (1 - alpha) * w, x, y)
                w_next = w - 0.05 * gradient(w, x, y)
                v, alpha = v - 0.05 * alpha * g, np.clip(alpha - 0.05 * (v - w) @ g, 0, 1)
                w = w_next
            kept[k] = (v, alpha)
            changes.append(w - h)
            sizes.append(len(y))
        h = h + np.average(changes, axis=0, weights=sizes)
    np.testing.assert_allclose(as_vector(fitted.params), h, atol=1e-5)
    for k, client in enumerate(data.ids):
        v, alpha = fitted.kept[client]
        np.testing.assert_allclose(as_vector(v), kept[k][0], atol=1e-5)
        np.testing.assert_allclose(alpha, kept[k][1], atol=1e-5)


def test_alpha_of_zero_is_fedavg():
    data = tiny_data()
    ours = dataclasses.replace(ALGORITHM, alpha=0.0).fit(MODEL, data, seed=3)
    theirs = sartor.FedAvg(rounds=12, cohort=3, epochs=3, learning_rate=0.05, server_momentum=0.0)
    fitted = theirs.fit(MODEL, data, seed=3)
    np.testing.assert_allclose(as_vector(ours.params), as_vector(fitted.params), atol=1e-6)


def test_resumes_to_the_same_bits(tmp_path):
    check_resume(ALGORITHM, MODEL, tiny_data(), tmp_path / "run.safetensors")
