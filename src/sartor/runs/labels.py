"""What a label is: classes, or numbers to predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sartor.data import encoding
from sartor.data.kinds import dates_in
from sartor.errors import ConfigError, DataError
from sartor.runs.named import Kind

FEW_CLASSES = 10
"""Whole numbers with no more different values than this are classes."""

MANY_VALUES = 100
"""Whole numbers with more different values than this are numbers to predict."""


def labels_of(values: Any, name: str, task: Kind | None = None) -> tuple[npt.NDArray[Any], Kind]:
    """Labels as estimators take them, and whether they are classes or numbers.

    Args:
        values: an Arrow column without gaps.
        name: its name, for errors.
        task: what the labels are; ``None`` if the values say it.

    >>> labels_of(pa.array([0, 1, 1]), "returned")
    (array([0, 1, 1]), 'classification')
    >>> labels_of(pa.array([k / 7 for k in range(99)]), "price")[1]
    'regression'
    """
    encoding.refuse_nested(values.type, f"label={name!r}")
    text = encoding.is_text(values.type)
    if encoding.is_date(values.type) or (text and dates_in(values) is not None):
        raise DataError(
            f"label={name!r} holds dates; a label is a class or a number: make one of it, such as "
            "the days until then"
        )
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        raise DataError(f"label={name!r} holds times of day; make numbers of them, such as minutes")
    if text or pa.types.is_boolean(values.type):
        return _words(values, name, task)
    numbers = np.asarray(values.cast(pa.float64(), safe=False), np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"label={name!r} has infinite values; correct them or drop the rows")
    several, whole = len(np.unique(numbers)), bool((numbers == numbers.round()).all())
    kind = task
    if kind is None:
        if several <= FEW_CLASSES and whole:
            kind = "classification"
        elif several > (MANY_VALUES if whole else FEW_CLASSES):
            kind = "regression"
        else:
            what = "whole numbers" if whole else "numbers"
            raise ConfigError(
                f"label={name!r} has {several} different {what}: classes, or numbers to predict? "
                "Say task=classification or task=regression (--task, data.task)"
            )
    if kind == "regression":
        return numbers, kind
    return (numbers.astype(np.int64) if whole else numbers), kind


def _words(values: Any, name: str, task: Kind | None) -> tuple[npt.NDArray[Any], Kind]:
    if task == "regression" and not pa.types.is_boolean(values.type):
        example = values[0].as_py()
        raise DataError(
            f"label={name!r} holds words, such as {example!r}, and regression predicts numbers; "
            "make numbers of them, or say task=classification"
        )
    if task == "regression":
        return np.asarray(values.cast(pa.uint8()), np.float64), "regression"
    y = np.array(values.to_pylist())
    several = len(np.unique(y))
    if several > MANY_VALUES and task is None:
        raise ConfigError(
            f"label={name!r} has {several:,} different words, such as {values[0].as_py()!r}: if "
            "these are classes, say task=classification (--task, data.task); otherwise name "
            "another column"
        )
    return y, "classification"
