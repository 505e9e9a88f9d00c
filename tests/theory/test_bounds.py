"""Bounds are monotone, meet in their limits, hold as often as they promise, and refuse nonsense."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.errors import ConfigError
from sartor.experiments.coverage import as_text, coverage
from sartor.theory import Bound, bounds
from sartor.theory.choices import best_lambda, best_q

BOTH = ("paper", "derived")
USUAL = {"delta": 0.05, "d": 5}
ALL = {
    "local": lambda **k: bounds.local(**{"m": 1000, **USUAL, **k}),
    "global_": lambda **k: bounds.global_(**{"m": 1000, "disc": 0.1, **USUAL, **k}),
    "agnostic": lambda **k: bounds.agnostic(
        **{"m": 1000, "disc": 0.1, "cover": 4, "skewness": 2.0, "epsilon": 0.01, **USUAL, **k}
    ),
    "cluster": lambda **k: bounds.cluster(**{"m": 1000, "p": 10, "q": 2, **USUAL, **k}),
    "combined": lambda **k: bounds.cluster(
        **{"m": 1000, "p": 10, "q": 2, "disc": 0.1, **USUAL, **k}
    ),
    "interpolation": lambda m=1000, d=5, **k: bounds.interpolation(
        **{"m": m, "p": 10, "d_c": d, "d_l": d, "delta": 0.05, **k}
    ),
    "blitzer": lambda m=1000, **k: bounds.blitzer(
        **{"m_k": m, "m_C": 10 * m, "lambda_": 0.5, "disc": 0.1, **USUAL, **k}
    ),
}
each = pytest.mark.parametrize("name", ALL)
either = pytest.mark.parametrize("constants", BOTH)


@either
@each
@given(
    d=st.floats(0.5, 50),
    m=st.floats(6000, 1e7),
    times=st.floats(1.01, 10),
    part=st.floats(0.01, 0.99),
)
def test_bounds_fall_with_samples_and_rise_with_dimensions_and_certainty(
    name, constants, d, m, times, part
):
    """With ten samples for each dimension; the paper's d·log(m/d) turns round at m/e."""
    found = ALL[name](d=d, m=m, constants=constants)
    assert ALL[name](d=times * d, m=m, constants=constants) > found
    assert ALL[name](d=d, m=times * m, constants=constants) < found
    assert ALL[name](d=d, m=m, delta=0.05 * part, constants=constants) > found


@either
@given(q=st.integers(1, 9), m=st.floats(100, 1e6))
def test_bounds_of_clusters_rise_with_their_number(constants, q, m):
    found = [
        bounds.cluster(m=m, p=10, q=n, d=2, delta=0.05, constants=constants) for n in (q, q + 1)
    ]
    assert found[0] < found[1]


@given(m=st.integers(50, 10_000), d=st.integers(1, 40), p=st.integers(2, 50))
def test_one_cluster_is_the_global_model_and_one_for_each_the_local_one(m, d, p):
    """In shape: with constants between 1 and 2·√2, and the price of choosing among clusterings."""
    one = bounds.cluster(m=p * m, p=p, q=1, d=d, delta=0.05, disc=0.3)
    all_ = bounds.global_(m=p * m, d=d, delta=0.05, disc=0.3)
    assert one.terms["complexity"] == pytest.approx(2 * all_.terms["complexity"])
    assert one.terms["confidence"] == pytest.approx(all_.terms["confidence"])
    assert one.terms["discrepancy"] == pytest.approx(all_.terms["discrepancy"] / 2)
    own = bounds.cluster(m=p * m, p=p, q=p, d=d, delta=0.05, disc=0.0)
    alone = bounds.local(m=m, d=d, delta=0.05)
    # √(d/m) of a client's own m samples; the logarithm is of all of them.
    assert (
        2 <= own.terms["complexity"] / alone.terms["complexity"] <= 2 * math.sqrt(1 + math.log(p))
    )
    assert own.terms["discrepancy"] == 0


def test_derived_constants_by_hand():
    m, d, delta = 1000, 10, 0.05
    complexity = math.sqrt(2 * d * math.log(math.e * m / d) / m)
    confidence = math.sqrt(2 * math.log(2 / delta) / m)
    assert bounds.local(m=m, d=d, delta=delta) == pytest.approx(complexity + confidence)
    assert bounds.local(m=m, d=d, delta=delta, bound=3) == pytest.approx(
        3 * (complexity + confidence)
    )
    found = bounds.global_(m=m, d=d, delta=delta, disc=0.2)
    assert found == pytest.approx(complexity + confidence + 0.4)
    assert bounds.local(m=m, rademacher=0.1, delta=delta) == pytest.approx(0.2 + confidence)


