"""A round computed client by client, each with nothing but its own data, is the simulated round."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest

import sartor
from sartor.central import fitting
from sartor.engine import Planner, one_round, run_rounds
from sartor.personal.mapper import CLUSTER, Joint
from sartor.personal.task import Task

SEED, ROUND = 5, 3


@pytest.fixture(scope="module")
def data() -> sartor.ClientData:
    rng = np.random.default_rng(0)
    clients = {}
    for k in range(6):
        # Two sizes: a client that is alone is a program for each.
        x = rng.normal(size=((11, 29)[k % 2], 3)).astype(np.float32)
        clients[f"c{k}"] = {"x": x, "y": (x @ rng.normal(size=(3, 2))).argmax(axis=1)}
    domain = {client: "ab"[k % 2] for k, client in enumerate(clients)}
    return sartor.data.from_dict(clients, {"domain": domain}).split(
        validation=0.2, test=0.2, seed=0
    )


LOGISTIC = sartor.models.logistic(3, 2, scale=False)
ENGINE = sartor.Engine()


def dropout(params, x, key):
    """Drops features in training, so that it matters whose key a step has."""
    kept = 1 if key is None else 2 * jax.random.bernoulli(key, 0.5, x.shape)
    return LOGISTIC.apply(params, kept * x, None)


MODEL = sartor.Model(LOGISTIC.init, dropout, classes=2, input_shape=(3,))
BATCH = 5
"""All clients have more examples, so that it matters in which order they are read."""


def rounds_of(kind: str, data: sartor.ClientData):
    """An algorithm, the data it runs on, and a state in the middle of a run."""
    algorithms = {
        "FedAvg": sartor.FedAvg(epochs=2, batch=BATCH),
        "HypCluster": sartor.HypCluster(q=2, start=sartor.central.Random(), batch=BATCH),
        "Agnostic": sartor.Agnostic(domain_step=0.5, batch=BATCH),
    }
    if kind.startswith("Mapper"):
        keep = kind.endswith("kept")
        cover = (0.0, 0.5, 1.0)
        mapper = plain.Mapper(cover=cover, rounds=4, cohort=6, batch=BATCH, keep_local=keep)
        central = sartor.HypCluster(q=2, rounds=30, start="random").fit(MODEL, data, seed=1)
        cluster = central.assign(data)
        task = Task(MODEL, central, cluster, data, SEED, ENGINE)
        data = dataclasses.replace(data, metadata={**data.metadata, CLUSTER: cluster})
        algorithm, start = Joint.after(mapper, task, SEED), central
    else:
        algorithm, start = algorithms[kind], None
    what = fitting.Fit(MODEL, data, SEED, ENGINE, start)
    state = algorithm.begin(fitting.first_state(algorithm, what), what)
    return algorithm, data, jax.tree.map(jnp.asarray, state)


@pytest.mark.parametrize("kind", ["FedAvg", "HypCluster", "Agnostic", "Mapper", "Mapper kept"])
def test_uploads_of_single_clients_add_up(kind, data):
    algorithm, data, state = rounds_of(kind, data)
    known = algorithm.attributes(data)
    together, alone = None, dict.fromkeys(data.ids)
    for number in (ROUND, ROUND + 1):  # in the second, what clients kept in the first matters
        how = {"round": number, "seed": SEED, "engine": ENGINE}
        together = one_round(algorithm, MODEL, data, state, kept=together and together.kept, **how)
        for k, (client, before) in enumerate(alone.items()):
            mine = data.select([client])
            assert len(mine) == 1 and set(mine.ids) == {client}
            how["attributes"] = {name: values[[k]] for name, values in known.items()}
            kept = before and before.kept
            alone[client] = one_round(algorithm, MODEL, mine, state, kept=kept, **how)
        uploads = [one.upload for one in alone.values()]
        total = jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *uploads)

        assert_close(together.upload, total)
        losses = np.concatenate([one.metrics["loss"] for one in alone.values()])
        order = np.argsort(data.hashes, kind="stable")  # the order of a simulated cohort
        np.testing.assert_allclose(together.metrics["loss"], losses[order], rtol=1e-5)
        if together.kept is not None:
            for client, one in alone.items():
                assert_close(together.kept[client], one.kept[client])
        state, after = algorithm.server(state, together.upload), algorithm.server(state, total)
        assert_close(state.hypotheses, after.hypotheses)


def assert_close(one, other):
    for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_uploads_of_clients_in_seats_add_up(data):
    """The server tells a client how many others it stands for."""
    domain = np.array(["rare", *["usual"] * 5])
    data = dataclasses.replace(data, metadata={"domain": domain})
    algorithm, _, state = rounds_of("Agnostic", data)
    algorithm = dataclasses.replace(algorithm, cohort=3)
    planner = Planner(algorithm, MODEL, data, state, ENGINE, seed=SEED)
    (clients,), _, inputs = planner.plan(range(ROUND, ROUND + 1))
    assert "c0" in [data.ids[k] for k in clients]
    how = {"round": ROUND, "seed": SEED, "engine": ENGINE}
    uploads = []
    for place, k in enumerate(clients):
        known = {name: values[0, place : place + 1] for name, values in inputs.attributes.items()}
        mine = data.select([data.ids[k]])
        told = one_round(algorithm, MODEL, mine, state, attributes=known, **how)
        uploads.append(told.upload)
    alone = jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *uploads)
    (chunk, *_) = run_rounds(planner, state, ROUND)
    assert_close(chunk.state.hypotheses, algorithm.server(state, alone).hypotheses)


def test_it_is_the_round_of_a_run(data):
    """The same function makes the rounds of a fit."""
    algorithm = sartor.FedAvg(rounds=2, cohort=6)
    fitted = algorithm.fit(MODEL, data, seed=SEED)
    what = fitting.Fit(MODEL, data, SEED, ENGINE)
    state = fitting.first_state(algorithm, what)
    for number in range(2):
        told = one_round(algorithm, MODEL, data, state, round=number, seed=SEED, engine=ENGINE)
        state = algorithm.server(state, told.upload)
    assert_close(fitted.hypotheses, state.hypotheses)
