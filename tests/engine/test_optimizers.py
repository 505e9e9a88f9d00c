"""Steps that are cut to Polyak's step size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given
from hypothesis import strategies as st

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
