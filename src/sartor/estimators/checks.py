"""What can be wrong with settings, labels and weights, in words that say what to do."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    column_or_1d,
)

from sartor.checking import misfit, shown
from sartor.errors import ConfigError, DataError
from sartor.estimators.folds import Folds
from sartor.estimators.frames import Table
from sartor.estimators.views import View
from sartor.types import Floats

MOST_CLASSES = 20
"""More classes than this are only accepted if they come twice, on average."""

LARGEST = 1e100
"""Labels beyond this have no finite squares."""


def check_settings(of: Any) -> None:
    """Refuse settings of an estimator that cannot be used.

    >>> from sartor.estimators import PersonalRegressor
    >>> check_settings(PersonalRegressor(folds=1))
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: folds=1: a whole number of at least 2 is needed
    """
    integer = isinstance(of.folds, int | np.integer) and not isinstance(of.folds, bool | np.bool_)
    if not integer or of.folds < 2:
        raise ConfigError(f"folds={shown(of.folds)}: a whole number of at least 2 is needed")
    if wanted := misfit(of.budget, float) or (of.budget < 0 and "a number of at least 0"):
        raise ConfigError(f"budget={shown(of.budget)}: {wanted} is needed, in seconds")
    if of.columns not in ("auto", None):
        raise ConfigError(f"columns={shown(of.columns)}: 'auto' or None is needed")
    if not isinstance(of.approach, str):
        raise ConfigError(f"approach={shown(of.approach)}: the name of an approach is needed")
    if of.estimator is not None:
        _check_estimator(of.estimator, is_classifier(of))


def _check_estimator(estimator: Any, classifies: bool) -> None:
    """Refuse what cannot be the central model."""
    name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "fit"):
        such = f"{name}()" if isinstance(estimator, type) else "LogisticRegression() or Ridge()"
        raise ConfigError(
            f"estimator={shown(estimator)}: an estimator of scikit-learn's kind is needed, such as "
            f"{such}"
        )
    wrong = is_regressor(estimator) if classifies else is_classifier(estimator)
    if wrong:
        kind, other = ("classifier", "Regressor") if classifies else ("regressor", "Classifier")
        raise ConfigError(f"estimator={name}: a {kind} is needed; or use Personal{other}")
    if classifies and not hasattr(estimator, "predict_proba"):
        raise ConfigError(
            f"estimator={name}: it has no predict_proba, and models are joined by probabilities; "
            f"wrap it, as in CalibratedClassifierCV({name}()), or choose another one"
        )


def seed_of(random_state: Any) -> int:
    """A seed of what scikit-learn takes for one: a number, a generator, or None for any."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise ConfigError(f"random_state={shown(random_state)}: give a whole number") from error


def as_labels(y: Any) -> npt.NDArray[Any]:
    """Labels as an array of one kind, without gaps."""
    y = column_or_1d(y, warn=True)
    if y.dtype.kind in "Mm":
        raise DataError(f"labels are times ({y.dtype}); {TIMES}")
    if y.dtype.kind != "O":
        return y
    missing = np.array([_is_missing(value) for value in y], np.bool_)
    if missing.any():
        raise DataError(
            f"{missing.sum():,} labels are missing, the first one in row {missing.argmax()}; drop "
            "these rows, or fill in what they stand for"
        )
    kinds = {str if isinstance(value, str) else type(value) for value in y}
    if any(issubclass(kind, datetime.date | datetime.time | datetime.timedelta) for kind in kinds):
        raise DataError(f"labels are times, such as {shown(y[0])}; {TIMES}")
    if str in kinds and len(kinds) > 1:
        several = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DataError(
            f"labels are of several types ({several}); make them one, as by y.astype(str)"
        )
    return y


TIMES = "make numbers of them, such as days since a date, or words if they are classes"


def _is_missing(value: Any) -> bool:
    """None, a NaN, or the NA of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def as_classes(y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The classes, and the number of each row's class."""
    y = as_labels(y)
    if y.dtype.kind == "f" and not (y == np.floor(y)).all():
        check_classification_targets(y)  # which refuses them
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) > max(MOST_CLASSES, len(y) / 2):
        raise DataError(
            f"{len(classes):,} classes in {len(y):,} rows: nearly each row has its own; take "
            "PersonalRegressor for numbers, or another column for the label"
        )
    check_classification_targets(y)
    return classes, codes


def as_targets(y: Any) -> Floats:
    """Numbers to predict."""
    y = as_labels(y)
    if y.dtype.kind in "OUT" and len(y) and isinstance(y[0], str):
        try:
            y = y.astype(np.float64)
        except ValueError as error:
            raise DataError(
                f"labels are words, such as {shown(str(y[0]))}; PersonalClassifier predicts classes"
            ) from error
    found: Floats = column_or_1d(y, warn=True, dtype=np.float64)
    if len(found) and (most := np.abs(found).max()) > LARGEST and np.isfinite(most):
        raise DataError(f"labels are up to {most:.3g}, whose squares are infinite; scale them down")
    return found


def with_weight(table: Table, y: Any, sample_weight: Any) -> tuple[Table, Any, Floats | None]:
    """Rows, labels and weights. Rows of no weight are left out, as if they were not there."""
    y = as_labels(y)
    check_consistent_length(table.client, y)
    if sample_weight is None:
        return table, y, None
    like = np.zeros((len(y), 1))
    weight: Floats = _check_sample_weight(sample_weight, like, ensure_non_negative=True)
    if weight.max(initial=0.0) > LARGEST:
        raise DataError(f"sample_weight is up to {weight.max():.3g}; scale the weights down")
    if not weight.any():
        raise DataError("sample_weight is 0 for all rows; at least one row has to count")
    if weight.all():
        return table, y, weight
    kept = np.flatnonzero(weight)
    return table.take(kept), y[kept], weight[kept]


def refuse_label_among(table: Table, y: Any) -> None:
    """Refuse a frame that holds the label itself."""
    name = getattr(y, "name", None)
    if not isinstance(name, str) or name not in table.features.column_names:
        return
    column = table.features[name]
    if len(column) == len(y) and column.to_pylist() == list(y):
        raise DataError(f"the label {name!r} is a column of X, too; leave it out of X")


def refuse_nothing(view: View) -> None:
    """Refuse a table of which no column is left."""
    names = {"trees": view.preparation.tree_names, "linear": view.preparation.linear_names}
    if names.get(view.sees) == ():
        kinds = view.preparation.kinds
        several = "; ".join(f"{kind.name}: {kind.attention or kind.words}" for kind in kinds)
        raise DataError(f"0 feature(s) are left to learn from ({several}); give other columns")


def refuse_one_fold(folds: Folds, of: Any) -> None:
    """Refuse times or groups by which nothing can be held out."""
    if folds.count < 2:
        role = "time" if folds.forward else "groups"
        raise DataError(
            f"{role}={getattr(of, role)!r}: all rows have one value, so none can be held out; name "
            "another column, or leave it out"
        )
