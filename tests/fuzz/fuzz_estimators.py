"""Small tables with odd columns, clients, labels and weights: fitted, predicted, and described."""

from __future__ import annotations

import contextlib
import datetime
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from outcomes import Case, Refused, Wrong, chance, may_refuse, near, pick, same, sure
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sartor.data import describe_table
from sartor.estimators import CANDIDATES, PersonalClassifier, PersonalRegressor

Rng = np.random.Generator

ESTIMATORS = {
    "classes": (LogisticRegression(max_iter=50), DecisionTreeClassifier(max_depth=2),
                HistGradientBoostingClassifier(max_iter=3)),
    "numbers": (Ridge(), DecisionTreeRegressor(max_depth=2),
                HistGradientBoostingRegressor(max_iter=3)),
}  # fmt: skip


def with_gaps(rng: Rng, values: Any, share: float) -> pd.Series:
    """Values of which some are missing."""
    found = pd.Series(values)
    return found.mask(rng.random(len(found)) < share)


def numbers(rng: Rng, rows: int) -> Any:
    """Numbers of any size, some of which are far out, infinite, missing, or all the same."""
    x = rng.normal(size=rows) * 10.0 ** pick(rng, [0, 0, 0, 3, 30, 300, -30, -305])
    x = np.round(x) if chance(rng, 0.2) else x
    for odd in (np.inf, -np.inf, 1e300, 0.0, -1.0):
        if chance(rng, 0.08):
            x = np.where(rng.random(rows) < 0.1, odd, x)
    if chance(rng, 0.1):
        x = np.full(rows, x[0] if rows else 0.0)
    return with_gaps(rng, x, pick(rng, [0, 0, 0.1, 0.9]))


def whole(rng: Rng, rows: int) -> Any:
    """Whole numbers of several types."""
    kind = pick(rng, ["int64", "int8", "uint64", "Int32", "float32", "bool", "boolean"])
    most = 2 if "bool" in kind else pick(rng, [1, 2, 5, 100])
    x = pd.Series(rng.integers(0, most, rows)).astype(kind)
    return x.mask(rng.random(rows) < 0.2) if kind in ("Int32", "boolean") else x


def words(rng: Rng, rows: int) -> Any:
    """Words: a few, many, one for each row, empty ones, and some that look like something else."""
    several = pick(rng, [
        ["new", "old"], ["a", "", " ", "NA", "nan", "None"], [f"w{k}" for k in range(40)],
        ["1", "2,5", "x"], ["2026-01-01", "2026-02-31", "?"], ["Ünï", "😀", "a" * 300], ["same"],
    ])  # fmt: skip
    x = rng.choice(np.array(several, object), rows)
    x = np.array([f"key {k}" for k in range(rows)], object) if chance(rng, 0.1) else x
    found = with_gaps(rng, x, pick(rng, [0, 0.1, 0.9]))
    return found.astype("category") if chance(rng, 0.2) else found


def times(rng: Rng, rows: int) -> Any:
    """Dates, times, spans and periods."""
    days = pd.Series(pd.Timestamp("2025-12-01") + pd.to_timedelta(rng.integers(0, 400, rows), "D"))
    days = days.mask(rng.random(rows) < pick(rng, [0, 0.2]))
    kind = pick(rng, ["days", "zone", "span", "text", "date", "of day", "period", "seconds"])
    if kind == "zone":
        return days.dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    if kind == "span":
        return days - pd.Timestamp("2026-01-01")
    if kind in ("text", "date"):
        return days.dt.strftime("%Y-%m-%d") if kind == "text" else days.dt.date
    if kind == "of day":
        return pd.Series([datetime.time(int(k)) for k in rng.integers(0, 24, rows)])
    if kind == "period":
        return days.dt.to_period("M")
    return days + pd.to_timedelta(rng.integers(0, 86_400, rows), "s") if kind == "seconds" else days


def clients(rng: Rng, rows: int) -> Any:
    """Clients of any kind, and some rows of nobody."""
    number = rng.integers(0, pick(rng, [1, 2, 3, 6, max(rows, 1)]), rows)
    kind = pick(rng, ["words", "words", "numbers", "floats", "booleans", "dates", "odd"])
    found = {
        "words": lambda: pd.Series([f"c{k}" for k in number], dtype=object),
        "numbers": lambda: pd.Series(number), "floats": lambda: pd.Series(number / 2),
        "booleans": lambda: pd.Series(number % 2 == 0),
        "dates": lambda: pd.Series(pd.Timestamp("2026-01-01") + pd.to_timedelta(number, "D")),
        "odd": lambda: pd.Series([("", "nan", "é", "0", " ")[k % 5] for k in number], dtype=object),
    }[kind]()  # fmt: skip
    gaps = pick(rng, [0, 0, 0.2, 1.0])
    return found.astype(object).mask(rng.random(rows) < gaps) if gaps else found


def labels(rng: Rng, rows: int, task: str) -> Any:
    """Labels, most of them good ones."""
    if task == "numbers":
        y = rng.normal(size=rows) * 10.0 ** pick(rng, [0, 0, 0, 0, 0, 20, -20, 120])
        odd = pick(rng, [np.nan, np.inf])
        return np.where(rng.random(rows) < pick(rng, [0, 0, 0, 0, 0, 0.1]), odd, y)
    code = rng.integers(0, pick(rng, [1, 2, 2, 2, 2, 2, 3, 5]), rows)
    kind = pick(rng, ["words", "numbers", "booleans", "gaps", "dates", "negative"])
    if kind == "booleans":
        return code == 0
    if kind == "dates" and chance(rng, 0.2):
        return pd.Series(pd.Timestamp("2026-01-01") + pd.to_timedelta(code, "D"))
    if kind == "gaps" and chance(rng, 0.2):
        return np.where(rng.random(rows) < 0.1, None, np.array(["a", "b", "c", "d", "e"])[code])
    return {"numbers": code, "negative": code - 2}.get(kind, np.array(list("vwxyz"))[code])


