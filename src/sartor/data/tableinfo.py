"""What a table holds: what each column is, which ones people should look at, and whose rows it has.

Nothing is refused for what a column holds: what is odd about it is said, of all columns at once.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.checking import checks_arguments
from sartor.data import encoding
from sartor.data.arrays import from_arrays
from sartor.data.info import PERCENTILES, Description, OrderShift, order_shift
from sartor.data.kinds import Kind, dates_in, learn
from sartor.data.notes import Truth, codes_of, no_words, notes_on, notes_on_role, truth_of
from sartor.data.preparing import Preparation, plain
from sartor.data.tables import as_table
from sartor.errors import ConfigError, DataError, nearest

OWN_ROWS = 200
"""Rows of each client that tell whether the order of clients carries a shift."""

NAMED = 5
"""Columns that are proposed for the client."""

SHOWN = 60
"""Columns that are listed; those that need attention all are."""

_LIKELY = re.compile(
    r"(^|[^a-z])(id|key|user|client|customer|account|member|person|patient|subject|student|pupil|"
    r"shop|store|branch|site|school|hospital|device|machine|sensor|driver|agent|seller|owner|"
    r"name|dest|county|region)([^a-z]|$)",
    re.IGNORECASE,
)
"""Names that columns of clients often have."""


@dataclass(frozen=True)
class TableDescription:
    """A table in words and numbers; `rows()` gives them as pairs of texts to print.

    Attributes:
        facts: clients, examples and labels, where the client and the label are named.
        kinds: what each column to learn from is.
        attention: the columns that people should look at, and why.
        clients_may_be: columns that look like the client, with how many values each has, if it is
            not named.
        shift: whether the order of clients carries a shift, if that can be told.
        labelled: whether there are labels that can be described.
    """

    facts: Description | None
    kinds: tuple[Kind, ...]
    attention: tuple[tuple[str, str], ...]
    clients_may_be: Mapping[str, str]
    shift: OrderShift | None
    labelled: bool = True

    def rows(self) -> list[tuple[str, str]]:
        """Pairs (what, value) to print, one for each line."""
        found = []
        if self.facts is not None:
            found += [row for row in self.facts.rows() if row[0] != "labels" or self.labelled]
        elif self.clients_may_be:
            several = ", ".join(f"{n} ({text})" for n, text in self.clients_may_be.items())
            found.append(("clients", f"not named; these columns look like some: {several}"))
        else:
            found.append(("clients", "none; name a column by client, on the command line --client"))
        found += [(f"column {kind.name}", kind.words) for kind in self.kinds[:SHOWN]]
        if more := len(self.kinds) - SHOWN:
            found += [("columns", f"and {more:,} more")] * (more > 0)
        return found + [(f"attention: {name}", what) for name, what in self.attention]


@checks_arguments
def describe_table(
    frame: Any, *, client: str | None = None, label: str | None = None,
    features: Sequence[str] | None = None, domain: str | None = None, time: str | None = None,
    groups: str | None = None,
) -> TableDescription:  # fmt: skip
    """Describe a table as it is, with words, gaps and dates.

    Args:
        frame: a pandas or polars frame, a pyarrow Table, or anything that exports Arrow.
        client: the column that says whose row it is; without it, those that look like it are named.
        label: the column with the label.
        features: the columns to learn from; ``None`` for all others.
        domain: the column with the client's domain.
        time: the column that says when a row was seen.
        groups: the column that says which rows belong together.

    >>> columns = {"shop": ["a", "a", "b"], "size": [1, None, 3], "sold": [True, False, True]}
    >>> table = pa.table(columns)
    >>> for row in describe_table(table, client="shop", label="sold").rows():
    ...     print(*row, sep=": ")
    clients: 2 (2 seen, 0 unseen)
    examples: 3 (train 3)
    examples of a client: least 1, 10% 1.1, median 1.5, 90% 1.9, most 2
    labels: 2 different: True 2, False 1
    column size: numbers around 2 ± 0.99
    attention: size: 33.3% gaps
    """
    table = as_table(frame)
    names = table.column_names
    roles = {"client": client, "label": label, "domain": domain, "time": time, "groups": groups}
    _check(names, roles, features)
    taken = {name for name in roles.values() if name is not None}
    chosen = [n for n in names if n not in taken] if features is None else list(features)
    kinds, notes = [], []
    for name in chosen:
        try:
            kinds.append(learn(name, plain(table[name], name)))
        except DataError as error:  # such as a column of lists
            notes.append((name, str(error)))
    columns = {role: plain(table[n], n) for role, n in roles.items() if n is not None}
    notes += notes_on(table, kinds, columns)
    for role, name in roles.items():
        if name is not None:
            notes += [(name, what) for what in notes_on_role(role, columns[role])]
    facts = shift = truth = None
    if client is not None:
        with contextlib.suppress(DataError):  # which is said of the column
            truth = truth_of(columns["label"]) if label is not None else None
        facts = _facts(columns, truth)
        shift = _shift(table, Preparation(tuple(kinds)), columns, truth)
    likely = {} if client is not None else likely_clients(table, {label, time})
    return TableDescription(facts, tuple(kinds), _joined(notes), likely, shift, truth is not None)


def _check(names: list[str], roles: Mapping[str, Any], features: Sequence[str] | None) -> None:
    """Refuse columns that are not there, or are there twice."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two columns are called {twice[0]!r}; rename one")
    asked = [*roles.items(), *(("features", name) for name in features or ())]
    wrong = [(role, name) for role, name in asked if name is not None and name not in names]
    if wrong:
        several = [f"{role}={name!r}: {nearest(str(name), names)}" for role, name in wrong]
        raise ConfigError(f"no such column; {'; '.join(several)}")
    if (label := roles["label"]) is not None and label == roles["client"]:
        raise ConfigError(f"client and label are both {label!r}; name two columns")


