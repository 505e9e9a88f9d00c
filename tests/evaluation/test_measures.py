"""Measures are those of scikit-learn, client by client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from sartor.errors import ConfigError
from sartor.evaluation.measures import MEASURES, measures_for, pinball

BINARY = {
    "log loss": lambda y, p: metrics.log_loss(y, p, labels=[0, 1]),
    "accuracy": lambda y, p: metrics.accuracy_score(y, p > 0.5),
    "AUC": metrics.roc_auc_score,
    "average precision": metrics.average_precision_score,
    "Brier": metrics.brier_score_loss,
    "F1": lambda y, p: metrics.f1_score(y, p > 0.5),
}
REGRESSION = {
    "MSE": metrics.mean_squared_error,
    "RMSE": metrics.root_mean_squared_error,
    "MAE": metrics.mean_absolute_error,
    "R²": metrics.r2_score,
    "pinball 0.9": lambda y, p: metrics.mean_pinball_loss(y, p, alpha=0.9),
}
CLASSES = {
    "log loss": lambda y, p: metrics.log_loss(y, p, labels=[0, 1, 2]),
    "accuracy": lambda y, p: metrics.accuracy_score(y, p.argmax(axis=1)),
    "F1": lambda y, p: metrics.f1_score(y, p.argmax(axis=1), average="macro"),
}


def rows(seed, digits=2):
    draw = np.random.default_rng(seed)
    owner = draw.integers(0, 6, 300)
    predicted = np.clip(draw.random(300).round(digits), 0.01, 0.99)  # with ties
    y = (draw.random(300) < predicted).astype(float)
    return y, predicted, owner, draw


@pytest.mark.parametrize("name", BINARY)
@given(seed=st.integers(0, 1000))
def test_for_two_classes(name, seed):
    y, predicted, owner, _ = rows(seed)
    found = MEASURES[name].of(y, predicted, owner, 7)
    assert np.isnan(found[6])  # who has no rows
    for k in range(6):
        mine = owner == k
        assert found[k] == pytest.approx(BINARY[name](y[mine], predicted[mine]), abs=1e-12)
    assert MEASURES[name].pooled(y, predicted) == pytest.approx(BINARY[name](y, predicted))


@pytest.mark.parametrize("name", REGRESSION)
@given(seed=st.integers(0, 1000))
def test_for_numbers(name, seed):
    _, predicted, owner, draw = rows(seed)
    y = 3 + 2 * draw.normal(size=300)
    found = MEASURES[name].of(y, predicted, owner, 7)
    for k in range(6):
        mine = owner == k
        assert found[k] == pytest.approx(REGRESSION[name](y[mine], predicted[mine]))
    assert MEASURES[name].pooled(y, predicted) == pytest.approx(REGRESSION[name](y, predicted))


@pytest.mark.parametrize("name", CLASSES)
def test_for_several_classes(name):
    _, _, owner, draw = rows(0)
    predicted = draw.dirichlet(np.ones(3), 300)
    y = draw.integers(0, 3, 300).astype(float)
    found = MEASURES[name].of(y, predicted, owner, 6)
    for k in range(6):
        mine = owner == k
        assert found[k] == pytest.approx(CLASSES[name](y[mine], predicted[mine]))


def test_the_brier_score_of_several_classes_is_a_sum():
    predicted, y = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]]), np.array([1.0, 0.0])
    found = MEASURES["Brier"].pooled(y, predicted)
    assert found == pytest.approx((0.2**2 + 0.5**2 + 0.3**2) / 2)


def test_calibration_is_zero_where_predictions_are_shares():
    predicted = np.repeat([0.25, 0.75], 40)
    y = np.concatenate([np.arange(40) < 10, np.arange(40) < 30]).astype(float)
    assert MEASURES["calibration"].pooled(y, predicted) == pytest.approx(0)
    assert MEASURES["calibration"].pooled(1 - y, predicted) == pytest.approx(0.5)


def test_what_has_no_meaning_is_nan():
    y, predicted, owner = np.zeros(4), np.full(4, 0.3), np.array([0, 0, 1, 1])
    for name in ("AUC", "average precision", "F1"):
        assert np.isnan(MEASURES[name].of(y, predicted, owner, 2)).all()
    assert np.isnan(MEASURES["R²"].pooled(np.ones(3), np.zeros(3)))


def test_measures_by_name():
    assert [m.name for m in measures_for("binary", ["AUC"])] == ["AUC"]
    own = pinball(0.25)
    assert measures_for("regression", [own])[0].pooled(np.ones(2), np.zeros(2)) == 0.25
    with pytest.raises(ConfigError, match="did you mean 'RMSE'"):
        measures_for("regression", ["RMS"])
    with pytest.raises(ConfigError, match="AUC is no measure for these labels; take MSE, RMSE"):
        measures_for("regression", ["AUC"])
