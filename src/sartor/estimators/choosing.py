"""Which approach for which client: all are tried on held-out rows, and the evidence is pooled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sartor.advice.decide import REFERENCE, Decision, best, decide
from sartor.advice.holdout import HeldOutLosses
from sartor.estimators.approaches import Added, Approach, Recalibrate, Slopes
from sartor.estimators.central import Central, Done, Maker
from sartor.estimators.folds import Folds
from sartor.estimators.own import Own
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.types import Floats, Ints

GLOBAL = REFERENCE
"""The name of the model that all clients share, and that does not know them."""


@dataclass(frozen=True)
class Candidate:
    """A way to make models for clients.

    Attributes:
        base: the central model that it begins with.
        approach: what is fitted beside it; ``None`` for nothing.
        lambda_: the weight of this in a mixture with the global model; 1 for no mixture.
    """

    base: str
    approach: Approach | None = None
    lambda_: float = 1.0

    @property
    def words(self) -> str:
        """What it is, for people."""
        found = BASES[self.base]
        if self.approach is not None:
            found = f"{self.approach.words}, on top of {found}"
        if self.lambda_ < 1:
            found += f"; mixed with {1 - self.lambda_:.0%} of the global model"
        return found


BASES = {
    GLOBAL: "one model for all clients",
    "category": "one model that sees the client as one more column",
    "linear": "one linear model",
    "2 clusters": "a model for each of 2 clusters of clients",
    "3 clusters": "a model for each of 3 clusters of clients",
}
"""The central models that candidates begin with."""

CANDIDATES: Mapping[str, Candidate] = {
    GLOBAL: Candidate(GLOBAL),
    "recalibrate": Candidate(GLOBAL, Recalibrate()),
    "slopes": Candidate(GLOBAL, Slopes()),
    "category": Candidate("category"),
    "category, mixed": Candidate("category", lambda_=0.5),
    "category, recalibrate": Candidate("category", Recalibrate()),
    "linear": Candidate("linear", Slopes()),
    "linear, mixed": Candidate("linear", Slopes(), 0.5),
    "local": Candidate(GLOBAL, Own("a model of the client's rows alone")),
    "model interpolation": Candidate(
        GLOBAL, Own("a model of the client's rows that begins with the scores", beside=True), 0.5
    ),
    "data interpolation": Candidate(
        GLOBAL, Own("a model of the client's rows and a sample of everybody's", share=0.5)
    ),
    "2 clusters": Candidate("2 clusters"),
    "3 clusters": Candidate("3 clusters"),
}
"""What is tried by default, in this order, while there is time."""


@dataclass
class Tried:
    """What was tried, and what held-out rows say of it.

    Attributes:
        central: the central models.
        losses: for each candidate, [rows] the losses of held-out rows; NaN for others.
        seconds: how long each candidate took.
        skipped: candidates that there was no time for.
    """

    central: dict[str, Central] = field(default_factory=dict)
    losses: dict[str, Floats] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def try_all(
    task: Task, rows: Rows, folds: Folds, clients: int, makers: Mapping[str, Maker],
    candidates: Mapping[str, Candidate], budget: float, done: Done,
) -> Tried:  # fmt: skip
    """Score every row by models that have not seen it, candidate by candidate.

    What would not fit in what is left of the budget is not begun. A central model takes about as
    long as the longest one before.
    """
    tried, began, longest = Tried(), time.perf_counter(), 0.0
    for name, candidate in candidates.items():
        start = time.perf_counter()
        left = budget - (start - began)
        if candidate.base not in tried.central:
            if tried.central and longest > left:
                tried.skipped.append(name)
                continue
            tried.central[candidate.base] = makers[candidate.base].fit(task, rows, folds, done)
            longest = max(longest, time.perf_counter() - start)
        if candidate.approach is not None and tried.losses:
            some = folds.scored
            base = tried.central[candidate.base].held_out[some]
            one = candidate.approach.seconds(task, rows.take(some), base)
            if one * (folds.count + 1) > left:
                tried.skipped.append(name)
                continue
        scores = held_out_scores(task, rows, folds, clients, candidate, tried.central)
        there = np.isfinite(scores).all(axis=1)
        tried.losses[name] = np.full(len(rows), np.nan)
        tried.losses[name][there] = task.losses(scores[there], rows.y[there])
        tried.seconds[name] = time.perf_counter() - start
        done(name)
    return tried


def held_out_scores(
    task: Task, rows: Rows, folds: Folds, clients: int, candidate: Candidate,
    central: Mapping[str, Central],
) -> Floats:  # fmt: skip
    """The scores of a candidate by fits without each fold; NaN for rows that are never held out."""
    base = central[candidate.base].held_out
    if candidate.approach is None:
        return base
    found = np.full_like(base, np.nan)
    scored = folds.scored
    for trains, held in folds:
        learns = trains & scored
        if not learns.any():  # the first fold of time has no scores to learn from
            continue
        fitted = candidate.approach.fit(task, rows.take(learns), base[learns], clients)
        found[held] = fitted.scores(rows.take(held), base[held])
    if candidate.lambda_ < 1:
        found = task.blend(found, central[GLOBAL].held_out, candidate.lambda_)
    return found


@dataclass(frozen=True)
class Chosen:
    """A candidate for each client.

    Attributes:
        name: [clients] the candidate.
        decision: the reasons.
    """

    name: np.ndarray
    decision: Decision


def choose(tried: Tried, rows: Rows, folds: Folds, size: Ints) -> Chosen:
    """The candidate of each client, by losses on held-out rows and with shrinkage (see advice)."""
    there = folds.decisive & (rows.owner >= 0)
    there &= np.all([np.isfinite(v) for v in tried.losses.values()], axis=0)
    which = np.flatnonzero(there)
    which = which[np.argsort(rows.owner[which], kind="stable")]
    owner = rows.owner[which]
    losses = HeldOutLosses(
        owner,
        {name: values[which] for name, values in tried.losses.items()},
        size[owner],
        folds.number[which],
    )
    decision = decide(losses, None, size)
    return Chosen(best(decision.score), decision)


def finish(
    task: Task, rows: Rows, folds: Folds, clients: int, central: Mapping[str, Central],
    candidates: Mapping[str, Candidate],
) -> dict[str, Added]:  # fmt: skip
    """What is fitted beside the central models, to all rows that they have held out."""
    scored = folds.scored
    found = {}
    for name, candidate in candidates.items():
        if candidate.approach is not None:
            base = central[candidate.base].held_out[scored]
            found[name] = candidate.approach.fit(task, rows.take(scored), base, clients)
    return found