def _joined(notes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """One note for each column."""
    found: dict[str, list[str]] = {}
    for name, what in notes:
        found.setdefault(name, []).append(what)
    return tuple((name, "; ".join(several)) for name, several in found.items())


def _facts(columns: Mapping[str, Any], truth: Truth | None) -> Description | None:
    """Clients, examples and labels, of rows that have both; ``None`` if there are no such rows."""
    owner = codes_of(columns["client"])
    there = owner >= 0
    if truth is not None:
        there &= np.isfinite(truth.y)
    if not there.any():
        return None
    sizes = np.bincount(owner[there])
    sizes = sizes[sizes > 0]
    names: tuple[str, ...] = () if truth is None else truth.names
    y = np.zeros(1) if truth is None else truth.y[there]
    counts = np.bincount(y.astype(np.int64)) if names else np.zeros(0, np.int64)
    top = np.argsort(-counts, kind="stable")[:10]
    more: dict[str, Any] = {}
    if "domain" in columns:
        domain = codes_of(columns["domain"])[there]
        _, first = np.unique(owner[there], return_index=True)
        of = columns["domain"].filter(pa.array(there)).to_pylist()
        found = Counter(str(of[k]) for k in first if domain[k] >= 0)
        more["domains"] = dict(sorted(found.items()))
    with contextlib.suppress(DataError):  # which is said of the column
        if "time" in columns:
            time = encoding.as_times(columns["time"], "time")[there]
            more["times"] = (float(time.min()), float(time.max()))
    if "groups" in columns:
        more["groups"] = len(np.unique(codes_of(columns["groups"])[there]))
    return Description(
        clients=len(sizes), seen=len(sizes), unseen=0,
        examples=int(sizes.sum()), parts={"train": int(sizes.sum())},
        sizes={name: float(np.percentile(sizes, q)) for name, q in PERCENTILES.items()},
        columns={}, classes=len(names), labels={names[k]: int(counts[k]) for k in top},
        label_range=(float(y.min()), float(y.max())), **({"domains": {}} | more),
    )  # fmt: skip


def _shift(
    table: Any, preparation: Preparation, columns: Mapping[str, Any], truth: Truth | None
) -> OrderShift | None:
    """Whether the order of clients carries a shift, as some rows of each of them tell."""
    owner = codes_of(columns["client"])
    truth = Truth(np.zeros(len(owner)), ()) if truth is None else truth
    rows = np.flatnonzero((owner >= 0) & np.isfinite(truth.y))
    order = rows[np.argsort(owner[rows], kind="stable")]
    sizes = np.bincount(owner[rows])
    if np.count_nonzero(sizes) < 8:
        return None  # too few to tell an order by
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = np.repeat(sizes, sizes)
    taken = np.minimum(size, OWN_ROWS)
    rows = np.sort(order[place * taken // size != (place - 1) * taken // size])
    x = preparation.for_linear(table.take(pa.array(rows)))
    y = truth.y[rows]
    scaled = y / (np.abs(y).max() or 1.0)  # whose squares are finite
    labels = y.astype(np.int64) if truth.names else (scaled - scaled.mean()) / (scaled.std() or 1.0)
    clients = columns["client"].take(pa.array(rows)).to_pylist()
    return order_shift(from_arrays(x if x.shape[1] else None, labels, clients))


def likely_clients(table: Any, others: set[str | None]) -> dict[str, str]:
    """Columns that look like the client: names or whole numbers that come several times."""
    found = []
    for place, name in enumerate(table.column_names):
        values = plain(table[name], name)
        kind = values.type
        if name in others or not (encoding.is_text(kind) or pa.types.is_integer(kind)):
            continue
        codes = codes_of(values)
        sizes = np.bincount(codes[codes >= 0])
        if len(sizes) < 3 or np.median(sizes) < 2 or sizes.sum() < 4 * len(sizes):
            continue
        if encoding.is_text(kind) and (dates_in(values) is not None or no_words(values)):
            continue
        order = (not _LIKELY.search(name), not encoding.is_text(kind), len(sizes) < 8, place)
        found.append((order, name, f"{len(sizes):,} values, median {np.median(sizes):,.0f} rows"))
    return {name: text for _, name, text in sorted(found)[:NAMED]}
