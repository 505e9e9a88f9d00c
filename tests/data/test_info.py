"""The description counts right; order_shift is quiet on random orders and fires on sorted ones."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.data import describe, from_arrays, from_dict, order_shift, synthetic
from sartor.errors import ConfigError, DataError


def test_description():
    data = from_arrays(
        np.zeros((12, 2, 2)), np.arange(12) % 11, np.arange(12) % 4, np.arange(12) % 2
    ).split(unseen=0.25, test=0.3)
    d = describe(data)
    assert (d.clients, d.seen, d.unseen, d.examples) == (4, 3, 1, 12)
    assert d.parts == {"train": 8, "test": 4}
    assert d.sizes["least"] == d.sizes["most"] == 3
    assert d.columns == {"x": "float32[2, 2]", "y": "int64"}
    assert d.classes == 11 and len(d.labels) == 10 and d.labels["0"] == 2
    assert d.domains == {"0": 2, "1": 2} and d.label_range == (0, 10)
    assert all(isinstance(text, str) for row in d.rows() for text in row)


def test_description_of_times_and_groups():
    days = np.array(["2026-11-18", "2024-01-01", "2025-01-01"], "datetime64[D]")
    d = describe(from_arrays(None, [0, 1, 1], ["a", "a", "b"], time=days))
    assert d.times == (1704067200, 1794960000) and d.groups == 0
    shown = "1704067200 to 1794960000 (as seconds: 2024-01-01 00:00 to 2026-11-18 00:00 UTC)"
    assert ("times", shown) in d.rows()
    one = from_arrays(None, [0, 1, 1], ["a", "a", "b"], time=[5, 0.5, 900]).select(["a"])
    assert ("times", "0.5 to 5") in describe(one).rows()
    d = describe(from_arrays(None, [0, 1, 1], ["a", "a", "b"], groups=["u", "u", "v"]))
    assert d.times is None and ("groups", "2") in d.rows()
    assert not {"times", "groups"} & dict(describe(synthetic(3)).rows()).keys()


def test_description_of_regression():
    d = describe(from_dict({"a": {"y": [-1.5, 2.5]}}))
    assert d.classes == 0 and d.labels == {} and d.label_range == (-1.5, 2.5)
    assert ("labels", "numbers from -1.5 to 2.5") in d.rows()


def clients(rng, shares, shift_x, m=30):
    """One client for each share: labels with that share of ones, features around shift_x."""
    p = len(shares)
    y = (rng.random((p, m)) < np.asarray(shares)[:, None]).astype(int)
    x = rng.normal(size=(p, m, 5)) + np.asarray(shift_x)[:, None, None]
    return from_arrays(x.reshape(p * m, 5), y.ravel(), np.repeat(np.arange(p), m))


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(200):
        data = clients(rng, rng.beta(2, 2, 24), rng.normal(size=24))
        p_values.append(order_shift(data, permutations=99).p_value)
    p_values = np.array(p_values)
    for alpha in (0.05, 0.2, 0.5):  # three standard errors
        assert abs((p_values <= alpha).mean() - alpha) < 3 * np.sqrt(alpha * (1 - alpha) / 200)


@pytest.mark.parametrize("by", ["labels", "features"])
def test_sorted_clients_are_noticed(by):
    rng = np.random.default_rng(1)
    late = np.arange(60) >= 40
    data = clients(
        rng,
        np.where(late & (by == "labels"), 0.8, 0.3),
        np.where(late & (by == "features"), 1.0, 0.0),
    )
    found = order_shift(data)
    assert found.p_value == 0.002 and found.split == 40
    assert found.message is not None and "'40'" in found.message and "split" in found.message
    shuffled = data.select([data.ids[k] for k in rng.permutation(60)])
    assert order_shift(shuffled).message is None


def test_a_trend_is_noticed_with_many_features_and_many_clients():
    rng = np.random.default_rng(2)
    p = 3000
    x = rng.normal(size=(p * 2, 40)) + np.repeat(np.linspace(0, 1, p), 2)[:, None]
    data = from_arrays(
        {"a": x, "b": 1e6 * rng.normal(size=p * 2)}, x[:, 0], np.repeat(np.arange(p), 2)
    )
    found = order_shift(data, permutations=99)
    assert found.p_value == 0.01 and 500 < found.split < 2500


def test_no_variation_is_no_shift():
    same = order_shift(from_dict({str(k): {"y": [0, 1]} for k in range(10)}))
    assert same.p_value == 1 and same.message is None and same.strength == 0
    assert order_shift(synthetic(100)).message is None  # ordered, but clusters alternate


def test_wrong_arguments():
    with pytest.raises(DataError, match="at least 8 clients, got 7"):
        order_shift(synthetic(7))
    with pytest.raises(ConfigError, match="permutations must be"):
        order_shift(synthetic(8), permutations=0)


@pytest.mark.parametrize("classes", [2, 62])
def test_order_by_size_is_no_shift(classes):
    """Means of few rows are noisy, and clients come in the order of their sizes more often."""
    draw = np.random.default_rng(0)
    rare = 1 / np.arange(1, classes + 1) ** 1.5  # some classes have hardly any rows
    fired = 0
    for _ in range(40):
        sizes = np.sort(np.r_[[1, 1, 2, 2, 3, 3, 3], draw.integers(5, 300, 53)])
        owner = np.repeat(np.arange(60), sizes)
        x = draw.standard_normal((len(owner), 5))
        y = draw.choice(classes, len(owner), p=rare / rare.sum())
        fired += order_shift(from_arrays(x, y, owner), permutations=199).message is not None
    assert fired <= 3


def test_a_shift_is_found_whatever_the_sizes_and_the_target():
    draw = np.random.default_rng(0)
    for sizes in ([3] * 12 + [200] * 48, [2] * 30 + [200] * 30, [20] * 60):
        owner = np.repeat(np.arange(60), sizes)
        x = draw.standard_normal((len(owner), 5))
        x[owner >= 30] += 1.0
        for y in (draw.integers(0, 10, len(owner)), 1e7 * draw.standard_normal(len(owner))):
            assert order_shift(from_arrays(x, y, owner), permutations=199).message is not None
        far = (1e6 + x[:, 0]).astype(np.float32)  # a target far from 0 that shifts by itself
        assert order_shift(from_arrays(0 * x, far, owner), permutations=199).message is not None
