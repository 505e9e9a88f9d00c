"""What is tried for a table: the central models, and the candidates that begin with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from sartor.errors import ConfigError, nearest
from sartor.estimators import families
from sartor.estimators.candidates import CANDIDATES, GLOBAL, Candidate
from sartor.estimators.central import Blended, Boosted, Maker, Plainly
from sartor.estimators.clusters import Clustered
from sartor.estimators.crossed import Crossed
from sartor.estimators.encoders import By, Encoder, LinearColumns, WithCode, WithEffect
from sartor.estimators.own import Own
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.estimators.views import View

ITERATIONS = 200
"""The most iterations of the default booster."""


def makers_for(
    task: Task, view: View, rows: Rows, estimator: Any, clients: int, seed: int
) -> dict[str, Maker]:
    """What fits the central models, by name; those that the estimator allows."""
    plain = LogisticRegression(C=1.0, max_iter=1000) if task.classes else Ridge(alpha=1.0)
    default = estimator is None
    central = booster(task, rows, seed, max_iter=ITERATIONS) if default else estimator
    most = families.most_levels(central)
    codes = view.categories(most)
    kind = Boosted if default else Plainly
    everybody, linear = kind(central, categories=codes), Plainly(plain, By(LinearColumns))
    makers: dict[str, Maker] = {
        GLOBAL: Blended({"boosting": everybody, "linear": linear}) if default else everybody,
        "linear": linear,
    }
    if view.sees == "frame":  # which takes no further columns
        return makers
    known = clients <= most and view.sees == "trees" and families.knows_categories(central)
    encoder: Encoder = WithCode(clients) if known else WithEffect(clients)
    makers["category"] = kind(central, encoder, codes)
    small = _small(task, rows, seed) if default else estimator
    quick = {"max_iter": 15, "learning_rate": 0.3} if default else {}
    for q in (2, 3):
        makers[f"{q} clusters"] = Clustered(
            small, categories=codes, q=q, clients=clients, seed=seed, quick=quick
        )
    return makers


def candidates_for(
    approach: str, task: Task, view: View, rows: Rows, estimator: Any, clients: int, seed: int
) -> dict[str, Candidate]:
    """The candidates that an approach names, with the global model first.

    Args:
        approach: its name, or "auto" for all that the estimator allows.
        task: what is predicted.
        view: what the estimator sees.
        rows: what is fitted to.
        estimator: the central one; ``None`` for boosting.
        clients: how many there are; none have the global model alone.
        seed: of samples.
    """
    if approach not in CANDIDATES and approach != "auto":
        hint = nearest(str(approach), ["auto", *CANDIDATES])
        raise ConfigError(f"approach={approach!r}: {hint}")
    if not clients:
        return {GLOBAL: CANDIDATES[GLOBAL]}
    makers = makers_for(task, view, rows, estimator, clients, seed)
    found = {}
    for name, candidate in CANDIDATES.items():
        if isinstance(candidate.approach, Own):
            each = _small(task, rows, seed) if estimator is None else estimator
            own = replace(
                candidate.approach,
                estimator=each,
                categories=view.categories(families.most_levels(each)),
                seed=seed,
            )
            if own.begins == "feature" and view.sees == "frame":
                continue
            candidate = replace(candidate, approach=own)
        if isinstance(candidate.approach, Crossed):
            if rows.second is None:
                continue
            candidate = replace(candidate, approach=candidate.approach.prepared(rows, clients))
        if candidate.base in makers:
            found[name] = candidate
    if approach == "auto":
        return found
    if isinstance(CANDIDATES[approach].approach, Crossed) and rows.second is None:
        raise ConfigError(
            f"approach={approach!r} needs a second grouping: name its column by second=..., in a "
            "PersonalRegressor; or choose 'recalibrate'"
        )
    if approach not in found:
        raise ConfigError(
            f"approach={approach!r} adds columns, and the estimator takes the frame as it is; let "
            f"columns be 'auto', or choose another approach, such as {list(found)[1]!r}"
        )
    return {GLOBAL: found[GLOBAL], approach: found[approach]}


def booster(task: Task, rows: Rows, seed: int, **settings: Any) -> Any:
    """Gradient boosting, as it does well on most tables.

    Every split sees a random half of the columns, as in random forests: models that are averaged
    should differ. Trees grow with the table.
    """
    kind = HistGradientBoostingClassifier if task.classes else HistGradientBoostingRegressor
    usual = {
        "learning_rate": 0.1,
        "max_leaf_nodes": int(np.clip(len(rows) / 2000, 31, 127)),
        "max_features": float(np.clip(1.2 / rows.x.shape[1] ** 0.5, 0.5, 1.0)),
        "early_stopping": False,
    }
    return kind(**(usual | settings), random_state=seed)


def _small(task: Task, rows: Rows, seed: int) -> Any:
    """Boosting for the rows of one client or one cluster."""
    few = {"max_iter": 50, "learning_rate": 0.15, "max_leaf_nodes": 8, "min_samples_leaf": 20}
    return booster(task, rows, seed, **few)
