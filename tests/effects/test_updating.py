"""New rows change their clients, and nobody else."""

from __future__ import annotations

import numpy as np
import pytest
from effect_cases import as_labels, drawn

from sartor.effects import fit_linear, fit_logistic
from sartor.effects.updating import (
    update_linear,
    update_logistic,
    with_clients,
    without_client,
)


def halves(owner):
    """About half of each client's rows."""
    order = np.argsort(owner, kind="stable")
    place = np.empty(len(owner), int)
    place[order] = np.arange(len(owner))
    return place % 2 == 0


def test_a_linear_client_is_fitted_as_if_to_all_rows():
    x, y, owner, _, _ = drawn()
    z, first, nothing = x[:, :2], halves(owner), np.zeros((len(y), 0))
    prior, offset = np.array([[2.0, 0.3], [0.3, 0.5]]), x @ [1.0, 2.0, 0.3]
    part = fit_linear(
        nothing[first], z[first], y[first], owner[first], 60, offset=offset[first], covariance=prior
    )
    later = update_linear(
        part, nothing[~first], z[~first], y[~first], owner[~first], offset[~first]
    )
    whole = fit_linear(nothing, z, y, owner, 60, offset=offset, covariance=prior)
    # The noise was estimated from other rows, and the prior is a multiple of it.
    same = part.noise / whole.noise
    np.testing.assert_allclose(later.clients, whole.clients, atol=1e-8)
    np.testing.assert_allclose(later.spread, same * whole.spread, rtol=1e-6, atol=1e-12)


def test_a_logistic_client_is_close_to_that():
    x, y, owner, _, draw = drawn(clients=100, most=120)
    labels, z, first = as_labels(y, draw), x[:, :2], halves(owner)
    fixed = x
    part = fit_logistic(fixed[first], z[first], labels[first], owner[first], 100)
    later = update_logistic(part, fixed[~first], z[~first], labels[~first], owner[~first])
    whole = fit_logistic(fixed, z, labels, owner, 100)
    before, after = (np.abs(of.clients - whole.clients).mean() for of in (part, later))
    assert after < before / 3


@pytest.mark.parametrize("update", [update_linear, update_logistic])
def test_others_stay_as_they_are_to_the_bit(update):
    x, y, owner, _, draw = drawn()
    logistic = update is update_logistic
    y = as_labels(y, draw) if logistic else y
    fit = (fit_logistic if logistic else fit_linear)(x, x[:, :2], y, owner, 60)
    grown = with_clients(fit, 61)
    mine = np.isin(owner, [3, 4])
    new = np.where(owner[mine] == 4, 60, 3)
    later = update(grown, x[mine], x[mine, :2], y[mine], new)
    others = np.setdiff1d(np.arange(60), [3])
    for name in ("clients", "spread", "follows"):
        np.testing.assert_array_equal(getattr(later, name)[others], getattr(fit, name)[others])
    assert (later.clients[3] != fit.clients[3]).all()
    # A new client is like one of the fit with these rows, but for what they say of the others.
    np.testing.assert_allclose(later.clients[60], fit.clients[4], rtol=0.1, atol=0.02)


def test_a_client_that_is_forgotten_is_a_new_one():
    x, y, owner, _, _ = drawn()
    fit = fit_linear(x, x[:, :2], y, owner, 60)
    without = without_client(fit, 7)
    unknown = np.full(5, -1)
    np.testing.assert_array_equal(
        without.score(x[:5], x[:5, :2], np.full(5, 7)), fit.score(x[:5], x[:5, :2], unknown)
    )
    np.testing.assert_array_equal(
        without.variance(x[:5], x[:5, :2], np.full(5, 7)),
        fit.variance(x[:5], x[:5, :2], unknown),
    )
    assert (fit.clients[7] != 0).all()  # a copy was changed


def test_effects_that_do_not_vary_stay_at_zero():
    x, y, owner, _, _ = drawn(spread=0.0)
    fit = fit_linear(x, x[:, :1], y, owner, 60)
    if fit.covariance[0, 0] == 0:
        later = update_linear(fit, x, x[:, :1], y, owner)
        np.testing.assert_array_equal(later.clients, 0.0)
