"""Values that models cannot compute with, such as those that run together in 32 bits."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sartor.data.dataset import MEGABYTE, ClientData, Column, row_blocks
from sartor.errors import DataError
from sartor.types import Floats

SHARE = 1e-3
"""The largest rounding error that is accepted, as a share of a column's standard deviation."""

NOISE = 1e-12
"""Deviations below this share of the largest number are rounding errors themselves."""


class Rounding:
    """What a column loses when it is rounded to 32 bits, found in one pass over its blocks.

    Args:
        names: how to call each number of an example; one name may stand for all of them.

    >>> found = Rounding(["time"])
    >>> found.add(np.array([[1_700_000_000], [1_700_000_060]]), lambda row: "ann")
    >>> found.refuse()
    Traceback (most recent call last):
        ...
    sartor.errors.DataError: client 'ann', column 'time': 1700000000 and 1700000060 become one ...
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._count = 0
        self._mean: Floats = np.zeros(0)
        self._squares: Floats = np.zeros(0)  # squared distances from the mean in `_most`, summed
        self._error: Floats = np.zeros(0)
        self._most: Floats = np.zeros(0)
        self._examples: dict[int, tuple[str, str]] = {}

    def add(self, values: Column, client: Callable[[int], str]) -> None:
        """A block of rows, and the client of each row of it."""
        if values.dtype.kind not in "iuf" or values.dtype == np.float32 or not values.size:
            return
        wide = values.reshape(len(values), -1).astype(np.float64)
        error = np.abs(wide - wide.astype(np.float32)).max(axis=0)
        mean, count = wide.mean(axis=0), len(wide)
        if not self._count:
            self._mean = self._squares = self._error = self._most = np.zeros(wide.shape[1])
        away, total = mean - self._mean, self._count + count
        most = np.maximum(self._most, np.abs(wide).max(axis=0))
        unit = np.where(most > 0, most, 1.0)  # without which squares of small numbers are 0
        self._squares = self._squares * np.square(self._most / unit)
        self._squares += np.square((wide - mean) / unit).sum(axis=0)
        self._squares += np.square(away / unit) * self._count * count / total
        self._mean = self._mean + away * count / total
        self._count = total
        self._error = np.maximum(self._error, error)
        self._most = most
        for j in self._lossy():
            if j not in self._examples and error[j] == self._error[j]:
                self._examples[j] = _example(values.reshape(count, -1)[:, j], client)

    def _lossy(self) -> list[int]:
        """The numbers of an example that lose too much."""
        spread = np.sqrt(self._squares / max(self._count, 1)) * self._most
        lossy = (self._error > SHARE * spread) & (spread > NOISE * self._most)
        return np.flatnonzero(lossy).tolist()

    def refuse(self) -> None:
        """Raise an error if rounding takes too much of a column away."""
        for j in self._lossy()[:1]:
            name = self._names[j if len(self._names) > 1 else 0]
            where, what = f"column {name!r}", f"numbers are off by up to {self._error[j]:.3g}"
            if j in self._examples:  # of the block with the largest error, if that lost too much
                who, what = self._examples[j]
                where = f"client {who!r}, {where}"
            remedy = f"subtract an offset first, such as its mean, {self._mean[j]:.0f}"
            if self._most[j] < np.finfo(np.float32).tiny:
                power = min(-np.log10(self._most[j]), 300)
                remedy = f"scale the column up first, such as by 1e{power:.0f}"
            raise DataError(f"{where}: {what} in 32 bits, which models compute with; {remedy}")


def check_values(data: ClientData, name: str, column: Column) -> None:
    """Refuse what models cannot compute with, block by block, naming client, column and row.

    They need finite floats, labels from 0, and numbers that differ in 32 bits as well.
    """
    if column.dtype.kind not in "biuf":
        what = "words" if column.dtype.kind in "OUT" else column.dtype
        raise DataError(
            f"column {name!r} holds {what}: only booleans, integers and floats can be used; encode "
            "it as numbers first"
        )
    signed_label = name == "y" and column.dtype.kind == "i"
    if column.dtype.itemsize < 4 and not (signed_label or column.dtype.kind == "f"):
        return
    rounding = Rounding([name])

    def entry_of(row: int) -> int:
        return int(np.flatnonzero(data.rows == row)[0])

    def owner_of(start: int, row: int) -> str:
        return data.ids[data.owner_of(entry_of(start + row))]

    for block in row_blocks(column, 16 * MEGABYTE):
        values = column[block]
        with np.errstate(over="ignore"):  # what overflows 32 bits is as bad as what is infinite
            narrow = values.astype(np.float32, copy=False)
            wrong = values < 0 if signed_label else ~np.isfinite(narrow)
        if wrong.any():
            where = np.unravel_index(int(wrong.argmax()), wrong.shape)
            row = block.start + int(where[0])
            entry = entry_of(row)
            k = data.owner_of(entry)
            need = (
                "labels are counted from 0; number them so (0 and 1 for -1 and 1), or give them as "
                "words" if signed_label else "a finite number is needed; correct or drop the row"
            )  # fmt: skip
            raise DataError(
                f"client {data.ids[k]!r}, column {name!r}, row {entry - data.bounds[k, 0]} of the "
                f"client ({row} in all): {values[where]} found, {need}"
            )
        rounding.add(values, partial(owner_of, block.start))
    rounding.refuse()


def _example(values: Column, client: Callable[[int], str]) -> tuple[str, str]:
    """A client, and two of all values that become one, or else a value of it that changes."""
    rounded = values.astype(np.float32)
    order = np.argsort(values, kind="stable")
    same = (np.diff(values[order]) != 0) & (np.diff(rounded[order]) == 0)
    if same.any():
        i, k = order[int(same.argmax())], order[int(same.argmax()) + 1]
        return client(int(i)), f"{values[i]} and {values[k]} become one number"
    i = int(np.abs(values - rounded.astype(np.float64)).argmax())
    return client(i), f"{values[i]} becomes {rounded[i]:.6f}"
