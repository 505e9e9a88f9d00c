"""A synthetic experiment of made-up cells: what is trained is tested elsewhere."""

from __future__ import annotations

import numpy as np

from sartor.experiments.synthetic import reproduce
from sartor.experiments.synthetic.cells import Cell, tasks
from sartor.experiments.synthetic.methods import Choice
from sartor.files import write_atomic
from sartor.runs.toml import to_toml


def made_up(settings, out):
    """Write cells of random numbers, then let the experiment go on from there."""
    random = np.random.default_rng(5)
    write_atomic(out / "config.toml", to_toml({"synthetic": settings.to_table()}))
    for place in (place for task in tasks(settings) for place in task):
        shape = settings.seeds, 100
        exact = 2 + 5 / place.samples + random.random(shape)
        lambda_ = random.choice([0.0, 0.5, 1.0], shape) if "apper" in place.method else None
        cluster = random.integers(4, size=shape).astype(float) if "Hyp" in place.method else None
        tried = [(Choice(0.5, 0.0), 2.5), (Choice(2.0, 0.0), 2.25)]
        if place.method.startswith("Local,"):
            tried = []
        cost = {"down": 4e6, "up": 2e5, "examples": 1e4, "steps": 200.0}
        losses = exact + 0.01, exact, exact + 0.2
        cell = Cell(*losses, lambda_, cluster, Choice(2.0, 0.0), tried, cost, 1.5)
        cell.save(place.path(out / "checkpoint"))
    reproduce(settings, out, resume=True)
    return out
