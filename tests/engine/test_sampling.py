"""Cohorts with seats for rare strata: who is in them, how often, and what that leaves unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.engine.sampling import Sampler, sample_cohorts

CASES = {
    "one rare stratum": (np.arange(300) < 3, 10),
    "of a single client": (np.arange(300) < 1, 10),
    "several": (np.minimum(np.arange(300) // 4, 3), 12),
    "more than there are seats for": (np.minimum(np.arange(300) // 3, 20), 10),
    "nothing but rare ones": (np.sqrt(np.arange(300)).astype(int), 10),
    "rare ones that are most of all": (np.maximum(np.sqrt(np.arange(300)), 9).astype(int), 10),
    "half of all take part": (np.maximum(np.arange(40) - 20, 0) // 3, 20),
    "a single client takes part": (np.arange(30) < 3, 1),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_a_client_stands_for_those_that_are_drawn_less_often(case):
    strata, size = case
    population, rounds = len(strata), 4_000
    sampler = Sampler(3, population, size, strata)
    often = np.bincount(sampler.draw(range(rounds)).reshape(-1), minlength=population) / rounds
    rate = size / population / sampler.stands_for  # what it should be
    assert (np.abs(often - rate) <= 5 * np.sqrt(rate * (1 - rate) / rounds) + 1e-12).all()
    # So weighted sums have the mean of uniform cohorts, whatever is summed.
    np.testing.assert_allclose((rate * sampler.stands_for).sum(), size)
    np.testing.assert_allclose(rate.sum(), size)


def test_a_cohort_is_of_different_clients(case):
    strata, size = case
    cohorts = Sampler(0, len(strata), size, strata).draw(range(500))
    assert cohorts.shape == (500, size)
    assert cohorts.min() >= 0 and cohorts.max() < len(strata)
    assert (np.diff(np.sort(cohorts, axis=1), axis=1) > 0).all()


def test_every_stratum_is_there_as_often_as_promised(case):
    strata, size = case
    sampler = Sampler(0, len(strata), size, strata)
    rate = size / len(strata) / sampler.stands_for
    there = np.bincount(np.unique(strata, return_inverse=True)[1], rate)
    assert there.min() >= min(1, size / (4 * len(there))) - 1e-9


def test_a_round_depends_on_its_number_alone(case):
    strata, size = case
    sampler = Sampler(1, len(strata), size, strata)
    everything = sampler.draw(range(30))
    np.testing.assert_array_equal(sampler.draw(range(7, 19)), everything[7:19])
    renamed = Sampler(1, len(strata), size, -5 * strata.astype(int))
    np.testing.assert_array_equal(renamed.draw(range(30)), everything)
    assert (Sampler(2, len(strata), size, strata).draw(range(30)) != everything).any()


@pytest.mark.parametrize(
    ("strata", "size"),
    [
        (None, 20),
        (np.arange(548) < 102, 20),  # EMNIST's high-school writers
        (np.arange(548), 20),  # every client a stratum
        (np.arange(548) // 4, 20),  # strata of one size
        (np.arange(548) < 2, 548),  # everybody takes part
    ],
)
def test_cohorts_are_uniform_where_that_serves_all_strata(strata, size):
    sampler = Sampler(4, 548, size, strata)
    assert sampler.stands_for is None
    uniform = sample_cohorts(4, range(10), 548, size)
    np.testing.assert_array_equal(sampler.draw(range(10)), uniform)
