"""What the tests of runs on tables share."""

from __future__ import annotations

import numpy as np
import pandas as pd


def visits(rows=480, shops=8, seed=0):
    """Visits to shops whose customers differ; words, gaps and dates among the columns."""
    draw = np.random.default_rng(seed)
    shop = draw.integers(0, shops, rows)
    slope = 2.5 * draw.choice([-1, 1], shops)
    frame = pd.DataFrame({
        "shop": [f"s{k}" for k in shop],
        "price": draw.normal(size=rows).round(3),
        "kind": draw.choice(["new", "old"], rows),
        "day": (pd.Timestamp("2026-01-01") + pd.to_timedelta(draw.integers(0, 90, rows), "D")),
        "empty": None,
    })  # fmt: skip
    score = slope[shop] * frame.price + (frame.kind == "new")
    frame["spent"] = (50 + 5 * score + draw.normal(size=rows)).round(2)
    frame["back"] = np.where(draw.random(rows) < 1 / (1 + np.exp(-2 * score)), "yes", "no")
    frame.loc[::10, "price"] = None
    return frame


FEATURES = ("--features", "price", "--features", "kind", "--features", "empty")
BACK = ("--client", "shop", "--label", "back", *FEATURES, "--model", "linear")
SPENT = ("--client", "shop", "--label", "spent", *FEATURES, "--model", "linear")
