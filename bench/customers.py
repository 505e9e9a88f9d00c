"""Does `auto` hold what it promises on tables with a customer column?

`python bench/customers.py flights:dest:random:0 ...` splits a table, fits ``PersonalClassifier`` or
``PersonalRegressor`` with its defaults to the training rows, and compares it on the test rows with
what people have already. Each name is TABLE:CLIENT:HOW:SEED, and HOW is one of

- random: groups of rows (days of flights) or rows are held out at random;
- time: the test rows come after all training rows; each seed is another window;
- shuffled: as random, with the ids of clients shuffled, so that there is nothing to find.

Everything is chosen on training rows: iterations and leaves of boosting, and the penalty of
logistic regression, on a fifth of them that is held out like the test rows. Results are added to
`--out`, one JSON object a line.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge

import sartor
from sartor.data.preparing import Preparation
from sartor.data.tables import as_table
from sartor.estimators import PersonalClassifier, PersonalRegressor

TEST = 0.25
WINDOWS = (0.79, 0.65, 0.5, 0.35)
"""Where the test rows of a seed begin, as shares of all rows in the order of time: the first is
mid-October for flights. They are the next fifth."""


class Split(NamedTuple):
    """A table, taken apart: clients are a column of ``x``, and ``fit`` are roles of columns."""

    x: pd.DataFrame
    y: np.ndarray
    test: np.ndarray
    inner: np.ndarray
    """A fifth of the training rows, held out like the test rows."""
    client: str
    fit: dict[str, Any]
    classifies: bool


def split(name: str, client: str, how: str, seed: int) -> Split:
    """Divide an example's rows."""
    example = sartor.data.example(name, client=client or None)
    frame = example.frame()
    frame = frame[frame[example.client].notna()].reset_index(drop=True)
    draw = np.random.default_rng([seed, 7])
    if how == "shuffled":
        frame[example.client] = draw.permutation(frame[example.client])
    classifies = frame[example.label].dtype.kind not in "f"
    x, y = frame.drop(columns=example.label), frame[example.label].to_numpy()
    fit: dict[str, Any] = {}
    if how == "time":
        when = pd.to_datetime(x[example.time]).rank(pct=True).to_numpy()
        begin = WINDOWS[seed]
        used = when < begin + 0.21
        x, y, when = x[used].reset_index(drop=True), y[used], when[used]
        test, inner = when >= begin, (when < begin) & (when >= 0.8 * begin)
        fit["time"] = example.time
    else:
        unit = np.arange(len(x))
        dates = example.time is not None and x[example.time].dtype.kind not in "iuf"
        if dates:  # rows of one day are alike
            unit = pd.factorize(pd.to_datetime(x[example.time]).dt.date)[0]
            x = x.assign(**{"the day": unit}).drop(columns=example.time)
            fit["groups"] = "the day"
        share = draw.random(unit.max() + 1)
        test, inner = share[unit] < TEST, (share[unit] >= TEST) & (share[unit] < TEST + 0.15)
    return Split(x, y, test, inner, example.client, fit, classifies)


