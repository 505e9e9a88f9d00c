"""Splits, and what is known of rows that were trained on."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from known import Known, known
from outcomes import Case, chance, may_refuse, must_refuse, pick, refuses, same, sure

import sartor
from sartor.data import PARTS, ClientData, from_arrays
from sartor.data.trained import Trained

Rng = np.random.Generator


def numbered_rows(rng: Rng) -> tuple[Known, ClientData]:
    """A table whose first feature is the number of the row, and its data."""
    table = known(rng, kind="numbers")
    table.x[:, 0] = np.arange(len(table.who))
    time, groups = pick(rng, [(table.time, None)] * 6 + [(None, table.groups)] * 3 + [(None, None)])
    return table, from_arrays(table.x, table.y, table.who, table.domain, time, groups)


def rows_of(data: ClientData) -> dict[tuple[str, str], list[int]]:
    """The numbers of the rows of every client and part, in order."""
    return {
        (client, part): data.client(client, part)["x"][:, 0].astype(int).tolist()
        for client in data.ids
        for part in PARTS
    }


def how_to_split(rng: Rng) -> dict[str, Any]:
    """Arguments of a split; most are good ones."""
    good: dict[str, Any] = {
        "unseen": [0.0, 0.0, 0.25, 0.5], "validation": [0.0, 0.1, 0.3, 0.5],
        "test": [0.0, 0.2, 0.45, 1e-9], "seed": [0, 1, 7, -3, 2**40], "by": ["random", "time"],
    }  # fmt: skip
    how = {name: pick(rng, values) for name, values in good.items() if chance(rng, 0.7)}
    if chance(rng, 0.15):
        odd = [None, -0.1, 1.0, 1.5, "0.2", True, float("nan"), [0.2], np.inf, 2**70, "sorted", {}]
        how[pick(rng, good)] = pick(rng, odd)
    return how


def splits(rng: Rng, scratch: Path) -> None:
    """Parts are disjoint and complete, of the sizes that were asked for, and the same by seed."""
    table, data = numbered_rows(rng)
    how = how_to_split(rng)
    for name in ("unseen", "validation", "test"):
        share = how.get(name, 0.0)
        if type(share) is not float or not 0 <= share < 1:
            with must_refuse(f"split({how})"):
                data.split(**how)
    with may_refuse():
        split = data.split(**how)
    seed = how.get("seed", 0)
    sure(type(seed) is int and how.get("by", "random") in ("random", "time"), f"split({how})")
    found, whole = rows_of(split), rows_of(data)
    for k, client in enumerate(data.ids):
        parts = [found[client, part] for part in PARTS]
        same(
            f"all rows of {client!r}",
            sorted(itertools.chain(*parts)),
            sorted(whole[client, "train"]),
        )
        sure(parts[0], f"{client!r} has no training rows")
        same("sizes", [int(split.sizes(part)[k]) for part in PARTS], list(map(len, parts)))
        if data.groups is None or how.get("by") == "time":
            check_sizes(len(whole[client, "train"]), how, parts)
        if how.get("by") == "time":
            ends = [[table.time[i] for i in part] for part in parts if part]
            for earlier, later in itertools.pairwise(ends):
                sure(max(earlier) <= min(later), f"time order of {client!r}")
    if data.groups is not None and how.get("by") != "time":
        check_groups(table, data, found)
    p, unseen = len(data), how.get("unseen", 0.0)
    sure(abs(int((~split.seen).sum()) - unseen * p) <= 0.5, f"{unseen} of {p} clients unseen")
    same("the same by seed", data.split(**how).fingerprint, split.fingerprint)
    same("undone", split.merge_parts().fingerprint, data.fingerprint)
    whose, order = np.array(table.ids), []
    for client in rng.permutation(
        data.ids
    ):  # the order of clients does not matter, that of rows does
        order += np.flatnonzero(whose == client).tolist()
    other = table.take(order)
    times = None if data.time is None else other.time
    groups = None if data.groups is None else other.groups
    if groups is None:
        again = from_arrays(other.x, other.y, other.who, other.domain, times).split(**how)
        same("by another order of clients", rows_of(again), found)
        same("who is unseen", dict(zip(again.ids, again.seen.tolist(), strict=True)),
             dict(zip(split.ids, split.seen.tolist(), strict=True)))  # fmt: skip
    if chance(rng, 0.2):
        split.save(scratch / "data")
        if split.fingerprint != data.fingerprint:
            with refuses("other data in the place of what was saved"):
                data.save(scratch / "data")
        split.save(scratch / "data")
        same("saved", sartor.data.open(scratch / "data").fingerprint, split.fingerprint)
        data.save(scratch / "data", replace=True)
        same("replaced", sartor.data.open(scratch / "data").fingerprint, data.fingerprint)
    if chance(rng, 0.3):
        some = [client for client in data.ids if chance(rng, 0.5)] or [data.ids[0]]
        chosen = {key: rows for key, rows in found.items() if key[0] in some}
        same("selected", rows_of(split.select(some)), chosen)


def check_sizes(m: int, how: dict[str, Any], parts: list[list[int]]) -> None:
    """Each part has its share of m rows, unless that leaves none to train on."""
    for share, part in ((how.get("validation", 0.0), parts[1]), (how.get("test", 0.0), parts[2])):
        enough = len(parts[0]) == 1 and len(part) <= share * m + 0.5
        sure(enough or abs(len(part) - share * m) <= 0.5, f"{len(part)} of {m} rows for {share}")


def check_groups(table: Known, data: ClientData, found: dict[tuple[str, str], list[int]]) -> None:
    """A group is in one part, for all clients alike."""
    parts: dict[str, set[str]] = {}
    for (_, part), rows in found.items():
        for row in rows:
            parts.setdefault(table.groups[row], set()).add(part)
    for group, where in parts.items():
        same(f"parts of group {group}", len(where), 1)


def dates(rng: Rng, scratch: Path) -> None:
    """Rows from a date on, or those that are named, are the test part; all others are not."""
    table = known(rng, kind="numbers")
    table.x[:, 0] = np.arange(len(table.who))
    data = from_arrays(table.x, table.y, table.who, table.domain, table.time)
    whose = np.array(table.ids)
    if chance(rng, 0.5):
        held = rng.random(len(whose)) < 0.3
        words = np.where(
            held, "test", np.where(rng.random(len(whose)) < 0.2, "validation", "train")
        )
        plain = chance(rng, 0.5)
        trains, by = (~held, held) if plain else (words == "train", words)
        by = by.tolist() if chance(rng, 0.5) else by
        if set(whose) - set(whose[trains]):
            with must_refuse(f"clients without training rows: {by!r}"):
                data.split(by=by)
        split = data.split(by=by)
        new: set[str] = set()
    else:
        since = float(rng.choice([*table.time, *(np.array(table.time) + 0.5), -1e9, 1e9]))
        held = np.asarray(table.time) >= since
        with (
            must_refuse(f"no rows on one side of {since}")
            if held.all() or not held.any()
            else (contextlib.nullcontext())
        ):
            split = data.split(by=since)
        trains, new = ~held, set(whose[held]) - set(whose[~held])
    found = rows_of(split)
    for client, seen in zip(split.ids, split.seen.tolist(), strict=True):
        same("who is unseen", not seen, client in new)
        mine = np.flatnonzero(whose == client)
        test = set(found[client, "test"])
        if client in new:
            same("rows of who is new", (len(found[client, "train"]), len(test)), (1, len(mine) - 1))
        else:
            same("the test part", test, set(mine[held[mine]].tolist()))
            same("the training part", set(found[client, "train"]), set(mine[trains[mine]].tolist()))
    same("undone", split.merge_parts().fingerprint, data.fingerprint)


def trained(rng: Rng, scratch: Path) -> None:
    """Rows that were trained on are found in other splits, in whatever order; counted by hand."""
    table = known(rng, kind="numbers", clients=int(rng.integers(2, 6)), rows=36)
    distinct = chance(rng, 0.7)
    table.x[:, 0] = np.arange(36) if distinct else rng.integers(0, 25, 36)
    seeds = rng.integers(0, 100, 2).tolist()
    a = from_arrays(table.x, table.y, table.who).split(validation=0.2, test=0.3, seed=seeds[0])
    other = table.take(rng.permutation(36))
    b = from_arrays(other.x, other.y, other.who).split(validation=0.2, test=0.3, seed=seeds[1])
    with_validation = chance(rng, 0.5)
    known_rows = Trained.on(a, validation=with_validation, seen_only=False)
    used: Counter[Any] = Counter()
    for part in PARTS[: 1 + with_validation]:
        used += contents_of(a, part)
    part = pick(rng, PARTS)
    found = known_rows.among(b, part)
    every: Counter[Any] = Counter()
    for one in PARTS:
        every += contents_of(b, one)
    at_least: Counter[str] = Counter()
    for row, n in contents_of(b, part).items():
        at_least[row[0]] += max(0, used[row] + n - every[row])
    expected = [at_least[client] for client in b.ids]
    same(f"{part} rows that were trained on", found.tolist(), expected)
    own = known_rows.among(a, "test")
    same("test rows of the same split", int(own.sum()), 0 if distinct else int(own.sum()))
    strangers = from_arrays(table.x, table.y, [f"other {w}" for w in table.who])
    counted = Counter(row[1:] for row in used.elements())
    alone = {row for row, n in counted.items() if n == 1}
    telling = len(alone) >= 0.9 * len(counted)
    there = Counter(row[1:] for row in contents_of(strangers, "train").elements())
    expected = []
    for client in strangers.ids:
        rows = contents_of(strangers.select([client]), "train")
        n = sum(row[1:] in alone and there[row[1:]] == 1 for row in rows) if telling else 0
        expected.append(n if n >= 5 and 2 * n >= rows.total() else 0)
    same("rows under other ids", known_rows.among(strangers, "train").tolist(), expected)
    changed = from_arrays(table.x + 1000, table.y, table.who)
    same("other rows", int(known_rows.among(changed, "train").sum()), 0)


def contents_of(data: ClientData, part: str) -> Counter[Any]:
    """The rows of a part by their client and content, counted."""
    found: Counter[Any] = Counter()
    for client in data.ids:
        columns = data.client(client, part)
        for x, y in zip(columns["x"].tolist(), columns["y"].tolist(), strict=True):
            found[client, tuple(x), y] += 1
    return found


AREAS: dict[str, tuple[int, Case]] = {
    "splits": (1000, splits), "dates": (200, dates), "trained": (400, trained),
}  # fmt: skip
