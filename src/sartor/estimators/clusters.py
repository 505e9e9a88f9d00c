"""Clusters of clients around any estimator: each client uses the model that loses least on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sartor.estimators.central import Fitted, Plainly, Scorer
from sartor.estimators.encoders import Codes
from sartor.estimators.folds import Folds
from sartor.estimators.parts import Stored
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.randomness import mix, uniforms
from sartor.types import Floats, Ints

STARTS = 2
"""Random first clusters; the ones with the lowest loss on held-out rows are taken."""

MOST_TURNS = 5
"""Refits and reassignments after which a search ends."""

MOST_ROWS = 20_000
"""Rows that a search looks at; the models that come out are fitted to all rows."""


@dataclass(eq=False, repr=False)
class ByCluster(BaseEstimator, Stored):
    """A model for each cluster; the last column says which, and is NaN where it is not known."""

    models: Sequence[Any] = ()
    usual: int = 0

    @property
    def classes_(self) -> Any:
        """All classes."""
        return np.unique(np.concatenate([model.classes_ for model in self.models]))

    def predict(self, x: Floats) -> Floats:
        """What the clusters' models predict."""
        found = np.zeros(len(x))
        for k, mine in self._parts(x):
            found[mine] = self.models[k].predict(x[mine, :-1])
        return found

    def predict_proba(self, x: Floats) -> Floats:
        """What they think of each class."""
        found = np.zeros((len(x), len(self.classes_)))
        for k, mine in self._parts(x):
            there = np.searchsorted(self.classes_, self.models[k].classes_)
            found[np.ix_(mine, there)] = self.models[k].predict_proba(x[mine, :-1])
        return found

    def _parts(self, x: Floats) -> list[tuple[int, Ints]]:
        cluster = np.where(np.isnan(x[:, -1]), self.usual, x[:, -1])
        parts = [(k, np.flatnonzero(cluster == k)) for k in range(len(self.models))]
        return [(k, mine) for k, mine in parts if len(mine)]


def clusters_of(fitted: Scorer) -> Floats | None:
    """[clients] the cluster of each, NaN where it is not known; ``None`` if there are none."""
    if isinstance(fitted, Fitted) and isinstance(fitted.estimator, ByCluster):
        return fitted.encoded.levels[:, 0]
    return None


def placed(fitted: Scorer, rows: Rows, clients: int) -> Scorer:
    """The same, where clients without a cluster have the one that loses least on these rows."""
    before = clusters_of(fitted)
    if before is None or not isinstance(fitted, Fitted):
        return fitted
    cluster = np.append(before, np.full(clients - len(before), np.nan))
    rows = rows.take(np.isnan(cluster[rows.owner]))
    models, task = fitted.estimator.models, fitted.task
    losses = np.zeros((clients, len(models)))
    for k, model in enumerate(models if len(rows) else ()):
        lost = task.losses(task.scores_of(model, rows.x), rows.y)
        np.add.at(losses[:, k], rows.owner, lost if rows.weight is None else lost * rows.weight)
    mine = np.unique(rows.owner)
    cluster[mine] = losses[mine].argmin(axis=1)
    return replace(fitted, encoded=replace(fitted.encoded, levels=cluster[:, None]))


@dataclass(frozen=True)
class Clustered(Plainly):
    """HypCluster with an estimator: refit the clusters' models, reassign the clients, and again.

    Clients are assigned by rows that the models have not seen, one half by models of the other.

    Attributes:
        q: the number of clusters.
        clients: the number of clients.
        seed: of the first clusters.
        quick: settings of the estimator while clusters are searched, which takes many fits.
    """

    q: int = 2
    clients: int = 1
    seed: int = 0
    quick: Mapping[str, Any] = field(default_factory=dict)

    def fitted_to(self, task: Task, rows: Rows, folds: Folds, **settings: Any) -> Fitted:
        """Search clusters, and fit a clone to each of them."""
        plainly, known = super().fitted_to, rows.owner >= 0
        if not known.any():
            model = plainly(task, rows, folds, **settings).estimator
            return Fitted(task, ByCluster([model]), Codes(np.full((self.clients, 1), np.nan)))
        rows, folds = rows.take(known), folds.take(known)
        draw = uniforms(mix(self.seed, "rows of clusters", np.arange(len(rows))))
        some = np.argsort(draw, kind="stable")[:MOST_ROWS]
        sample, half = rows.take(some), folds.number[some] % 2
        if (half == half[0]).all():  # a single fold
            half = np.arange(len(half)) % 2
        searched = [self._search(task, sample, half, folds, start) for start in range(STARTS)]
        cluster, _ = min(searched, key=lambda found: found[1])
        mine = cluster[rows.owner]
        models = [
            plainly(task, rows.take(mine == k), folds.take(mine == k), **settings).estimator
            for k in range(self.q)
            if (mine == k).any()
        ]
        _, number = np.unique(cluster[np.unique(rows.owner)], return_inverse=True)
        levels = np.full((self.clients, 1), np.nan)
        levels[np.unique(rows.owner), 0] = number
        return Fitted(task, ByCluster(models, int(np.bincount(number).argmax())), Codes(levels))

    def _search(
        self, task: Task, rows: Rows, half: Ints, folds: Folds, start: int
    ) -> tuple[Ints, float]:
        """The cluster of each client, and the mean loss on held-out rows."""
        draw = uniforms(mix(self.seed, "first clusters", start, np.arange(self.clients)))
        cluster = np.argsort(np.argsort(draw)) % self.q  # of about the same size
        best, least = cluster, np.inf
        for _ in range(MOST_TURNS):
            losses = self._losses(task, rows, half, cluster, folds)
            if rows.weight is not None:
                losses *= rows.weight[:, None]
            by_client = np.zeros((self.clients, self.q))
            np.add.at(by_client, rows.owner, losses)
            mean = float(by_client.min(axis=1).sum() / len(rows))
            if mean >= least:
                break
            best, least = by_client.argmin(axis=1), mean
            best = _none_empty(best, by_client, self.q)
            if (best == cluster).all():
                break
            cluster = best
        return best, least

    def _losses(self, task: Task, rows: Rows, half: Ints, cluster: Ints, folds: Folds) -> Floats:
        """[rows, clusters] the loss of each cluster's model, fitted to the other half."""
        found = np.zeros((len(rows), self.q))
        for k in range(self.q):
            for h in range(2):
                learns = (half != h) & (cluster[rows.owner] == k)
                if not learns.any():
                    learns = half != h if (half != h).any() else half == h  # of one row alone
                part = rows.take(learns)
                alone = Folds(np.zeros(len(part), np.int64), 1)
                model = super().fitted_to(task, part, alone, **self.quick)
                held = rows.take(half == h)
                found[half == h, k] = task.losses(model.scores(held), held.y)
        return found


def _none_empty(cluster: Ints, losses: Floats, q: int) -> Ints:
    """The same clusters, where an empty one takes the client that its own one suits worst."""
    cluster = cluster.copy()
    for k in range(q):
        if not (cluster == k).any():
            alone = np.bincount(cluster, minlength=q)[cluster] < 2
            own = np.where(alone, -np.inf, losses[np.arange(len(cluster)), cluster])
            cluster[own.argmax()] = k
    return cluster
