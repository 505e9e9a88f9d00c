"""Tables for the tests of estimators/."""

from __future__ import annotations

import zipfile

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

FAST = LogisticRegression()


def shops(seed=0, rows=1500, clients=20, spread=1.5):
    """Shops with levels and slopes of their own; words, gaps and a date among the columns."""
    draw = np.random.default_rng(seed)
    shop = draw.integers(0, clients, rows)
    frame = pd.DataFrame({
        "price": draw.normal(size=rows),
        "rain": draw.normal(size=rows),
        "kind": draw.choice(["new", "old"], rows),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(draw.integers(0, 300, rows), "D"),
        "shop": [f"shop {k}" for k in shop],
    })  # fmt: skip
    frame.loc[draw.random(rows) < 0.1, "price"] = None
    level, slope = spread * draw.normal(size=(2, clients))
    score = frame.price.fillna(0) + (frame.kind == "new") + level[shop] + slope[shop] * frame.rain
    y = np.where(draw.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no")
    return frame, y, np.asarray(score, float)


def contents(folder):
    """All that a directory holds, also inside archives."""
    found = {}
    for file in folder.iterdir():
        found[file.name] = file.read_bytes()
        if file.suffix == ".skops":
            with zipfile.ZipFile(file) as archive:
                found |= {f"{file.name}/{name}": archive.read(name) for name in archive.namelist()}
    return found
