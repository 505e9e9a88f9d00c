"""An estimator for each client: alone, beside the central model, or with rows of everybody."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.utils import _safe_indexing

from sartor.errors import warn
from sartor.estimators import families
from sartor.estimators.approaches import Added, Approach
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.estimators.threads import one_thread
from sartor.randomness import mix, uniforms
from sartor.types import Floats, Ints

FEWEST_ROWS = 10
"""Clients with fewer rows than this keep the central model."""

RATIO = 5
"""Rows of everybody for each of a client's rows that they are mixed with: the paper's r."""

MOST_OTHERS = 1_000
"""The most rows of everybody."""

Begins = Literal["nothing", "offset", "feature"]


@dataclass(frozen=True)
class OwnEstimators(Added):
    """Estimators of clients. Those who have none keep the central model.

    Attributes:
        task: what is predicted.
        begins: where they begin: with nothing, or with the central scores, to which they add or
            which they see as further columns.
        models: the estimator of each client that has one.
        failed: why others have none.
        approach: how they were fitted.
    """

    task: Task
    begins: Begins
    models: Mapping[int, Any]
    failed: Mapping[int, str]
    approach: Own

    def updated(self, rows: Rows, central: Floats, clients: int) -> OwnEstimators:
        """The same, and estimators for clients that had none: others need all of their rows."""
        new = ~np.isin(rows.owner, list(self.models))
        if self.approach.share < 1 or not new.any():  # everybody's rows are not kept
            return self
        found = self.approach.fit(self.task, rows.take(new), central[new], clients)
        failed = {k: why for k, why in self.failed.items() if k not in found.models}
        models = {**self.models, **found.models}
        return replace(self, models=models, failed={**failed, **found.failed})

    def without(self, client: int) -> OwnEstimators:
        """The same without the estimator of a client."""
        models, failed = (
            {k: one for k, one in several.items() if k != client}
            for several in (self.models, self.failed)
        )
        return replace(self, models=models, failed=failed)

    def knows(self, client: int) -> bool:
        """Whether a client has an estimator."""
        return client in self.models

    def unchanged(self, before: Added, client: int) -> str:
        """That rows which estimators were fitted to are not kept, or why there is none."""
        if before.knows(client):
            return "their estimators were fitted to rows that are not kept"
        if self.approach.share < 1:
            return "their estimators need a sample of everybody's rows, which is not kept"
        return self.failed.get(client, "")

    def scores(self, rows: Rows, central: Floats) -> Floats:
        """The scores of rows. Those that an estimator cannot predict keep the central scores."""
        found, errors = central.copy(), []
        for client, mine in _clients(rows.owner):
            if client in self.models:
                x, base = _safe_indexing(rows.x, mine), central[mine]
                try:
                    found[mine] = _scores(self.task, self.begins, self.models[client], x, base)
                except Exception as error:  # such as a word that the client's rows did not have
                    errors.append(f"{type(error).__name__}: {error}")
        if errors:
            warn(
                f"the estimators of {len(errors):,} clients could not predict their rows, which "
                f"get the central model ({errors[0]})"
            )
        return found


def _scores(task: Task, begins: Begins, model: Any, x: Any, base: Floats) -> Floats:
    """The scores of one client's rows by its estimator."""
    if begins == "offset":
        return families.raw_scores(model, x, base)
    return task.scores_of(model, np.concatenate([x, base], axis=1) if begins == "feature" else x)


@dataclass(frozen=True)
class Own(Approach):
    """An estimator for each client.

    Attributes:
        words: what it does, for people.
        beside: whether it begins with the central scores.
        share: λ, the weight of the client's own rows; the rest is a sample of everybody's.
        estimator: what is cloned for each client.
        categories: columns with codes of categories.
        seed: of the sample.
    """

    words: str
    beside: bool = False
    share: float = 1.0
    estimator: Any = None
    categories: tuple[int, ...] = ()
    seed: int = 0

    @property
    def begins(self) -> Begins:
        """Where the estimators begin. Rows of everybody say nothing new where they see scores."""
        if families.library(self.estimator) in families.OFFSETS:
            return "offset" if self.beside or self.share < 1 else "nothing"
        return "feature" if self.beside else "nothing"

    def seconds(self, task: Task, rows: Rows, central: Floats) -> float:
        """About how long a fit to all clients takes: that of two of them, taken for all."""
        sizes = np.bincount(rows.owner[rows.owner >= 0])
        order = np.argsort(sizes)
        order = order[sizes[order] >= FEWEST_ROWS]
        if not len(order):
            return 0.0
        some = order[[len(order) // 2, -1]]
        taken = []
        for client in some:
            began, mine = time.perf_counter(), np.flatnonzero(rows.owner == client)
            with one_thread(), contextlib.suppress(Exception):  # which the fit notes
                self._fit_one(task, rows, central, mine, self._few(rows))
            taken.append(time.perf_counter() - began)
        return float(np.interp(sizes[order], sizes[some], taken).sum())

    def fit(self, task: Task, rows: Rows, central: Floats, clients: int) -> OwnEstimators:
        """Fit to the rows of each client that has enough of them."""
        others, models, failed = self._few(rows), {}, {}
        for client, mine in _clients(rows.owner):
            try:
                with one_thread():
                    model = self._fit_one(task, rows, central, mine, others)
                    if model is not None:
                        x, base = _safe_indexing(rows.x, mine), central[mine]
                        _scores(task, self.begins, model, x, base)  # or it cannot predict
            except Exception as error:  # whatever the estimator does
                failed[client] = f"{type(error).__name__}: {error}"
                continue
            if model is None:
                failed[client] = "too few rows, or rows of one class"
            else:
                models[client] = model
        return OwnEstimators(task, self.begins, models, failed, self)

    def _few(self, rows: Rows) -> Ints:
        """A sample of everybody's rows, in random order."""
        draw = uniforms(mix(self.seed, "sample of everybody", np.arange(len(rows))))
        return np.argsort(draw, kind="stable")[:MOST_OTHERS]

    def _fit_one(self, task: Task, rows: Rows, central: Floats, mine: Ints, others: Ints) -> Any:
        """The estimator of one client; ``None`` if there is too little to learn from."""
        y = rows.y[mine]
        enough = len(mine) >= FEWEST_ROWS and (not task.classes or len(np.unique(y)) > 1)
        whole = task.classes <= 2 or self.begins != "offset" or len(np.unique(y)) == task.classes
        if not (enough and whole):
            return None
        weight = None if rows.weight is None else rows.weight[mine]
        if self.share < 1:
            others = others[: RATIO * len(mine)]
            own = np.ones(len(mine)) if weight is None else weight
            rest = np.ones(len(others)) if rows.weight is None else rows.weight[others]
            total = len(mine) + len(others)
            own, rest = own / own.sum(), rest / rest.sum()
            weight = total * np.concatenate([self.share * own, (1 - self.share) * rest])
            mine = np.concatenate([mine, others])
        x, base = _safe_indexing(rows.x, mine), central[mine]
        if self.begins == "feature":
            x = np.concatenate([x, base], axis=1)
        return families.fit(
            families.fresh(self.estimator, self.categories), x, task.labels(rows.y[mine]), weight,
            self.categories, base if self.begins == "offset" else None,
        )  # fmt: skip


def _clients(owner: Ints) -> Iterator[tuple[int, Ints]]:
    """Every client with its rows, those of nobody left out."""
    order = np.argsort(owner, kind="stable")
    there, first = np.unique(owner[order], return_index=True)
    for client, mine in zip(there.tolist(), np.split(order, first[1:]), strict=True):
        if client >= 0:
            yield client, mine
