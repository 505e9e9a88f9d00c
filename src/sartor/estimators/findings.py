"""What a fitted model has found, in plain values: what reports and command lines show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import is_classifier

from sartor.errors import SartorError
from sartor.estimators.candidates import CANDIDATES, GLOBAL
from sartor.estimators.choosing import Decision
from sartor.estimators.evaluating import NOBODY
from sartor.estimators.models import Models
from sartor.evaluation import Scores, mean_interval
from sartor.evaluation.statistics import jsonable
from sartor.types import Floats, Ints

FEW_ROWS = 30
"""Clients with fewer rows than this say little about themselves."""

NORMAL = 1.96
"""Standard deviations around a mean that hold 95% of normal values."""

MOST_COLUMNS, MOST_CLIENTS = 20, 3
"""How many columns, and how many clients at each end, effects are listed for."""


def findings(model: Any, scores: Scores | None, measures: Any) -> tuple[dict[str, Any], Any]:
    """What there is to say about a model, and a table with a row for each client.

    Gains are shares of the global model's loss for classes, and drops of the root mean squared
    error, in the units of the label, for numbers. The table has them in the units of the loss, too.

    Args:
        model: a fitted classifier or regressor.
        scores: of fresh rows, as ``model.evaluate`` gives them; ``None`` without such rows.
        measures: the same rows' measures, as ``model.measure`` gives them.
    """
    models: Models = model.models_
    classes = model.classes_.tolist() if is_classifier(model) else []
    columns = _clients(model, scores)
    real = [k for k, client in enumerate(columns["client"]) if client != NOBODY]
    chosen = Counter(columns["approach"][k] for k in real)
    fitted = np.array(columns["rows"]) > 0
    results = {
        "kind": "classification" if classes else "regression",
        "classes": [str(label) for label in classes],
        "loss": "log loss" if classes else "squared error",
        "estimator": "boosting" if model.estimator is None else type(model.estimator).__name__,
        "approach": model.approach,
        "rows": int(models.rows.sum()),
        "clients": len(models.ids),
        "smallest": int(np.array(columns["rows"])[fitted].min()) if fitted.any() else 0,
        "largest": int(np.array(columns["rows"])[fitted].max()) if fitted.any() else 0,
        "chosen": [
            {"name": name, "words": words_of(models, name), "clients": count}
            for name, count in chosen.most_common()
        ],
        "kept": dict(Counter(columns["why"][k] for k in real if columns["why"][k]).most_common()),
        "expected": _expected(model),
        "tried": _tried(model, chosen),
        "columns": [
            {"name": kind.name, "words": kind.words, "attention": kind.attention}
            for kind in models.view.preparation.kinds
        ],
        "prepared": models.view.sees != "frame",
        "effects": effects_that_differ(effects_of(model)),
        "fresh": None,
    }  # fmt: skip
    if scores is not None:
        results["fresh"] = {
            "rows": int(scores.test_size.sum()),
            "clients": len(scores),
            "summary": scores.summary().to_dict(),
            "measures": measures.to_pylist(),
        }
    return jsonable(results), pa.table(columns)


def words_of(models: Models, name: str) -> str:
    """What a candidate is, for people."""
    return (models.candidates.get(name) or CANDIDATES[name]).words


def effects_of(model: Any) -> Any:
    """Effects of columns that differ between clients, as an Arrow table; ``None`` without any.

    It has the columns client, column, effect and deviation.
    """
    if not hasattr(model, "effects"):
        return None
    try:
        table = model.effects()
    except SartorError:  # of an approach that has none
        return None
    return table if table is not None and len(table) else None


def effects_that_differ(table: Any) -> list[dict[str, Any]]:
    """The columns whose effects differ most between clients, and who is at the ends."""
    if table is None:
        return []
    names = np.array(table["column"].to_pylist(), object)
    if "class" in table.column_names:
        names = names + np.array([f" ({name})" for name in table["class"].to_pylist()], object)
    clients = np.array(table["client"].to_pylist(), object)
    effect, deviation = (
        np.array(table[name].to_pylist(), float) for name in ("effect", "deviation")
    )
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(names.tolist()):
        mine = np.flatnonzero(names == name)
        mine = mine[np.argsort(-effect[mine], kind="stable")]
        ends = [
            [
                {"client": str(clients[i]), "effect": effect[i], "deviation": deviation[i]}
                for i in some
            ]
            for some in (mine[:MOST_CLIENTS], mine[::-1][:MOST_CLIENTS])
        ]
        found.append({
            "column": str(name),
            "spread": float(effect[mine].std()),
            "clear": float((np.abs(effect[mine]) > 2 * deviation[mine]).mean()),
            "largest": ends[0],
            "smallest": ends[1],
        })  # fmt: skip
    found.sort(key=lambda one: one["spread"], reverse=True)
    return found[:MOST_COLUMNS]


def shown_gain(gain: Floats, loss: Floats, kind: str) -> Floats:
    """Gains in units that people know; see :func:`findings`.

    Args:
        gain: how much smaller the loss is.
        loss: the global model's loss.
        kind: "classification" or "regression".

    >>> shown_gain(np.array([3.0]), np.array([4.0]), "regression").tolist()
    [1.0]
    """
    if kind == "classification":
        return 100 * gain / loss
    return np.sqrt(loss) - np.sqrt(np.maximum(loss - gain, 0.0))


def _clients(model: Any, scores: Scores | None) -> dict[str, Any]:
    """A row for each client: what it got, why, and what that brings."""
    models: Models = model.models_
    kind = "classification" if is_classifier(model) else "regression"
    ids = list(models.ids)
    which = np.array([*models.ids.values()], np.int64)
    names = models.names[which].tolist()
    later = [] if scores is None else [c for c in scores.client if c not in models.ids]
    total = len(ids) + len(later)
    columns: dict[str, Any] = {
        "client": ids + later,
        "rows": [*models.rows[which].tolist(), *[0] * len(later)],
        "approach": names + [GLOBAL] * len(later),
    }
    columns["why"] = [*_why(model, which, names), *map(_why_later, later)]
    decision: Decision | None = model.decision_
    if decision is not None:
        known = which < len(decision.loss)  # others came later
        place = np.where(known, which, 0)
        rank = [list(decision.gain).index(name) for name in names]
        gain, deviation = (
            np.where(known, np.stack(list(of.values()))[rank, place], np.nan)
            for of in (decision.gain, decision.deviation)
        )
        loss = _steady(decision.loss[place], models.rows[which])
        more = np.full(len(later), np.nan)
        columns["expected_gain"] = np.append(gain, more)
        columns["deviation"] = np.append(deviation, more)
        for name, at in {"expected": 0.0, "low": -NORMAL, "high": NORMAL}.items():
            columns[name] = np.append(shown_gain(gain + at * deviation, loss, kind), more)
    if scores is not None:
        columns |= _seen(scores, columns["client"], total, kind)
    return columns


def _steady(loss: Floats, rows: Ints) -> Floats:
    """Losses of clients; those of few rows lean towards the mean of all."""
    there = np.isfinite(loss)
    mean = loss[there].mean() if there.any() else np.nan
    return (rows * np.where(there, loss, mean) + FEW_ROWS * mean) / (rows + FEW_ROWS)


def _seen(scores: Scores, ids: Sequence[str], total: int, kind: str) -> dict[str, Any]:
    """What fresh rows say of each client."""
    assert scores.baseline is not None
    place = {name: k for k, name in enumerate(ids)}
    at = np.array([place[name] for name in scores.client], np.int64)
    everybody, own = scores.baseline.loss, scores.loss
    steady = kind == "classification"  # a share of nearly nothing says nothing
    base = _steady(everybody, scores.test_size) if steady else everybody
    columns: dict[str, npt.NDArray[Any]] = {"test_rows": np.zeros(total, np.int64)}
    columns["test_rows"][at] = scores.test_size
    found = {
        "loss_global": everybody, "loss": own, "seen": shown_gain(everybody - own, base, kind)
    }  # fmt: skip
    for name, values in found.items():
        columns[name] = np.full(total, np.nan)
        columns[name][at] = values
    return columns


def _why_later(client: str) -> str:
    return "rows without a client" if client == NOBODY else "new: not among the training rows"


def _why(model: Any, which: npt.NDArray[np.int64], names: Sequence[str]) -> list[str]:
    """Why clients keep the global model; empty for those who have another one."""
    models: Models = model.models_
    alike = all(name == GLOBAL for name in names)
    tried = model.tried_ is None or len(model.tried_.losses) > 1
    decision: Decision | None = model.decision_
    small = np.zeros(0, np.bool_) if decision is None else decision.kept
    found = []
    for client, name in zip(which.tolist(), names, strict=True):
        failed: Mapping[int, str] = getattr(models.added.get(name), "failed", {})
        if name != GLOBAL:
            found.append(failed.get(client, ""))
        elif model.decision_ is None:
            found.append("as asked")
        elif not tried:
            found.append("there was no time to try an approach: raise approach.budget")
        elif alike:
            found.append("no approach clearly pays on held-out rows")
        elif client < len(small) and small[client]:
            found.append("its gain would be too small to be seen on its rows")
        elif models.rows[client] < FEW_ROWS:
            found.append("few rows")
        else:
            found.append("does not pay on its held-out rows")
    return found


def _expected(model: Any) -> dict[str, Any] | None:
    """The gain on held-out rows of what other folds would have decided, over clients."""
    decision: Decision | None = model.decision_
    if decision is None:
        return None
    kind = "classification" if is_classifier(model) else "regression"
    known = np.isfinite(decision.paid)
    loss = decision.loss[np.isfinite(decision.loss)]
    if not known.any() or not len(loss):
        return None
    low, high, rough = mean_interval(decision.paid[known])
    mean = float(decision.paid[known].mean())
    ends = np.array([mean, low, high])
    shown = shown_gain(ends, np.full(3, loss.mean()), kind).tolist()
    return {
        "gain": mean, "loss": float(loss.mean()), "rough": rough,
        "shown": {"mean": shown[0], "low": shown[1], "high": shown[2], "rough": rough},
    }  # fmt: skip


def _tried(model: Any, chosen: Mapping[str, int]) -> list[dict[str, Any]]:
    """What was tried: held-out losses, gains over the global model, and seconds."""
    tried, decision = model.tried_, model.decision_
    if tried is None:  # saved models do not remember
        return []
    there = np.all([np.isfinite(values) for values in tried.losses.values()], axis=0)
    means = {name: float(values[there].mean()) for name, values in tried.losses.items()}
    known = tried.candidates({**CANDIDATES, **model.models_.candidates})
    found = []
    for name, loss in means.items():
        row: dict[str, Any] = {
            "name": name, "words": known[name].words, "loss": loss,
            "share": 1 - loss / means[GLOBAL] if means[GLOBAL] else 0.0,
            "seconds": round(tried.seconds.get(name, 0.0), 2), "clients": chosen.get(name, 0),
            "gain": None,
        }  # fmt: skip
        if decision is not None and name != GLOBAL and name in decision.observed:
            own = decision.observed[name]
            own = own[np.isfinite(own)]
            if len(own):
                low, high, rough = mean_interval(own)
                row["gain"] = {"mean": float(own.mean()), "low": low, "high": high, "rough": rough}
        found.append(row)
    skipped = [
        {"name": name, "words": words_of(model.models_, name), "skipped": True}
        for name in tried.skipped
    ]
    return [{"skipped": False, **row} for row in found] + skipped
