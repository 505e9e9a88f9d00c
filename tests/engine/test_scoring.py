"""Losses of examples under models, against the model itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MODEL, regression

import sartor
from sartor.engine import EachScorer, Job, Own, Spans, losses_by_client, positions, score_shared

DATA = regression(sizes=(5, 1, 8, 200)).split(test=0.3, seed=0)
HYPOTHESES = jax.vmap(MODEL.init)(jax.random.split(jax.random.key(0), 3))


def loss_of(i, rows):
    params = jax.tree.map(lambda a: a[i], HYPOTHESES)
    x, y = (jnp.asarray(DATA.columns[name][rows]) for name in ("x", "y"))
    return np.asarray(MODEL.loss(params, x, y))


@pytest.mark.parametrize("resident", [True, False])
def test_every_row_under_every_hypothesis(resident):
    rows = positions(DATA, np.arange(4), "train")
    engine = sartor.Engine(resident=resident)
    scored = score_shared(MODEL, DATA, rows, HYPOTHESES, engine)
    for i in range(3):
        np.testing.assert_allclose(scored.loss[i], loss_of(i, DATA.rows[rows]), rtol=1e-5)


def test_means_by_client_and_nothing_for_those_without_examples():
    means = losses_by_client(
        MODEL, DATA, np.arange(4), HYPOTHESES, sartor.Engine(), part="test", plain=True
    )
    for k in range(4):
        rows = DATA.part(k, "test")
        for i in range(3):
            wanted = loss_of(i, rows).mean() if len(rows) else np.nan
            np.testing.assert_allclose(means[k, i], wanted, rtol=1e-5)
    assert np.isnan(means[1]).all()  # its only example is for training


def test_clients_under_their_own_models():
    scorer = EachScorer(Own(MODEL), DATA, HYPOTHESES, sartor.Engine(), lanes=3, most=200)
    leaves = {"dense_1/w": HYPOTHESES["dense_1"]["w"], "dense_1/b": HYPOTHESES["dense_1"]["b"]}
    stack = {name: np.asarray(leaf)[[2, 0]] for name, leaf in leaves.items()}
    jobs = Job(np.zeros(2, np.int32), None, None)
    first, sizes = DATA.bounds[[0, 3], 0], DATA.sizes("train")[[0, 3]]
    own = scorer.score(stack, jobs, Spans(first, sizes))
    for found, i, begin, size in zip(own, (2, 0), first, sizes, strict=True):
        rows = DATA.rows[begin : begin + size]
        np.testing.assert_allclose(found.loss, loss_of(i, rows), rtol=1e-5)
    same = scorer.score(stack, jobs, Spans(np.zeros(2, int), np.full(2, 7), np.arange(7)))
    np.testing.assert_allclose(same[1].loss, loss_of(0, DATA.rows[:7]), rtol=1e-5)
