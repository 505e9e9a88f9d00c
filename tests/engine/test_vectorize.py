"""Work side by side gives what it gives one after the other, and fails as it would."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sartor
from sartor.engine.vectorize import Compiled, side_by_side
from sartor.errors import ConfigError, InterruptedRun

MODEL = sartor.models.categorical(8)


def population(seed, samples=12):
    data = sartor.data.synthetic(clients=10, symbols=8, samples=samples, seed=seed)
    return data.split(validation=0.25, test=0.25, seed=seed)


def close(a, b):
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, atol=1e-5, rtol=0), a, b)


CENTRALS = [
    sartor.FedAvg(rounds=4, cohort=5, learning_rate=0.5),
    sartor.HypCluster(q=2, rounds=4, cohort=10, start="kmeans++", restarts=2, learning_rate=0.5),
    sartor.Agnostic(rounds=4, cohort=5, learning_rate=0.5, domains="cluster"),
]
PERSONALS = [
    sartor.Local(epochs=3, batch=4, learning_rate=0.5),
    sartor.Finetune(epochs=3, batch=4, learning_rate=0.5, guard=True),
    sartor.Dapper(epochs=1, batch=4, learning_rate=0.5, cover=(0.0, 0.5, 1.0), r=2),
    sartor.Mapper(epochs=2, batch=4, learning_rate=0.5, cover=(0.0, 0.5, 1.0), rounds=2, cohort=5),
]


def everything(seed):
    """A few fits and scores, whose numbers depend on all that was done."""
    data, results = population(seed), []
    centrals = [algorithm.fit(MODEL, data, seed=seed) for algorithm in CENTRALS]
    for central in centrals:
        results += [central.hypotheses, central.evaluate(data).loss]
    for n, algorithm in enumerate(PERSONALS):
        personal = algorithm.fit(centrals[n % 2], data, seed=seed)
        results += [personal.params(data.ids[0]), personal.evaluate(data).loss]
    return results


@pytest.mark.filterwarnings("ignore")  # of clusters without clients
def test_side_by_side_is_one_after_the_other():
    alone = [everything(seed) for seed in range(3)]
    close(side_by_side(everything, range(3), width=2), alone)


def test_it_repeats_bit_for_bit():
    def fit(seed):
        return CENTRALS[0].fit(MODEL, population(seed), seed=seed).hypotheses

    first, again = (side_by_side(fit, range(5), width=2) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, again)


def test_step_sizes_and_seeds_share_one_program_and_one_call():
    calls = []

    def count(x, rate):
        calls.append(1)  # while it is traced
        return x * rate

    program = Compiled(count)
    results = side_by_side(lambda n: float(program(jnp.float32(n), np.float32(0.5))), range(4))
    assert results == [0.0, 0.5, 1.0, 1.5]
    assert len(calls) == 1


def test_workers_may_ask_for_different_things():
    double, triple = Compiled(lambda x: 2 * x), Compiled(lambda x: 3 * x)

    def work(n):
        total = double(np.float32(n))
        for _ in range(n):  # some ask more often, and with other shapes
            total = total + triple(np.ones(n, np.float32)).sum()
        return float(total)

    assert side_by_side(work, range(5)) == [2.0 * n + 3.0 * n * n for n in range(5)]


def test_an_error_in_one_ends_all_and_leaves_nothing_behind():
    before, started = threading.active_count(), []

    def work(n):
        started.append(n)
        if n == 2:
            raise ConfigError("two")
        for _ in range(1000):
            Compiled(lambda x: x + 1)(np.float32(n))

    with pytest.raises(ConfigError, match="two"):
        side_by_side(work, range(4))
    assert sorted(started) == [0, 1, 2, 3]
    assert threading.active_count() == before


def test_errors_of_the_device_reach_the_caller():
    broken = Compiled(lambda x: jnp.zeros(3) + x)
    with pytest.raises(TypeError):
        side_by_side(lambda n: broken(np.ones(n + 4)), range(2))


def test_nothing_to_do():
    assert side_by_side(lambda n: n, []) == []


def test_it_stops_when_it_is_told_to():
    program, until = Compiled(lambda x: x + 1), threading.Event()
    calls = []

    def work(n):
        for step in range(1000):
            calls.append(int(program(np.int32(step + n))))
            if step == 3 and n == 1:
                until.set()

    with pytest.raises(InterruptedRun):
        side_by_side(work, range(3), until=until)
    assert len(calls) < 30


def test_a_width_of_nothing():
    with pytest.raises(ConfigError, match="width must be"):
        side_by_side(abs, [1], width=0)
