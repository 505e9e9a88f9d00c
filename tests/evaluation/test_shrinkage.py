"""Estimates are between a client's mean and everybody's, and nearer to the truth than both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.evaluation.shrinkage import client_means, posterior


def drawn(seed, between=0.5, noise=2.0, clients=200, slope=0.0):
    draw = np.random.default_rng(seed)
    size = draw.integers(3, 60, clients)
    truth = 1.0 + slope * (np.log(size) - np.log(size).mean())
    truth = truth + between * draw.normal(size=clients)
    owner = np.repeat(np.arange(clients), size)
    values = truth[owner] + noise * draw.normal(size=len(owner))
    return truth, values, owner, size


@given(st.integers(0, 1000))
def test_nearer_to_the_truth_than_either_mean(seed):
    truth, values, owner, size = drawn(seed)
    mean, variance = client_means(values, owner, len(size))
    found = posterior(mean, variance, size)
    error = [((guess - truth) ** 2).mean() for guess in (found.mean, mean, values.mean())]
    assert error[0] < error[1] and error[0] < error[2] * 1.02
    assert found.between == pytest.approx(0.25, rel=0.8)


def test_posteriors_cover_the_truth():
    inside = []
    for seed in range(40):
        truth, values, owner, size = drawn(seed)
        found = posterior(*client_means(values, owner, len(size)), size)
        inside.append(np.abs(found.mean - truth) < 1.96 * found.deviation)
    assert 0.93 < np.mean(inside) < 0.97


@pytest.mark.parametrize("trust", [0.0, 0.3])
def test_what_is_not_believed_of_clients_is_still_uncertain(trust):
    inside = []
    for seed in range(40):
        truth, values, owner, size = drawn(seed)
        found = posterior(*client_means(values, owner, len(size)), size, trust)
        inside.append(np.abs(found.mean - truth) < 1.96 * found.deviation)
    assert 0.92 < np.mean(inside) < 0.97


def test_without_a_difference_between_clients_all_have_the_same():
    _, values, owner, size = drawn(0, between=0.0, noise=3.0)
    found = posterior(*client_means(values, owner, len(size)), np.full(len(size), 10))
    assert np.ptp(found.mean) < 0.5 * np.ptp(client_means(values, owner, len(size))[0])


def test_without_noise_every_client_has_its_own():
    truth, values, owner, size = drawn(0, noise=1e-3)
    found = posterior(*client_means(values, owner, len(size)), size)
    assert found.mean == pytest.approx(truth, abs=1e-2)


def test_sample_sizes_tell_what_few_examples_cannot():
    truth, values, owner, size = drawn(1, between=0.05, noise=3.0, slope=1.0)
    found = posterior(*client_means(values, owner, len(size)), size)
    assert np.corrcoef(found.mean, truth)[0, 1] > 0.95


def test_clients_without_held_out_examples_have_the_prior():
    _, values, owner, size = drawn(2)
    keep = owner != 7
    mean, variance = client_means(values[keep], owner[keep], len(size))
    found = posterior(mean, variance, size)
    assert np.isnan(mean[7]) and found.mean[7] == found.prior[7]
    assert np.isfinite(found.mean).all()
    assert found.deviation[7] == pytest.approx(np.sqrt(found.between), rel=0.1)
    assert found.deviation[7] > np.sqrt(found.between)  # the line itself is not known exactly


@given(st.integers(0, 1000), st.sampled_from([1e-9, 1e-4, 1e6]))
def test_units_do_not_matter(seed, unit):
    _, values, owner, size = drawn(seed, between=0.1, slope=0.2, clients=40)
    found, scaled = (
        posterior(*client_means(u * values, owner, len(size)), size) for u in (1.0, unit)
    )
    np.testing.assert_allclose(scaled.mean, unit * found.mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.deviation, unit * found.deviation, rtol=1e-6)


def test_means_without_variance():
    zeros, ones = np.zeros(5), np.ones(5)
    assert (posterior(zeros, zeros, ones).mean == 0).all()
    np.testing.assert_allclose(posterior(np.arange(5.0), zeros, ones).mean, np.arange(5), atol=1e-6)
