"""Area of runs on tables: any columns, labels and splits end with right numbers, or an error."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from outcomes import Case, chance, may_refuse, near, pick, same, sure
from run_cases import blank_figures

import sartor
from sartor.runs.asked import run_asked
from sartor.runs.reading import read_rows

Rng = np.random.Generator

APPROACHES = ("global", "recalibrate", "slopes", "linear", "category", "local", "2 clusters")
NAMES = ("Ann", "Łódź", "<b>x</b>", '"; x', "007", "NA", "nan", "", " ", "$x$", "{a}", "ö" * 90)

COLUMNS: dict[str, Any] = {
    "number": lambda rng, n: rng.normal(size=n),
    "gaps": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.normal(size=n)),
    "far": lambda rng, n: np.where(rng.random(n) < 0.02, 1e30, rng.normal(size=n)),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
    "word": lambda rng, n: rng.choice(["a", "b", "NA", ""], n),
    "key": lambda rng, n: [f"k{i}" for i in range(n)],
    "one": lambda rng, n: ["same"] * n,
    "empty": lambda rng, n: [None] * n,
    "truth": lambda rng, n: rng.random(n) < 0.5,
    "date": lambda rng, n: np.datetime64("2026-01-01", "s") + 86_400 * rng.integers(99, size=n),
    "time": lambda rng, n: [f"{h:02d}:30:00" for h in rng.integers(24, size=n)],
    "list": lambda rng, n: [[1, 2]] * n,
    "whole": lambda rng, n: rng.integers(-(2**40), 2**40, n),
    "{odd} [x]|": lambda rng, n: rng.normal(size=n),
}  # fmt: skip
"""Columns that tables have, by name."""

LABELS: dict[str, Any] = {
    "words": lambda score: np.where(score > 0, "yes", "<no>"),
    "truth": lambda score: score > 0,
    "three": lambda score: np.digitize(score, [-0.7, 0.7]),
    "numbers": lambda score: 40 + score,
    "large": lambda score: 1e12 * score,
    "many": lambda score: np.round(100 * score).astype(int) if len(score) > 400 else 9 * score,
}
"""Labels, by what they are."""


def table(rng: Rng, kind: str) -> pd.DataFrame:
    """A table with some of the columns, whose clients differ."""
    count = int(rng.integers(2, 400))
    names = np.array(rng.permutation(np.array(NAMES, object))[: rng.integers(1, 9)])
    frame = pd.DataFrame({"who": rng.choice(names, count)})
    some = rng.permutation(list(COLUMNS))[: rng.integers(1, 6)]
    for name in some:
        frame[name] = COLUMNS[name](rng, count)
    signal = rng.normal(size=count)
    frame["signal"] = signal
    frame["y"] = LABELS[kind](signal * np.where(frame["who"] < "M", 2, -2) + rng.normal(size=count))
    if chance(rng, 0.2):
        name = pick(rng, ["y", "who", "signal"])
        frame[name] = frame[name].astype(object).where(rng.random(count) > 0.2, None)
    frame["when"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(50, size=count), "D")
    return frame


def tabled(rng: Rng, scratch: Path) -> None:
    """What a run says of held-out rows is what its saved models do."""
    kind = pick(rng, list(LABELS))
    frame, path = table(rng, kind), scratch / f"table.{pick(rng, ['csv', 'parquet'])}"
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    columns = {"client": "who", "label": "y"}
    role = pick(rng, ["", "time", "groups", "by a date"])
    if role:
        columns["time" if role == "by a date" else role] = "when"
    overrides = ["split.by=2026-02-01"] if role == "by a date" else []
    options = {"model": "linear", "approach": pick(rng, APPROACHES), "seed": int(rng.integers(9))}
    out = scratch / "out"
    with warnings.catch_warnings(), blank_figures():
        warnings.simplefilter("ignore")
        with may_refuse():
            config = run_asked(path, columns, options, overrides)
            finished = sartor.run(config, out, progress=False)
        rows = read_rows(config)
        fresh, truth = rows.part(rows.test)
        model = sartor.load(out / "models")
        results = finished.results
        numbers = kind in ("numbers", "large", "many")
        same("kind", results["kind"], "regression" if numbers else "classification")
        same("held out", results["data"]["held_out"], len(truth))
        same("rows", results["rows"] + len(truth) <= len(frame), True)
        if role in ("time", "by a date"):
            whose = np.array(fresh["who"].fill_null("").to_pylist(), object)
            sure(len(whose) == len(truth), "rows without a time")
        measures = {one["measure"]: one["all rows"] for one in results["fresh"]["measures"]}
        said = model.predict(fresh)
        if numbers:
            near("MSE", measures["MSE"] / np.square(truth).mean(),
                 np.square(said - truth).mean() / np.square(truth).mean(), 1e-6)  # fmt: skip
        else:
            near("accuracy", measures["accuracy"], (said == truth).mean(), 1e-9)
        clients = pq.read_table(out / "per_client.parquet").to_pandas()
        same("all rows of the test", int(clients["test_rows"].sum()), len(truth))
        page = (out / "report.html").read_text()
        sure("<b>x</b>" not in page and "<no>" not in page, "names are not escaped")


AREAS: dict[str, tuple[int, Case]] = {"tabled": (150, tabled)}