def test_more_derived_constants_by_hand():
    m, d, delta, log, sqrt = 1000, 10, 0.05, math.log, math.sqrt
    assert bounds.agnostic(
        m=m, d=d, delta=delta, disc=0.1, skewness=2, cover=7, epsilon=0.01
    ) == pytest.approx(
        sqrt(2) * (sqrt(2 * d * log(math.e * m / d) / m) + sqrt(2 * log(14 / delta) / m)) + 0.11
    )
    worth = sqrt(0.3**2 / 50 + 0.7**2 / 950)
    assert bounds.blitzer(
        lambda_=0.3, m_k=50, m_C=950, d=d, delta=delta, disc=0.2, bound=2
    ) == pytest.approx(
        2 * worth * (sqrt(2 * d * log(math.e * m / d)) + sqrt(2 * log(2 / delta))) + 1.4 * 0.2
    )
    choices = 20 * log(2) + d * log(math.e * m / d) + 20 * 2 * log(math.e * m / 40)
    assert bounds.interpolation(m=m, p=20, d_c=d, d_l=2, delta=delta, lipschitz=3) == pytest.approx(
        3 * sqrt(2 * choices / m) + sqrt(2 * log(2 / delta) / m)
    )
    assert bounds.interpolation(
        m=m, p=20, rademacher=0.1, delta=delta, lipschitz=3
    ) == pytest.approx(6 * (0.1 + sqrt(20 * log(2) / (2 * m))) + sqrt(2 * log(2 / delta) / m))
    assert bounds.cluster(m=m, p=20, q=3, d=d, delta=delta) == pytest.approx(
        sqrt((20 * log(3) + log(2 / delta)) / (2 * m)) + sqrt(6 * d * log(math.e * m / d) / m)
    )


def test_the_papers_interpolation_bound_fails_with_many_clients_of_one_sample():
    """Who chooses λ for one sample each follows the noise; H_c = {0}, H_l = {1}, and labels 0.4."""
    p, draw = 10_000, np.random.default_rng(0)
    y = draw.random((50, p)) < 0.4
    paid = np.where(y, 0.6, 0.4).mean(axis=1)  # λ = 1 where the only label is 1
    excess = paid - 0.4
    paper, derived = (
        bounds.interpolation(m=p, p=p, rademacher=0.0, delta=0.05, constants=c) for c in BOTH
    )
    assert (excess > paper).all() and (excess <= derived).all()


def test_the_papers_constants_by_hand():
    m, d, delta, log = 1000, 10, 0.05, math.log
    paper = {"constants": "paper"}
    assert bounds.local(m=m, d=d, delta=delta, **paper) == pytest.approx(
        math.sqrt((d + log(1 / delta)) / m)
    )
    assert bounds.global_(m=m, d=d, delta=delta, disc=0.2, **paper) == pytest.approx(
        math.sqrt((d + log(1 / delta)) / m) + 0.2
    )
    first = 2 * math.sqrt(20 * log(2 * 3 / delta) / m)
    assert bounds.cluster(m=m, p=20, q=3, d=d, delta=delta, **paper) == pytest.approx(
        first + math.sqrt(d * 3 / m * log(math.e * m / d))
    )
    assert bounds.cluster(m=m, p=20, q=3, rademacher=0.1, delta=delta, **paper) == pytest.approx(
        first + 0.1
    )
    assert bounds.cluster(m=m, p=20, q=3, d=d, delta=delta, disc=0.2, **paper) == pytest.approx(
        first + math.sqrt(d * 3 * math.e / m * log(m / d)) + 0.2
    )
    worth = math.sqrt(0.3**2 / 50 + 0.7**2 / 1000)
    told = {"lambda_": 0.3, "m_k": 50, "m_C": 1000}
    assert bounds.epsilon(**told) == pytest.approx(worth)
    assert bounds.blitzer(**told, d=d, delta=delta, disc=0.2, c=3, **paper) == pytest.approx(
        6 * worth * math.sqrt(d * log(1 / delta)) + 1.4 * 0.2
    )
    assert bounds.interpolation(
        m=m, p=20, d_c=d, d_l=2, delta=delta, lipschitz=3, **paper
    ) == pytest.approx(
        6 * (math.sqrt(d / m * log(math.e * m / d)) + math.sqrt(40 / m * log(math.e * m / 2)))
        + 2 * math.sqrt(log(1 / delta) / m)
    )
    assert bounds.agnostic(
        m=m, d=d, delta=delta, disc=0.1, skewness=2, cover=7, epsilon=0.01, **paper
    ) == pytest.approx(math.sqrt(2 * (d + log(7 / delta)) / m) + 0.01 + 0.1)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=8))
