"""Cross-validation: the loss of each candidate on examples that it was not trained on.

Each client's training examples are divided into folds. For each fold, all candidates, central
models included, are fitted without the fold and scored on it. So each example is scored once. Test
parts are never used.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.data.dataset import bounds_of
from sartor.errors import DataError
from sartor.evaluation import Scores
from sartor.randomness import mix
from sartor.types import Floats, Ints

LATEST = 2
"""Folds that are held out where examples have times."""

Fit = Callable[[ClientData], Mapping[str, Scores]]
"""Fits candidates on the training parts, and returns their scores on the test parts by name."""


class HeldOutLosses(NamedTuple):
    """Losses on held-out examples, sorted by client.

    Attributes:
        owner: [examples] the position of the client that each example belongs to.
        loss: for each candidate, [examples].
        trained: [examples] how many of the client's examples the candidates were fitted on.
        fold: [examples] the fold that the example was held out with.
    """

    owner: Ints
    loss: dict[str, Floats]
    trained: Ints
    fold: Ints

    def only(self, where: npt.NDArray[Any]) -> HeldOutLosses:
        """The losses on some of the examples, by a mask or by positions."""
        loss = {name: values[where] for name, values in self.loss.items()}
        return HeldOutLosses(self.owner[where], loss, self.trained[where], self.fold[where])


def merge_validation(data: ClientData) -> ClientData:
    """Add the validation parts to the training parts, since advice has folds of its own."""
    return dataclasses.replace(data, bounds=data.bounds[:, [0, 2, 2, 3]])


def fold_count(data: ClientData, folds: int) -> int:
    """The number of folds: no more than the largest client has training examples."""
    largest = int((data.bounds[:, 2] - data.bounds[:, 0]).max(initial=0))
    if largest < 2:
        raise DataError(
            "no client has two training examples, so none can be held out; advice needs clients "
            "with more examples"
        )
    return min(folds, largest)


def assign_folds(data: ClientData, folds: int, seed: int) -> Ints:
    """The fold of each entry of ``data.rows``; -1 for test parts and for single examples.

    Each client's examples are shuffled and then assigned to the folds in turn. Groups of examples
    stay together, for all clients alike. Examples with times are assigned in the order of time, to
    folds of about the same number of examples.
    """
    owner = data.owners
    counts = (data.bounds[:, 2] - data.bounds[:, 0])[owner]
    within = np.arange(len(owner)) - data.bounds[owner, 0]
    trains = within < counts
    if data.time is not None:
        when = data.time[data.rows]
        edges = np.quantile(when[trains], np.arange(1, folds) / folds)
        return np.where(trains, np.searchsorted(edges, when, side="right"), -1)
    if data.groups is not None:
        fold = mix(seed, "advice", data.groups[data.rows]) % np.uint64(folds)
        return np.where(trains, fold.astype(np.int64), -1)
    number, rank = np.empty((2, len(owner)), np.int64)
    number[np.lexsort((data.rows, owner))] = within  # the same whatever part an example is in
    shuffled = mix(seed, "advice", data.hashes[owner], number)
    rank[np.lexsort((shuffled, ~trains, owner))] = within
    return np.where(trains & (counts > 1), rank % np.clip(counts, 1, folds), -1)


def split_by_fold(data: ClientData, fold: Ints, held_out: int, dropped: int) -> ClientData:
    """Make one fold the test parts, and all others but ``dropped`` the training parts.

    By time, later folds are in no part. A client keeps its training part if it has nothing to hold
    out, or if nothing would remain; by time it is left out then.
    """
    owner, forward = data.owners, data.time is not None
    trains = np.arange(len(owner)) < data.bounds[owner, 2]
    part = np.where(fold == held_out, 2, 0)
    if forward:
        part[fold > held_out] = 3
    remaining = trains & (part == 0) & (fold != dropped)
    spare = np.bincount(owner[remaining], minlength=len(data))[owner] > 0
    part[~trains | ((fold == dropped) & (fold != held_out) & spare)] = 3  # in no part
    sizes = np.zeros((len(data), 4), np.int64)
    np.add.at(sizes, (owner, part), 1)
    there = sizes[:, 0] > 0
    order = np.lexsort((part, owner))
    kept = order[(part[order] < 3) & there[owner[order]]]
    return dataclasses.replace(
        data,
        rows=data.rows[kept],
        bounds=bounds_of(sizes[there, :3]),
        ids=tuple(itertools.compress(data.ids, there)),
        seen=data.seen[there],
        metadata={name: values[there] for name, values in data.metadata.items()},
    )


def held_folds(data: ClientData, folds: int) -> range:
    """The folds that are held out: all, or the last ones where examples have times."""
    return range(folds) if data.time is None else range(max(folds - LATEST, 1), folds)


def cross_validate(
    data: ClientData, fit: Fit, folds: int, seed: int, *, fewer: bool = False
) -> HeldOutLosses:
    """The candidates' losses on each training example, by models fitted without it.

    Args:
        data: the clients; their training and validation parts are used.
        fit: fits and scores the candidates.
        folds: the number of folds.
        seed: the seed that assigns examples to folds.
        fewer: drop a second fold from training, to see what fewer examples cost.
    """
    folds = fold_count(data, folds)
    fold = assign_folds(data, folds, seed)
    found: list[HeldOutLosses] = []
    for held_out in held_folds(data, folds):
        beside = (held_out + 1) % folds if data.time is None else held_out - 1
        part = split_by_fold(data, fold, held_out, beside if fewer else held_out)
        scores = fit(part)
        first = next(iter(scores.values()))
        owner = np.repeat(list(map(data.position, first.client)), first.test_size)
        loss = {n: np.asarray(s.example_loss, np.float64) for n, s in scores.items()}
        for name, values in loss.items():
            broken = owner[~np.isfinite(values)]
            if len(broken):
                raise DataError(
                    f"{name}: client {data.ids[broken[0]]!r} has held-out losses that are not "
                    "finite; scale the inputs, or take smaller steps"
                )
        trained = np.repeat(first.size, first.test_size)
        found.append(HeldOutLosses(owner, loss, trained, np.full(len(owner), held_out)))
    owner, trained, held = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("owner", "trained", "fold")
    )
    joined = {name: np.concatenate([one.loss[name] for one in found]) for name in found[0].loss}
    return HeldOutLosses(owner, joined, trained, held).only(np.argsort(owner, kind="stable"))
