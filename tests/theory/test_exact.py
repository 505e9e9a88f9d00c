"""Closed forms agree with dense search, and are the distances that they should be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from sartor.errors import ConfigError, DataError
from sartor.theory import exact

seeds = st.integers(0, 2**32 - 1)


def moments(draw, n=12, features=2, outputs=1):
    x = draw.normal(size=(n, features)) * draw.uniform(0.2, 2, features)
    return exact.Moments.of(x, draw.normal(size=(n, outputs)))


def shares(draw, symbols):
    found = draw.dirichlet(np.full(symbols, 0.3))
    return found / found.sum()


FORMS = {
    "finite": (lambda draw: draw.uniform(0, 1, 7), exact.finite),
    "constants": (lambda draw: shares(draw, 5), exact.constants),
    "linear": (moments, lambda a, b: exact.linear(a, b, 1.5)),
    "categorical": (lambda draw: shares(draw, 6), lambda a, b: exact.categorical(a, b, 5.0)),
    "thresholds": (
        lambda draw: (draw.integers(0, 6, 9).astype(float), draw.integers(0, 2, 9)),
        exact.thresholds,
    ),
}


@pytest.mark.parametrize("name", FORMS)
@given(seeds)
def test_a_discrepancy_is_a_distance(name, seed):
    make, disc = FORMS[name]
    draw = np.random.default_rng(seed)
    a, b, c = make(draw), make(draw), make(draw)
    assert disc(a, a) == pytest.approx(0, abs=1e-9)
    assert disc(a, b) == pytest.approx(float(disc(b, a)), abs=1e-9)
    assert disc(a, c) <= disc(a, b) + disc(b, c) + 1e-8


@given(seeds)
def test_constant_predictors_with_the_0_1_loss(seed):
    draw = np.random.default_rng(seed)
    y = [draw.integers(0, 4, n) for n in (9, 13)]
    first, second = (exact.label_frequencies(labels, 4) for labels in y)
    by_hand = max(abs((y[0] != c).mean() - (y[1] != c).mean()) for c in range(4))
    assert exact.constants(first, second) == pytest.approx(by_hand)
    assert exact.constants(first, second) == pytest.approx(np.abs(first - second).max())


@given(seeds)
def test_thresholds_against_all_of_them(seed):
    draw = np.random.default_rng(seed)
    (xa, ya), (xb, yb) = (
        (draw.integers(0, 6, n).astype(float), draw.integers(0, 2, n)) for n in (7, 11)
    )
    found = []
    for t, s in itertools.product(np.arange(-1, 7, 0.25), (-1, 1)):
        losses = [(((x - t) * s > 0) != y).mean() for x, y in ((xa, ya), (xb, yb))]
        found.append(abs(losses[0] - losses[1]))
    assert exact.thresholds((xa, ya), (xb, yb)) == pytest.approx(max(found))


def test_the_papers_example_of_thresholds():
    """Appendix, global models: the opposite labels on the same inputs."""
    x = np.linspace(-1, 1, 200)
    first, second = (x, (x > 0).astype(int)), (x, (x < 0).astype(int))
    everybody = tuple(np.concatenate(pair) for pair in zip(first, second, strict=True))
    assert exact.thresholds(first, second) == pytest.approx(1)
    assert exact.thresholds(first, everybody) == pytest.approx(0.5)
    for t, s in itertools.product(np.linspace(-2, 2, 41) + 1e-3, (-1, 1)):
        wrong = (((everybody[0] - t) * s > 0) != everybody[1]).mean()
        assert wrong == pytest.approx(0.5)


def dense(matrix, vector, radius):
    """By search: the boundary, then around the best of the disc, ever closer."""
    best, centre, width = -np.inf, np.zeros(2), radius
    for _ in range(40):
        side = np.linspace(-width, width, 61)
        w = np.stack(np.meshgrid(centre[0] + side, centre[1] + side), -1).reshape(-1, 2)
        norm = np.linalg.norm(w, axis=1, keepdims=True)
        w = np.where(norm > radius, w * radius / np.maximum(norm, 1e-300), w)
        value = ((w @ matrix) * w).sum(axis=1) + 2 * w @ vector
        best, centre = max(best, value.max()), w[value.argmax()]
        width *= 0.6
    angle = np.linspace(0, 2 * np.pi, 400_001)
    w = radius * np.stack([np.cos(angle), np.sin(angle)], -1)
    return max(best, (((w @ matrix) * w).sum(axis=1) + 2 * w @ vector).max())


@given(seeds)
def test_the_trust_region_against_a_dense_search(seed):
    draw = np.random.default_rng(seed)
    half = draw.normal(size=(2, 2))
    matrix, vector, radius = half + half.T, draw.normal(size=2), draw.uniform(0.1, 3)
    if seed % 3 == 0:
        matrix -= 6 * np.eye(2)  # concave: the maximum may be inside
    found = float(exact.maximum_in_ball(matrix, vector, radius))
    assert found == pytest.approx(dense(matrix, vector, radius), abs=1e-6)


@pytest.mark.parametrize(
    "matrix, vector, radius, best",
    [
        (np.diag([1.0, 3.0]), [1.0, 0.0], 2.0, 12.5),  # hard: b is orthogonal to the top space
        (np.diag([2.0, 2.0]), [0.0, 0.0], 3.0, 18.0),  # no b at all
        (np.diag([-1.0, -2.0]), [0.5, 0.0], 2.0, 0.25),  # inside
        (np.diag([-1.0, 0.0]), [0.0, 0.0], 2.0, 0.0),
        (np.zeros((2, 2)), [3.0, 4.0], 2.0, 20.0),
        (np.zeros((2, 2)), [0.0, 0.0], 2.0, 0.0),
    ],
)
def test_hard_cases_of_the_trust_region(matrix, vector, radius, best):
    found = exact.maximum_in_ball(matrix, np.array(vector), radius)
    assert float(found) == pytest.approx(best, abs=1e-12)


@given(seeds)
def test_linear_models_against_a_dense_search(seed):
    draw = np.random.default_rng(seed)
    (xa, ya), (xb, yb) = ((draw.normal(size=(n, 2)), draw.normal(size=n)) for n in (8, 5))
    a, b = exact.Moments.of(xa, ya), exact.Moments.of(xb, yb)
    matrix, vector = a.xx - b.xx, (b.xy - a.xy)[:, 0]
    rest = float(a.yy - b.yy)
    searched = max(rest + dense(matrix, vector, 1.3), -rest + dense(-matrix, -vector, 1.3))
    assert float(exact.linear(a, b, 1.3)) == pytest.approx(searched, abs=1e-6)
    w = draw.normal(size=(200, 2))
    w *= 1.3 / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1.3)
    gaps = [abs(((xa @ v - ya) ** 2).mean() - ((xb @ v - yb) ** 2).mean()) for v in w]
    assert max(gaps) <= exact.linear(a, b, 1.3) + 1e-9


def test_an_intercept_and_several_outputs():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(6, 2)), draw.normal(size=(6, 3))
    found = exact.Moments.of(x, y, intercept=True)
    assert found.xx.shape == (3, 3) and found.xy.shape == (3, 3) and found.xx[2, 2] == 1
    other = exact.Moments.of(draw.normal(size=(5, 2)), draw.normal(size=(5, 3)), intercept=True)
    disc = float(exact.linear(found, other, 2.0))
    best = 0.0
    for _ in range(2000):
        w = draw.normal(size=(3, 3))
        w *= 2 / np.linalg.norm(w)
        gap = [((w.T @ m.xx) * w.T).sum() - 2 * (w * m.xy).sum() + m.yy for m in (found, other)]
        best = max(best, abs(gap[0] - gap[1]))
    assert 0.6 * disc < best <= disc


@given(seeds)
def test_densities_against_many(seed):
    draw = np.random.default_rng(seed)
    a, b, bound = shares(draw, 4), shares(draw, 4), draw.uniform(1.5, 6)
    floor = math.exp(-bound)
    disc = float(exact.categorical(a, b, bound))
    h = floor + (1 - 4 * floor) * draw.dirichlet(np.full(4, 0.2), 3000)
    gaps = np.abs(np.log(h) @ (a - b))
    assert gaps.max() <= disc + 1e-9
    # And it is reached: the best density is a corner of a finer and finer search.
    best = h[gaps.argmax()]
    for scale in np.geomspace(0.3, 1e-5, 60):
        step = np.maximum(best * np.exp(scale * draw.normal(size=(200, 4))), 1e-12)
        near = floor + (1 - 4 * floor) * _simplex(step - floor)
        values = np.abs(np.log(near) @ (a - b))
        if values.max() > np.abs(np.log(best) @ (a - b)):
            best = near[values.argmax()]
    assert np.abs(np.log(best) @ (a - b)) >= 0.98 * disc - 1e-9


def _simplex(h):
    h = np.maximum(h, 0) + 1e-300
    return h / h.sum(axis=-1, keepdims=True)


def test_two_symbols_by_hand():
    found = float(exact.categorical([1.0, 0.0], [0.0, 1.0], bound=math.log(100)))
    assert found == pytest.approx(math.log(99))  # log 0.99 − log 0.01
    assert float(exact.categorical([1, 0], [0, 1], bound=math.log(2))) == pytest.approx(0)


@given(npst.arrays(np.float64, (3, 5), elements=st.floats(0.01, 1)))
def test_many_pairs_at_once(raw):
    for disc in (exact.constants, lambda a, b: exact.categorical(a, b, 6.0)):
        matrix = disc(raw[:, None], raw[None])
        for i, j in itertools.product(range(3), repeat=2):
            assert matrix[i, j] == pytest.approx(float(disc(raw[i], raw[j])), abs=1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-300, 3.3e-16, 1e-9])
def test_almost_hard_cases_do_not_overshoot(size):
    assert float(exact.maximum_in_ball(np.eye(1), np.array([size]), 1.0)) == pytest.approx(
        1 + 2 * size
    )
    far = np.diag([1e8, 1e8 - 1])
    found = float(exact.maximum_in_ball(far, np.array([size, 0.0]), 1.0))
    assert found == pytest.approx(1e8 + 2 * size)


@pytest.mark.parametrize("bound", [20.0, 140.0, 200.0, 800.0])
def test_densities_with_hardly_a_bound(bound):
    """c is ±0.8: one symbol has nearly all, the other e^−bound."""
    found = float(exact.categorical([0.9, 0.1], [0.1, 0.9], bound))
    assert found == pytest.approx(0.8 * bound, rel=1e-6)


def test_bad_input():
    with pytest.raises(ConfigError, match=r"bound=1\.0: with 4 classes .* already loses 1\.386"):
        exact.categorical(np.ones(4), np.ones(4), 1.0)
    with pytest.raises(ConfigError, match="radius must be a positive number"):
        exact.linear(*[exact.Moments.of([[1.0]], [1.0])] * 2, radius=0)
    with pytest.raises(DataError, match="a client is empty"):
        exact.constants([0, 0], [1, 1])
    with pytest.raises(DataError, match="0 inputs and 0 outputs"):
        exact.Moments.of(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(DataError, match="labels are 0 or 1"):
        exact.thresholds(([1.0], [2]), ([1.0], [1]))
    with pytest.raises(DataError, match="no labels"):
        exact.label_frequencies([], 3)
    with pytest.raises(DataError, match="at least one"):
        exact.thresholds(([], []), ([1.0], [1]))
