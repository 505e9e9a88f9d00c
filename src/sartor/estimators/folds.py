"""Folds of rows: held out in turn, and by models that have not seen them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.randomness import mix, uniforms
from sartor.types import Bools, Floats, Ints

LATEST = 3
"""Folds that decisions rest on where rows have times: the last ones."""


@dataclass(frozen=True, eq=False)
class Folds:
    """Which fold each row is in.

    Attributes:
        number: [rows] from 0.
        count: how many folds there are.
        forward: whether folds follow each other in time, so that a model of a fold is trained on
            the folds before it.
    """

    number: Ints
    count: int
    forward: bool = False

    def __iter__(self) -> Iterator[tuple[Bools, Bools]]:
        """For each fold that can be held out: the rows to train on, and those held out."""
        for fold in range(1 if self.forward else 0, self.count):
            yield self.before(fold), self.number == fold

    def before(self, fold: int) -> Bools:
        """The rows that a model of a fold may be trained on."""
        return self.number < fold if self.forward else self.number != fold

    def take(self, which: npt.NDArray[Any]) -> Folds:
        """The folds of some rows."""
        return Folds(self.number[which], self.count, self.forward)

    @property
    def scored(self) -> Bools:
        """The rows that are held out at some time."""
        return self.number > 0 if self.forward else np.ones(len(self.number), np.bool_)

    @property
    def decisive(self) -> Bools:
        """The rows that decisions rest on."""
        return self.number >= self.count - LATEST if self.forward else self.scored


def make_folds(
    owner: Ints, count: int, seed: int, groups: Ints | None = None, time: Floats | None = None
) -> Folds:
    """Deal rows to folds.

    Every client's shuffled rows are dealt out in turn. Rows of a group stay together, for all
    clients alike. Rows with times are dealt out in their order, to folds of about the same size.
    No fold is empty, and there is only one if all rows have one time, or are in one group.

    >>> make_folds(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0).number.reshape(2, 3).sum(axis=1)
    array([3, 3])
    """
    if time is not None:
        # By the place of its middle row, a time that many rows share still differs from others.
        _, when, rows = np.unique(time, return_inverse=True, return_counts=True)
        middle = (np.cumsum(rows) - rows / 2) / len(time)
        _, number = np.unique((middle * count).astype(np.int64)[when], return_inverse=True)
        return Folds(number.astype(np.int64), int(number.max()) + 1, forward=True)
    if groups is not None:
        _, which = np.unique(groups, return_inverse=True)
        rank = np.argsort(np.argsort(mix(seed, "folds of groups", np.arange(which.max() + 1))))
        number = rank[which] % count
        return Folds(number.astype(np.int64), int(number.max()) + 1)
    owner = owner - owner.min()  # rows of nobody are dealt out like those of a client
    order = np.lexsort((uniforms(mix(seed, "folds", np.arange(len(owner)))), owner))
    sizes = np.bincount(owner)
    place = np.empty(len(owner), np.int64)
    place[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = (mix(seed, "first fold", np.arange(len(sizes))) % np.uint64(count)).astype(np.int64)
    there, number = np.unique((place + first[owner]) % count, return_inverse=True)
    if len(there) == 1:  # of clients with one row each
        number = np.arange(len(owner)) % count
    return Folds(number.astype(np.int64), int(number.max(initial=0)) + 1)
