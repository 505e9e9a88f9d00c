"""Intervals cover, p-values are honest under the null, and textbook tests are matched exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from sartor.errors import ConfigError, DataError
from sartor.evaluation import (
    Scores,
    benjamini_hochberg,
    betting,
    compare,
    gains,
    holm,
    mcnemar,
    mean_interval,
    mean_test,
    sign_flip,
    worst_decile,
)
from sartor.evaluation.statistics import BETS, quantiles

values = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30)


def scores(name="a", loss=(1.0, 2.0), correct=None, sizes=None, **more) -> Scores:
    sizes = np.ones(len(loss), int) if sizes is None else np.asarray(sizes)
    ids = more.pop("client", tuple(f"k{k}" for k in range(len(sizes))))
    return Scores(name, ids, sizes, sizes, sizes > 0, loss, correct, **more)


# Intervals


def test_the_interval_is_students_and_wider_only_where_values_are_skewed():
    even = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0] * 10)
    low, high, rough = mean_interval(even)
    wanted = stats.t.interval(0.95, 59, loc=0.0, scale=stats.sem(even))
    assert (low, high) == pytest.approx(wanted, rel=1e-2) and not rough  # γ/6√p makes the rest
    assert low <= wanted[0] and high >= wanted[1]
    skewed = np.random.default_rng(0).exponential(size=60)
    low, high, _ = mean_interval(skewed)
    wanted = stats.t.interval(0.95, 59, loc=skewed.mean(), scale=stats.sem(skewed))
    assert low == pytest.approx(wanted[0]) and high > wanted[1] + 0.02
    turned = mean_interval(-skewed)
    assert (turned.low, turned.high) == pytest.approx((-high, -low))


@given(values, st.randoms())
def test_the_interval_knows_no_order_and_holds_the_mean(v, random):
    found = mean_interval(v)
    assert str(mean_interval(random.sample(v, len(v)))) == str(found)
    equal = np.ptp(v) <= 1e-12 * np.abs(v).max()
    assert math.isnan(found.low) == math.isnan(found.high) == (len(v) < 5 or equal)
    assert math.isnan(found.low) or found.low <= np.mean(v) <= found.high
    assert found.rough == (not math.isnan(found.low))  # fewer than 40


@given(values, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_the_interval_moves_and_stretches_with_the_values(v, scale, shift):
    v = [*v, 101.0, 150.0]  # so that they differ by more than rounding
    found = mean_interval(v)
    moved = mean_interval(scale * np.array(v) + shift)
    wanted = [scale * end + shift for end in found[:2]]
    assert moved[:2] == pytest.approx(wanted, rel=1e-6, abs=1e-6, nan_ok=True)


@given(values)
def test_equal_weights_weigh_nothing(v):
    plain = mean_interval(v)
    assert mean_interval(v, [3.0] * len(v)) == pytest.approx(plain, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("weight", [1.0, 1e-3])
def test_a_client_that_hardly_weighs_hardly_counts(weight):
    v = np.random.default_rng(0).normal(size=41)
    whole = mean_interval(v[:40])
    found = mean_interval(v, [1.0] * 40 + [weight])
    assert (found == pytest.approx(whole, abs=1e-3)) == (weight < 1)
    assert mean_interval(v[:40]).rough is False
    assert mean_interval(v[:40], [1.0] * 39 + [0.5]).rough is True  # 39.6 clients
    assert math.isnan(mean_interval(v[:9], [1.0] + [1e-6] * 8).low)  # one client, in fact


@pytest.mark.parametrize("v", [[1.0], [1.0, np.inf] * 20, [np.inf] * 9, [0.1] * 4, [0.1] * 400])
def test_where_nothing_can_be_said_there_is_no_interval(v):
    assert str(mean_interval(v)) == "Interval(low=nan, high=nan, rough=False)"


def test_one_client_that_differs_gives_an_interval_to_its_side():
    low, high, rough = mean_interval([1.0] * 11 + [0.9])
    assert low < 0.96 and 1.0 < high < 1.02 and rough


def test_large_and_tiny_values_do_not_overflow():
    v = np.random.default_rng(0).exponential(size=50)
    plain = np.array(mean_interval(v)[:2])
    for scale in (1e-200, 1e200):
        assert mean_interval(scale * v)[:2] == pytest.approx(scale * plain)


def test_an_interval_of_100_000_clients_takes_no_draws():
    v = np.random.default_rng(0).exponential(size=100_000)
    assert mean_interval(v)[:2] == pytest.approx(
        stats.t.interval(0.95, 99_999, loc=v.mean(), scale=stats.sem(v)), rel=1e-3
    )


def test_intervals_refuse_what_makes_no_sense():
    with pytest.raises(DataError, match="one number for each client"):
        mean_interval([])
    with pytest.raises(DataError, match="leave out clients of weight zero"):
        mean_interval([1.0, 2.0], weights=[1.0, 0.0])
    with pytest.raises(DataError, match="weights must be 2"):
        mean_interval([1.0, 2.0], weights=[1.0])
    with pytest.raises(ConfigError, match=r"level.*got 95"):
        mean_interval([1.0, 2.0], level=95)


# Quantiles and the worst decile


@given(values)
def test_quantiles_are_numpys_where_all_is_finite(v):
    at = [0.05, 0.5, 0.95]
    assert quantiles(v, at) == pytest.approx(np.quantile(v, at))


@pytest.mark.parametrize("clients, worst", [(1, 1), (9, 1), (10, 1), (11, 2), (100, 10)])
def test_the_worst_decile_by_hand(clients, worst):
    v = np.random.default_rng(clients).permutation(clients).astype(float)
    assert worst_decile(v, higher_is_better=True) == np.arange(worst).mean()
    assert worst_decile(-v, higher_is_better=False) == -np.arange(worst).mean()
    with pytest.raises(DataError):
        worst_decile([], True)


# Tests for one client


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=20))
def test_mcnemar_is_the_exact_binomial_test(pairs):
    b, c = np.array(pairs).T
    expected = [
        stats.binomtest(int(x), int(x + y), 0.5).pvalue if x + y else 1.0
        for x, y in zip(b, c, strict=True)
    ]
    assert mcnemar(b, c) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 17, 50, 400])
def test_mcnemar_is_never_too_bold(n):
    wins = np.arange(n + 1)
    p, chance = mcnemar(wins, n - wins), stats.binom.pmf(wins, n, 0.5)
    for level in np.unique(p):
        assert chance[p <= level].sum() <= level + 1e-9


FAIR = [[-1.0, 1.0]]


def test_betting_multiplies_what_examples_win_and_lose():
    d = np.array([0.5, -0.25, 1.0])
    wealth = np.mean([np.prod(1 + c * d / 2) for c in BETS])  # B = 2: so much can be lost
    assert betting(d, [[-1, 1], [-2, 1], [-1, 2]], [3]) == pytest.approx(min(1, 2 / wealth))
    many = np.tile(d, 20)
    wealth = np.mean([np.prod(1 + c * many / 2) for c in BETS])
    found = betting(np.r_[many, -many], [[-2, 2]] * 120, [60, 60])
    assert found == pytest.approx([2 / wealth] * 2) and found[0] < 0.01


@given(
    st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)), min_size=1, max_size=7),
    st.floats(0.0, 1.0),
)
def test_betting_is_never_too_bold(models, mean):
    """All labels of a client, each with its probability: P[p ≤ α and gained] ≤ α/2 under the null.

    Examples have different models and different expected gains, of which only the mean is zero or
    less. An expected gain of each example cannot be below zero at all if it is so with any label.
    """
    a, b = np.array(models).T
    gain = np.stack([np.log(a / b), np.log((1 - a) / (1 - b))])  # of labels 0 and 1
    low, high = gain.min(axis=0), gain.max(axis=0)
    # The label probabilities that make the expected gains as large as their mean of zero allows.
    width = np.maximum(high - low, 1e-12)
    chance = np.clip(-low / width * mean, 0, 1)  # P[the better label], at most that of mean zero
    worst = gain.argmin(axis=0)
    total, examples = {}, np.arange(len(a))
    for labels in itertools.product([0, 1], repeat=len(a)):
        labels = np.array(labels)
        weight = np.prod(np.where(labels == worst, 1 - chance, chance))
        d = gain[labels, examples]
        p = betting(d, np.stack([low, high], axis=1), [len(a)])[0]
        if d.sum() > 0:
            total[p] = total.get(p, 0) + weight
    for level in total:
        assert sum(w for p, w in total.items() if p <= level) <= level / 2 + 1e-9 or level == 1


@given(st.lists(st.floats(-10, 1), min_size=1, max_size=30))
def test_what_looks_like_a_gain_is_none_if_the_sum_is_negative(d):
    """Small wins and one large loss: no product exceeds 1, whatever can be lost and gained."""
    d = np.array(d) - max(0.0, np.mean(d))
    hurt = betting(d, [[-10.0, 1.0]] * len(d), [len(d)])
    more = betting(np.r_[d, 0.0], [[-10.0, 1.0]] * (len(d) + 1), [len(d) + 1])
    np.testing.assert_allclose(more, hurt, rtol=1e-12)
    both = betting(np.r_[d, -d], [[-10.0, 10.0]] * (2 * len(d)), [2 * len(d)])
    assert both == 1.0  # neither side wins where the sum is zero


@pytest.mark.parametrize(
    "differences, ranges, expected",
    [
        ([0.7], FAIR, 1.0),
        ([0.0] * 3, FAIR * 3, 1.0),
        ([0.0] * 3, [[0.0, 0.0]] * 3, 1.0),
        ([5.0], [[3.0, 9.0]], 0.65),  # a gain for certain, if the range holds: not by one example
        ([5.0] * 5, [[3.0, 9.0]] * 5, 0.0),
        ([0.1] * 50, [[-np.inf, np.inf]] * 50, 1.0),
        ([np.inf, 0.1, 0.2], [[-1.0, np.inf]] * 3, 1.0),
        ([np.inf, -np.inf], [[-np.inf, np.inf]] * 2, 1.0),
    ],
)
def test_betting_at_the_edges(differences, ranges, expected):
    with np.errstate(all="raise"):
        found = betting(differences, ranges, [len(differences)])
    assert found == pytest.approx([expected], abs=0.02)


# Many clients


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_closed_testing_with_bonferroni(p):
    """A value is the largest adjusted one of all groups of tests that hold it."""
    adjusted = holm(p)
    by_hand = [0.0] * len(p)
    for place, k in enumerate(np.argsort(p, kind="stable")):
        behind = np.sort(p)[: place + 1] * (len(p) - np.arange(place + 1))
        by_hand[k] = min(1.0, behind.max())
    assert adjusted == pytest.approx(by_hand)
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))


def test_holm_leaves_out_what_was_not_tested():
    assert holm([0.02, None, math.nan, 0.03]) == [0.04, None, None, 0.04]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_benjamini_hochberg_is_scipys(p):
    expected = stats.false_discovery_control(p) <= 0.05
    near = np.isclose(stats.false_discovery_control(p), 0.05, rtol=1e-9)
    assert (benjamini_hochberg(p, 0.05) == expected)[~near].all()


def test_benjamini_hochberg_holds_false_alarms_at_the_level():
    rng, trials = np.random.default_rng(0), 1000
    nothing = [benjamini_hochberg(rng.random(100)).any() for _ in range(trials)]
    assert 0.03 <= np.mean(nothing) <= 0.07
    shares = []
    for _ in range(trials):
        p = rng.random(100)
        p[:50] **= 8  # half of the clients have something to find
        found = benjamini_hochberg(p)
        shares.append(found[50:].sum() / max(1, found.sum()))
    assert 0.01 <= np.mean(shares) <= 0.04  # level × the share of true nulls is 0.025


def test_benjamini_hochberg_refuses_nan_and_takes_nothing():
    with pytest.raises(DataError, match="NaN"):
        benjamini_hochberg([0.1, np.nan])
    assert benjamini_hochberg([]).shape == (0,)


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_of_500_unchanged_clients_many_look_changed_and_almost_none_is_believed(metric):
    rng = np.random.default_rng(2)
    n, better = np.full(520, 200), np.repeat(np.arange(520) < 20, 200)
    central, own = rng.random((2, n.sum()))
    base = scores("central", central, central < 0.5, n)
    ranges = np.tile([-1.0, 2.0], (len(own), 1))
    own = scores(
        "own", own - better, own - better / 2 < 0.5, n, baseline=base, example_range=ranges
    )
    found = gains(own, metric)
    assert (found.sign[:20] == 1).all() and found.beyond_chance[:20].all()
    assert metric == "loss" or np.sum(found.p_value[20:] < 0.05) >= 12
    assert np.sum(found.beyond_chance[20:]) <= 4
    assert np.sum(found.sign[20:] != 0) > 400


def test_gains_are_positive_when_loss_falls_and_accuracy_rises():
    base = scores("central", [2.0, 1.0, 3.0], [0, 1, 1])
    own = scores("own", [1.0, 2.0, 3.0], [1, 0, 1], baseline=base)
    assert gains(own, "loss").change.tolist() == [1.0, -1.0, 0.0]
    assert gains(own, "accuracy").sign.tolist() == [1, -1, 0]
    assert gains(own, "accuracy").p_value.tolist() == [1.0, 1.0, 1.0]


def test_fractional_correctness_is_tested_within_its_limits():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 30))
    found = gains(scores("a", a, a, [30], baseline=scores("b", b, b, [30])), "accuracy")
    assert found.p_value == pytest.approx(betting(a - b, FAIR * 30, [30]))


def test_by_loss_nothing_is_said_if_nobody_knows_what_could_have_been_lost():
    base = scores("central", np.full(900, 2.0), sizes=[30] * 30)
    own = scores("own", np.full(900, 1.0), sizes=[30] * 30, baseline=base)
    found = gains(own, "loss")
    assert found.p_value is None and found.beyond_chance is None and (found.sign == 1).all()
    assert found.select(np.arange(30) < 3).p_value is None
    change = own.summary().loss_change
    assert change.gained == 1.0 and change.gained_beyond_chance is None
    assert str(own.summary()).splitlines()[-1].split()[-2:] == ["–", "–"]
    known = scores(
        "own", np.full(900, 1.0), sizes=[30] * 30, baseline=base, example_range=FAIR * 900
    )
    assert known.summary().loss_change.gained_beyond_chance == 1.0


def test_infinite_losses_are_equal_to_each_other_and_prove_nothing():
    base = scores("central", [np.inf, 1.0, np.inf, 1.0], sizes=[1, 1, 2])
    anything = [[-np.inf, np.inf]] * 4
    own = scores(
        "own", [np.inf, np.inf, 1.0, 1.0], sizes=[1, 1, 2], baseline=base, example_range=anything
    )
    found = gains(own, "loss")
    assert found.change.tolist() == [0, -np.inf, np.inf]
    assert found.sign.tolist() == [0, -1, 1] and not found.beyond_chance.any()


def test_gains_need_a_baseline_and_a_metric():
    with pytest.raises(DataError, match="'own' have no baseline"):
        gains(scores("own"), "loss")
    with pytest.raises(ConfigError, match=r"'loss', 'accuracy'|'loss' or 'accuracy'"):
        gains(scores("own", baseline=scores("b")), "auc")
    with pytest.raises(DataError, match="has no accuracy"):
        gains(scores("own", baseline=scores("b")), "accuracy")


# Two methods


def test_sign_flip_is_exact_for_few_clients():
    for n in range(1, 13):
        d = np.random.default_rng(n).normal(0.3, size=n)
        flips = np.array(list(itertools.product([1, -1], repeat=n)))
        expected = np.mean(np.abs(flips @ d) >= abs(d.sum()) - 1e-9)
        assert sign_flip(d) == sign_flip(d * 2.0**1020) == expected


def test_sign_flip_by_chance_meets_the_enumeration():
    d = np.random.default_rng(4).normal(0.4, size=14)
    flips = np.array(list(itertools.product([1, -1], repeat=14)))
    exact = np.mean(np.abs(flips @ d) >= abs(d.sum()) - 1e-9)
    found = sign_flip(d, draws=20_000)
    assert 0.02 < exact < 0.5
    assert found == pytest.approx(exact, abs=4.5 * math.sqrt(exact * (1 - exact) / 20_000))
    assert found == sign_flip(d[::-1], draws=20_000) != sign_flip(d, draws=20_000, seed=1)


@pytest.mark.parametrize("clients", [9, 30])
def test_sign_flip_is_uniform_under_the_null(clients):
    rng = np.random.default_rng(clients)
    p = np.array([sign_flip(rng.laplace(size=clients), 199, seed) for seed in range(800)])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 800))


def test_sign_flip_with_ties_and_nothing():
    assert sign_flip([0.1] * 3 + [0.0] * 50) == 0.25
    tied = [-9, -9, -9, -6]  # all of one sign, so 2 of 16; in tenths the two sums differ in a bit
    assert sign_flip(tied) == sign_flip(np.array(tied) / 10) == 0.125
    assert sign_flip([0.0, 0.0]) == 1.0
    assert sign_flip([]) == 1.0
    assert sign_flip([5.0]) == 1.0
    assert sign_flip(np.full(40, 1.0), draws=99) == 0.01  # never zero
    assert math.isnan(sign_flip([np.inf, 1.0]))


@pytest.mark.parametrize("n", [6, 11, 25, 60])
def test_the_test_of_a_mean_is_as_careful_as_sign_flips_and_the_interval(n):
    rng, larger = np.random.default_rng(n), set()
    for d in (rng.normal(0.5, size=n), rng.exponential(size=n) - 0.6, rng.choice([-1, 2.0], n)):
        p, signs = mean_test(d), sign_flip(d)
        by_interval = optimize.brentq(lambda a, d=d: _reach(d, 1 - a), 1e-12, 1 - 1e-12)
        assert p == pytest.approx(max(signs, by_interval), abs=1e-6)
        larger.add(signs > by_interval)
    assert n > 6 or True in larger


def _reach(d, level):
    """How far the interval reaches beyond zero, to the side that is nearer to it."""
    low, high, _ = mean_interval(d, level=level)
    return min(-low, high)


def test_the_test_of_a_mean_at_the_edges():
    assert mean_test([]) == mean_test([3.0]) == mean_test([0.0] * 30) == 1.0
    assert mean_test([0.5] * 6) == 2**-5  # equal differences: what their signs can show
    assert math.isnan(mean_test([np.inf, 1.0]))
    d = np.random.default_rng(0).normal(0.3, size=30)
    assert mean_test(d) == mean_test(d[::-1])
    assert mean_test(d[:9]) == pytest.approx(mean_test(d[:9], weights=[2.0] * 9))
    assert mean_test(-d[:9]) == pytest.approx(mean_test(d[:9]))


def test_compare_by_hand():
    a = scores("A", [1.0, 1.0, 4.0, 1.0], [1, 1, 0, 1], [2, 1, 1])
    b = scores("B", [2.0, 2.0, 3.0, 1.0], [0, 1, 1, 1], [2, 1, 1])
    loss, accuracy = compare(a, b, "loss"), compare(a, b, "accuracy")
    assert loss.difference == pytest.approx((1 - 1 + 0) / 3)
    assert accuracy.difference == pytest.approx((0.5 - 1 + 0) / 3)
    assert (loss.better, loss.worse, loss.equal) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert loss.clients == 3 and loss.p_value == 1.0


def test_compare_turned_round_changes_the_sign_only():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 20, size=60)
    a = scores("A", rng.random(n.sum()), rng.random(n.sum()) < 0.7, n)
    b = scores("B", rng.random(n.sum()), rng.random(n.sum()) < 0.6, n)
    for metric in ("loss", "accuracy"):
        ab, ba = compare(a, b, metric), compare(b, a, metric)
        assert ab.difference == -ba.difference
        assert (ab.better, ab.worse) == (ba.worse, ba.better)
        assert ab.p_value == pytest.approx(ba.p_value, abs=0.03)


def test_compare_matches_clients_by_id():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 9, size=20)
    parts = np.split(rng.random(n.sum()), np.cumsum(n)[:-1])
    turn = rng.permutation(20)
    a = scores("A", rng.random(n.sum()), sizes=n)
    b = scores("B", np.concatenate(parts), sizes=n)
    turned = scores(
        "B",
        np.concatenate([parts[k] for k in turn]),
        sizes=n[turn],
        client=tuple(f"k{k}" for k in turn),
    )
    one, two = compare(a, b, "loss").to_dict(), compare(a, turned, "loss").to_dict()
    flat = {k: v for k, v in one.items() if isinstance(v, float)}
    assert flat == pytest.approx({k: two[k] for k in flat})
    assert one["interval"] == pytest.approx(two["interval"])


def test_compare_one_client_says_nothing_of_others():
    found = compare(scores("A", [1.0]), scores("B", [2.0]), "loss")
    assert found.difference == 1.0 and found.p_value == 1.0
    assert found.to_dict()["interval"] == [None, None]
    assert compare(scores("A"), scores("B"), "loss").p_value == 1.0  # nothing differs


def test_a_comparison_reads_as_a_sentence():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 40))
    assert str(compare(scores("A", a - 1), scores("B", b), "loss")).startswith(
        "A is better than B in loss on 40 clients: +"
    )
    assert "A is worse than B" in str(compare(scores("A", a + 1), scores("B", b), "loss"))
    assert "A cannot be told from B" in str(compare(scores("A", b), scores("B", b), "loss"))


def test_compare_refuses_different_clients_and_examples():
    with pytest.raises(DataError, match=r"different clients: 1 .* 'k2' .*select"):
        compare(scores("A", [1.0, 2.0, 3.0]), scores("B"), "loss")
    with pytest.raises(DataError, match="client 'k0' has 2 test examples with 'A' and 1 with 'B'"):
        compare(scores("A", [1.0] * 3, sizes=[2, 1]), scores("B", [1.0] * 3, sizes=[1, 2]), "loss")
    with pytest.raises(DataError, match="no clients to compare"):
        compare(scores("A", []), scores("B", []), "loss")
