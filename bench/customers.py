"""Does `auto` hold what it promises on tables with a customer column?

`python bench/customers.py flights:dest:random:0 ...` splits a table, fits ``PersonalClassifier`` or
``PersonalRegressor`` with its defaults to the training rows, and compares it on the test rows with
what people have already. Each name is TABLE:CLIENT:HOW:SEED, and HOW is one of

- random: groups of rows (days of flights) or rows are held out at random;
- time: the test rows come after all training rows; each seed is another window;
- shuffled: as random, with the ids of clients shuffled, so that there is nothing to find.

Everything is chosen on training rows: iterations and leaves of boosting, and the penalty of
logistic regression, on a fifth of them that is held out like the test rows; so are slopes of the
mixed model. Results are added to `--out`, one JSON object a line; splits that are there already are
not run again. `--page` prints the table of docs/tables.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

import sartor
from sartor.data.preparing import Preparation
from sartor.data.tables import as_table
from sartor.estimators import PersonalClassifier, PersonalRegressor

RESULTS = Path(__file__).parents[1] / "results" / "tables" / "splits.jsonl"
VERSIONS = ("scikit-learn", "lightgbm", "numpy", "jax")
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
    if frame[example.label].dtype.kind in "iu" and frame[example.label].nunique() > 2:
        frame[example.label] = frame[example.label].astype(float)  # a number of something
    classifies = frame[example.label].dtype.kind != "f"
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


def fitted(data: Split, approach: str, learns: np.ndarray, **settings: Any) -> Any:
    """Sartor's estimator, fitted to some rows."""
    kind = PersonalClassifier if data.classifies else PersonalRegressor
    model = kind(client=data.client, approach=approach, **data.fit, **settings)
    return model.fit(data.x[learns], data.y[learns])


def fresh_losses(model: Any, data: Split, where: np.ndarray, **how: Any) -> np.ndarray:
    """The losses of rows that an estimator has not seen."""
    fresh = model.models_.rows_of(model._read(data.x[where], None))
    scores = model.models_.global_scores(fresh) if how else model.models_.scores(fresh)
    return model.models_.task.losses(scores, model._known_labels(data.y[where]))


def mixed_model(data: Split) -> np.ndarray:
    """The exact hierarchical model: levels of clients, and slopes if inner rows say so."""
    learns = ~data.test & ~data.inner
    lost = {
        approach: fresh_losses(fitted(data, approach, learns), data, data.inner).mean()
        for approach in ("linear, level", "linear")
    }
    return fresh_losses(fitted(data, min(lost, key=lost.get), ~data.test), data, data.test)