def losses(classifies: bool, predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The loss of each row: log loss of the label's probability, or squared error."""
    if not classifies:
        return (predicted - y) ** 2
    return -np.log(np.clip(predicted[np.arange(len(y)), y], 1e-7, 1))


class Task:
    """Baselines on prepared columns: they see the same numbers as Sartor's models."""

    def __init__(self, data: Split) -> None:
        x = data.x.drop(columns=[c for c in (data.client, *data.fit.values()) if c in data.x])
        table, self.data = as_table(x), data
        self.train = ~data.test
        learned = Preparation.of(table.filter(self.train))
        self.trees, self.linear = learned.for_trees(table), learned.for_linear(table)
        self.codes = np.flatnonzero(learned.categorical).tolist()
        known, self.owner = np.unique(data.x[data.client].astype(str), return_inverse=True)
        self.clients = len(known)
        self.y = data.y
        if data.classifies:
            self.classes, self.y = np.unique(data.y, return_inverse=True)

    def score(self, predicted: np.ndarray, where: np.ndarray) -> np.ndarray:
        """The losses of some rows."""
        return losses(self.data.classifies, predicted, self.y[where])

    def boosted(self, *, category: bool) -> np.ndarray:
        """LightGBM, with leaves and iterations chosen on inner rows, and refitted."""
        import lightgbm

        kind = lightgbm.LGBMClassifier if self.data.classifies else lightgbm.LGBMRegressor
        x, codes = self.trees, list(self.codes)
        if category:
            x, codes = np.column_stack([x, self.owner]), [*codes, x.shape[1]]
        inner, test = self.data.inner, self.data.test
        learns, best = self.train & ~inner, (np.inf, 31, 1)
        for leaves in (15, 31, 63):
            model = kind(n_estimators=1000, learning_rate=0.05, num_leaves=leaves,
                         colsample_bytree=0.5, verbose=-1)  # fmt: skip
            model.fit(
                x[learns], self.y[learns], eval_set=[(x[inner], self.y[inner])],
                categorical_feature=codes, callbacks=[lightgbm.early_stopping(50, verbose=False)],
            )  # fmt: skip
            lost = float(self.score(self._said(model, x[inner]), inner).mean())
            best = min(best, (lost, leaves, model.best_iteration_))
        model = kind(n_estimators=best[2], learning_rate=0.05, num_leaves=best[1],
                     colsample_bytree=0.5, verbose=-1)  # fmt: skip
        model.fit(x[self.train], self.y[self.train], categorical_feature=codes)
        return self.score(self._said(model, x[test]), test)

    def for_each_client(self) -> np.ndarray:
        """A linear or logistic model of each client's rows, with one penalty for all."""
        inner, test, best = self.data.inner, self.data.test, (np.inf, 1.0)
        for penalty in (0.1, 1.0, 10.0, 100.0, 1000.0):
            lost = self._each(self.train & ~inner, inner, penalty).mean()
            best = min(best, (float(lost), penalty))
        return self._each(self.train, test, best[1])

    def _each(self, learns: np.ndarray, where: np.ndarray, penalty: float) -> np.ndarray:
        """The losses of some rows by models of their clients' other rows."""
        classifies, found = self.data.classifies, np.zeros(len(self.y))
        everybody = self._constant(self.y[learns])
        for k in range(self.clients):
            mine, held = learns & (self.owner == k), where & (self.owner == k)
            if not held.any():
                continue
            if len(np.unique(self.y[mine])) < 2:
                model = everybody
            elif classifies:
                model = LogisticRegression(C=1 / penalty, max_iter=500)
                model.fit(self.linear[mine], self.y[mine])
            else:
                model = Ridge(alpha=penalty).fit(self.linear[mine], self.y[mine])
            found[held] = self.score(self._said(model, self.linear[held]), held)
        return found[where]

    def _constant(self, y: np.ndarray) -> Any:
        model = DummyClassifier(strategy="prior") if self.data.classifies else DummyRegressor()
        return model.fit(np.zeros((len(y), 1)), y)

    def _said(self, model: Any, x: np.ndarray) -> np.ndarray:
        """Probabilities of all classes, or means."""
        if not self.data.classifies:
            return model.predict(x)
        found = np.zeros((len(x), len(self.classes)))
        found[:, np.asarray(model.classes_, int)] = model.predict_proba(x)
        return found


def personal(data: Split, approach: str, **settings: Any) -> tuple[np.ndarray, Any]:
    """The losses of test rows by Sartor's estimator, and the estimator."""
    kind = PersonalClassifier if data.classifies else PersonalRegressor
    model = kind(client=data.client, approach=approach, **data.fit, **settings)
    x, y = data.x[~data.test], data.y[~data.test]
    model.fit(x, y)
    fresh, labels = data.x[data.test], data.y[data.test]
    if not data.classifies:
        return losses(False, model.predict(fresh), labels), model
    codes = np.searchsorted(model.classes_, labels)
    return losses(True, model.predict_proba(fresh), codes), model


def run(name: str, **settings: Any) -> dict[str, Any]:
    """Fit all methods to one split of a table; settings are those of Sartor's estimators."""
    table, client, how, seed = name.split(":")
    data = split(table, client, how, int(seed))
    task = Task(data)
    owner = task.owner[data.test]
    known = np.isin(owner, task.owner[task.train])
    found: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}

    def timed(method: str, fit: Callable[[], np.ndarray]) -> None:
        began = time.perf_counter()
        found[method] = fit()
        seconds[method] = round(time.perf_counter() - began, 1)

    models: dict[str, Any] = {}

    def ours(approach: str) -> np.ndarray:
        lost, models[approach] = personal(data, approach, **settings)
        return lost

    timed("auto", lambda: ours("auto"))
    auto = models["auto"]
    fresh = auto.models_.rows_of(auto._read(data.x[data.test], None))
    labels = auto._known_labels(data.y[data.test])
    found["global"] = auto.models_.task.losses(auto.models_.global_scores(fresh), labels)
    timed("boosting", lambda: task.boosted(category=False))
    timed("boosting, category", lambda: task.boosted(category=True))
    timed("each client alone", task.for_each_client)
    timed("mixed model", lambda: ours("linear, level"))
    tried = auto.tried_
    means = {}
    for method, lost in found.items():
        by_client = np.bincount(owner[known], lost[known]) / np.maximum(
            np.bincount(owner[known]), 1
        )
        there = np.bincount(owner[known]) > 0
        means[method] = {"rows": float(lost.mean()), "clients": float(by_client[there].mean())}
        base = np.bincount(owner[known], found["global"][known]) / np.maximum(
            np.bincount(owner[known]), 1
        )
        means[method]["hurt"] = float((by_client > base)[there].mean())
    return {
        "name": name, "rows": int(task.train.sum()), "test": int(data.test.sum()),
        "clients": task.clients, "loss": means, "seconds": seconds,
        "chosen": {str(n): int(c) for n, c in
                   zip(*np.unique(auto.models_.names, return_counts=True), strict=True)},
        "mixture": tried.mixture, "skipped": tried.skipped,
        "tried": {n: round(s, 1) for n, s in tried.seconds.items()},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "cores": os.cpu_count(),
        "versions": {p: importlib.metadata.version(p) for p in ("scikit-learn", "numpy")},
    }  # fmt: skip


def main() -> None:
    """Run the splits that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", metavar="TABLE:CLIENT:HOW:SEED")
    parser.add_argument("--out", type=Path, default=Path("customers.jsonl"))
    parser.add_argument("--budget", type=float, help="seconds of `auto` (default: its own)")
    asked = parser.parse_args()
    settings = {} if asked.budget is None else {"budget": asked.budget}
    warnings.simplefilter("ignore")
    for name in asked.names:
        line = run(name, **settings)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(name, {m: round(v["rows"], 5) for m, v in line["loss"].items()}, flush=True)
        print("   ", line["chosen"], line["seconds"], flush=True)


if __name__ == "__main__":
    main()
