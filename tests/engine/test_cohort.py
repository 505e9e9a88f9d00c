"""The door that algorithms go through, and what it says to those who miss it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MODEL, as_vector, examples, regression

import sartor
from sartor.engine import ClientProgram, Ended, one_round
from sartor.errors import ConfigError

DATA = regression(sizes=(5, 1, 8, 3, 4, 6))
COUNTS = ClientProgram(
    lambda job: 0.0,
    lambda carry, batch, job: carry + batch.mask.sum(),
    lambda carry, job: Ended(
        carry * job.values["times"], {"count": carry, "kept": job.kept}, keep=job.kept + 1
    ),
)


class State(NamedTuple):
    hypotheses: Any


@dataclasses.dataclass(frozen=True)
class Counting(sartor.Central, listed=False):
    """Counts examples by hypothesis, and how often each client was visited."""

    def init(self, model, data, key):
        return State(jnp.zeros((2, 1)))

    def attributes(self, data):
        return {"group": (np.arange(len(data)) % 2).astype(np.int32)}

    def clients(self, state, cohort):
        group = cohort.attributes["group"]
        passed = cohort.run(
            COUNTS, q=2, hypothesis=group, values={"times": 1.0 + group}, batch=2,
            weights=jnp.ones_like(cohort.sizes), keep=lambda job: jnp.zeros(()),
        )  # fmt: skip
        metrics = {"loss": passed.record["count"], "visits": passed.record["kept"]}
        return (passed.total, passed.weight), metrics

    def server(self, state, upload):
        return State(state.hypotheses + upload[0][:, None])


def test_sums_weights_records_and_states():
    chunks = []
    fitted = Counting(rounds=9, cohort=3).fit(MODEL, DATA, seed=1, on_chunk=chunks.append)
    clients = np.concatenate([c.clients for c in chunks])
    loss = np.concatenate([c.metrics["loss"] for c in chunks])
    np.testing.assert_array_equal(loss, DATA.sizes("train")[clients])
    total = np.zeros(2)
    seen = np.zeros(len(DATA), int)
    visits = np.concatenate([c.metrics["visits"] for c in chunks])
    for cohort, before in zip(clients, visits, strict=True):
        np.testing.assert_array_equal(before, seen[cohort])  # what was kept the last time
        seen[cohort] += 1
        for k in cohort:
            total[k % 2] += DATA.sizes("train")[k] * (1 + k % 2)
    np.testing.assert_allclose(fitted.hypotheses[:, 0], total)
    assert {client: float(fitted.kept[client]) for client in fitted.kept} == {
        client: n for client, n in zip(DATA.ids, seen, strict=True) if n
    }


def test_weights_are_sizes_unless_given():
    @dataclasses.dataclass(frozen=True)
    class Plain(Counting, listed=False):
        def clients(self, state, cohort):
            program = COUNTS._replace(end=lambda carry, job: Ended(1.0, {"count": carry}))
            passed = cohort.run(program)
            return passed.total, {"loss": passed.record["count"], "weight": passed.weight}

        def server(self, state, upload):
            return state

    told = one_round(
        Plain(), MODEL, DATA, State(jnp.zeros((2, 1))), round=0, seed=0, engine=sartor.Engine()
    )
    assert float(told.upload[0]) == DATA.sizes("train").sum() == float(told.metrics["weight"][0])


def test_scores_are_mean_losses_of_every_hypothesis():
    @dataclasses.dataclass(frozen=True)
    class Scoring(Counting, listed=False):
        def clients(self, state, cohort):
            losses = cohort.score(state.hypotheses)
            return losses.sum(axis=0), {"loss": losses[:, 0], "other": losses[:, 1]}

        def server(self, state, upload):
            return state

    hypotheses = jax.vmap(MODEL.init)(jax.random.split(jax.random.key(0), 2))
    told = one_round(
        Scoring(), MODEL, DATA, State(hypotheses), round=0, seed=0, engine=sartor.Engine()
    )
    order = np.argsort(DATA.hashes, kind="stable")
    for i, name in enumerate(("loss", "other")):
        theta = as_vector(jax.tree.map(lambda a, i=i: a[i], hypotheses))
        wanted = []
        for k in order:
            x, y = examples(DATA, k)
            wanted.append(((x @ theta[:2] + theta[2] - y) ** 2).mean())
        np.testing.assert_allclose(told.metrics[name], wanted, rtol=1e-4)


def broken(**methods):
    """The counting algorithm with something missing."""
    kind = type("Broken", (Counting,), methods, listed=False)
    return dataclasses.dataclass(frozen=True)(kind)()


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"clients": lambda s, state, cohort: ((), {})}, "must have the 'loss' of every client"),
        ({"init": lambda s, model, data, key: {}}, "with a field `hypotheses`"),
        ({"server": lambda s, state, up: State(jnp.zeros(3))}, "a state of the same form"),
    ],
)
def test_an_algorithm_that_forgets_something_is_told_what(methods, message):
    with pytest.raises(ConfigError, match=message):
        broken(**methods).fit(MODEL, DATA)


def test_abstract_functions_and_plain_classes_are_named():
    class Nothing(sartor.Central, listed=False):
        pass

    with pytest.raises(TypeError, match="clients"):
        Nothing()

    class Plain(Counting, listed=False):
        more: int = 3

    with pytest.raises(ConfigError, match="Plain must be a frozen dataclass"):
        Plain()
