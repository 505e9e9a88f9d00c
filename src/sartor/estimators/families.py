"""Families of estimators: how each is told about weights, categories, and scores to begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from sartor.estimators.threads import few_threads
from sartor.types import Floats

OFFSETS = {"lightgbm": "init_score", "xgboost": "base_margin"}
"""The argument of ``fit`` with the scores to go on from, by library."""


def library(estimator: Any) -> str:
    """The library that an estimator comes from.

    >>> library(HistGradientBoostingClassifier())
    'sklearn'
    """
    return type(estimator).__module__.partition(".")[0]


def fresh(estimator: Any, categories: Sequence[int] = (), **settings: Any) -> Any:
    """A clone that is not fitted, and knows which columns are categories if it can.

    Args:
        estimator: it stays as it is.
        categories: columns with codes of categories, whose order means nothing.
        settings: settings to change.
    """
    found = clone(estimator).set_params(**settings)
    own = _is_boosting(found) and not isinstance(found.categorical_features, str | None)
    if _is_boosting(found) and not own:
        found.set_params(categorical_features=list(categories) or None)
    return found


def knows_categories(estimator: Any) -> bool:
    """Whether an estimator can be told that the order of codes means nothing."""
    return _is_boosting(estimator) or library(estimator) in OFFSETS


def most_levels(estimator: Any) -> int:
    """The most levels of a category that an estimator should be told of.

    scikit-learn's boosting does not smooth levels, and splits off what a few rows happen to show;
    the order of codes, by their numbers of rows, does it less harm.
    """
    return 254 if library(estimator) in OFFSETS else 32


def fit(
    estimator: Any, x: Any, y: Any, weight: Floats | None, categories: Sequence[int] = (),
    offset: Floats | None = None,
) -> Any:  # fmt: skip
    """Fit an estimator, with weights by resampling if it takes none.

    Args:
        estimator: of :func:`fresh`.
        x: what it takes.
        y: the labels.
        weight: how much each row counts.
        categories: see :func:`fresh`.
        offset: [rows, outputs] scores to go on from, for libraries in ``OFFSETS``.
    """
    known: dict[str, Any] = {}
    if _is_boosting(estimator) and isinstance(x, np.ndarray):
        empty = np.isnan(x).all(axis=0)  # for these rows: scikit-learn finds no bins for that
        x = np.where(empty, 0.0, x) if empty.any() else x
    if library(estimator) == "lightgbm" and len(categories):
        known["categorical_feature"] = list(categories)
    if library(estimator) == "xgboost" and len(categories):
        kinds = ["c" if j in set(categories) else "q" for j in range(x.shape[1])]
        estimator.set_params(enable_categorical=True, feature_types=kinds)
    if offset is not None:
        known[OFFSETS[library(estimator)]] = _narrow(offset)
    if weight is not None:
        inner = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
        if has_fit_parameter(inner, "sample_weight"):
            step = f"{estimator.steps[-1][0]}__" if inner is not estimator else ""
            known[f"{step}sample_weight"] = weight
        else:
            drawn = resampled(weight)
            x, y = _safe_indexing(x, drawn), y[drawn]
    with few_threads(len(y)):
        return estimator.fit(x, y, **known)


def _is_boosting(estimator: Any) -> bool:
    return isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)


def cut_off(booster: Any, iterations: int) -> None:
    """Take back the iterations of scikit-learn's boosting after some, which it has no way for."""
    if hasattr(booster, "_predictors"):  # and not one class alone
        del booster._predictors[iterations:]


def raw_scores(estimator: Any, x: Any, offset: Floats) -> Floats:
    """The scores of an estimator that was fitted with an offset."""
    if library(estimator) == "lightgbm":
        told = estimator.booster_.predict(x, raw_score=True)
        return offset + np.asarray(told).reshape(offset.shape)
    margin = estimator.predict(x, output_margin=True, base_margin=_narrow(offset))
    return np.asarray(margin, np.float64).reshape(offset.shape)


def _narrow(offset: Floats) -> Floats:
    """One score for each row as a vector."""
    return offset[:, 0] if offset.shape[1] == 1 else offset


def resampled(weight: Floats) -> Any:
    """Rows in proportion to their weights, as many as there are: the same rows every time.

    >>> resampled(np.array([1.0, 3.0, 0.0, 0.0])).tolist()
    [0, 1, 1, 1]
    """
    ends = np.cumsum(weight) / weight.sum()
    at = (np.arange(len(weight)) + 0.5) / len(weight)
    return np.searchsorted(ends, at).clip(max=len(weight) - 1)
