"""The door that algorithms go through, and what it says to those who miss it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MODEL, as_vector, examples, regression

import sartor
from sartor.engine import ClientProgram, Ended, one_round
from sartor.errors import ConfigError, DivergedError

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
        ({"clients": lambda s, state, cohort: cohort.sizes}, r"must return \(upload, metrics\)"),
        ({"init": lambda s, model, data, key: {}}, "with a field `hypotheses`"),
        ({"init": lambda s, model, data, key: State(model.init(key))}, "stacked"),
        ({"server": lambda s, state, up: State(jnp.zeros(3))}, "a state of the same form"),
    ],
)
def test_an_algorithm_that_forgets_something_is_told_what(methods, message):
    with pytest.raises(ConfigError, match=message):
        broken(**methods).fit(MODEL, DATA)


@pytest.mark.parametrize("group", [np.zeros(7), np.array(["a"] * 6)])
def test_attributes_are_numbers_of_every_client(group):
    with pytest.raises(ConfigError, match="'group' must be an array of numbers"):
        broken(attributes=lambda self, data: {"group": group}).fit(MODEL, DATA)


def test_strata_are_those_of_every_client():
    algorithm = broken(strata=lambda self, data: np.zeros(7))
    with pytest.raises(ConfigError, match=r"each of the 6 clients \(got an array of shape \(7,\)"):
        dataclasses.replace(algorithm, cohort=3).fit(MODEL, DATA)


def ends(ended, **how):
    """``clients`` of an algorithm whose jobs end in this way."""

    def clients(self, state, cohort):
        program = ClientProgram(
            lambda job: jnp.zeros(3), lambda carry, batch, job: carry, lambda carry, job: ended(job)
        )
        passed = cohort.run(program, **how)
        return passed.total, {"loss": jnp.zeros(len(cohort.sizes))}

    return {"clients": clients, "server": lambda self, state, upload: state}


BEGIN = jnp.zeros(3)


@pytest.mark.parametrize(
    ("ended", "how", "message"),
    [
        (lambda job: Ended(keep=job.kept[0]), {"keep": lambda job: BEGIN}, r"float32\[3\].*\[\]"),
        (lambda job: Ended(keep=0.5), {"keep": lambda job: 0}, "int32.*float32"),
        (lambda job: Ended(), {"keep": lambda job: BEGIN}, "is None"),
        (lambda job: Ended(keep=BEGIN), {}, "begins with None"),
        (lambda job: Ended(keep=BEGIN), {"keep": BEGIN}, "a function of the job"),
        (lambda job: Ended(), {"weights": jnp.ones((6, 1))}, r"weights .* shape \(6, 1\)"),
        (lambda job: Ended(), {"hypothesis": jnp.zeros(5, int)}, "hypothesis .* 6 clients"),
        (lambda job: Ended(), {"values": {"a": 1.0}}, "values .* 6 clients"),
        (lambda job: Ended(), {"batch": 0}, "batch of a pass must be"),
        (lambda job: Ended(), {"epochs": jnp.int32(2)}, "no traced setting"),
    ],
)
def test_states_and_values_of_a_wrong_form_are_refused(ended, how, message):
    with pytest.raises(ConfigError, match=message):
        broken(**ends(ended, **how)).fit(MODEL, DATA)


@pytest.mark.parametrize("one", [True, 3, jnp.bfloat16(3), jnp.float32(3)])
def test_uploads_of_any_type_are_summed(one):
    state = State(jnp.zeros((2, 1)))
    algorithm = broken(**ends(lambda job: Ended(one)))
    told = one_round(algorithm, MODEL, DATA, state, round=0, seed=0, engine=sartor.Engine())
    assert told.upload.dtype == jnp.float32
    assert float(told.upload[0]) == float(one) * DATA.sizes("train").sum()


def test_states_of_other_clients_are_refused():
    algorithm, state = Counting(), State(jnp.zeros((2, 1)))
    how = {"round": 0, "seed": 0, "engine": sartor.Engine()}
    told = one_round(algorithm, MODEL, DATA, state, **how)
    with pytest.raises(ConfigError, match="are not the 1 clients"):
        one_round(algorithm, MODEL, DATA.select(["c3"]), state, kept=told.kept, **how)


def test_a_property_of_a_traced_number_is_not_remembered():
    @dataclasses.dataclass(frozen=True)
    class Derived(Counting, listed=False):
        rate: float = sartor.engine.traced(0.1)

        @functools.cached_property
        def twice(self):
            return 2 * self.rate

        def init(self, model, data, key):
            return State(jnp.zeros((2, 1)) + self.twice)

        def server(self, state, upload):
            return State(state.hypotheses + self.twice)

    for rate in (0.1, 0.2):
        fitted = Derived(rounds=1, rate=rate).fit(MODEL, DATA)
        np.testing.assert_allclose(fitted.hypotheses, 4 * rate, rtol=1e-6)


def test_a_last_step_of_the_server_that_diverges_is_noticed():
    methods = ends(lambda job: Ended()) | {
        "server": lambda self, state, upload: State(state.hypotheses * jnp.nan)
    }
    with pytest.raises(DivergedError, match="the server's last step"):
        type(broken(**methods))(rounds=1).fit(MODEL, DATA)


def test_a_number_in_the_state_is_resumed(tmp_path):
    class Numbered(NamedTuple):
        hypotheses: Any
        rounds: Any

    methods = ends(lambda job: Ended()) | {
        "init": lambda self, model, data, key: Numbered(jnp.zeros((1, 2)), 0),
        "server": lambda self, state, upload: state._replace(rounds=state.rounds + 1),
    }
    kind = type(broken(**methods))
    for rounds in (2, 4, 4):
        kind(rounds=rounds).fit(MODEL, DATA, checkpoint=tmp_path / "checkpoint")


def test_abstract_functions_and_plain_classes_are_named():
    class Nothing(sartor.Central, listed=False):
        pass

    with pytest.raises(TypeError, match="clients"):
        Nothing()

    class Plain(Counting, listed=False):
        more: int = 3

    with pytest.raises(ConfigError, match="Plain must be a frozen dataclass"):
        Plain()
