"""Losses of examples under models, against the model itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_cases import MODEL, regression

import sartor
from sartor.engine import (
    Against,
    EachScorer,
    Job,
    Own,
    Spans,
    losses_by_client,
    positions,
    score_shared,
)

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


@pytest.mark.parametrize("q", [1, 3])
def test_clients_against_a_central_model_in_the_same_pass(q):
    """The central losses are those of the shared pass; no label brings a gain out of the range."""
    central = jax.tree.map(lambda a: a[:q], HYPOTHESES)
    scorer = EachScorer(Own(MODEL), DATA, HYPOTHESES, sartor.Engine(), lanes=3, most=200)
    leaves = {"dense_1/w": HYPOTHESES["dense_1"]["w"], "dense_1/b": HYPOTHESES["dense_1"]["b"]}
    stack = {name: np.asarray(leaf)[[2, 1]] for name, leaf in leaves.items()}
    jobs, chosen = Job(np.zeros(2, np.int32), None, None), np.array([q - 1, 0])
    spans = Spans(DATA.bounds[[0, 3], 0], DATA.sizes("train")[[0, 3]])
    labels = np.array([-2.0, 5.0], np.float32)
    found = scorer.score(stack, jobs, spans, Against(central, chosen, labels))
    plain = scorer.score(stack, jobs, spans)
    for mine, alone, own, other, k in zip(found, plain, (2, 1), chosen, (0, 3), strict=True):
        rows = DATA.part(k, "train")
        np.testing.assert_array_equal(mine.loss, alone.loss)
        np.testing.assert_allclose(mine.central.loss, loss_of(other, rows), rtol=1e-5)
        x = jnp.asarray(DATA.columns["x"][rows])
        a, b = (MODEL.apply(jax.tree.map(lambda h, i=i: h[i], HYPOTHESES), x, None)
                for i in (other, own))  # fmt: skip
        any_label = np.linspace(*labels, 29)[:, None]
        gain = (any_label - np.asarray(a)) ** 2 - (any_label - np.asarray(b)) ** 2
        ends = np.stack([gain.min(axis=0), gain.max(axis=0)], axis=1)
        np.testing.assert_allclose(mine.gain_range, ends, rtol=1e-3, atol=1e-3)
    assert found[0].gain_range.shape == (len(found[0].loss), 2)