def test_skewness_is_one_for_the_shares_of_samples_and_more_otherwise(pairs):
    m, raw = np.array(pairs, float).T
    assert bounds.skewness(m / m.sum(), m) == pytest.approx(1)
    weights = raw / raw.sum()
    found = bounds.skewness(weights, m)
    assert found >= 1 - 1e-9
    # s(λ, m) − 1 is the χ² distance between the two.
    shares = m / m.sum()
    assert found - 1 == pytest.approx(((weights - shares) ** 2 / shares).sum(), abs=1e-9)


@given(
    m_k=st.integers(1, 1000), m_C=st.integers(1, 100_000),
    disc=st.floats(0, 1, width=32, allow_subnormal=False),
    d=st.integers(1, 100), constants=st.sampled_from(BOTH),
)  # fmt: skip
def test_no_lambda_is_better_than_the_best(m_k, m_C, disc, d, constants):
    told = {
        "m_k": m_k, "m_C": m_C, "d": d, "delta": 0.05, "disc": disc, "constants": constants,
    }  # fmt: skip
    best = best_lambda(**told)
    grid = min(bounds.blitzer(lambda_=x, **told) for x in np.linspace(0, 1, 501))
    assert best.bound <= grid + 1e-9
    assert best.bound == bounds.blitzer(lambda_=best.lambda_, **told)


def test_lambda_goes_from_the_share_of_samples_to_one():
    told = {"m_k": 50, "m_C": 950, "d": 2, "delta": 0.05}
    found = [best_lambda(disc=x, **told).lambda_ for x in (0, 0.05, 0.1, 0.2, 0.5, 1)]
    assert found[0] == pytest.approx(0.05) and found == sorted(found) and found[-1] == 1


def test_the_best_number_of_clusters_weighs_discrepancy_against_samples():
    disc = {1: 0.5, 2: 0.2, 3: 0.1, 4: 0.0, 5: 0.0}
    few, many = (best_q(m=m, p=100, d=10, delta=0.05, disc=disc).q for m in (2_000, 2_000_000))
    assert (few, many) == (1, 4)


def test_dappers_theorem():
    told = {"mu": 0.5, "G": 2.0, "R": 3.0}
    paper, derived = (bounds.dapper_r(**told, constants=c) for c in BOTH)
    assert (paper, derived) == (math.ceil(4 * (16 + 6) ** 2), math.ceil(4 * (8 + 3) ** 2))
    for lambda_ in np.linspace(0, 1, 41):
        for r in (None, paper):
            found = bounds.dapper(lambda_=lambda_, m_k=30, r=r, **told)
            assert found <= lambda_ / math.sqrt(30) + 1e-12  # which is at most ε_λ
    # With fewer steps it is not, for the λ where the two distances meet.
    worst = 3 * 0.5 / (4 + 3 * 0.5)
    assert bounds.dapper(lambda_=worst, m_k=30, r=derived - 1, **told) > worst / math.sqrt(30)


@pytest.fixture(scope="module", params=BOTH)
def covered(request):
    return coverage(draws=1000, seed=0, constants=request.param)


def test_bounds_hold_as_often_as_they_promise(covered):
    assert len(covered) == 9
    for found in covered:
        assert found.holds() and found.slack > 1, found
    assert "DOES NOT HOLD" not in "\n".join(as_text(covered))


def test_a_bound_scaled_down_to_what_was_found_would_not(covered):
    for found in covered:
        assert 0 < found.found < found.bound and found.holds(1 / found.slack * (1 + 1e-9))
        assert not found.holds(1 / found.slack * (1 - 1e-9)), found
        small = dataclasses.replace(found, right=found.right / found.slack * (1 - 1e-9))
        assert "DOES NOT HOLD" in as_text([small])[1]


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan])
@each
def test_a_probability_that_is_none(name, delta):
    with pytest.raises(ConfigError, match=r"delta must be a number between 0 and 1"):
        ALL[name](delta=delta)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (
            {"m": 0},
            "m(_k)? must be a positive number \\(got 0\\)",
        ),
        ({"m": -3}, "m(_k)? must be a positive"),
        ({"d": 0}, "d(_c)? must be a positive number"),
        ({"constants": "papers"}, "constants must be one of 'paper', 'derived'"),
        ({"bound": 0}, "bound must be a positive"),
    ],
)
@each
def test_what_is_wrong_is_named(name, wrong, words):
    with pytest.raises(ConfigError, match=words):
        ALL[name](**wrong)


