"""All candidates are tried: every row is scored by models that have not seen it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sartor.errors import warn
from sartor.estimators import mixing
from sartor.estimators.approaches import Added
from sartor.estimators.candidates import ALIKE, GLOBAL, HALF, MIXTURE, Candidate
from sartor.estimators.central import Central, Done, Maker
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.tasks import Task
from sartor.types import Floats


@dataclass
class Tried:
    """What was tried, and what held-out rows say of it.

    Attributes:
        central: the central models.
        losses: for each candidate, [rows] the losses of held-out rows; NaN for others.
        alike: [rows] the same of a mixture of models that do not know clients; NaN likewise.
        mixture: the weights of the candidates in a mixture of them; none if there is none.
        seconds: how long each candidate took.
        skipped: candidates that there was no time for.
        failed: candidates whose estimators failed, and how.
    """

    central: dict[str, Central] = field(default_factory=dict)
    losses: dict[str, Floats] = field(default_factory=dict)
    alike: Floats | None = None
    mixture: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def candidates(self, among: Mapping[str, Candidate]) -> dict[str, Candidate]:
        """Those that were tried, with mixtures of them."""
        found = {name: among[name] for name in self.losses if name in among}
        if self.mixture:
            found[HALF] = Candidate(GLOBAL, lambda_=0.5, parts=self.mixture)
            found[MIXTURE] = Candidate(GLOBAL, parts=self.mixture)
        return found


@dataclass
class Trial:
    """Tries candidates, while there is time.

    Attributes:
        task: what is predicted.
        rows: what is fitted to.
        folds: the folds that are held out.
        clients: how many clients there are.
        makers: what fits the central models.
        budget: the seconds after which nothing is begun any more.
        done: told about each piece of work that is done.
    """

    task: Task
    rows: Rows
    folds: Folds
    clients: int
    makers: Mapping[str, Maker]
    budget: float
    done: Done
    tried: Tried = field(default_factory=Tried)

    def run(self, candidates: Mapping[str, Candidate], *, mixes: bool) -> Tried:
        """Try candidate by candidate, and perhaps a mixture of them.

        What would not fit in what is left of the budget is not begun. A central model takes about
        as long as the longest one before, and twice that once more if something is fitted beside.
        """
        tried, began, longest = self.tried, time.perf_counter(), 0.0
        scores: dict[str, Floats] = {}
        broken: dict[str, Exception] = {}
        for name, candidate in candidates.items():
            start, base = time.perf_counter(), candidate.base
            left = self.budget - (start - began)
            if base not in tried.central:
                if tried.central and longest > left:
                    tried.skipped.append(name)
                    continue
                try:
                    if base in broken:
                        raise broken[base]
                    made = self.makers[base].timed(self.task, self.rows, self.folds, self.done)
                    tried.central[base] = made
                    parts = {part: of for part, of in made.parts.items() if part in self.makers}
                    tried.central.update(parts)
                except Exception as error:  # whatever the estimator does
                    broken[base] = error
                    self._note_failed(name, error, mixes)
                    continue
                longest = max(longest, time.perf_counter() - start)
            if scores and self._seconds(candidate) > left:
                tried.skipped.append(name)
                continue
            try:
                scores[name] = self.held_out(candidate)
            except Exception as error:
                self._note_failed(name, error, mixes)
                continue
            self._note(name, scores[name])
            tried.seconds[name] = time.perf_counter() - start
            self.done(name)
        if mixes and len(scores) > 1:
            start = time.perf_counter()
            self._mix(scores)
            tried.seconds[MIXTURE] = time.perf_counter() - start
            self.done(MIXTURE)
        return tried

    def _note_failed(self, name: str, error: Exception, several: bool) -> None:
        """Go on without a candidate, if it is one of several."""
        if name == GLOBAL or not several:
            raise error
        self.tried.failed[name] = f"{type(error).__name__}: {error}"
        warn(f"candidate {name!r} failed and is left out ({self.tried.failed[name]})")

    def held_out(self, candidate: Candidate) -> Floats:
        """The scores of held-out rows by fits without their folds; NaN for other rows."""
        found = self._beside(candidate)
        if candidate.lambda_ < 1:
            everybody = self.tried.central[GLOBAL].held_out
            found = self.task.blend(found, everybody, candidate.lambda_)
        return found

    def _beside(self, candidate: Candidate) -> Floats:
        """The same before it is mixed with the global model."""
        central, folds = self.tried.central[candidate.base], self.folds
        if candidate.approach is None:
            return central.held_out
        maker = self.makers[candidate.base]
        learned = maker.without_two(central, self.task, self.rows, folds, self.done)
        found = np.full_like(central.held_out, np.nan)
        for (trains, held), scores in zip(folds, learned, strict=True):
            learns = trains & folds.scored
            if learns.any():  # the first fold of time has no scores to learn from
                fitted = candidate.approach.fit(
                    self.task, self.rows.take(learns), scores[learns], self.clients
                )
                found[held] = fitted.scores(self.rows.take(held), central.held_out[held])
        return found

    def added(self, candidates: Mapping[str, Candidate]) -> dict[str, Added]:
        """What is fitted beside the central models, to all rows that these have held out."""
        scored, found = self.folds.scored, {}
        rows = self.rows.take(scored)
        for name, candidate in candidates.items():
            if candidate.approach is not None:
                base = self.tried.central[candidate.base].held_out[scored]
                found[name] = candidate.approach.fit(self.task, rows, base, self.clients)
        return found

    def _seconds(self, candidate: Candidate) -> float:
        """About how long a candidate takes, if its central model is there."""
        if candidate.approach is None:
            return 0.0
        known, some = self.tried.central[candidate.base], self.folds.scored
        one = candidate.approach.seconds(self.task, self.rows.take(some), known.held_out[some])
        pairs = 0.0 if self.folds.forward else known.pairs
        return one * (self.folds.count + 1) + pairs

    def _note(self, name: str, scores: Floats) -> None:
        self.tried.losses[name] = self._losses(scores)

    def _losses(self, scores: Floats) -> Floats:
        there = np.isfinite(scores).all(axis=1)
        losses = np.full(len(self.rows), np.nan)
        losses[there] = self.task.losses(scores[there], self.rows.y[there])
        return losses

    def _mix(self, scores: dict[str, Floats]) -> None:
        task, rows, folds = self.task, self.rows, self.folds
        there = np.all([np.isfinite(one).all(axis=1) for one in scores.values()], axis=0)
        there &= folds.decisive & (rows.owner >= 0)
        if len(np.unique(folds.number[there])) < 2:  # no fold to weigh by, and another to judge
            return
        whole = mixing.held_out(task, rows, folds, scores, there)
        half = np.full_like(whole, np.nan)
        half[there] = task.blend(whole[there], scores[GLOBAL][there], 0.5)
        weight = None if rows.weight is None else rows.weight[there]
        of = {name: one[there] for name, one in scores.items()}
        self.tried.mixture = mixing.weigh(task, of, rows.y[there], weight)
        self._note(HALF, half)
        self._note(MIXTURE, whole)
        central = self.tried.central
        same = {base: central[base].held_out for base in ALIKE if base in central}
        self.tried.alike = self._losses(mixing.held_out(task, rows, folds, same, there))
