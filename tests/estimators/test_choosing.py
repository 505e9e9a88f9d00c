"""What pays is chosen by pooled evidence; clients are guarded where that costs nearly nothing."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.estimators.candidates import GLOBAL
from sartor.estimators.choosing import GIVEN_UP, PAYS, choose
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.trying import Tried


def decided(gain, owner, fold, *, loss=1.0, forward=False):
    """The decision if one candidate gains so much on each row."""
    nothing = np.zeros((len(gain), 1))
    rows = Rows(nothing, nothing, owner, nothing[:, 0], None)
    tried = Tried(losses={GLOBAL: np.full(len(gain), loss), "other": loss - gain})
    folds = Folds(fold, int(fold.max()) + 1, forward)
    return choose(tried, rows, folds, np.bincount(owner))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_folds_that_differ_by_chance_do_not_pay(count):
    """Whole folds gain or lose, as periods do: an error of rows alone would be far too small."""
    draw, paid = np.random.default_rng(count), 0
    owner, fold = np.tile(np.arange(30), 20 * count), np.repeat(np.arange(count), 600)
    for _ in range(400):
        gain = draw.normal(0, 0.05, count)[fold] + draw.normal(0, 0.1, len(fold))
        found = decided(gain, owner, fold)
        mean, error = found.pays["other"]
        assert ((found.name == "other") <= (mean > PAYS * error)).all()
        paid += mean > PAYS * error
    assert paid <= 0.05 * 400  # 2.3% are meant


def test_what_pays_in_every_fold_pays():
    draw = np.random.default_rng(0)
    owner, fold = np.tile(np.arange(30), 60), np.repeat(np.arange(3), 600)
    found = decided(np.array([0.05, 0.06, 0.04])[fold] + draw.normal(0, 0.1, 1800), owner, fold)
    assert (found.name == "other").all() and found.kept.sum() == 0


@pytest.mark.parametrize("scale", [0.002, 0.02, 0.5])
def test_kept_clients_give_up_next_to_nothing(scale):
    """Small clients with small gains are kept, but never at the price of the gain of all."""
    draw = np.random.default_rng(1)
    size = np.geomspace(10, 1000, 40).astype(int)
    owner = np.repeat(np.arange(40), size)
    fold = draw.integers(0, 5, len(owner))
    gain = scale * (1 + 0.5 * draw.normal(size=40))[owner] + draw.normal(0, scale, len(owner))
    found = decided(gain, owner, fold)
    assert (found.name == "other").sum() > 20
    given_up = np.maximum(found.gain["other"] * size, 0)[found.kept].sum() / size.sum()
    assert given_up <= GIVEN_UP
    assert set(found.name[found.kept]) <= {GLOBAL}


def test_clients_that_would_lose_are_kept():
    draw = np.random.default_rng(2)
    owner, fold = np.tile(np.arange(40), 250), draw.integers(0, 5, 10_000)
    loses = owner >= 35
    gain = np.where(loses, -0.3, 0.3) + draw.normal(0, 0.3, 10_000)
    found = decided(gain, owner, fold)
    assert found.kept[35:].all() and not found.kept[:35].any()


def test_one_client_that_clearly_differs_is_found():
    """The error is that of clients' own rows: that others gain nothing is no doubt about it."""
    draw = np.random.default_rng(3)
    owner, fold = np.tile(np.arange(20), 200), draw.integers(0, 5, 4000)
    found = decided(np.where(owner == 7, 0.8, 0.0) + draw.normal(0, 0.4, 4000), owner, fold)
    assert found.name[7] == "other"
    mean, error = found.pays["other"]
    assert mean == pytest.approx(0.04, abs=0.02) and 0.4 < error / (0.4 / np.sqrt(4000)) < 3


def test_one_fold_decides_nothing():
    owner = np.tile(np.arange(20), 50)
    assert set(decided(np.ones(1000), owner, np.zeros(1000, int)).name) == {GLOBAL}


def test_a_better_model_for_all_is_no_reason_to_tell_clients_apart():
    draw = np.random.default_rng(4)
    owner, fold = np.tile(np.arange(40), 50), draw.integers(0, 5, 2000)
    shared = 0.2 + 0.1 * draw.normal(size=2000)  # what another model gains on the same rows
    own = np.where(owner < 20, 0.05, -0.05)

    def chosen(gain):
        rows = Rows(None, shared[:, None], owner, shared, None)
        losses = {GLOBAL: np.ones(2000), "other": 1 - gain}
        tried = Tried(losses=losses, alike=1 - shared)
        return set(choose(tried, rows, Folds(fold, 5), np.bincount(owner)).name.tolist())

    assert chosen(shared + own) == {GLOBAL}
    assert "other" in chosen(shared + np.maximum(own, 0))