def weights(rng: Rng, rows: int) -> Any:
    """Weights, if any."""
    good = [None, None, rng.random(rows), rng.integers(0, 3, rows), np.full(rows, 1e-20)]
    bad = [np.zeros(rows), -np.ones(rows), np.full(rows, np.nan), np.ones(rows + 1)]
    return pick(rng, bad) if chance(rng, 0.04) else pick(rng, good)


def odd_frame(rng: Rng, rows: int) -> pd.DataFrame:
    """A frame of some columns of each kind."""
    makers = [numbers, numbers, words, words, times, whole]
    columns = {f"{pick(rng, 'abc')}{k}": pick(rng, makers)(rng, rows)
               for k in range(int(rng.integers(2, 6)))}  # fmt: skip
    return pd.DataFrame({**columns, "who": clients(rng, rows)})


@contextlib.contextmanager
def may_be_refused() -> Iterator[None]:
    """Errors of Sartor's, or those with which scikit-learn refuses values."""
    try:
        with may_refuse(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Refused, Wrong):
        raise
    except (ValueError, TypeError) as error:
        said = ("Input y contains", "Input sample_weight", "sample weight", "sample_weight",
                "Unknown label type", "inconsistent numbers", "at least one non-zero")  # fmt: skip
        if not any(one.lower() in str(error).lower() for one in said):
            raise
        raise Refused(str(error)) from error


def estimators(rng: Rng, scratch: Path) -> None:
    """What is fitted predicts finite values, row by row; others get the model of everybody."""
    rows = 1 if chance(rng, 0.02) else pick(rng, [2, 3, 12, 40, 40, 90])
    frame, task = odd_frame(rng, rows), pick(rng, list(ESTIMATORS))
    y, weight = labels(rng, rows, task), weights(rng, rows)
    made = PersonalClassifier if task == "classes" else PersonalRegressor
    names = [name for name in CANDIDATES if name != "crossed"]
    approach = "auto" if chance(rng, 0.1) else pick(rng, names)
    model = made(pick(rng, ESTIMATORS[task]), client="who", approach=approach,
                 folds=int(rng.integers(2, 4)), random_state=int(rng.integers(100)))  # fmt: skip
    given: Any = frame
    with may_be_refused():
        if chance(rng, 0.2):
            given = pick(rng, [pa.Table.from_pandas, pl.from_pandas])(frame)
        model.fit(given, y, sample_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict = model.predict_proba if task == "classes" else model.predict
        found = predict(given)
        sure(np.isfinite(found).all(), f"{model}: predictions that are not finite")
        same("rows", len(found), rows)
        if task == "classes":
            near("sums of probabilities", found.sum(axis=1), np.ones(rows))
            sure(set(model.predict(given).tolist()) <= set(model.classes_.tolist()), "classes")
        order = rng.permutation(rows)[: int(rng.integers(1, rows + 1))]
        near("some rows alone", predict(frame.iloc[order]), found[order], 1e-9)
        new = frame.copy()
        for name in new.columns[:-1]:
            new[name] = None if chance(rng, 0.5) else new[name]
        sure(np.isfinite(predict(new)).all(), "new rows with gaps")
        nobody = predict(frame.assign(who=None))
        near("of nobody", predict(frame.assign(who="somebody new")), nobody, 1e-9)
        known = model.clients_.to_pandas()
        gone = frame["who"].isna().to_numpy() | (frame["who"].astype(str) == "").to_numpy()
        counted = (~gone if weight is None else ~gone & (np.asarray(weight) > 0)).sum()
        same("rows of clients", int(known["rows"].sum()), int(counted))
        if gone.any():
            near("rows without a client", found[gone], nobody[gone], 1e-9)


def described(rng: Rng, scratch: Path) -> None:
    """Any table is described, and its rows and clients are counted right."""
    rows = pick(rng, [1, 5, 40, 150])
    frame = odd_frame(rng, rows)
    frame["y"] = labels(rng, rows, pick(rng, list(ESTIMATORS)))
    roles = {"client": "who", "label": pick(rng, ["y", "y", None])}
    if chance(rng, 0.3):
        roles["time"] = pick(rng, [name for name in frame.columns if name not in ("who", "y")])
    if chance(rng, 0.2):
        roles["client"] = None
    about = describe_table(frame, **roles)
    facts = dict(about.rows())
    sure(all(isinstance(text, str) and text for row in facts.items() for text in row), facts)
    if roles["client"] is None:
        return
    there = frame["who"].notna() & (frame["who"].astype(str) != "")
    if roles["label"] is not None and ("labels" in facts or about.facts is None):
        there &= frame["y"].notna()
    if about.facts is None:
        same("rows with a client and a label", int(there.sum()), 0)
        return
    same("examples", about.facts.examples, int(there.sum()))
    same("clients", about.facts.clients, frame["who"][there].nunique())
    for name in frame.columns:
        if name not in roles.values() and frame[name].isna().any():
            sure(f"attention: {name}" in facts, f"gaps of {name!r} are not said: {facts}")


AREAS: dict[str, tuple[int, Case]] = {
    "estimators": (300, estimators), "described": (200, described),
}  # fmt: skip
"""Tables as people have them."""
