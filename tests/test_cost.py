"""The ledger against the paper's formulas, on the synthetic data."""

from __future__ import annotations

import numpy as np
import plain
import pytest

import sartor
from sartor.cost import Cost

MODEL = sartor.models.categorical(symbols=50)
BYTES = 200
"""Of one model: fifty numbers of four bytes."""


@pytest.fixture(scope="module")
def data():
    return sartor.data.synthetic(clients=20, samples=40).split(validation=0.25, seed=0)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=6, cohort=5).fit(MODEL, data)


def test_fedavg_sends_one_model_each_way_and_touches_every_example(data, central):
    total = central.cost.total()
    assert total == {
        "down": 6 * 5 * BYTES,
        "up": 6 * 5 * BYTES,
        "examples": 6 * 5 * 30,
        "steps": 6 * 5 * 2,
    }
    visits = central.cost.down // BYTES
    assert visits.sum() == 30
    assert (central.cost.examples == visits * 30).all()


@pytest.mark.parametrize("q", [2, 3])
def test_hypcluster_costs_q_times_one_model(data, central, q):
    algorithm = sartor.HypCluster(q=q, start="random", rounds=6, cohort=5)
    with pytest.warns(UserWarning, match="no clients"):
        cost = algorithm.fit(MODEL, data).cost
    # The rounds, and in the end once more for f^{T+1}.
    np.testing.assert_array_equal(cost.down, q * (central.cost.down + BYTES))
    np.testing.assert_array_equal(cost.up, q * central.cost.up)
    # Every example once for the gradient, and q times for the losses.
    np.testing.assert_array_equal(cost.examples, (1 + q) * central.cost.examples + q * 30)
    started = sartor.HypCluster(q=q, start="clients", rounds=6, cohort=5)
    extra = started.fit(MODEL, data).cost.total()
    assert extra["up"] == cost.total()["up"] + q * BYTES
    assert extra["steps"] == cost.total()["steps"] + q * 5 * 2


@pytest.mark.parametrize("step", ["sample", "weight"])
def test_dapper_receives_r_times_its_examples_and_trains_for_every_lambda(data, central, step):
    r, cover = 4, (0.0, 0.5, 1.0)
    algorithm = plain.Dapper(cover=cover, r=r, step=step)
    cost = algorithm.fit(central, data).cost
    wide = r if step == "sample" else r + 1  # examples of a pass for each one of the client
    # |Λ| trials on 30 examples with 10 held out, and the final model on all 40.
    assert (cost.examples == len(cover) * (wide * 30 + 10) + wide * 40).all()
    example = data.columns["y"].dtype.itemsize
    assert (cost.down == BYTES + r * 40 * example).all()
    assert (cost.up == 0).all()
    assert cost.left == {"shared_examples": 20 * r * 40, "shared_bytes": 20 * r * 40 * example}
    private = plain.Dapper(cover=cover, r=r, source="generated").fit(central, data).cost
    assert private.left == {}
    assert (private.down == BYTES).all()


def test_mapper_sends_as_much_as_one_model(data, central):
    mapper = plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=6, cohort=5)
    cost = mapper.fit(central, data).cost
    last = plain.Mapper(cover=(0.0, 0.5, 1.0), rounds=0).fit(central, data).cost
    assert cost.total()["up"] == central.cost.total()["up"]
    np.testing.assert_array_equal(cost.down - last.down, cost.up)
    # In a round: two λ to train for (one example does for 0), three to try, and the central model's
    # own step; what was trained for the chosen λ is there already.
    visits = cost.up // BYTES
    rounds = visits * (2 * 30 + 1 + 3 * 10 + 30)
    np.testing.assert_array_equal(cost.examples - last.examples, rounds)


def test_finetune_and_local(data, central):
    finetune = plain.Finetune(epochs=3).fit(central, data).cost
    assert finetune.total() == {
        "down": 20 * BYTES, "up": 0, "examples": 20 * 90, "steps": 20 * 6
    }  # fmt: skip
    assert (plain.Local(epochs=3).fit(MODEL, data).cost.down == 0).all()


def test_costs_add_up():
    a = Cost.nothing(("x",))
    b = Cost(("x",), *np.full((4, 1), 3), left={"shared_examples": 2})
    assert (b + b + a).total() == {
        "down": 6,
        "up": 6,
        "examples": 6,
        "steps": 6,
        "shared_examples": 4,
    }
    assert set(b.table()) == {"client", "down", "up", "examples", "steps"}
    with pytest.raises(ValueError, match="different clients"):
        _ = a + Cost.nothing(("y",))
