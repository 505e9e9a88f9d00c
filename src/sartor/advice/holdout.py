"""A quick experiment: what every candidate would lose on examples that it was not trained on.

Training examples are dealt out into folds. For each fold everything is fitted without it, central
models as well, and every client's examples in it are scored: in the end each example once. Test
parts are not looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.data.dataset import bounds_of
from sartor.errors import DataError
from sartor.evaluation import Scores
from sartor.randomness import mix

Floats = npt.NDArray[np.float64]

Candidate = Callable[[ClientData], Mapping[str, Scores]]
"""Fits candidates on training parts, and scores them on test parts; by name."""


class Losses(NamedTuple):
    """Losses on held-out examples, client after client.

    Attributes:
        owner: [examples] whose they are: positions of clients.
        loss: by candidate, [examples].
        trained: [examples] how many of the client's examples candidates were fitted on.
    """

    owner: npt.NDArray[np.int64]
    loss: dict[str, Floats]
    trained: npt.NDArray[np.int64]

    def only(self, where: npt.NDArray[np.bool_]) -> Losses:
        """Those of some examples."""
        loss = {name: values[where] for name, values in self.loss.items()}
        return Losses(self.owner[where], loss, self.trained[where])


def merged(data: ClientData) -> ClientData:
    """Validation parts as a part of training: advice chooses by folds of its own."""
    bounds = data.bounds.copy()
    bounds[:, 1] = bounds[:, 2]
    return dataclasses.replace(data, bounds=bounds)


def fold_count(data: ClientData, folds: int) -> int:
    """As many folds as anybody has examples for, at most."""
    most = int((data.bounds[:, 2] - data.bounds[:, 0]).max(initial=0))
    if most < 2:
        raise DataError("no client has two training examples, so none can be held out")
    return min(folds, most)


def deal(data: ClientData, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """The fold of every entry of ``data.rows``: -1 if it is not in a training or validation part.

    A client's examples go to folds in turn, in an order of its own. One with a single example has
    nothing to hold out.
    """
    owner, place = _owners(data), np.arange(len(data.rows))
    counts = (data.bounds[:, 2] - data.bounds[:, 0])[owner]
    begin = data.bounds[owner, 0]
    inside = place - begin < counts
    number = np.empty(len(owner), np.int64)  # of an example in its client, whatever part it is in
    number[np.lexsort((data.rows, owner))] = place - begin
    order = np.lexsort((mix(seed, "advice", data.hashes[owner], number), ~inside, owner))
    rank = np.empty(len(owner), np.int64)
    rank[order] = place - begin
    return np.where(inside & (counts > 1), rank % np.minimum(folds, np.maximum(counts, 1)), -1)


def without(data: ClientData, fold: npt.NDArray[np.int64], held: int, also: int) -> ClientData:
    """Data whose test parts are one fold, and whose training parts are all but it and ``also``.

    A client keeps its training part where it has nothing to hold out, or would have nothing left.
    """
    owner = _owners(data)
    inside = np.arange(len(owner)) < data.bounds[owner, 2]
    part = np.where(fold == held, 2, 0)
    left = np.bincount(owner[inside & (fold != held) & (fold != also)], minlength=len(data))
    part[~inside | ((fold == also) & (fold != held) & (left[owner] > 0))] = 3  # left out
    sizes = np.zeros((len(data), 4), np.int64)
    np.add.at(sizes, (owner, part), 1)
    order = np.lexsort((part, owner))
    kept = order[part[order] < 3]
    return dataclasses.replace(data, rows=data.rows[kept], bounds=bounds_of(sizes[:, :3]))


def _owners(data: ClientData) -> npt.NDArray[np.int64]:
    """Whose every entry of ``data.rows`` is."""
    return np.repeat(np.arange(len(data)), data.bounds[:, 3] - data.bounds[:, 0])


def held_out(
    data: ClientData, fit: Candidate, folds: int, seed: int, *, fewer: bool = False
) -> Losses:
    """The losses of candidates on every training example, by models that were fitted without it.

    Args:
        data: whose training and validation parts count.
        fit: the candidates.
        folds: how many.
        seed: of dealing.
        fewer: leave a second fold out of training, to see what fewer examples do.
    """
    folds = fold_count(data, folds)
    fold = deal(data, folds, seed)
    owners: list[npt.NDArray[np.int64]] = []
    trained: list[npt.NDArray[np.int64]] = []
    losses: dict[str, list[Floats]] = {}
    for held in range(folds):
        part = without(data, fold, held, (held + 1) % folds if fewer else held)
        scores = fit(part)
        first = next(iter(scores.values()))
        index = {client: k for k, client in enumerate(data.ids)}
        who = np.array([index[client] for client in first.client], np.int64)
        owners.append(np.repeat(who, first.test_size))
        trained.append(part.sizes("train")[owners[-1]])
        for name, found in scores.items():
            loss = np.asarray(found.example_loss, np.float64)
            if not np.isfinite(loss).all():
                worst = data.ids[owners[-1][np.flatnonzero(~np.isfinite(loss))[0]]]
                raise DataError(
                    f"{name}: the loss of client {worst!r} on held-out examples is not finite; "
                    "scale the inputs, or take smaller steps"
                )
            losses.setdefault(name, []).append(loss)
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    ordered = {name: np.concatenate(found)[order] for name, found in losses.items()}
    return Losses(owner[order], ordered, np.concatenate(trained)[order])
