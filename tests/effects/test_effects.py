"""Hierarchical fits: equal to those of other libraries, of closed forms, and of the truth."""

from __future__ import annotations

import numpy as np
import pytest
from effect_cases import as_labels, drawn
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression, Ridge

from sartor.effects import fit_linear, fit_logistic
from sartor.effects import linear as of_linear
from sartor.effects import logistic as of_logistic
from sartor.effects.rows import Design
from sartor.errors import DataError

FACTOR = np.array([[1.0, 0.0], [0.3, 0.5]])


@pytest.mark.parametrize("varying", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_linear_fits_are_those_of_statsmodels(seed, varying):
    mixed = pytest.importorskip("statsmodels.api").MixedLM
    x, y, owner, _, _ = drawn(seed)
    z = x[:, :varying]
    found = fit_linear(x, z, y, owner, 60)
    theirs = mixed(y, x, owner, exog_re=z).fit(reml=True)
    np.testing.assert_allclose(found.fixed, theirs.fe_params, rtol=1e-4)
    np.testing.assert_allclose(found.covariance, theirs.cov_re, rtol=5e-3)
    np.testing.assert_allclose(found.noise, theirs.scale, rtol=1e-3)
    effects = np.array([theirs.random_effects[k] for k in range(60)])
    np.testing.assert_allclose(found.clients, effects, atol=1e-3)
    errors = np.sqrt(found.uncertainty.diagonal())
    np.testing.assert_allclose(errors, theirs.bse_fe, rtol=5e-3)


def test_given_penalties_are_ridge_regressions():
    x, y, owner, _, _ = drawn()
    nothing = np.zeros((len(y), 0))
    found = fit_linear(nothing, x, y, owner, 60, covariance=np.eye(3) / 2.5)
    for k in range(60):
        mine = owner == k
        theirs = Ridge(alpha=2.5, fit_intercept=False).fit(x[mine], y[mine])
        np.testing.assert_allclose(found.clients[k], theirs.coef_, rtol=1e-5, atol=1e-8)


def test_given_penalties_are_logistic_ridge_regressions():
    x, y, owner, _, draw = drawn(most=80)
    labels = as_labels(y, draw)
    nothing = np.zeros((len(y), 0))
    found = fit_logistic(nothing, x, labels, owner, 60, covariance=np.eye(3) / 2.5)
    for k in range(60):
        mine = owner == k
        if 0 < labels[mine].sum() < mine.sum():
            theirs = LogisticRegression(C=1 / 2.5, fit_intercept=False, tol=1e-10, max_iter=1000)
            theirs.fit(x[mine], labels[mine])
            np.testing.assert_allclose(found.clients[k], theirs.coef_[0], rtol=1e-5, atol=1e-6)


def test_effects_are_added_to_the_scores_of_another_model():
    x, y, owner, _, draw = drawn()
    labels, offset = as_labels(y, draw), draw.normal(size=len(y))
    nothing, z, penalty = np.zeros((len(y), 0)), x[:, :2], 1.7
    linear = fit_linear(nothing, z, y, owner, 60, offset=offset, covariance=np.eye(2) / penalty)
    same = fit_linear(nothing, z, y - offset, owner, 60, covariance=np.eye(2) / penalty)
    np.testing.assert_array_equal(linear.clients, same.clients)
    found = fit_logistic(
        nothing, z, labels, owner, 60, offset=offset, covariance=np.eye(2) / penalty
    )
    for k in range(5):
        mine = owner == k

        def loss(b, mine=mine):
            score = offset[mine] + z[mine] @ b
            return (np.logaddexp(0, score) - labels[mine] * score).sum() + penalty * b @ b / 2

        best = optimize.minimize(loss, np.zeros(2), options={"gtol": 1e-9}).x
        np.testing.assert_allclose(found.clients[k], best, atol=1e-5)


def numerical(function, factor, step=1e-5):
    found = np.zeros_like(factor)
    for place in zip(*np.tril_indices(len(factor)), strict=True):
        away = np.zeros_like(factor)
        away[place] = step
        found[place] = (function(factor + away) - function(factor - away)) / (2 * step)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_the_restricted_likelihood_is_its_derivative(seed):
    x, y, owner, _, _ = drawn(seed, clients=20)
    moments = of_linear.Moments.of(x, x[:, :2], y, None, owner, 20)
    found = np.tril(of_linear.solve(moments, FACTOR).gradient)
    expected = numerical(lambda factor: of_linear.solve(moments, factor).criterion, FACTOR)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_laplace_is_its_derivative(seed, monkeypatch):
    monkeypatch.setattr(of_logistic, "CLOSE", 1e-18)
    x, y, owner, _, draw = drawn(seed, clients=20)
    problem = as_problem(x, x[:, :2], as_labels(y, draw), owner, 20)

    def evidence(factor):
        mode = of_logistic.find_mode(problem, factor, np.zeros(3), np.zeros((20, 2)))
        return of_logistic.evidence(problem, factor, mode)

    expected = numerical(lambda factor: evidence(factor)[0], FACTOR)
    np.testing.assert_allclose(np.tril(evidence(FACTOR)[1]), expected, rtol=1e-4)


def as_problem(x, z, labels, owner, clients):
    design = Design.of(x, z, owner, clients)
    alike = [labels[rows] for rows in design.rows]
    ones = [np.ones_like(values) for values in alike]
    zeros = [np.zeros_like(values) for values in alike]
    return of_logistic.Problem(design, alike, zeros, ones, clients, float(len(labels)))


def test_laplace_is_near_the_integral():
    """Of one effect for each client, which can be integrated by quadrature."""
    _, y, owner, _, draw = drawn(clients=30, most=30)
    labels, ones = as_labels(y, draw), np.ones((len(y), 1))
    problem = as_problem(np.zeros((len(y), 0)), ones, labels, owner, 30)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    for deviation in (0.3, 1.0, 2.0):
        factor = np.array([[deviation]])
        mode = of_logistic.find_mode(problem, factor, np.zeros(0), np.zeros((30, 1)))
        found, _ = of_logistic.evidence(problem, factor, mode)
        score = deviation * nodes
        likelihood = np.zeros((30, 80))
        np.add.at(likelihood, owner, labels[:, None] * score - np.logaddexp(0, score))
        exact = special.logsumexp(likelihood, b=weights / np.sqrt(2 * np.pi), axis=1).sum()
        assert found == pytest.approx(exact, abs=0.01 * abs(exact))


def test_variances_are_found():
    x, y, owner, own, draw = drawn(1, clients=2000, most=60)
    truth = np.cov(own.T)
    linear = fit_linear(x, x[:, :2], y, owner, 2000)
    np.testing.assert_allclose(linear.covariance, truth, atol=0.1)
    assert linear.noise == pytest.approx(1, rel=0.02)
    plain = x @ [1.0, 2.0, 0.3] + (x[:, :2] * own[owner]).sum(axis=1)
    logistic = fit_logistic(x, x[:, :2], as_labels(plain, draw), owner, 2000)
    np.testing.assert_allclose(logistic.covariance, truth, atol=0.3)


@pytest.mark.parametrize("fit", [fit_linear, fit_logistic])
@pytest.mark.parametrize("seed", range(3))
def test_small_differences_are_found_too(fit, seed):
    """A search that steps to a variance of zero does not stay there."""
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(2000), 20)
    x = np.c_[np.ones(40_000), draw.normal(size=40_000)]
    own = 0.25 * draw.normal(size=2000)
    score = x @ [0.5, 1.0] + own[owner]
    y = as_labels(score, draw) if fit is fit_logistic else score + draw.normal(size=40_000)
    found = fit(x, x, y, owner, 2000).covariance.diagonal()
    assert found[0] == pytest.approx(own.var(), abs=0.03)
    assert found[1] < 0.03


