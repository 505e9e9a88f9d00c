"""Automatic step sizes: near the minimum whatever the units, the sizes and the outliers are."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from scipy import optimize

import sartor
from sartor.central.fitting import HALVINGS
from sartor.errors import DivergedError


def uneven(seed=0, clients=60, outlier=40.0):
    """Clients of 1 to 1,000 examples, in units of their own, with one far outlier."""
    draw = np.random.default_rng(seed)
    sizes = np.unique(np.geomspace(1, 1000, clients).astype(int), return_counts=True)
    sizes = np.repeat(*sizes)
    owner = np.repeat(np.arange(clients), sizes)
    shift = draw.normal(size=(clients, 3))[owner]
    z = draw.normal(size=(len(owner), 3)) + 0.5 * shift
    z[draw.integers(len(z)), 1] = outlier * z[:, 1].std()
    return z * [1e-3, 1.0, 1e3] + [0.0, 50.0, 1e4], z, owner, draw


def log_loss(w, z, y):
    score = z @ w[:-1] + w[-1]
    return np.logaddexp(0, np.where(y, -score, score)).mean()


@pytest.mark.parametrize("seed", range(2))
def test_logistic_regression_ends_where_a_solver_does(seed):
    x, z, owner, draw = uneven(seed)
    y = z @ [1.0, -0.5, 0.25] + draw.logistic(size=len(z)) > 0.3
    data = sartor.data.from_arrays(x, y.astype(int), owner)
    central = sartor.FedAvg().fit(sartor.models.logistic(3, 2), data)
    proba = central.predict_proba(data.columns["x"])
    found = -np.log(proba[np.arange(len(y)), y.astype(int)]).mean()
    best = optimize.minimize(log_loss, np.zeros(4), args=(z, y)).fun
    assert best - 1e-4 < found < best + 0.001


@pytest.mark.parametrize("seed", range(2))
def test_linear_regression_ends_where_a_solver_does(seed):
    x, z, owner, draw = uneven(seed)
    y = 300 + 40 * (z @ [1.0, -0.5, 0.25] + draw.normal(size=len(z)))
    data = sartor.data.from_arrays(x, y.astype(np.float32), owner)
    central = sartor.FedAvg().fit(sartor.models.linear(3), data)
    found = np.mean((central.predict(data.columns["x"]) - y) ** 2)
    ones = np.c_[z, np.ones(len(z))]
    best = np.mean((ones @ np.linalg.lstsq(ones, y, rcond=None)[0] - y) ** 2)
    assert found < 1.02 * best


def test_clients_count_by_their_weights_and_not_by_their_steps():
    """With tiny steps, one round moves the model along the gradient of everybody's loss."""
    _, z, owner, _ = uneven()
    y = (z[:, 0] > 0).astype(int)
    data = sartor.data.from_arrays(z, y, owner)
    model = sartor.models.logistic(3, 2, scale=False)
    tiny = sartor.FedAvg(rounds=1, cohort=60, learning_rate=sartor.Automatic(1e-4))
    start = sartor.FedAvg(rounds=1, learning_rate=sartor.Automatic(1e-30)).fit(model, data).params
    moved = jax.tree.map(np.subtract, tiny.fit(model, data).params, start)
    gradient = jax.grad(lambda p: model.loss(p, data.columns["x"], y).mean())(start)
    jax.tree.map(
        lambda m, g: np.testing.assert_allclose(m / (-1e-4 / 0.25), g, rtol=0.05, atol=2e-3),
        moved, gradient,
    )  # fmt: skip


def wild():
    """Features that are not scaled, so that the first steps are far too long."""
    draw = np.random.default_rng(0)
    x = 30 * draw.normal(size=(200, 2)).astype(np.float32)
    y = (x[:, 0] / 30 + 0.1 * draw.normal(size=200)).astype(np.float32)
    return sartor.data.from_arrays(x, y, np.arange(200) % 10), sartor.models.linear(2, scale=False)