def test_more_that_is_wrong():
    told = {"m": 10, "d": 1, "delta": 0.1, "disc": 0.1, "epsilon": 0.0}
    for wrong, words in (
        ({"skewness": 0.5, "cover": 2}, "skewness must be a number of at least"),
        ({"skewness": 1, "cover": 2.5}, "cover must be a whole number"),
    ):
        with pytest.raises(ConfigError, match=words):
            bounds.agnostic(**told, **wrong)
    several = np.array([0.1, 0.2])
    with pytest.raises(ConfigError, match=r"disc must be a number of at least 0 .got ndarray"):
        bounds.global_(m=10, d=1, delta=0.1, disc=several)
    with pytest.raises(ConfigError, match="delta must be a number"):
        bounds.local(m=10, d=1, delta="0.1")
    with pytest.raises(ConfigError, match="rademacher must be a number of at least 0"):
        bounds.local(m=10, rademacher=several, delta=0.1)
    with pytest.raises(ConfigError, match=r"m must be a positive number .got True"):
        bounds.local(m=True, d=1, delta=0.1)
    with pytest.raises(ConfigError, match=r"p must be a whole number"):
        bounds.interpolation(m=10, p=2.5, d_c=1, d_l=1, delta=0.1)
    with pytest.raises(ConfigError, match=r"lambda_ must be a number from 0 to 1 .got None"):
        bounds.epsilon(lambda_=None, m_k=1, m_C=1)
    with pytest.raises(ConfigError, match="epsilon must be"):
        bounds.agnostic(**{**told, "epsilon": -1}, skewness=1, cover=1)
    with pytest.raises(ConfigError, match="rademacher must be a number of at least 0"):
        bounds.local(m=10, rademacher=-1, delta=0.1)
    assert bounds.dapper_r(mu=1, G=1e-6, R=1) == 1
    with pytest.raises(ConfigError, match=r"disc=1\.5: it must be from 0 to the largest loss"):
        bounds.global_(m=10, d=1, delta=0.1, disc=1.5)
    with pytest.raises(ConfigError, match="q=3: there are no more clusters than clients"):
        bounds.cluster(m=10, p=2, q=3, d=1, delta=0.1)
    with pytest.raises(ConfigError, match="give the pseudo-dimension, or rademacher="):
        bounds.local(m=10, delta=0.1)
    with pytest.raises(ConfigError, match="lambda_ must be a number from 0 to 1"):
        bounds.epsilon(lambda_=2, m_k=1, m_C=1)
    with pytest.raises(ConfigError, match="client 1 has no samples"):
        bounds.skewness([0.5, 0.5], [3, 0])
    with pytest.raises(ConfigError, match="add up to 1"):
        bounds.skewness([0.5, 0.6], [3, 1])
    with pytest.raises(ConfigError, match=r"disc must be a dict|give a mapping"):
        best_q(m=10, p=2, d=1, delta=0.1, disc={})


@given(m=st.integers(1, 500), more=st.integers(0, 500), d=st.integers(1, 499))
def test_derived_bounds_fall_with_samples_down_to_one_for_each_dimension(m, more, d):
    for name in ("local", "global_", "agnostic", "cluster", "combined"):
        m, d = max(m, d), min(m, d)
        assert ALL[name](m=m + more + 1, d=d) < ALL[name](m=m, d=d)
        assert ALL[name](m=m, d=d) <= ALL[name](m=m, d=min(d + 1, m)) + 1e-12


@either
@each
def test_vacuous_bounds_are_numbers_and_marked(name, constants):
    few = ALL[name](m=20, d=500, constants=constants)
    assert few.vacuous and math.isfinite(few) and "vacuous" in str(few)
    assert not ALL[name](m=10**8, constants=constants).vacuous


def test_a_bound_is_a_number_with_terms():
    found = bounds.global_(m=1000, d=5, delta=0.05, disc=0.1)
    assert found == pytest.approx(sum(found.terms.values())) and found + 1 > 1
    again = copy.deepcopy(found)
    assert again == found and again.terms == found.terms and repr(again) == repr(found)
    assert repr(Bound(0.3)) == "Bound(0.3000)"


def test_one_number_is_needed_and_clusters_are_counted():
    with pytest.raises(ConfigError, match=r"m must be a positive number .got ndarray"):
        bounds.local(m=np.array([10, 20]), d=3, delta=0.05)
    with pytest.raises(ConfigError, match=r"q must be a whole number"):
        bounds.cluster(m=100, p=10, q=2.5, d=3, delta=0.05)
    with pytest.raises(ConfigError, match=r"disc must be a dict|disc: give a mapping"):
        best_q(m=100, p=10, d=3, delta=0.05, disc=[0.1, 0.2])


def test_with_a_known_complexity_dimensions_do_not_count():
    known = bounds.local(m=1000, d=2000, delta=0.05, rademacher=0.1)
    assert not known.vacuous and known == bounds.local(m=1000, delta=0.05, rademacher=0.1)
    assert bounds.local(m=1000, d=2000, delta=0.05).vacuous
    told = {"m": 1000, "p": 10, "delta": 0.05, "rademacher": 0.01}
    known = bounds.interpolation(**told, d_c=2000, d_l=2000)
    assert not known.vacuous and known == bounds.interpolation(**told)
