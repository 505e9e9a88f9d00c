"""What models are worth on fresh rows: Sartor's scores, and the measures that people use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.estimators.frames import Table
from sartor.estimators.models import Models
from sartor.estimators.rows import Rows
from sartor.evaluation import Scores, mean_interval
from sartor.evaluation.measures import Measure, measures_for
from sartor.types import Floats, Ints

NOBODY = "(no client)"
"""The name of all rows without a client, in scores."""


@dataclass(frozen=True, eq=False)
class Fresh:
    """Fresh rows, sorted by client, with what is predicted for them.

    Attributes:
        client: the clients.
        owner: [rows] whose each row is.
        y: [rows] the labels.
        own: [rows, outputs] the scores of the clients' own models.
        everybody: those of the global model.
    """

    client: tuple[str, ...]
    owner: Ints
    y: Floats
    own: Floats
    everybody: Floats

    @classmethod
    def of(cls, models: Models, table: Table, y: Floats) -> Fresh:
        """Predict for a table, in which clients may be new."""
        names = (*table.ids, NOBODY)
        there, owner = np.unique(table.client, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        rows: Rows = models.rows_of(table, y).take(order)
        models.seen.refuse(rows)
        client = tuple(names[k] for k in there)
        return cls(client, owner[order], y[order], models.scores(rows), models.global_scores(rows))


def score(models: Models, fresh: Fresh, labels: tuple[float, float], method: str) -> Scores:
    """The scores of every client, beside those of the global model.

    Args:
        models: what is scored.
        fresh: the rows.
        labels: the range of labels that regression assumes in the tests of who gained.
        method: its name in tables.
    """
    task = models.task
    size = [int(models.rows[models.ids[c]]) if c in models.ids else 0 for c in fresh.client]
    about: dict[str, Any] = {
        "client": fresh.client, "size": size, "test_size": np.bincount(fresh.owner),
        "seen": [c in models.ids for c in fresh.client],
    }  # fmt: skip

    def of(name: str, scores: Floats, **more: Any) -> Scores:
        right = None
        if task.classes:
            right = task.proba(scores).argmax(axis=1) == fresh.y
        losses = task.losses(scores, fresh.y)
        return Scores(name, example_loss=losses, example_correct=right, **about, **more)

    possible = range(task.classes) if task.classes else labels
    gains = np.stack([
        task.losses(fresh.everybody, y) - task.losses(fresh.own, y)
        for y in (np.full(len(fresh.y), float(label)) for label in possible)
    ])  # fmt: skip
    limits = np.stack([gains.min(axis=0), gains.max(axis=0)], axis=1)
    return of(method, fresh.own, baseline=of("global", fresh.everybody), example_range=limits)


def measure(models: Models, fresh: Fresh, names: Sequence[str | Measure] | None) -> Any:
    """Measures over all rows and over clients, and the shares of clients that gained or were hurt.

    Means over clients leave out those for whom a measure has no meaning.
    """
    task, clients = models.task, len(fresh.client)
    kind = measures_for("regression" if not task.classes else "binary" if task.classes == 2
                        else "classes", None if names is None else list(names))  # fmt: skip
    rows = []
    own, everybody = (_predictions(models, of) for of in (fresh.own, fresh.everybody))
    for each in kind:
        mine = each.of(fresh.y, own, fresh.owner, clients)
        theirs = each.of(fresh.y, everybody, fresh.owner, clients)
        known = np.isfinite(mine) & np.isfinite(theirs)
        better = (mine - theirs if each.higher else theirs - mine)[known]
        low, high, rough = mean_interval(better) if len(better) else (np.nan, np.nan, False)
        rows.append({
            "measure": each.name,
            "all rows": each.pooled(fresh.y, own),
            "all rows, global": each.pooled(fresh.y, everybody),
            "clients": float(mine[known].mean()) if known.any() else np.nan,
            "clients, global": float(theirs[known].mean()) if known.any() else np.nan,
            "gain": float(better.mean()) if len(better) else np.nan,
            "low": low, "high": high, "rough": rough,
            "gained": float((better > 0).mean()) if len(better) else np.nan,
            "hurt": float((better < 0).mean()) if len(better) else np.nan,
        })  # fmt: skip
    return pa.Table.from_pylist(rows)


def _predictions(models: Models, scores: Floats) -> Floats:
    """As measures take them."""
    if not models.task.classes:
        return scores[:, 0]
    chances = models.task.proba(scores)
    return chances[:, 1] if models.task.classes == 2 else chances
