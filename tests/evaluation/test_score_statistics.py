"""Intervals cover, p-values are honest under the null, and textbook tests are matched exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sartor.errors import ConfigError, DataError
from sartor.evaluation import (
    Scores,
    benjamini_hochberg,
    bootstrap_interval,
    compare,
    gains,
    mcnemar,
    paired_t,
    sign_flip,
    worst_decile,
)
from sartor.evaluation.statistics import quantiles

values = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30)


def scores(name="a", loss=(1.0, 2.0), correct=None, sizes=None, **more) -> Scores:
    sizes = np.ones(len(loss), int) if sizes is None else np.asarray(sizes)
    ids = more.pop("client", tuple(f"k{k}" for k in range(len(sizes))))
    return Scores(name, ids, sizes, sizes, sizes > 0, loss, correct, **more)


# The bootstrap


@pytest.mark.parametrize(
    "draw, clients, least, most",
    [
        ("normal", 8, 0.915, 0.97),  # without the widening for few clients: 0.88
        ("normal", 60, 0.935, 0.975),
        ("exponential", 60, 0.915, 0.96),  # skewed: 0.937 in a long simulation, not 0.95
        ("exponential", 200, 0.93, 0.97),
    ],
)
def test_the_interval_covers_the_true_mean_as_often_as_documented(draw, clients, least, most):
    rng, trials = np.random.default_rng(17), 1500
    centred = rng.normal if draw == "normal" else lambda size: rng.exponential(size=size) - 1
    hits = 0
    for trial in range(trials):
        low, high = bootstrap_interval(centred(size=clients), draws=400, seed=trial)
        hits += low <= 0 <= high
    assert least <= hits / trials <= most


def test_the_weighted_interval_covers_the_weighted_mean_of_the_population():
    rng, trials, hits = np.random.default_rng(5), 500, 0
    for trial in range(trials):
        weights = rng.integers(1, 10, size=50)
        # the larger the weight, the larger the value: E[wv]/E[w] is not E[v]
        low, high = bootstrap_interval(
            weights + rng.normal(size=50), weights=weights, draws=400, seed=trial
        )
        hits += low <= 285 / 45 <= high  # Σ w² / Σ w over 1..9
    assert 0.915 <= hits / trials <= 0.98


@pytest.mark.parametrize("clients", [9_000, 40_000])
def test_with_many_clients_the_interval_is_the_normal_one(clients):
    v = np.random.default_rng(0).normal(3.0, 2.0, size=clients)
    low, high = bootstrap_interval(v, draws=1000)
    half = 1.96 * v.std() / math.sqrt(clients)
    assert (high - low) / 2 == pytest.approx(half, rel=0.08)
    assert (high + low) / 2 == pytest.approx(v.mean(), abs=0.15 * half)


@given(values, st.randoms())
def test_the_interval_knows_no_order_and_stays_within_the_values(v, random):
    shuffled = random.sample(v, len(v))
    low, high = bootstrap_interval(v, draws=50)
    assert bootstrap_interval(shuffled, draws=50) == (low, high)
    assert min(v) - 1e-9 <= low <= high <= max(v) + 1e-9


@given(values)
def test_equal_weights_weigh_nothing(v):
    plain = bootstrap_interval(v, draws=50)
    assert bootstrap_interval(v, [3.0] * len(v), draws=50) == pytest.approx(plain, abs=1e-9)


def test_the_seed_decides():
    v = np.random.default_rng(0).normal(size=30)
    assert bootstrap_interval(v, seed=1) == bootstrap_interval(v, seed=1)
    assert bootstrap_interval(v, seed=1) != bootstrap_interval(v, seed=-1)


@pytest.mark.parametrize("v", [[1.0], [1.0, np.inf], [np.inf, np.inf]])
def test_where_nothing_can_be_said_the_interval_is_nan(v):
    assert all(map(math.isnan, bootstrap_interval(v)))


def test_bootstrap_refuses_what_makes_no_sense():
    with pytest.raises(DataError, match="one number for each client"):
        bootstrap_interval([])
    with pytest.raises(DataError, match="leave out clients of weight zero"):
        bootstrap_interval([1.0, 2.0], weights=[1.0, 0.0])
    with pytest.raises(DataError, match="weights must be 2"):
        bootstrap_interval([1.0, 2.0], weights=[1.0])
    with pytest.raises(ConfigError, match=r"level.*got 95"):
        bootstrap_interval([1.0, 2.0], level=95)
    with pytest.raises(ConfigError, match="draws"):
        bootstrap_interval([1.0, 2.0], draws=0)


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


def test_paired_t_is_scipys_above_what_signs_can_show():
    rng = np.random.default_rng(0)
    n = rng.integers(2, 40, size=200)
    a = [rng.exponential(size=m) + shift for m, shift in zip(n, rng.normal(size=200), strict=True)]
    b = [rng.exponential(size=m) for m in n]
    expected = [stats.ttest_rel(x, y).pvalue for x, y in zip(a, b, strict=True)]
    floor = 2.0 ** (1 - n)
    found = paired_t(np.concatenate(a) - np.concatenate(b), n)
    assert found == pytest.approx(np.maximum(expected, floor), rel=1e-6)
    assert 100 < np.sum(found > floor) < 200  # both sides of the rule were tried


def test_paired_t_under_the_null_is_uniform_for_enough_examples():
    rng = np.random.default_rng(1)
    p = paired_t(rng.normal(size=(4000, 15)).ravel(), np.full(4000, 15))
    assert stats.kstest(p, "uniform").pvalue > 0.001
    p = paired_t(rng.normal(size=(4000, 4)).ravel(), np.full(4000, 4))
    assert np.mean(p <= 0.05) == 0  # four examples cannot


@pytest.mark.parametrize(
    "differences, expected",
    [
        ([0.7], 1.0),
        ([0.0], 1.0),
        ([0.0, 0.0, 0.0], 1.0),
        ([0.3, 0.3], 0.5),
        ([0.1] * 5, 0.0625),
        ([0.1, 0.1 + 1e-16, 0.1 - 1e-16], 0.25),
        ([1.0, -1.0], 1.0),
        ([np.inf, 0.1, 0.2], 1.0),
        ([np.inf, -np.inf], 1.0),
    ],
)
def test_paired_t_at_the_edges(differences, expected):
    with np.errstate(all="raise"):
        assert paired_t(differences, [len(differences)]) == pytest.approx([expected])


# Many clients


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
    found = gains(scores("own", own - better, own - better / 2 < 0.5, n, baseline=base), metric)
    assert (found.sign[:20] == 1).all() and found.beyond_chance[:20].all()
    assert np.sum(found.p_value[20:] < 0.05) >= 12
    assert np.sum(found.beyond_chance[20:]) <= 4
    assert np.sum(found.sign[20:] != 0) > 400


def test_gains_are_positive_when_loss_falls_and_accuracy_rises():
    base = scores("central", [2.0, 1.0, 3.0], [0, 1, 1])
    own = scores("own", [1.0, 2.0, 3.0], [1, 0, 1], baseline=base)
    assert gains(own, "loss").change.tolist() == [1.0, -1.0, 0.0]
    assert gains(own, "accuracy").sign.tolist() == [1, -1, 0]
    assert gains(own, "accuracy").p_value.tolist() == [1.0, 1.0, 1.0]


def test_fractional_correctness_is_tested_like_loss():
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 30))
    found = gains(scores("a", a, a, [30], baseline=scores("b", b, b, [30])), "accuracy")
    assert found.p_value == pytest.approx([stats.ttest_rel(a, b).pvalue])


def test_infinite_losses_are_equal_to_each_other_and_prove_nothing():
    base = scores("central", [np.inf, 1.0, np.inf, 1.0], sizes=[1, 1, 2])
    own = scores("own", [np.inf, np.inf, 1.0, 1.0], sizes=[1, 1, 2], baseline=base)
    found = gains(own, "loss")
    assert found.change.tolist() == [0, -np.inf, np.inf]
    assert found.sign.tolist() == [0, -1, 1] and not found.beyond_chance.any()


def test_gains_need_a_baseline_and_a_metric():
    with pytest.raises(DataError, match="'own' have no baseline"):
        gains(scores("own"), "loss")
    with pytest.raises(ConfigError, match="'loss' or 'accuracy'"):
        gains(scores("own", baseline=scores("b")), "auc")
    with pytest.raises(DataError, match="has no accuracy"):
        gains(scores("own", baseline=scores("b")), "accuracy")


# Two methods


def test_sign_flip_is_exact_for_few_clients():
    for n in range(1, 13):
        d = np.random.default_rng(n).normal(0.3, size=n)
        flips = np.array(list(itertools.product([1, -1], repeat=n)))
        expected = np.mean(np.abs(flips @ d) >= abs(d.sum()) - 1e-9)
        assert sign_flip(d) == expected


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
        assert ab.wilcoxon == pytest.approx(ba.wilcoxon)
        assert ab.p_value == pytest.approx(ba.p_value, abs=0.03)
        d = (a.accuracy - b.accuracy).round(12) if metric == "accuracy" else b.loss - a.loss
        assert ab.wilcoxon == pytest.approx(stats.wilcoxon(d[d != 0]).pvalue)


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
    assert found.difference == 1.0 and found.p_value == 1.0 and found.wilcoxon == 1.0
    assert found.to_dict()["interval"] == [None, None]
    assert compare(scores("A"), scores("B"), "loss").wilcoxon == 1.0  # nothing differs


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