def run(name: str, **settings: Any) -> dict[str, Any]:
    """Fit all methods to one split of a table; settings are those of Sartor's estimators."""
    table, client, how, seed = name.split(":")
    data = split(table, client, how, int(seed))
    task = Task(data)
    found: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}

    def timed(method: str, fit: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        said = fit()
        seconds[method] = round(time.perf_counter() - began, 1)
        return said

    auto = timed("auto", lambda: fitted(data, "auto", ~data.test, **settings))
    found["auto"] = fresh_losses(auto, data, data.test)
    found["global"] = fresh_losses(auto, data, data.test, everybody=True)
    found["boosting"] = timed("boosting", lambda: task.boosted(category=False))
    found["boosting, category"] = timed("boosting, category", lambda: task.boosted(category=True))
    found["each client alone"] = timed("each client alone", task.for_each_client)
    found["mixed model"] = timed("mixed model", lambda: mixed_model(data))
    return {
        "name": name, "rows": int((~data.test).sum()), "test": int(data.test.sum()),
        "clients": len(auto.models_.ids), "loss": compared(task, found), "seconds": seconds,
        "expected": expected(auto),
        "chosen": {str(n): int(c) for n, c in
                   zip(*np.unique(auto.models_.names, return_counts=True), strict=True)},
        "mixture": auto.tried_.mixture, "skipped": auto.tried_.skipped,
        "held_out": {n: float(np.nanmean(lost)) for n, lost in auto.tried_.losses.items()},
        "tried": {n: round(s, 1) for n, s in auto.tried_.seconds.items()},
        "settings": settings, "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "threads": _openmp_effective_n_threads(),
        "versions": {p: importlib.metadata.version(p) for p in VERSIONS},
    }  # fmt: skip


def compared(task: Task, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Mean losses over rows and over clients, and who is hurt beside the global model."""
    owner = task.owner[task.data.test]
    known = np.isin(owner, task.owner[task.train])
    _, place, rows = np.unique(owner[known], return_inverse=True, return_counts=True)
    by_client = {m: np.bincount(place, lost[known]) / rows for m, lost in found.items()}
    base = by_client["global"]
    return {
        method: {
            "rows": float(lost.mean()), "clients": float(by_client[method].mean()),
            "hurt": float((by_client[method] > base).mean()),
            "gained": float((by_client[method] < base).mean()),
        }
        for method, lost in found.items()
    }  # fmt: skip


def expected(auto: Any) -> dict[str, float] | None:
    """What held-out rows promise: the mean gain over clients."""
    if auto.decision_ is None or not np.isfinite(auto.decision_.paid).any():
        return None
    return {"gain": float(np.nanmean(auto.decision_.paid))}


BASELINES = ("boosting", "boosting, category", "each client alone", "mixed model")
COLUMNS = (*BASELINES, "global", "auto")
HEADING = (
    "table, test rows", "rows", "clients", "LightGBM", "with category", "each alone",
    "mixed model", "global", "auto", "to the best baseline", "worst split", "hurt", "personal",
)  # fmt: skip


def page(lines: list[dict[str, Any]]) -> str:
    """The table of docs/tables.md: means over splits."""
    several: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        table, client, how, _ = line["name"].split(":")
        several.setdefault(f"{table} by {client}, {how}", []).append(line)
    found = [HEADING, ["---"] * len(HEADING), *(_row(what, of) for what, of in several.items())]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in found)


def _row(what: str, splits: list[dict[str, Any]]) -> list[str]:
    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        return float(np.mean([value(line) for line in splits]))

    loss = {m: mean(lambda line, m=m: line["loss"][m]["rows"]) for m in COLUMNS}
    each = [
        line["loss"]["auto"]["rows"] / min(line["loss"][m]["rows"] for m in BASELINES) - 1
        for line in splits
    ]
    shown = {m: f"{v:#.4g}".removeprefix("0") for m, v in loss.items()}
    least = min(loss, key=lambda m: loss[m])
    return [
        what, f"{mean(lambda line: line['rows']):,.0f}",
        f"{max(line['clients'] for line in splits):,}",
        *(f"**{shown[m]}**" if m == least else shown[m] for m in COLUMNS),
        *(
            f"{value:+.2%}".replace("-", "−")
            for value in (loss["auto"] / min(loss[m] for m in BASELINES) - 1, max(each))
        ),
        f"{mean(lambda line: line['loss']['auto']['hurt']):.0%}",
        f"{mean(lambda line: 1 - line['chosen'].get('global', 0) / line['clients']):.0%}",
    ]  # fmt: skip


def main() -> None:
    """Run the splits that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="TABLE:CLIENT:HOW:SEED")
    parser.add_argument("--out", type=Path, default=RESULTS, help="one JSON object a line")
    parser.add_argument("--budget", type=float, help="seconds of `auto` (default: its own)")
    parser.add_argument("--page", action="store_true", help="print the table of docs/tables.md")
    asked = parser.parse_args()
    settings = {} if asked.budget is None else {"budget": asked.budget}
    warnings.simplefilter("ignore")
    lines = read(asked.out)
    done = {line["name"] for line in lines}
    for name in asked.names:
        if name in done:
            print(name, "is there already")
            continue
        line = run(name, **settings)
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(name, {m: round(v["rows"], 5) for m, v in line["loss"].items()}, flush=True)
        print("   ", line["chosen"], line["seconds"], flush=True)
    if asked.page:
        print(page(read(asked.out)))


def read(path: Path) -> list[dict[str, Any]]:
    """What was run before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
