"""What is predicted: scores that can be added to, and what they lose.

A score is a mean for regression, log odds for two classes, and a log-probability for each of
several classes. So effects and offsets work on one kind of array: [rows, outputs].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from sartor.effects import (
    Effects,
    fit_linear,
    fit_logistic,
    update_linear,
    update_logistic,
    with_clients,
)
from sartor.errors import DataError
from sartor.estimators.threads import predictions
from sartor.types import Floats, Ints

SURE = 1e-7
"""The least probability that a score may stand for."""


@dataclass(frozen=True)
class Task:
    """Regression, or classification.

    Attributes:
        classes: how many classes there are; 0 for regression.
    """

    classes: int

    @property
    def outputs(self) -> int:
        """Numbers in a score."""
        return self.classes if self.classes > 2 else 1

    def scores_of(self, estimator: Any, x: Any) -> Floats:
        """The scores of an estimator of scikit-learn's."""
        said = predictions(estimator, x, "predict_proba" if self.classes else "predict")
        if not np.isfinite(said).all():
            raise DataError(
                f"{type(estimator).__name__} predicts values that are not finite; scale the table, "
                "or choose another estimator"
            )
        if not self.classes:
            return np.asarray(said, np.float64).reshape(len(x), 1)
        return self.from_proba(self.aligned(estimator, said))

    def aligned(self, estimator: Any, chances: npt.NDArray[Any]) -> Floats:
        """Probabilities with a column for each class, also for those the estimator has not seen."""
        found = np.zeros((len(chances), self.classes))
        found[:, np.asarray(estimator.classes_, np.int64)] = chances
        return found

    def labels(self, y: Floats) -> npt.NDArray[Any]:
        """Labels as estimators take them."""
        return y.astype(np.int64) if self.classes else y

    def from_proba(self, chances: npt.NDArray[Any]) -> Floats:
        """Scores of probabilities, [rows, classes]."""
        logs = np.log(np.clip(np.asarray(chances, np.float64), SURE, 1))
        return logs[:, 1:] - logs[:, :1] if self.classes == 2 else logs

    def proba(self, scores: Floats) -> Floats:
        """The probability of each class."""
        if self.classes > 2:
            return np.asarray(special.softmax(scores, axis=1))
        chance = special.expit(scores[:, 0])
        return np.stack([1 - chance, chance], axis=1)

    def losses(self, scores: Floats, y: Floats) -> Floats:
        """The loss of each row: squared error, or log loss."""
        if not self.classes:
            return np.asarray((scores[:, 0] - y) ** 2)
        if self.classes == 2:
            return np.asarray(np.logaddexp(0, np.where(y > 0, -scores[:, 0], scores[:, 0])))
        logs = special.log_softmax(scores, axis=1)
        return -np.asarray(logs[np.arange(len(y)), y.astype(np.int64)])

    def slopes(self, scores: Floats, y: Floats) -> Floats:
        """The derivatives of each row's loss by its scores."""
        if not self.classes:
            return 2 * (scores - y[:, None])
        if self.classes == 2:
            return np.asarray(special.expit(scores) - y[:, None])
        return np.asarray(special.softmax(scores, axis=1) - (y[:, None] == np.arange(self.classes)))

    def blend(self, mine: Floats, others: Floats, lambda_: Floats | float) -> Floats:
        """Scores of λ · mine + (1 − λ) · others: predictions are mixed, not scores."""
        weight = np.asarray(lambda_, np.float64)[..., None] * np.ones((len(mine), 1))
        if not self.classes:
            return weight * mine + (1 - weight) * others
        return self.from_proba(weight * self.proba(mine) + (1 - weight) * self.proba(others))

    def effects(
        self, fixed: Floats, varying: Floats, y: Floats, owner: Ints, clients: int,
        offset: Floats, weights: Floats | None, covariances: Sequence[Floats] | None = None,
        **how: Any,
    ) -> list[Effects]:  # fmt: skip
        """Hierarchical effects on top of scores, for each output."""
        fit, offset = fit_logistic if self.classes else fit_linear, self._offsets(offset)
        given = [None] * self.outputs if covariances is None else covariances
        return [
            fit(
                fixed, varying, target, owner, clients, offset=offset[:, i], weights=weights,
                covariance=given[i], **how,
            )
            for i, target in enumerate(self._targets(y))
        ]  # fmt: skip

    def with_new_rows(
        self, effects: list[Effects], varying: Floats, y: Floats, owner: Ints, clients: int,
        offset: Floats, weights: Floats | None,
    ) -> list[Effects]:  # fmt: skip
        """The same effects, with what new rows of some clients say."""
        learn, offset = update_logistic if self.classes else update_linear, self._offsets(offset)
        nothing = np.zeros((len(y), 0))
        return [
            learn(
                with_clients(each, clients), nothing, varying, target, owner, offset[:, i], weights
            )
            for i, (each, target) in enumerate(zip(effects, self._targets(y), strict=True))
        ]

    def with_effects(
        self, effects: list[Effects], fixed: Floats, varying: Floats, owner: Ints, offset: Floats
    ) -> Floats:
        """The scores of rows with such effects."""
        offset = self._offsets(offset)
        found = [each.score(fixed, varying, owner, offset[:, i]) for i, each in enumerate(effects)]
        scores = np.stack(found, axis=1)
        if self.classes <= 2:
            return scores
        chances = special.expit(scores)
        return self.from_proba(chances / chances.sum(axis=1, keepdims=True))

    def _targets(self, y: Floats) -> list[Floats]:
        """What each output's effects are fitted to: of several classes, each against all others."""
        if self.classes <= 2:
            return [y]
        return [(y == c).astype(np.float64) for c in range(self.classes)]

    def _offsets(self, scores: Floats) -> Floats:
        """What they are added to."""
        if self.classes <= 2:
            return scores
        return np.asarray(special.logit(np.clip(self.proba(scores), SURE, 1 - SURE)))
