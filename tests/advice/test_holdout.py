"""Every training example is held out once, by models that have not seen it; test parts never."""

from __future__ import annotations

import numpy as np
import pytest

import sartor
from sartor.advice.holdout import (
    assign_folds,
    cross_validate,
    fold_count,
    merge_validation,
    split_by_fold,
)
from sartor.errors import DataError
from sartor.evaluation import Scores


@pytest.fixture
def data():
    draw = np.random.default_rng(0)
    sizes = {"ann": 11, "bob": 2, "cid": 1, "dan": 30, "eva": 5}
    clients = {
        c: {"x": draw.normal(size=(m, 2)), "y": draw.integers(0, 2, m)} for c, m in sizes.items()
    }
    return sartor.data.from_dict(clients).split(unseen=0.4, validation=0.2, test=0.2, seed=1)


def parts(data, k, *names):
    return {int(row) for name in names for row in data.part(k, name)}


def test_folds_are_disjoint_and_complete(data):
    fold = assign_folds(data, 5, seed=0)
    held = [set() for _ in data.ids]
    for f in range(5):
        part = split_by_fold(data, fold, f, f)
        assert part.ids == data.ids and (part.seen == data.seen).all()
        for k in range(len(data)):
            mine, test = parts(part, k, "train", "validation"), parts(part, k, "test")
            assert not mine & test and not held[k] & test
            assert mine | test == parts(data, k, "train", "validation")
            assert mine
            held[k] |= test
    for k in range(len(data)):
        own = parts(data, k, "train", "validation")
        assert held[k] == (own if len(own) > 1 else set())


def test_a_second_fold_is_left_out_where_something_remains(data):
    fold = assign_folds(data, 5, seed=0)
    one, two = split_by_fold(data, fold, 0, 0), split_by_fold(data, fold, 0, 1)
    for k in range(len(data)):
        assert parts(one, k, "test") == parts(two, k, "test")
        assert parts(two, k, "train") <= parts(one, k, "train") and parts(two, k, "train")
    assert len(two.rows) < len(one.rows)


def test_folds_do_not_depend_on_the_order_of_clients(data):
    other = data.select(list(data.ids)[::-1])
    a, b = (split_by_fold(d, assign_folds(d, 3, seed=5), 1, 1) for d in (data, other))
    for client in data.ids:
        one, two = a.client(client, "test"), b.client(client, "test")
        assert sorted(one["x"].ravel().tolist()) == sorted(two["x"].ravel().tolist())


def test_each_example_is_scored_once_by_who_has_not_seen_it(data):
    trained = []

    def fit(part):
        trained.append([parts(part, k, "train") for k in range(len(part))])
        some = [k for k in range(len(part)) if len(part.part(k, "test"))]
        rows = np.concatenate([part.part(k, "test") for k in some])
        scores = Scores(
            "rows", [part.ids[k] for k in some], [1] * len(some),
            [len(part.part(k, "test")) for k in some], [True] * len(some), rows.astype(float),
        )  # fmt: skip
        return {"row": scores}

    found = cross_validate(data, fit, folds=5, seed=0)
    assert len(trained) == 5
    own = data.bounds[:, 2] - data.bounds[:, 0]
    assert (found.trained < own[found.owner]).all() and (found.trained > 0).all()
    assert len(set(found.loss["row"])) == len(found.loss["row"])  # each row once
    for k in range(len(data)):
        mine = {int(r) for r in found.loss["row"][found.owner == k]}
        own = parts(data, k, "train", "validation")
        assert mine == (own if len(own) > 1 else set())


def test_nothing_to_hold_out():
    data = sartor.data.from_dict({"a": {"y": [1]}, "b": {"y": [0]}})
    with pytest.raises(DataError, match="no client has two training examples"):
        cross_validate(data, lambda part: {}, folds=5, seed=0)


def test_no_more_folds_than_anybody_has_examples():
    data = sartor.data.from_dict({c: {"y": [0, 1, 0]} for c in "abc"})
    assert fold_count(data, 5) == 3 and fold_count(data, 2) == 2
    seen = []

    def fit(part):
        seen.append(part.sizes("test").tolist())
        rows = np.concatenate([part.part(k, "test") for k in range(3)])
        return {"row": Scores("rows", part.ids, [1] * 3, [1] * 3, [True] * 3, rows.astype(float))}

    found = cross_validate(data, fit, folds=5, seed=0)
    assert seen == [[1, 1, 1]] * 3 and sorted(found.loss["row"]) == list(range(9))


def test_losses_that_are_not_finite_are_refused():
    data = sartor.data.from_dict({c: {"y": [0, 1]} for c in "ab"})

    def fit(part):
        return {"local": Scores("s", part.ids, [1] * 2, [1] * 2, [True] * 2, [0.0, np.inf])}

    with pytest.raises(
        DataError, match="local: client 'b' has held-out losses that are not finite"
    ):
        cross_validate(data, fit, folds=5, seed=0)


def test_validation_parts_are_trained_on(data):
    whole = merge_validation(data)
    assert not whole.sizes("validation").any()
    assert (whole.sizes("train") == data.sizes("train") + data.sizes("validation")).all()
