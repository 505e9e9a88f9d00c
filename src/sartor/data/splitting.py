"""Setting clients aside as unseen, and rows of every client for validation and test."""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.checking import is_list, shown
from sartor.data import encoding
from sartor.data.dataset import PARTS, bounds_of
from sartor.data.info import span
from sartor.errors import ConfigError, DataError, nearest, warn
from sartor.randomness import mix, uniforms
from sartor.types import Bools, Ints

if TYPE_CHECKING:
    from sartor.data.dataset import ClientData


WAYS = ("random", "time")
"""Ways of splitting that have a name."""


def split(
    data: ClientData, unseen: float, validation: float, test: float, seed: int, by: Any
) -> ClientData:
    """The split that :meth:`ClientData.split` describes."""
    held = None if isinstance(by, str) and by in WAYS else _held(data, by)
    _check(data, unseen, validation, test)
    if held is not None and test:
        raise ConfigError(
            f"test={test}: by={shown(by, 60)} says which rows are the test part; leave test out"
        )
    if held is None and by == "time" and data.time is None:
        raise DataError("by='time': the rows have no times; name their column, time=...")
    if unseen:
        count = round(unseen * len(data))
        if not 0 < count < len(data):
            raise ConfigError(
                f"unseen={unseen} of {len(data)} clients leaves "
                f"{count} unseen and {len(data) - count} seen; at least one of each is needed"
            )
        seen = np.ones(len(data), dtype=np.bool_)
        seen[np.argsort(mix(seed, "unseen", data.hashes), kind="stable")[:count]] = False
        data = replace(data, seen=seen)
    if held is not None:
        part, new = held
        data = _with_parts(replace(data, seen=data.seen & ~new), part)
        by = "random" if data.time is None else "time"
    if not (validation or test):
        return data
    if by == "random" and data.groups is not None:
        return _split_groups(data, validation, test, seed)
    return _split_rows(data, validation, test, seed, by)


def _held(data: ClientData, by: Any) -> tuple[Ints, Bools]:
    """For each entry of ``rows``, the number of its part; and who has no earlier rows to train on.

    Args:
        data: clients, whose rows are all in the training part.
        by: a date or a time, or what part each row is in.
    """
    if data.sizes("validation").any() or data.sizes("test").any():
        raise ConfigError(
            f"by={shown(by, 60)}: the data already has validation or test rows; split "
            "data.merge_parts()"
        )
    if is_list(by):
        return _given(data, by), np.zeros(len(data), np.bool_)
    since = _as_time(by)
    if data.time is None:
        raise DataError(f"by={by!r}: the rows have no times; name their column, time=...")
    time = data.time[data.rows]
    later = time >= since
    if not later.any() or later.all():
        which, other = ("before", "a later") if later.all() else ("from then on", "an earlier")
        raise DataError(
            f"by={by!r}: no row was observed {which}; rows are from "
            f"{span(time.min(), time.max())}: choose {other} one"
        )
    part = np.where(later, 2, 0)
    new = np.bincount(data.owners[~later], minlength=len(data)) == 0
    if new.any():
        # Their first rows give them models of their own; no central model sees them.
        order = np.lexsort((time, data.owners))
        first = order[data.bounds[:, 0]]
        part[first[new]] = 0
        warn(
            f"{new.sum():,} of {len(data):,} clients have no rows before {by}: they are unseen by "
            "central training, and keep their first row to train on"
        )
    return part, new


def _given(data: ClientData, by: Any) -> Ints:
    """The parts that are given, as numbers."""
    count = len(next(iter(data.columns.values())))
    values = encoding.as_arrow(by, "by")
    if len(values) != count:
        raise DataError(
            f"by has {len(values):,} values; give the part of each of the {count:,} rows of the "
            "table"
        )
    encoding.refuse_missing(values, "by")
    numbers: dict[str | bool, int] = {True: 2, False: 0}
    numbers |= {name: k for k, name in enumerate(PARTS)}
    found = values.to_pylist()
    wrong = next(
        (one for one in found if not isinstance(one, str | bool) or one not in numbers), None
    )
    if wrong is not None:
        hint = nearest(wrong, PARTS) if isinstance(wrong, str) else f"known are {', '.join(PARTS)}"
        raise DataError(f"by: {shown(wrong)} is not a part; {hint}, or true for test rows")
    part = np.array([numbers[one] for one in found], np.int64)[data.rows]
    trains = np.bincount(data.owners[part == 0], minlength=len(data)) > 0
    if not trains.all():
        raise DataError(
            f"client {data.ids[int(trains.argmin())]!r} has no training rows ({(~trains).sum():,} "
            "such): leave it out by data.select, or give it at least one"
        )
    return part


