"""A table for a run: read from a file, with its labels, and with a part of its rows held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sartor.data import encoding
from sartor.data.dataset import assemble
from sartor.data.federated import reading
from sartor.data.files import is_table
from sartor.data.notes import codes_of
from sartor.data.preparing import plain
from sartor.data.tableinfo import likely_clients
from sartor.data.tables import is_parquet
from sartor.errors import ConfigError, DataError, FileError, nearest
from sartor.runs.labels import FEW_CLASSES, labels_of
from sartor.runs.named import Kind
from sartor.runs.table_config import Table, TableConfig
from sartor.types import Bools, Floats

NAMED = 5
"""How many columns an error proposes."""

OTHERS = ("second", "time", "groups")
"""Roles of columns that are not learned from, besides the client and the label."""

PARTS = {"train": False, "training": False, "validation": False, "test": True}
"""Which words in a column of parts mean that a row is held out."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table.

    Attributes:
        table: features, and the columns with a role, as an Arrow table.
        y: the labels.
        kind: what is predicted.
        test: which rows are held out.
        left_out: how many rows had no label.
        nobody: how many rows have no client.
        largest: how many rows the largest client has.
    """

    table: Any
    y: npt.NDArray[Any]
    kind: Kind
    test: Bools
    left_out: int
    nobody: int
    largest: int

    def part(self, which: Bools) -> tuple[Any, npt.NDArray[Any]]:
        """Some rows, and their labels."""
        return self.table.filter(pa.array(which)), self.y[which]


def read_rows(config: TableConfig) -> Rows:
    """Read the table that a configuration names."""
    data, path = config.data, Path(config.data["path"])
    table = read_file(path, data.get("client"))
    if not len(table):
        raise DataError(f"{path} has no rows; at least two are needed")
    roles = _roles(table, data, config.split)
    label = plain(table[roles["label"]])
    there = pc.invert(encoding.missing(label))
    left_out = len(table) - pc.sum(there).as_py()
    if left_out == len(table):
        raise DataError(f"label={roles['label']!r}: all values are missing; name another column")
    if left_out:
        table, label = table.filter(there), label.filter(there)
    y, kind = labels_of(label, roles["label"], data.get("task"))
    features = data.get("features") or [n for n in table.column_names if n not in roles.values()]
    clients = _clients(table[roles["client"]])
    test = _held_out(table, clients, roles, config)
    place = table.column_names.index(roles["client"])
    table = table.set_column(place, roles["client"], clients)
    used = [*features, *(roles[r] for r in ("client", *OTHERS) if r in roles)]
    largest = pc.max(pc.value_counts(clients.drop_null()).field("counts")).as_py()
    return Rows(table.select(used), y, kind, test, left_out, clients.null_count, largest)


def read_file(path: Path, client: str | None = None) -> Any:
    """A CSV or Parquet file as an Arrow table. Clients in CSV are texts, so 007 stays 007."""
    if not path.exists():
        raise FileError(f"there is no {path}; name a CSV or Parquet file")
    if not is_table(path):
        raise FileError(f"{path} is no CSV or Parquet file; models in JAX read other formats")
    with reading(path):
        if is_parquet(path):
            table = pa.parquet.read_table(path)
        else:
            table = _read_csv(path, client)
    names = table.column_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: two columns are called {twice[0]!r}; rename one")
    # What pandas writes of a frame's index is no column of the table.
    return table.drop_columns([name for name in names if name.startswith("__index_level_")])


def _read_csv(path: Path, client: str | None) -> Any:
    kinds = {} if client is None else {client: pa.string()}
    options = pa.csv.ConvertOptions(column_types=kinds)
    try:
        return pa.csv.read_csv(path, convert_options=options)
    except pa.ArrowInvalid:
        # Types are guessed from the first block: whole numbers there may be followed by others.
        whole = pa.csv.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1))
        return pa.csv.read_csv(path, read_options=whole, convert_options=options)


def _roles(table: Any, data: Table, split: Table) -> dict[str, str]:
    """The columns that have a role, each of them there and with one role alone."""
    names = table.column_names
    for role in ("client", "label"):
        if role not in data:
            raise ConfigError(
                f"which column {'says whose row it is' if role == 'client' else 'is predicted'}? "
                f"Say --{role} COLUMN (data.{role}); {_proposals(table, role, data)}"
            )
    asked = {r: data[r] for r in ("client", "label", *OTHERS) if data.get(r) is not None}
    if "given" in split:
        asked["given"] = split["given"]
    for role, name in [*asked.items(), *(("features", n) for n in data.get("features") or ())]:
        if name not in names and len(names) == 1 and (sign := _separator(names[0])):
            raise ConfigError(
                f"{role}={name!r}: the file has one column, {names[0]!r}; its values seem to be "
                f"separated by {sign!r}: write it with commas, or as Parquet"
            )
        if name not in names:
            raise ConfigError(f"{role}={name!r}: no such column; {nearest(name, names)}")
    owned: dict[str, str] = {}
    for role, name in asked.items():
        if name in owned:
            raise ConfigError(f"{name!r} is both {owned[name]} and {role}; name two columns")
        owned[name] = role
    for name in data.get("features") or ():
        if name in owned:
            raise ConfigError(f"{name!r} is both {owned[name]} and a feature; leave it out of one")
    return asked


def _separator(heading: str) -> str | None:
    """What separates values in a file that is meant to be CSV."""
    return next((sign for sign in ";\t|" if sign in heading), None)


def _proposals(table: Any, role: str, data: Table) -> str:
    """Columns that look like one of clients, or like a label."""
    taken: set[str | None] = {data.get(key) for key in ("client", "label", *OTHERS)}
    if role == "client":
        found = [f"{name} ({text})" for name, text in likely_clients(table, taken).items()]
    else:
        found = [f"{name} ({n:,} values)" for n, name in sorted(_likely_labels(table, taken))]
    if not found:
        return f"there is {', '.join(table.column_names[:30])}"
    return f"it may be {', '.join(found[:NAMED])}"


def _likely_labels(table: Any, taken: set[str | None]) -> Iterator[tuple[int, str]]:
    """Columns that may be labels, with the number of different values: few words, or numbers."""
    for name in table.column_names:
        values = plain(table[name])
        several = len(np.unique(codes_of(values)))
        words = encoding.is_text(values.type) or encoding.is_date(values.type)
        if name not in taken and several > 1 and (several <= FEW_CLASSES or not words):
            yield several, name


def _clients(values: Any) -> Any:
    """The client of each row as a text; null if it has none."""
    values = plain(values)
    encoding.refuse_nested(values.type, "client")
    gaps = np.asarray(encoding.missing(values).to_numpy(zero_copy_only=False), np.bool_)
    if gaps.all():
        raise DataError("client: all values of this column are missing; name another column")
    coded = pc.if_else(pa.array(gaps), None, values).dictionary_encode()
    names = pa.array(encoding.whole([encoding.text_of(v) for v in coded.dictionary.to_pylist()]))
    return names.take(coded.indices)


def _held_out(table: Any, clients: Any, roles: Mapping[str, str], config: TableConfig) -> Bools:
    """Which rows are the test part."""
    split = config.split
    if "given" in roles:
        return _given(plain(table[roles["given"]]), roles["given"])
    time: Floats | None = None
    if "time" in roles:
        time = encoding.as_times(plain(table[roles["time"]]), roles["time"])
    by = split.get("by", "random")
    if by not in ("random", "time"):
        return _since(by, time)
    test = np.zeros(len(table), np.bool_)
    if not split.get("test"):
        return test
    groups = None
    if "groups" in roles and by == "random":
        name = roles["groups"]
        groups, _ = encoding.numbered(pa.chunked_array([plain(table[name])]), name)
    # Rows of nobody are split like those of a client.
    owner, ids = encoding.numbered(pa.chunked_array([clients.fill_null("(nobody)")]), "client")
    nothing = {"y": np.zeros(len(table), np.int64)}
    data = assemble(nothing, owner, ids, time=time, groups=groups)
    parts = data.split(test=split["test"], by=by, seed=config.seed)
    for start, stop in parts.bounds[:, 2:].tolist():
        test[parts.rows[start:stop]] = True
    return test


def _since(by: str | float, time: Floats | None) -> Bools:
    """The rows from a date on."""
    assert time is not None  # checked with the configuration
    if isinstance(by, str):
        try:
            start = float(encoding.as_times(pa.array([by]), "split.by")[0])
        except DataError as error:
            known = nearest(by, ("random", "time"), "known are")
            raise ConfigError(
                f"split.by={by!r} is no date, and {known}; write 2026-05-01, or 2026-05-01 09:30:00"
            ) from error
    else:
        start = float(by)
    test = time >= start
    if test.all() or not test.any():
        which = "before" if test.all() else "from then on"
        dates = isinstance(by, str)
        ends = [
            str(np.datetime64(int(t), "s")).replace("T", " ") if dates else f"{t:g}"
            for t in (time.min(), time.max())
        ]
        raise DataError(
            f"split.by={by!r}: there are no rows {which}; they are from {ends[0]} to {ends[1]}"
        )
    return test


def _given(values: Any, name: str) -> Bools:
    """Rows held out by a column that says so."""
    if pa.types.is_boolean(values.type) and not values.null_count:
        return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
    words = [str(word).lower() for word in values.to_pylist()]
    if unknown := sorted(set(words) - set(PARTS)):
        raise DataError(
            f"split.given={name!r} must say test or train in each row (got {unknown[0]!r}); "
            "correct the column, or name another"
        )
    return np.array([PARTS[word] for word in words], np.bool_)
