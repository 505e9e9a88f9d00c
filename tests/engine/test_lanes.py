"""The compiled loop: whatever the lanes, every job reads its own examples, once each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import columns_of, examples, plan_of, regression

from sartor.engine.job import Ask, ClientProgram, Ended
from sartor.engine.lanes import each, fold
from sartor.engine.schedule import one_each, steps_of

DATA = regression()

SUMS = ClientProgram(
    lambda job: (0.0, 0.0),
    lambda carry, batch, job: (
        carry[0] + jnp.where(batch.mask, batch.y, 0).sum(),
        carry[1] + batch.mask.sum(),
    ),
    lambda carry, job: Ended(carry[0], {"count": carry[1]}, keep=carry[0] + job.size),
)
"""Adds up the labels that a job reads, and counts them."""


def totals():
    return np.array([examples(DATA, k)[1].sum() for k in range(len(DATA))])


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
@pytest.mark.parametrize("epochs", [1, 3])
def test_fold_sums_by_hypothesis_and_records_by_job(lanes, epochs):
    plan, jobs = plan_of(DATA, lanes=lanes, batch=2, epochs=epochs)
    hypothesis = np.array([0, 1, 1, 0])
    weights = np.array([1.0, 2.0, 0.5, 3.0], np.float32)
    jobs = jobs._replace(hypothesis=jnp.asarray(hypothesis))
    total, (record, keep, finite) = jax.jit(
        lambda: fold(SUMS, plan, columns_of(DATA), jobs, jnp.asarray(weights), 2, q=2)
    )()
    wanted = epochs * totals()
    sums = [(weights * wanted)[hypothesis == i].sum() for i in range(2)]
    np.testing.assert_allclose(total, sums, rtol=1e-5)
    np.testing.assert_array_equal(record["count"], epochs * DATA.sizes("train"))
    np.testing.assert_allclose(keep, wanted + DATA.sizes("train"), rtol=1e-5)
    assert np.asarray(finite).all()


def test_each_gives_every_lane_its_job():
    sizes = DATA.sizes("train")[None]
    packing = one_each(steps_of(sizes, 3, 1))
    plan, jobs = plan_of(DATA, lanes=4, batch=3, packing=packing)
    ended = each(SUMS, plan, columns_of(DATA), jobs, 3)
    np.testing.assert_allclose(ended.upload, totals(), rtol=1e-5)


def test_a_job_that_ends_badly_is_named():
    bad = SUMS._replace(
        end=lambda carry, job: Ended(jnp.where(job.size == 8, jnp.nan, carry[0]), {"n": carry[1]})
    )
    plan, jobs = plan_of(DATA, lanes=2, batch=2)
    _, (_, _, finite) = fold(bad, plan, columns_of(DATA), jobs, jnp.ones(4), 2)
    np.testing.assert_array_equal(finite, DATA.sizes("train") != 8)


@pytest.mark.parametrize("beforehand", [True, False])
def test_batches_hold_what_the_central_hypothesis_predicts(beforehand):
    """Computed for all examples beforehand, or in every step: it is the same."""
    columns = columns_of(DATA)
    scales = jnp.array([1.0, 10.0])
    ask = Ask(lambda h, x: h * x[:, 0], scales)
    plan, jobs = plan_of(DATA, lanes=2, batch=2)
    if beforehand:
        ask = ask._replace(answers=scales[:, None] * columns["x"][plan.order][:, 0])
    jobs = jobs._replace(hypothesis=jnp.array([0, 1, 0, 1]))
    asks = ClientProgram(
        lambda job: 0.0,
        lambda carry, batch, job: carry + jnp.where(batch.mask, batch.central, 0).sum(),
        lambda carry, job: Ended((), {"said": carry}),
    )
    _, (record, _, _) = fold(asks, plan, columns, jobs, jnp.ones(4), 2, q=2, ask=ask)
    wanted = [examples(DATA, k)[0][:, 0].sum() * (1, 10, 1, 10)[k] for k in range(4)]
    np.testing.assert_allclose(record["said"], wanted, rtol=1e-5)
