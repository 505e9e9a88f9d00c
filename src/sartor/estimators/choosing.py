"""Which candidate for which client: the evidence of held-out rows is pooled, and then guarded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sartor.advice.decide import Decision, best, decide
from sartor.advice.holdout import HeldOutLosses
from sartor.estimators.candidates import GLOBAL
from sartor.estimators.folds import Folds
from sartor.estimators.rows import Rows
from sartor.estimators.trying import Tried
from sartor.evaluation.shrinkage import client_means
from sartor.types import Floats, Ints

SEEN = 0.5
"""Clients keep the global model if they would not see a gain on as many rows as they have: if it is
less than so many standard deviations of the mean of their rows."""


@dataclass(frozen=True)
class Chosen:
    """A candidate for each client.

    Attributes:
        name: [clients] the candidate.
        kept: [clients] whether it is the global model because the gain would not be seen.
        decision: the reasons.
    """

    name: npt.NDArray[np.str_]
    kept: npt.NDArray[np.bool_]
    decision: Decision


def choose(tried: Tried, rows: Rows, folds: Folds, size: Ints) -> Chosen:
    """The candidate of each client, by losses on held-out rows and with shrinkage (see advice).

    Args:
        tried: the losses.
        rows: whose they are.
        folds: the folds that were held out.
        size: each client's number of rows.
    """
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
    name = best(decision.score)
    kept = (name != GLOBAL) & ~_seen(losses, decision, name, size)
    return Chosen(np.where(kept, GLOBAL, name), kept, decision)


def _seen(
    losses: HeldOutLosses, decision: Decision, name: npt.NDArray[np.str_], size: Ints
) -> npt.NDArray[np.bool_]:
    """Whether a client would see the gain of its candidate on as many rows as it has."""
    found = np.ones(len(size), np.bool_)
    counts = np.bincount(losses.owner, minlength=len(size))
    for candidate in np.unique(name).tolist():
        if candidate == GLOBAL:
            continue
        gains: Floats = losses.loss[GLOBAL] - losses.loss[candidate]
        of_mean = client_means(gains, losses.owner, len(size))[1]
        of_row = np.nanmax(of_mean * np.where(counts, counts, np.nan))  # one for all clients
        spread = np.sqrt(decision.deviation[candidate] ** 2 + of_row / np.maximum(size, 1))
        mine = name == candidate
        found[mine] = (decision.gain[candidate] > SEEN * spread)[mine]
    return found
