"""Steps that are cut to Polyak's step size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.engine import Own
from sartor.engine.optimizers import capped_sgd

LOGS = st.floats(-6, 6, allow_subnormal=False, width=32)


def step(rate, loss, at):
    """The value before, and the point after one step."""
    rule = capped_sgd(rate)
    value, gradient = jax.value_and_grad(loss)(at)
    changes, _ = rule.update(gradient, rule.init(at), at, value=value)
    return value, optax.apply_updates(at, changes)


@given(steepness=LOGS, start=LOGS, rate=LOGS)
def test_no_step_makes_a_squared_error_larger(steepness, start, rate):
    def loss(w):
        return (10.0**steepness * w) ** 2

    before, after = step(10.0**rate, loss, jnp.float32(10.0**start))
    assert loss(after) <= before * (1 + 1e-5)


@given(unit=LOGS)
def test_short_steps_are_those_of_sgd_in_any_unit(unit):
    def loss(w):
        return (10.0**unit * (w - 3.0)) ** 2

    rate = 0.1 / 10.0 ** (2 * unit)
    _, after = step(rate, loss, jnp.float32(1.0))
    np.testing.assert_allclose(after, 1.0 + 0.2 * 2.0, rtol=1e-5)


def test_where_there_is_no_gradient_nothing_moves():
    for constant in (0.0, 1.0):
        _, after = step(0.5, lambda w, c=constant: c + 0.0 * w, jnp.float32(2.0))
        assert after == 2.0


@pytest.mark.parametrize("rate", [0.0025, 0.16, 10.0])
@pytest.mark.parametrize("steep", [1e2, 1e4])
def test_steps_settle_near_a_minimum_above_zero(rate, steep):
    """Two examples with one input contradict each other."""

    def loss(w):
        return ((steep * w - jnp.array([0.0, 6.0])) ** 2).mean()

    rule, w, losses = capped_sgd(rate), jnp.float32(0.0), []
    state = rule.init(w)
    for _ in range(200):
        value, gradient = jax.value_and_grad(loss)(w)
        losses.append(float(value))
        changes, state = rule.update(gradient, state, w, value=value)
        w = optax.apply_updates(w, changes)
    assert np.mean(losses[50:]) < 1.25 * 9 and max(losses[50:]) < 5 * 9  # the lowest possible is 9


def test_another_loss_of_ones_own_is_not_known_to_be_positive():
    class Shifted(Own):
        def loss(self, own, central, batch, job):
            return super().loss(own, central, batch, job) - 1.0

    assert Own.never_negative and not Shifted.never_negative
