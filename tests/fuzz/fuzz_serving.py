"""Area of what comes after the fit of a table: updates, clients that go, files, and predictions."""

from __future__ import annotations

import functools
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from outcomes import Case, chance, may_refuse, near, pick, same, sure
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

import sartor
from sartor.estimators import PersonalClassifier, PersonalRegressor, chunks
from sartor.estimators.batches import predict_file

Rng = np.random.Generator

NAMES = (
    "Ann",
    "Łódź",
    "a/b",
    'say "x"',
    "007",
    "NA",
    "line\nbreak",
    "nul\0",
    "../up",
    " ",
    "🙂",
    "ö" * 90,
)
"""Clients, some of whom no file could be named after."""

APPROACHES = ("slopes", "recalibrate", "category", "local", "2 clusters", "global", "auto")
ESTIMATORS: dict[str, tuple[Any, ...]] = {
    "classes": (LogisticRegression(),),
    "numbers": (Ridge(), HistGradientBoostingRegressor(max_iter=3)),
}


def rows(rng: Rng, count: int, clients: tuple[str, ...]) -> pd.DataFrame:
    """Rows with gaps and words, of some clients, and of nobody."""
    frame = pd.DataFrame({
        "x": rng.normal(size=count),
        "word": rng.choice(["a", "b", "NA"], count),
        "client": rng.choice(np.array(clients, object), count),
        "y": rng.normal(size=count),
    })  # fmt: skip
    frame.loc[rng.random(count) < 0.1, "x"] = np.nan
    frame.loc[rng.random(count) < 0.05, "client"] = None
    return frame


def labels(frame: pd.DataFrame, kind: str) -> np.ndarray:
    """Classes or numbers."""
    y = frame["x"].fillna(0) + frame["y"]
    return np.where(y > 0, "yes", "no") if kind == "classes" else y.to_numpy()


@functools.cache
def saved(kind: str, approach: str, estimator: int) -> Path:
    """A fitted model on disk."""
    rng = np.random.default_rng(0)
    frame = rows(rng, 120, NAMES[:6])
    made = PersonalClassifier if kind == "classes" else PersonalRegressor
    model = made(ESTIMATORS[kind][estimator], client="client", approach=approach, folds=2)
    model.fit(frame[["x", "word", "client"]], labels(frame, kind))
    folder = Path(tempfile.mkdtemp()) / "model"
    model.save(folder)
    return folder


def said(model: Any, frame: Any) -> np.ndarray:
    """What a model predicts, as numbers."""
    found = (model.predict_proba if hasattr(model, "classes_") else model.predict)(frame)
    return np.asarray(found).reshape(len(frame), -1)


def serving(rng: Rng, scratch: Path) -> None:
    """Whatever comes after a fit leaves all other clients as they are, in memory and in files."""
    kind = pick(rng, list(ESTIMATORS))
    approach = pick(rng, APPROACHES)
    few = approach == "auto"  # which fits many models
    source = saved(kind, approach, 0 if few else int(rng.integers(len(ESTIMATORS[kind]))))
    model, folder = sartor.load(source), scratch / "model"
    model.save(folder)
    probe = rows(rng, 60, NAMES)[["x", "word", "client"]]
    gone: set[str] = set()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(new rows|no row|.* unknown)", UserWarning)
        for _ in range(int(rng.integers(1, 5))):
            before, known = said(model, probe), set(model.models_.ids)
            touched: set[str] = set()
            if chance(rng, 0.4):
                new = rows(rng, int(rng.integers(1, 40)), tuple(rng.choice(NAMES, 3)))
                model.update(new[["x", "word", "client"]], labels(new, kind))
                touched = set(new["client"].dropna())
                gone -= touched
            elif known and chance(rng, 0.4):
                touched = {pick(rng, sorted(known))}
                model.drop(*touched)
                gone |= touched
            else:
                model.save(folder)
                model = sartor.load(folder)
                without_trace(folder, gone)
            others = ~probe["client"].isin(touched).to_numpy()
            same("others", said(model, probe)[others], before[others])
            strangers = ~probe["client"].isin(list(model.models_.ids)).to_numpy()
            nobody = said(model, probe.assign(client=None))
            same("strangers", said(model, probe)[strangers], nobody[strangers])
        of_file(rng, model, probe, scratch)
        if chance(rng, 0.3):
            model.save(folder)
            damaged(rng, folder)
            with may_refuse():
                found = sartor.load(folder)
            same("damage that changes nothing", said(found, probe), said(model, probe))


def without_trace(folder: Path, gone: set[str]) -> None:
    """No file may name a client that is gone; short names are found anywhere."""
    names = [name.encode() for name in gone if len(name.encode()) > 4]
    for file in folder.iterdir():
        content = [file.read_bytes()]
        if file.suffix == ".skops":
            with zipfile.ZipFile(file) as archive:
                content += [archive.read(name) for name in archive.namelist()]
        for name in names:
            sure(not any(name in one for one in content), f"{name!r} is in {file.name}")


def of_file(rng: Rng, model: Any, probe: pd.DataFrame, scratch: Path) -> None:
    """Files are predicted as frames are, however they are cut."""
    path, out = scratch / "rows.parquet", scratch / "out.parquet"
    table = pa.Table.from_pandas(probe, preserve_index=False)
    pa.parquet.write_table(table, path, row_group_size=int(rng.integers(1, 70)))
    before, chunks.MOST_ROWS = chunks.MOST_ROWS, int(rng.integers(1, 70))
    try:
        predict_file(model, path, out)
    finally:
        chunks.MOST_ROWS = before
    found = pa.parquet.read_table(out)
    names = [n for n in found.column_names if n.startswith("probability")] or ["prediction"]
    near("a file", np.stack([np.asarray(found[n]) for n in names], axis=1), said(model, probe))
    same("a table", said(model, table), said(model, probe))


def damaged(rng: Rng, folder: Path) -> None:
    """Change a byte of a file, or cut it, or leave it out."""
    path = pick(rng, sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    at = int(rng.integers(len(content)))
    if chance(rng, 0.2):
        path.unlink()
    elif chance(rng, 0.3):
        path.write_bytes(content[:at])
    else:
        content[at] ^= int(rng.integers(1, 256))
        path.write_bytes(content)


AREAS: dict[str, tuple[int, Case]] = {"serving": (150, serving)}
