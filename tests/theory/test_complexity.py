"""Rademacher complexities against all signs, closed forms and the bounds that hold for them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.errors import ConfigError, DataError
from sartor.models import categorical, linear, logistic, mlp
from sartor.theory import complexity, pseudo_dimension, rademacher

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_finite_classes_by_hand(seed):
    draw = np.random.default_rng(seed)
    values = draw.uniform(0, 1, (4, 5))
    signs = itertools.product((-1, 1), repeat=5)
    by_hand = np.mean([max(values @ np.array(s)) / 5 for s in signs])
    found = rademacher(values)
    assert found == pytest.approx(by_hand) and found.error == 0


@given(seeds)
def test_linear_functions_by_hand(seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(6, 3))
    signs = itertools.product((-1, 1), repeat=6)
    by_hand = np.mean([2 * np.linalg.norm(np.array(s) @ x) / 6 for s in signs])
    found = rademacher(x=x, radius=2.0)
    assert found == pytest.approx(by_hand)
    # Jensen: at most R/m·√Σ|x|², and Khintchine: no less than that by √2.
    most = 2 * math.sqrt((x**2).sum()) / 6
    assert most / math.sqrt(2) - 1e-9 <= found <= most + 1e-9


@pytest.mark.parametrize("kind", ["finite", "linear"])
def test_draws_of_signs_come_near_all_signs(kind, monkeypatch):
    draw = np.random.default_rng(0)
    told = {
        "finite": {"values": draw.uniform(0, 1, (6, 10))},
        "linear": {"x": draw.normal(size=(10, 3)), "radius": 1.5},
    }[kind]
    true = rademacher(**told)
    monkeypatch.setattr(complexity, "ALL_SIGNS", 0)
    monkeypatch.setattr(complexity, "BLOCK", 1000)  # several blocks
    found = rademacher(**told, draws=4000)
    assert found.error > 0 and abs(found - true) < 4 * found.error
    assert rademacher(**told, draws=4000) == found  # the same seed


@given(seeds)
def test_one_hypothesis_has_none_and_more_have_no_less(seed):
    draw = np.random.default_rng(seed)
    values = draw.uniform(0, 1, (5, 8))
    assert rademacher(values[:1]) == pytest.approx(0, abs=1e-12)
    assert rademacher(values[:2]) <= rademacher(values) + 1e-12


def test_massarts_bound_for_thresholds():
    """ℜ of 0-1 valued thresholds is at most √(d·log(em/d) / 2m), as the bounds have it."""
    m = 200
    values = np.tri(m + 1, m, -1)
    found = rademacher(values, draws=2000)
    assert 0 < found + 3 * found.error < math.sqrt(math.log(math.e * m) / (2 * m))


def test_dimensions():
    squared = pseudo_dimension(linear(features=7))
    assert squared == pytest.approx(complexity.SQUARED * 8) and squared.how == "at most"
    assert pseudo_dimension(logistic(features=7, classes=2)) == 8
    assert pseudo_dimension(categorical(symbols=50)) == 49
    assert {pseudo_dimension(m).how for m in (categorical(9), logistic(7, 2))} == {"known"}
    for model, count in ((logistic(7, 3), 24), (mlp(3, (4,), classes=2), 26), (linear(3, 2), 8)):
        found = pseudo_dimension(model)
        assert (found, found.how) == (count, "parameters") and "parameters" in repr(found)


def test_squared_errors_shatter_more_than_linear_functions():
    """One feature and an intercept: four samples, but no more than 4.67 · 2."""
    x, y, level = np.array([0.0, 1, 2, 3]), np.array([0.0, 4, -3, 1]), 4.0
    w = np.random.default_rng(0).normal(size=(400_000, 2)) * 6
    above = (w[:, :1] + w[:, 1:] * x - y) ** 2 > level
    found = len(np.unique(above @ (1 << np.arange(4))))
    assert found > 2**3 and complexity.SQUARED * 2 >= 4  # told apart: more than by a line
    c = complexity.SQUARED
    assert 2**c >= 2 * math.e * c * (1 - 1e-2) and 2 ** (c - 0.1) < 2 * math.e * (c - 0.1)


def test_bad_input():
    with pytest.raises(ConfigError, match="give values of a finite class, or x and radius"):
        rademacher()
    with pytest.raises(ConfigError, match="radius: give that of the ball"):
        rademacher(x=np.ones((3, 2)))
    with pytest.raises(ConfigError, match="draws must be a whole number of at least 1"):
        rademacher(np.ones((3, 20)), draws=0)
    with pytest.raises(DataError, match="not finite"):
        rademacher([[0.0, np.nan]])
    with pytest.raises(DataError, match=r"got \(0,\)"):
        rademacher([])
    with pytest.raises(ConfigError, match=r"draws must be a whole number"):
        rademacher(np.ones((3, 20)), draws=10.0)
    for nothing in (np.ones((0, 3)), 3.0):
        with pytest.raises(DataError, match="are needed, got"):
            rademacher(x=nothing, radius=1.0)
