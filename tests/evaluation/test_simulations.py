"""The promises of docs/reliability.md about intervals, tests and who gained, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from simulations import (
    GAINED,
    HURT,
    NULL,
    bad_accuracy,
    bad_loss,
    binary_calls,
    coins,
    coverage,
    exponential,
    false_alarms,
    finetuned,
    heavy,
    normal,
    sized,
    uniform,
)

COVERAGE = [  # scores, from how many clients on, and how often a 95% interval must hold
    (normal, 5, 0.93),
    (exponential, 8, 0.90),
    (bad_accuracy, 40, 0.92),
    (bad_loss, 40, 0.92),
    (sized, 40, 0.92),
]

ALARMS = [  # differences, from how many clients on, and how often a test at 5% may err
    (normal, 6, 0.06),
    (uniform, 6, 0.06),
    (heavy, 6, 0.06),
    (coins, 6, 0.06),
    (exponential, 20, 0.08),
]

MIXTURES = [
    {NULL: 500},
    {NULL: 480, GAINED: 20},
    {NULL: 300, GAINED: 200},
    {NULL: 300, GAINED: 100, HURT: 100},
]


@pytest.mark.parametrize("draw, clients, least", COVERAGE)
def test_intervals_hold(draw, clients, least):
    assert coverage(draw, clients, trials=1000) >= least


@pytest.mark.parametrize("draw, clients, most", ALARMS)
def test_tests_of_a_mean_err_seldom(draw, clients, most):
    assert false_alarms(draw, clients, trials=500) <= most


def test_tests_of_a_mean_find_what_is_there():
    rng = np.random.default_rng(0)
    assert false_alarms(lambda rng, n: (rng.normal(size=n), 1.0), 20, trials=200) > 0.95
    assert false_alarms(lambda _, n: (rng.exponential(size=n), 2.0), 40, trials=200) > 0.95


@pytest.mark.parametrize("examples", [10, 20, 40])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_who_is_said_to_have_gained_or_lost_by_loss_has(mixture, examples):
    rate, _ = binary_calls(mixture, examples, trials=10)
    assert rate <= 0.06


def test_gains_by_loss_are_found_where_there_are_enough_examples():
    assert binary_calls(MIXTURES[2], 200, trials=3)[1] > 0.95


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_real_models_are_said_to_gain_or_to_hurt_where_they_do(kind):
    called, truth = finetuned(kind, examples=400, seed=0, clients=50, fresh=3000)
    assert np.sum(called != 0) >= 10  # of 50 clients
    assert np.sum((called != 0) & (called * truth <= 0)) <= 0.06 * np.sum(called != 0)


@pytest.mark.soak
@pytest.mark.parametrize("draw, clients, least", COVERAGE)
def test_intervals_hold_for_all_numbers_of_clients(draw, clients, least):
    for number in (clients, clients + 1, clients + 3, 2 * clients, 5 * clients, 40 * clients):
        assert coverage(draw, number, trials=4000, seed=number) >= least, number


@pytest.mark.soak
@pytest.mark.parametrize("draw, clients, most", ALARMS)
def test_tests_of_a_mean_err_seldom_for_all_numbers_of_clients(draw, clients, most):
    for number in range(clients, clients + 12, 2):
        assert false_alarms(draw, number, trials=3000, seed=number) <= most, number


@pytest.mark.soak
@pytest.mark.parametrize("mixture", MIXTURES)
def test_who_is_said_to_have_gained_or_lost_has_for_all_sizes(mixture):
    for examples in (3, 10, 20, 40, 100, 400):
        assert binary_calls(mixture, examples, trials=100, seed=examples)[0] <= 0.06, examples


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_real_models_of_all_kinds(kind, spread):
    calls, false = 0, 0
    for examples in (10, 20, 40, 100, 400):
        for epochs in (5, 20, 50):
            called, truth = finetuned(kind, examples, seed=examples, epochs=epochs, spread=spread)
            calls += np.sum(called != 0)
            false += np.sum((called != 0) & (called * truth <= 0))
    assert false <= 0.06 * calls
    assert spread < 1 or calls > 0


def test_of_real_models_nothing_false_is_said_by_few_test_examples():
    found = [finetuned("classification", examples=40, seed=seed, fresh=2000) for seed in (0, 1)]
    called, truth = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert np.sum((called != 0) & (called * truth <= 0)) <= 0.06 * np.sum(called != 0)
