"""Setting clients aside as unseen, and rows of every client for validation and test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.data.dataset import bounds_of
from sartor.errors import ConfigError, DataError, warn
from sartor.randomness import mix, uniforms
from sartor.types import Ints

if TYPE_CHECKING:
    from sartor.data.dataset import ClientData


def split(
    data: ClientData, unseen: float, validation: float, test: float, seed: int, by: str
) -> ClientData:
    """The split that :meth:`ClientData.split` describes."""
    _check(data, unseen, validation, test)
    if by == "time" and data.time is None:
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
    if not (validation or test):
        return data
    if by == "random" and data.groups is not None:
        return _split_groups(data, validation, test, seed)
    return _split_rows(data, validation, test, seed, by)


def merge_parts(data: ClientData) -> ClientData:
    """Every row in training, in its original order, and every client seen."""
    bounds = data.bounds.copy()
    bounds[:, 1:] = bounds[:, 3:]
    rows = data.rows[np.lexsort((data.rows, data.owners))]
    return replace(data, rows=rows, bounds=bounds, seen=np.ones(len(data), dtype=np.bool_))


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
    part = np.where(ours, new, part)
    sizes = np.zeros((len(data), 3), np.int64)
    np.add.at(sizes, (owner, part), 1)
    order = np.lexsort((part, owner))
    return replace(data, rows=data.rows[order], bounds=bounds_of(sizes))


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
