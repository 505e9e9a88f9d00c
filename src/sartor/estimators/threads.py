"""Predictions by as many threads as pay.

The threads of scikit-learn's boosting wait for each other after every tree. Where other programs
use the processor, too, that takes many times as long as the work itself. So few rows have one
thread, and many rows are blocks with one thread each.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import ThreadpoolController

MANY = 30_000
"""Rows from which on several threads fit faster than one, also where the processor is busy."""

BLOCK = 4_096
"""Rows that one thread predicts at once."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # which looks through all libraries


@contextmanager
def one_thread() -> Iterator[None]:
    """Let OpenMP use one thread, for work on few rows; other threads of Python keep theirs."""
    with _controller().limit(limits=1, user_api="openmp"):
        yield


def few_threads(rows: int) -> AbstractContextManager[None]:
    """One thread of OpenMP for fewer rows than several threads pay for."""
    return one_thread() if rows < MANY else nullcontext()


def predictions(estimator: Any, x: Any, method: str) -> Any:
    """What a method of an estimator predicts for rows.

    >>> from sklearn.dummy import DummyRegressor
    >>> predictions(DummyRegressor().fit([[0.0]], [3.0]), np.zeros((2, 1)), "predict")
    array([3., 3.])
    """
    if not len(x):  # which scikit-learn refuses
        return np.zeros((0, len(estimator.classes_)) if method == "predict_proba" else 0)
    predict = getattr(estimator, method)
    boosted = isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)
    if not boosted or not isinstance(x, np.ndarray):
        return predict(x)
    threads = _openmp_effective_n_threads()

    def one(begin: int) -> Any:
        with one_thread():
            return predict(x[begin : begin + BLOCK])

    begins = range(0, max(len(x), 1), BLOCK)
    if threads == 1 or len(begins) == 1:
        return np.concatenate([one(begin) for begin in begins])
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(one, begins)))
