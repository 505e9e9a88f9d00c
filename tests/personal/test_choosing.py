"""Choices by everybody's held-out examples: gains are kept, and nobody is hurt by chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.personal.choosing import HeldOut, make_trials, pooled


def held_out(losses, noise, examples, seed=0):
    """What clients would hold out, whose candidates have these true losses: [clients, options]."""
    draw = np.random.default_rng(seed)
    clients, options = losses.shape
    found, counts = np.full((3, clients, options), np.nan), np.zeros((3, clients))
    for k, n in enumerate(examples):
        each = losses[k] + noise * draw.standard_normal((n, options))
        for half, some in enumerate((each, each[1::2], each[::2])):
            counts[half, k] = len(some)
            if len(some):
                found[half, k] = some.mean(axis=0)
    return HeldOut(found, counts)


def choose(losses, central, noise=1.0, examples=20, seed=0, guard=True):
    clients = len(losses)
    examples = np.broadcast_to(examples, clients)
    size = 4 * np.asarray(examples)
    reference = held_out(np.asarray(central)[:, None], 0.0, examples, seed)
    return pooled(held_out(losses, noise, examples, seed), size, reference, guard)


def test_where_nothing_is_gained_few_leave_the_central_model():
    kept = [choose(np.ones((200, 1)), np.ones(200), seed=seed)[1].mean() for seed in range(50)]
    assert np.mean(kept) > 0.97


def test_few_clients_that_gain_differently_take_it():
    """They scatter widely, and their examples leave no doubt."""
    true = np.array([0.0, 0.9, 0.9, 0.9, 0.9])[:, None]
    kept = [choose(true, np.ones(5), 0.1, 40, seed)[1].mean() for seed in range(20)]
    assert np.mean(kept) < 0.05


def test_folds_of_one_example_give_both_halves_some():
    """Of one example there is only one half, so folds take turns."""
    data = sartor.data.from_arrays(np.zeros((5, 1)), np.zeros(5), ["a"] * 5)
    trials = make_trials(data, "kfold", 5, 0)
    losses = np.stack([np.arange(5.0), np.full(5, np.nan)], axis=1)[:, None]
    losses[:, :, 1] = losses[:, :, 0]
    found = HeldOut.of(trials, losses)
    assert found.examples[:, 0].tolist() == [5, 2, 3]
    assert found.loss[:, 0, 0].tolist() == [2.0, 2.0, 2.0]


def test_where_everybody_gains_all_take_it_however_few_examples_they_have():
    examples = np.tile([1, 2, 40], 50)
    best, kept = choose(np.tile([0.9, 0.2], (150, 1)), np.ones(150), 0.5, examples)
    assert (best == 1).all() and not kept.any()


def test_clients_that_differ_are_told_apart():
    true = np.where(np.arange(100) % 2, 0.3, 1.7)[:, None]
    _, kept = choose(true, np.ones(100), noise=1.0, examples=40)
    assert (kept == (true[:, 0] > 1)).mean() > 0.97


def test_a_wild_model_of_few_examples_is_not_believed():
    """Most small clients lose, a few by very much; single lucky examples do not hide that."""
    draw = np.random.default_rng(0)
    true = 1 + draw.exponential(1.0, (300, 1))
    _, kept = choose(true, np.ones(300), noise=1.5, examples=1)
    assert kept.all()


def test_candidates_that_diverged_are_never_taken():
    found = held_out(np.full((20, 2), 0.5), 0.1, np.full(20, 10))
    found.loss[:, :10, 1] = np.inf
    central = held_out(np.ones((20, 1)), 0.0, np.full(20, 10))
    best, kept = pooled(found, np.full(20, 40), central, True)
    assert (best[:10] == 0).all() and not kept.any()


def test_who_has_fewer_examples_than_all_that_were_tried_keeps_the_central_model():
    examples = np.repeat([0, 10], 10)
    found = held_out(np.full((20, 1), 0.2), 0.1, examples)
    central = held_out(np.ones((20, 1)), 0.0, examples)
    size = np.r_[np.repeat([1, 60], 5), np.full(10, 40)]
    _, kept = pooled(found, size, central, True)
    assert kept[:5].all() and not kept[5:].any()


@given(st.integers(0, 2**32))
def test_without_a_guard_nobody_keeps_the_central_model(seed):
    draw = np.random.default_rng(seed)
    _, kept = choose(draw.exponential(1.0, (30, 3)), np.ones(30), seed=seed, guard=False)
    assert not kept.any()


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_a_guard_is_the_default_and_saves_clients_from_local_models(validation):
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(40), 12)
    x = draw.standard_normal((len(owner), 6))
    y = (x[:, 0] + draw.logistic(size=len(owner)) > 0).astype(int)  # all clients are alike
    data = sartor.data.from_arrays(x, y, owner).split(validation=validation, test=0.4, seed=0)
    central = sartor.FedAvg(rounds=50).fit(sartor.models.logistic(6, 2), data)
    guarded = sartor.Local().fit(central, data)
    kept = np.array([decided["kept"] for decided in guarded.clients.values()])
    assert kept.mean() > 0.9
    scores = guarded.evaluate(data)
    alone = sartor.Local(guard=False).fit(central, data).evaluate(data)
    assert scores.loss.mean() < scores.baseline.loss.mean() + 0.01 < alone.loss.mean()
    same = scores.loss == scores.baseline.loss
    assert same[kept].all()  # who keeps the central model is unchanged, to the bit


@pytest.mark.filterwarnings("ignore:Mapper")
def test_joint_rounds_do_not_spoil_a_tuned_central_model():
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(30), np.geomspace(5, 600, 30).astype(int))
    x = draw.standard_normal((len(owner), 20))
    x[draw.integers(len(x), size=10), 1] = 40.0
    y = x @ (0.4 * draw.standard_normal(20)) + draw.logistic(size=len(x)) > 0
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    data = sartor.data.from_arrays(x, y.astype(int), owner).split(test=0.3, seed=0)
    tuned = sartor.FedAvg(rounds=300, cohort=30, learning_rate=0.02, server_momentum=0.0)
    central = tuned.fit(sartor.models.logistic(20, 2), data)
    scores = sartor.Mapper().fit(central, data).evaluate(data)
    assert scores.loss.mean() < central.evaluate(data).loss.mean() + 0.001


def without_sleep(unit, of_time=1.0):
    """Reaction times of 18 people, in milliseconds, on ten days; in other units, too."""
    draw = np.random.default_rng(0)
    owner, day = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    level, slope = 251 + 24 * draw.standard_normal(18), 10.5 + 6 * draw.standard_normal(18)
    y = level[owner] + slope[owner] * day + 25 * draw.standard_normal(180)
    y = (of_time * y).astype(np.float32)
    data = sartor.data.from_arrays(unit * day[:, None], y, owner)
    return data.split(test=0.3, seed=0), y.var()


@pytest.mark.filterwarnings("ignore:Dapper")
@pytest.mark.parametrize("kind", [sartor.Finetune, sartor.Dapper])
def test_the_units_of_a_table_wreck_no_default(kind):
    data, variance = without_sleep(24.0)
    central = sartor.FedAvg().fit(sartor.models.linear(1), data)
    scores = kind().fit(central, data).evaluate(data)
    assert scores.loss.mean() < scores.baseline.loss.mean() < variance


PERSONAL = (sartor.Finetune, sartor.Local, sartor.Dapper, sartor.Mapper)


@pytest.mark.parametrize("kind", PERSONAL)
@pytest.mark.parametrize("unit", [2.0**-27, 2.0**27])  # so that rounding is the same
def test_the_unit_of_targets_does_not_matter(kind, unit):
    kept, losses = [], []
    for each in (1.0, unit):
        data, _ = without_sleep(1.0, each)
        central = sartor.FedAvg(rounds=50).fit(sartor.models.linear(1), data)
        personal = kind().fit(central, data)
        kept.append([one["kept"] for one in personal.clients.values()])
        losses.append(personal.evaluate(data).loss / each**2)
    assert kept[0] == kept[1] and not all(kept[0])
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PERSONAL)
@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("rows", [1, 100])
def test_a_client_far_from_all_others_does_not_diverge(kind, guard, rows):
    """Its values are at 60 standard deviations of all, and its targets are noise."""
    draw = np.random.default_rng(0)
    owner = np.append(np.repeat(np.arange(20), 200), np.full(rows, 20))
    x = draw.standard_normal((len(owner), 2))
    x[-rows:] = 1e4, 0.0
    slopes = draw.standard_normal((21, 2))
    y = (x * slopes[owner]).sum(axis=1)
    y[-rows:] = 3.0 if rows == 1 else 3 * draw.standard_normal(rows)
    data = sartor.data.from_arrays(x, y.astype(np.float32), owner).split(validation=0.2, test=0.3)
    central = sartor.FedAvg(rounds=50).fit(sartor.models.linear(2), data)
    scores = kind(guard=guard).fit(central, data, keep=False).evaluate(data)
    assert scores.loss.mean() < 0.8 * scores.baseline.loss.mean()
    if rows > 1:
        assert scores.loss[-1] < max(1.1 * scores.baseline.loss[-1], 3 * y[-rows:].var())


def test_models_that_are_worse_than_a_guess_say_so():
    data, _ = without_sleep(1.0)
    central = sartor.FedAvg().fit(sartor.models.linear(1), data)
    wild = sartor.Finetune(learning_rate=1.05, guard=False).fit(central, data)
    with pytest.warns(UserWarning, match="more than the central model .* and than a guess"):
        wild.evaluate(data)


def test_so_do_models_that_begin_with_one_that_is_no_better():
    """These clients' first feature is far from where the central model has seen it."""

    def clients(number, off):
        draw = np.random.default_rng(number)
        owner = number + np.arange(1000) % 40
        x = draw.standard_normal((1000, 2))
        y = (x.sum(axis=1) + draw.standard_normal(1000)).astype(np.float32)
        return sartor.data.from_arrays(x + np.array([off, 0.0]), y, owner).split(test=0.3)

    central = sartor.FedAvg(rounds=50).fit(sartor.models.linear(2), clients(0, 0.0))
    later = clients(100, 1000.0)
    tuned = sartor.Finetune(learning_rate=1e-9).fit(central, later)
    with pytest.warns(UserWarning, match=r"than a guess .* the central model .* no better"):
        tuned.evaluate(later)


def test_scores_say_who_keeps_the_central_model():
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((400, 3)), draw.integers(0, 2, 400)
    data = sartor.data.from_arrays(x, y, np.arange(400) % 10).split(test=0.3, seed=0)
    central = sartor.FedAvg(rounds=5).fit(sartor.models.logistic(3, 2), data)
    guarded = sartor.Finetune(epochs=30, learning_rate=0.5).fit(central, data)
    scores = guarded.evaluate(data)
    kept = [guarded.clients[client]["kept"] for client in scores.client]
    assert any(kept) and scores.extra["kept"].tolist() == kept
    assert (scores.loss == scores.baseline.loss)[kept].all()
