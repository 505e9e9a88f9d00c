"""A model for every client, a block at a time: the same whatever the blocks are."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from engine_cases import MODEL, as_vector, descend, examples, regression

import sartor
from sartor.engine import Own, Recipe, blocks, everybody, train_each

DATA = regression(sizes=(5, 1, 8, 3, 4, 6, 2))
CENTRAL = jax.tree.map(lambda a: a[None], MODEL.init(jax.random.key(1)))
RECIPE = Recipe(Own(MODEL), None, 2, 8)


def train(lanes=None, done=None, kept=None, **changes):
    rates = np.full(len(DATA), 0.1, np.float32)
    jobs = everybody(DATA, 0, np.zeros(len(DATA), np.int64), learning_rate=rates)
    done = np.zeros(len(DATA), bool) if done is None else done
    found = {}
    for block in train_each(
        DATA, RECIPE, jobs._replace(**changes), central=CENTRAL, done=done,
        engine=sartor.Engine(lanes=lanes), kept=kept,
    ):  # fmt: skip
        assert len(block.jobs) <= (lanes or len(DATA))
        for place, k in enumerate(block.jobs):
            found[int(k)] = {name: leaf[place] for name, leaf in block.params.items()}
    return found


def by_hand(k, theta):
    for _ in range(2):
        theta = descend(theta, *examples(DATA, k), 0.1)
    return theta


@pytest.mark.parametrize("lanes", [1, 3, None])
def test_every_client_trains_by_itself(lanes):
    found = train(lanes)
    start = as_vector(jax.tree.map(lambda a: a[0], CENTRAL))
    assert sorted(found) == list(range(len(DATA)))
    for k, own in found.items():
        np.testing.assert_allclose(as_vector(own), by_hand(k, start), atol=1e-5)


def test_blocks_that_are_done_are_left_out_and_the_others_stay_the_same():
    whole = train(lanes=2)
    done = np.arange(len(DATA)) < 3  # the first block, and half of the second
    rest = train(lanes=2, done=done)
    assert sorted(rest) == [2, 3, 4, 5, 6]
    for k, own in rest.items():
        for name, leaf in own.items():
            np.testing.assert_array_equal(leaf, whole[k][name])


def test_a_client_goes_on_from_what_it_has_kept():
    class Memory:
        def recall(self, clients):
            leaves = {"dense_1/w": np.full((len(clients), 2, 1), 2.0, np.float32)}
            leaves["dense_1/b"] = np.full((len(clients), 1), 0.5, np.float32)
            return leaves, clients % 2 == 0

    found = train(kept=Memory())
    start = as_vector(jax.tree.map(lambda a: a[0], CENTRAL))
    for k, own in found.items():
        theta = np.array([2.0, 2.0, 0.5]) if k % 2 == 0 else start
        np.testing.assert_allclose(as_vector(own), by_hand(k, theta), atol=1e-4)


def test_without_examples_nothing_is_trained():
    jobs = everybody(DATA, 0, np.zeros(len(DATA), np.int64))
    found = train(train=jobs.train._replace(sizes=np.zeros(len(DATA), np.int64)))
    start = as_vector(jax.tree.map(lambda a: a[0], CENTRAL))
    for own in found.values():
        np.testing.assert_array_equal(as_vector(own), start)


def test_jobs_that_follow_each_other_with_the_same_draws_share_them():
    jobs = everybody(DATA, 0, np.zeros(len(DATA), np.int64))
    jobs = jobs.take(np.array([0, 0, 0, 3, 3, 1]))
    assert blocks._shared(jobs).tolist() == [0, 0, 0, 1, 1, 2]
    sizes = np.array([0, 5, 5, 3, 3, 1])  # λ = 0 trains nothing
    jobs = jobs._replace(train=jobs.train._replace(sizes=sizes))
    assert blocks._shared(jobs).tolist() == [0, 1, 1, 2, 2, 3]
    jobs = jobs._replace(words=np.arange(6, dtype=np.uint64))
    assert blocks._shared(jobs).tolist() == [0, 1, 2, 3, 4, 5]