def _as_time(by: Any) -> float:
    """A date or a number as the times of rows are."""
    value = by.item() if isinstance(by, np.generic) and not isinstance(by, np.datetime64) else by
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and -1e300 < value < 1e300:
        return float(value)
    if isinstance(value, str | datetime.date | np.datetime64):
        one: Any = [value]
        with contextlib.suppress(DataError):
            return float(encoding.as_times(encoding.as_arrow(one, "by"), "by")[0])
    known = nearest(value, WAYS) if isinstance(value, str) else f"known are {', '.join(WAYS)}"
    raise ConfigError(
        f"by={shown(by)}: {known}; or give a date such as '2026-05-01', a number, or the part of "
        "each row"
    )


def merge_parts(data: ClientData) -> ClientData:
    """Every row in training, in its original order, and every client seen."""
    bounds = data.bounds.copy()
    bounds[:, 1:] = bounds[:, 3:]
    rows = data.rows[np.lexsort((data.rows, data.owners))]
    return replace(data, rows=rows, bounds=bounds, seen=np.ones(len(data), dtype=np.bool_))


def _with_parts(data: ClientData, part: Ints) -> ClientData:
    """The same clients, whose rows are in these parts: for each entry of ``rows``, a number."""
    sizes = np.zeros((len(data), 3), np.int64)
    np.add.at(sizes, (data.owners, part), 1)
    order = np.lexsort((part, data.owners))
    return replace(data, rows=data.rows[order], bounds=bounds_of(sizes))


def _split_groups(data: ClientData, validation: float, test: float, seed: int) -> ClientData:
    """Groups fall to the parts by a draw of their own, the same for all clients."""
    assert data.groups is not None
    part, owner = _parts(data), data.owners
    draw = uniforms(mix(seed, "split", data.groups[data.rows]))
    ours = part == 0
    # A client keeps at least one group to train on, the one that was furthest from being held;
    # and what one trains on, nobody holds out.
    largest = np.zeros(len(data))
    np.maximum.at(largest, owner[ours], draw[ours])
    kept = np.unique(draw[ours & (draw == largest[owner])])
    new = np.where(draw < test, 2, np.where(draw < test + validation, 1, 0))
    new *= ours & ~np.isin(draw, kept)
    wanted = (test + validation) * ours.sum()
    if (new > 0).sum() < wanted / 2:
        warn(
            f"only {(new > 0).sum():,} rows are held out, and not about {wanted:,.0f}: clients "
            "need a group to train on, and there are few groups that nobody needs"
        )
    return _with_parts(data, np.where(ours, new, part))


def _split_rows(data: ClientData, validation: float, test: float, seed: int, by: str) -> ClientData:
    """Every client's training rows in a drawn order, or in that of time, become three pieces."""
    sizes = np.diff(data.bounds, axis=1)
    m = sizes[:, 0]
    held_test = np.floor(test * m + 0.5).astype(np.int64)
    held_validation = np.floor(validation * m + 0.5).astype(np.int64)
    excess = np.maximum(held_test + held_validation - (m - 1), 0)
    held_validation -= (given := np.minimum(excess, held_validation))
    held_test -= excess - given

    part, owner = _parts(data), data.owners
    if by == "time" and data.time is not None:
        draws: Any = data.time[data.rows]
    else:
        draws = mix(seed, "split", data.hashes[owner], _places(data))
    # Old parts keep their order: lexsort is stable, and a constant key moves nothing.
    draws = np.where(part == 0, draws, draws.dtype.type(0))
    order = np.lexsort((draws, part, owner))
    # Training rows become three pieces; old parts follow.
    taken = np.stack([m - held_validation - held_test, held_validation, held_test], axis=1)
    pieces = np.concatenate([taken, sizes[:, 1:]], axis=1)
    part = np.repeat(np.tile([0, 1, 2, 1, 2], len(data)), pieces.ravel())
    sizes[:, 0] = 0
    rows = data.rows[order[np.lexsort((part, owner))]]
    return replace(data, rows=rows, bounds=bounds_of(sizes + taken))


def _parts(data: ClientData) -> Ints:
    """For each entry of ``rows``, the number of its part."""
    return np.repeat(np.tile(np.arange(3), len(data)), np.diff(data.bounds, axis=1).ravel())


def _places(data: ClientData) -> Ints:
    """For each entry of ``rows``, its place inside the client by row number."""
    owner = data.owners
    places = np.empty(len(owner), np.int64)
    places[np.lexsort((data.rows, owner))] = np.arange(len(owner)) - data.bounds[owner, 0]
    return places


def _check(data: ClientData, unseen: float, validation: float, test: float) -> None:
    asked = {"unseen clients": unseen, "validation rows": validation, "test rows": test}
    there = [~data.seen, data.sizes("validation"), data.sizes("test")]
    for (what, fraction), present in zip(asked.items(), there, strict=True):
        name = what.split()[0]
        if fraction and present.any():
            raise ConfigError(
                f"{name}={fraction}: the data already has {what}; leave {name} at 0 to keep them, "
                "or split data.merge_parts()"
            )
    if validation + test >= 1:
        raise ConfigError(f"validation={validation} and test={test} leave no row for training")