def test_steps_that_diverge_are_halved_and_resumed(tmp_path):
    data, model = wild()
    algorithm = sartor.FedAvg(rounds=40)
    with pytest.warns(UserWarning, match=r"diverged.*restarted with (half the|1/\d+ of its) step"):
        whole = algorithm.fit(model, data)
    halvings = int(whole.history[HALVINGS][-1])
    assert halvings > 0 and np.isfinite(whole.loss).all()
    assert whole.algorithm["learning_rate"]["first"] == sartor.Automatic().first / 2**halvings
    path = tmp_path / "checkpoint"
    seen = []

    def kill(chunk):
        if seen and chunk.start < seen[-1]:  # it was restarted
            raise KeyboardInterrupt
        seen.append(chunk.stop)

    with pytest.raises(KeyboardInterrupt):
        algorithm.fit(model, data, checkpoint=path, on_chunk=kill)
    for _ in range(2):  # from what was killed, and from what has ended
        with pytest.warns(UserWarning, match="restarted"):
            resumed = algorithm.fit(model, data, checkpoint=path)
        jax.tree.map(np.testing.assert_array_equal, resumed.params, whole.params)


def test_a_step_size_that_was_given_is_not_changed():
    data, model = wild()
    with pytest.raises(DivergedError):
        sartor.FedAvg(rounds=40, learning_rate=0.5).fit(model, data)


def test_clients_that_are_seldom_visited_are_enough():
    """3,000 planes with few flights each, of which 100 rounds visit about half."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(3000), draw.integers(2, 40, 3000))
    z = draw.standard_normal((len(owner), 8))
    y = z @ [0.3, -0.3, 0.3, 0.2, 0.3, 0.0, 0.0, 0.0] - 1.2 + draw.logistic(size=len(z)) > 0
    data = sartor.data.from_arrays(z, y.astype(int), owner)
    central = sartor.FedAvg(rounds=100).fit(sartor.models.logistic(8, 2), data)
    proba = central.predict_proba(data.columns["x"])
    found = -np.log(proba[np.arange(len(y)), y.astype(int)]).mean()
    assert found < optimize.minimize(log_loss, np.zeros(9), args=(z, y)).fun + 0.001


def rare(tails=0.0, offset=-6.5):
    draw = np.random.default_rng(0)
    z = draw.standard_normal((20_000, 6))
    score = 1.2 * z @ np.random.default_rng(1).standard_normal(6) + offset
    y = (draw.random(len(z)) < 1 / (1 + np.exp(-score))).astype(int)
    x = np.exp(tails * z) if tails else z
    return x, y, sartor.data.from_arrays(x, y, np.arange(len(y)) % 40)


def test_rare_classes_are_learned_too():
    x, y, data = rare()
    assert 0.002 < y.mean() < 0.05
    central = sartor.FedAvg().fit(sartor.models.logistic(6, 2), data)
    proba = central.predict_proba(x)
    found = -np.log(proba[np.arange(len(y)), y]).mean()
    assert found < optimize.minimize(log_loss, np.zeros(7), args=(x, y)).fun + 0.001


def test_too_few_steps_are_said_with_what_they_cost():
    """Features with long tails take many more steps."""
    x, y, data = rare(tails=2.5, offset=0.0)
    with pytest.warns(UserWarning, match=r"ends about 0\.\d+ above the lowest loss") as warned:
        central = sartor.FedAvg().fit(sartor.models.logistic(6, 2), data)
    said = float(re.search(r"about (\S+) above", str(warned[0].message))[1])
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    proba = central.predict_proba(x)
    lost = -np.log(proba[np.arange(len(y)), y]).mean()
    short = lost - optimize.minimize(log_loss, np.zeros(7), args=(z, y)).fun
    assert said / 2 < short < 3 * said


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e4])
def test_targets_may_be_far_from_zero(offset):
    draw = np.random.default_rng(0)
    z = draw.standard_normal((3000, 3))
    y = (offset + z @ [3.0, -2.0, 1.0] + draw.standard_normal(3000)).astype(np.float32)
    data = sartor.data.from_arrays(z, y, draw.integers(0, 30, 3000))
    central = sartor.FedAvg().fit(sartor.models.linear(3), data)
    assert np.mean((central.predict(z) - y) ** 2) < 1.02 * np.var(y - z @ [3.0, -2.0, 1.0])


@pytest.mark.parametrize("unit", [2.0**-27, 2.0**27])  # so that rounding is the same
def test_the_unit_of_targets_changes_nothing_but_the_unit(unit):
    x, z, owner, draw = uneven()
    y = (z @ [1.0, -0.5, 0.25] + draw.normal(size=len(z))).astype(np.float32)
    weights = []
    for each in (1.0, unit):
        data = sartor.data.from_arrays(x, np.float32(each) * y, owner)
        central = sartor.FedAvg(rounds=20).fit(sartor.models.linear(3), data)
        weights.append(jax.tree.leaves(central.hypotheses))
    for one, scaled in zip(*weights, strict=True):
        np.testing.assert_array_equal(np.float32(unit) * one, scaled)
