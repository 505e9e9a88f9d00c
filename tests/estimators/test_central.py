"""The default central model: boosting, mixed with a linear model where that pays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

import sartor
from sartor.estimators import PersonalRegressor
from sartor.estimators.candidates import GLOBAL


def table(target, rows=1200, seed=0):
    draw = np.random.default_rng(seed)
    X = pd.DataFrame(draw.uniform(-1, 1, (rows, 3)), columns=list("abc"))
    X["client"] = draw.integers(0, 6, rows).astype(str)
    return X, target(X) + draw.normal(0, 0.3, rows)


def weights(model):
    """The weights of boosting and of the linear model, on the scores of all rows."""
    held = model.tried_.central[GLOBAL]
    return held.settings["by fold"]


@pytest.mark.parametrize("time", [None, "when"])
def test_what_is_linear_is_predicted_by_a_linear_model(time):
    X, y = table(lambda x: 2 * x.a - x.b)
    if time is not None:
        X[time] = np.arange(len(X))
    model = PersonalRegressor(client="client", approach="recalibrate", time=time).fit(
        X[:900], y[:900]
    )
    for fold in weights(model).values():
        assert fold.get("linear", 0.0) > 0.8
    rows = model.models_.rows_of(model._read(X[900:], None))
    wrong = model.models_.global_scores(rows)[:, 0] - (2 * X.a - X.b)[900:]
    assert np.square(wrong).mean() < 0.05 * 0.3**2


def test_what_is_not_linear_is_left_to_boosting():
    X, y = table(lambda x: 2.0 * ((x.a > 0) != (x.b > 0)))
    model = PersonalRegressor(client="client", approach="recalibrate").fit(X, y)
    for fold in weights(model).values():
        assert set(fold) == {"boosting"}


def test_mixtures_are_saved(tmp_path):
    X, y = table(lambda x: 3 * x.a + 0.5 * np.sign(x.b), rows=500)
    model = PersonalRegressor(client="client", approach="recalibrate").fit(X, y)
    assert all(len(fold) == 2 for fold in weights(model).values())
    model.save(tmp_path / "models")
    again = sartor.load(tmp_path / "models")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_two_folds_are_judged_by_models_that_know_neither():
    """A forest knows its own rows by heart: what is fitted to its residuals there is far off."""
    X, y = table(lambda x: 2 * x.a, rows=600)
    forest = RandomForestRegressor(20, random_state=0)
    model = PersonalRegressor(forest, client="client", approach="recalibrate", folds=2).fit(X, y)
    central = model.tried_.central[GLOBAL]
    for held, scores in enumerate(central.without_two):
        there = np.isfinite(scores[:, 0])
        assert 0 < there.sum() < len(y)
        assert np.var(y[there] - scores[there, 0]) > 0.3**2, held  # the noise of labels


def test_iterations_are_chosen_by_rows_that_count():
    X, y = table(lambda x: np.sign(x.a), rows=800)
    noise = np.arange(len(y)) % 4 > 0
    y = np.where(noise, np.random.default_rng(1).normal(0, 30, len(y)), y)
    weight = np.where(noise, 1e-9, 1.0)
    model = PersonalRegressor(client="client", approach="recalibrate")
    model.fit(X, y, sample_weight=weight)
    wrong = model.predict(X) - np.sign(X.a)
    assert np.square(wrong).mean() < 0.2
