"""What clients keep: the same on the device, on the host and in a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MODEL, regression

import sartor
from sartor.engine import ClientProgram, ClientStates, Ended, states

DATA = regression(sizes=(5, 1, 8, 3, 4, 6))


class State(NamedTuple):
    hypotheses: Any


@dataclasses.dataclass(frozen=True)
class Remembering(sartor.Central, listed=False):
    """Every client keeps a vector that depends on all its rounds, and on its randomness."""

    def init(self, model, data, key):
        return State(jnp.zeros((1, 3)))

    def clients(self, state, cohort):
        def step(carry, batch, job):
            return carry + jax.random.normal(batch.key, (3,))

        program = ClientProgram(
            lambda job: job.kept["v"], step,
            lambda v, job: Ended(v, {"loss": v.sum()}, keep={"v": v, "n": job.kept["n"] + 1}),
        )  # fmt: skip
        begin = {"v": state.hypotheses[0], "n": jnp.int32(0)}
        passed = cohort.run(program, batch=2, keep=lambda job: begin)
        return passed.total, {"loss": passed.record["loss"]}

    def server(self, state, upload):
        return State(state.hypotheses + 1e-3 * upload)


ALGORITHM = Remembering(rounds=40, cohort=3)


def kept_by(fitted):
    return {client: jax.tree.map(np.asarray, fitted.kept[client]) for client in fitted.kept}


@pytest.fixture(scope="module")
def wanted():
    return ALGORITHM.fit(MODEL, DATA, seed=2)


@pytest.mark.parametrize("where", ["device", "file", "a chunk of one round"])
def test_it_does_not_matter_where_states_are(where, wanted, monkeypatch):
    engine = sartor.Engine()
    if where == "device":
        monkeypatch.setattr(states, "on_host", lambda engine: False)
    if where == "file":
        monkeypatch.setattr(states, "IN_MEMORY", 0)
    if where == "a chunk of one round":
        engine = sartor.Engine(lanes=2, memory=8 * 3 * 16)
    fitted = ALGORITHM.fit(MODEL, DATA, seed=2, engine=engine)
    assert fitted.kept.resident == (where == "device")
    np.testing.assert_allclose(fitted.hypotheses, wanted.hypotheses, rtol=1e-6)
    assert kept_by(fitted).keys() == kept_by(wanted).keys()
    for client, state in kept_by(wanted).items():
        np.testing.assert_allclose(fitted.kept[client]["v"], state["v"], rtol=1e-5)
        assert fitted.kept[client]["n"] == state["n"]


def test_a_checkpoint_holds_the_states_of_those_who_have_one(wanted):
    arrays = wanted.kept.arrays()
    again = ClientStates(wanted.kept.shapes, DATA, sartor.Engine())
    assert len(again) == 0 and "c0" not in again
    again.restore(arrays)
    assert list(again) == list(wanted.kept)
    for client in again:
        jax.tree.map(np.testing.assert_array_equal, again[client], wanted.kept[client])
    with pytest.raises(KeyError):
        again["nobody"]


def resident() -> float:
    """Megabytes that this process has in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def test_memory_is_that_of_the_clients_that_were_visited():
    """A million states of a kilobyte: those that nobody has written to take no memory."""
    many = 1_000_000
    y = np.zeros(many, np.int64)
    data = sartor.data.from_arrays(None, y, np.arange(many).astype("U7"))
    before = resident()
    kept = ClientStates({"v": jax.ShapeDtypeStruct((256,), jnp.float32)}, data, sartor.Engine())
    clients = np.arange(0, many, 1000).reshape(50, 20)
    table, place = kept.load(clients, 1000)
    kept.store(clients, table._replace(table={"v": jnp.ones((1000, 256))}))
    assert place.shape == clients.shape and len(kept) == 1000
    assert kept.arrays()["leaf/v"].shape == (1000, 256)
    assert resident() - before < 200  # of a thousand megabytes