@pytest.mark.parametrize("fit", [fit_linear, fit_logistic])
def test_clients_that_do_not_differ_have_no_effects(fit):
    x, y, owner, _, draw = drawn(clients=200, spread=0.0)
    y = as_labels(y, draw) if fit is fit_logistic else y
    found = fit(x, x[:, :2], y, owner, 200)
    assert np.abs(found.clients).max() < 0.2
    assert found.covariance.diagonal().max() < 0.05


@pytest.mark.parametrize("fit", [fit_linear, fit_logistic])
def test_weights_are_repeated_rows(fit):
    x, y, owner, _, draw = drawn(clients=10)
    y = as_labels(y, draw) if fit is fit_logistic else y
    times = draw.integers(0, 4, len(y))
    nothing, z, prior = np.zeros((len(y), 0)), x[:, :2], np.eye(2)
    weighted = fit(nothing, z, y, owner, 10, weights=times.astype(float), covariance=prior)
    again = np.repeat(np.arange(len(y)), times)
    repeated = fit(nothing[again], z[again], y[again], owner[again], 10, covariance=prior)
    np.testing.assert_allclose(weighted.clients, repeated.clients, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("fit", [fit_linear, fit_logistic])
def test_units_and_the_order_of_rows_do_not_matter(fit):
    x, y, owner, _, draw = drawn(clients=40)
    y = as_labels(y, draw) if fit is fit_logistic else y
    unit, order = np.array([1.0, 1e4, 1e-3]), draw.permutation(len(y))
    plain = fit(x, x[:, :2], y, owner, 40)
    other = fit((x * unit)[order], (x * unit)[order, :2], y[order], owner[order], 40)
    np.testing.assert_allclose(other.fixed * unit, plain.fixed, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.clients * unit[:2], plain.clients, rtol=1e-3, atol=1e-4)


def test_intervals_hold_the_labels_of_known_and_new_clients():
    x, y, owner, own, draw = drawn(3, clients=400, most=12)
    found = fit_linear(x, x[:, :2], y, owner, 400)
    inside = {}
    for kind in ("known", "new"):
        who = draw.integers(0, 400, 20_000)
        fresh = np.c_[np.ones(20_000), draw.normal(size=(20_000, 2)) * [1.0, 3.0]]
        theirs = own[who] if kind == "known" else draw.permutation(own)[who]
        truth = fresh @ [1.0, 2.0, 0.3] + (fresh[:, :2] * theirs).sum(axis=1)
        labels = truth + draw.normal(size=20_000)
        client = who if kind == "known" else np.full(20_000, -1)
        score = found.score(fresh, fresh[:, :2], client)
        half = 1.645 * np.sqrt(found.variance(fresh, fresh[:, :2], client) + found.noise)
        inside[kind] = (np.abs(labels - score) < half).mean()
    assert inside["known"] == pytest.approx(0.9, abs=0.02)
    assert inside["new"] == pytest.approx(0.9, abs=0.02)


def test_clients_without_rows_have_no_effects():
    x, y, owner, _, _ = drawn(clients=10)
    found = fit_linear(x, x[:, :2], y, owner, 12)
    np.testing.assert_array_equal(found.clients[10:], 0.0)
    np.testing.assert_allclose(found.spread[11], found.covariance)
    assert found.score(x, x[:, :2], np.full(len(y), -1)) == pytest.approx(x @ found.fixed)


@pytest.mark.parametrize("fit", [fit_linear, fit_logistic])
def test_gaps_are_refused(fit):
    x, y, owner, _, _ = drawn(clients=10)
    x[3, 1] = np.nan
    with pytest.raises(DataError, match="fill gaps"):
        fit(x, x[:, :1], y, owner, 10)


def test_labels_that_separate_leave_finite_effects():
    x, _, owner, _, _ = drawn(clients=30)
    labels = (owner % 2).astype(float)  # all rows of a client have one label
    found = fit_logistic(x, x[:, :1], labels, owner, 30)
    assert np.isfinite(found.clients).all() and np.isfinite(found.covariance).all()
    score = found.score(x, x[:, :1], owner)
    assert ((score > 0) == (labels > 0)).all()


def test_columns_that_repeat_each_other_share_one_effect():
    x, y, owner, _, _ = drawn(clients=30)
    twice = np.c_[x, x[:, 2]]
    found, plain = (fit_linear(of, x[:, :1], y, owner, 30) for of in (twice, x))
    score, expected = found.score(twice, x[:, :1], owner), plain.score(x, x[:, :1], owner)
    np.testing.assert_allclose(score, expected, atol=1e-4)
