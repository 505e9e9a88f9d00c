"""ClientData: every client's examples in shared columns, and which rows each client trains on.

The paper's samples of the clients D_1, ..., D_p. Rows lie once in memory (or on disk); clients,
parts, selections and splits are only index arrays over them.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sartor.checking import (
    AnyPath,
    Count,
    Numbers,
    Part,
    checked,
    checks_arguments,
    is_list,
    shown,
)
from sartor.data.scaling import Scaling
from sartor.data.trained import Contents
from sartor.errors import ConfigError, DataError, nearest
from sartor.randomness import Words, client_hashes, mix
from sartor.types import Bools, Ints

Column = npt.NDArray[Any]

PARTS = ("train", "validation", "test")

MEGABYTE = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class ClientData:
    """The examples of p clients. Made by the builders of `sartor.data`, rarely by hand.

    Attributes:
        columns: "y" (labels: integers from 0, or floats for regression) and the feature columns,
            usually "x"; equal lengths, possibly memory-mapped. No feature column is fine
            (density estimation, where X is empty).
        rows: row numbers into the columns, client by client without gaps, and inside a client
            part by part.
        bounds: [p, 4]; the training rows of client k are rows[bounds[k, 0]:bounds[k, 1]], then
            come its validation rows and its test rows.
        ids: the clients' ids, unique.
        seen: [p]; True for clients that take part in central training.
        metadata: one value for each client under every name; "domain" is the name algorithms use.
        label_names: the word of each class number, where labels were words.
        feature_names: the column that each feature of "x" was, where they have names.
        scaling: how models see the features of "x"; as they are if not given.
        time: [rows of the columns] when each row was observed, as a number, if that is known.
            Splits and folds by time then train on the past and hold out what comes later.
        groups: [rows of the columns] the number of each row's group, if rows come in groups, such
            as all rows of one hour. Random splits and folds then keep groups whole.
        contents: the words of the rows' contents, shared by all data sets of one table.

    >>> from sartor.data import from_dict
    >>> data = from_dict({"ann": ([[0.0], [1.0]], [0, 1]), "bob": ([[2.0]], [1])})
    >>> data
    ClientData(2 clients, 3 examples: x float32[1], y int64)
    >>> data.client("bob")["x"].tolist()
    [[2.0]]
    """

    columns: Mapping[str, Column]
    rows: Ints
    bounds: Ints
    ids: tuple[str, ...]
    seen: Bools
    metadata: Mapping[str, Column] = field(default_factory=dict)
    label_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    scaling: Scaling | None = None
    time: Column | None = None
    groups: Column | None = None
    contents: Contents = field(default_factory=Contents)

    def __post_init__(self) -> None:
        for name in ("columns", "metadata"):
            checked(name, getattr(self, name), Mapping)
        checked("ids", self.ids, Sequence[str])
        for name in ("label_names", "feature_names"):
            checked(name, getattr(self, name), Sequence[str] | None)
        for name in ("rows", "bounds", "seen"):
            checked(name, getattr(self, name), Numbers)
        fixed = {
            "columns": {name: _read_only(column) for name, column in self.columns.items()},
            "rows": _read_only(self.rows),
            "bounds": _read_only(self.bounds),
            "ids": tuple(self.ids),
            "seen": _read_only(self.seen),
            "metadata": {name: _metadata_column(values) for name, values in self.metadata.items()},
        }
        for name in ("time", "groups"):
            if getattr(self, name) is not None:
                fixed[name] = _read_only(getattr(self, name))
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        _check_structure(self)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {shape_of(c)}" for name, c in self.columns.items())
        text = f"{len(self):,} clients, {len(self.rows):,} examples: {columns}"
        sizes = {part: int(self.sizes(part).sum()) for part in PARTS}
        if sizes["train"] < len(self.rows):
            text += "; " + ", ".join(f"{part} {size:,}" for part, size in sizes.items() if size)
        if not self.seen.all():
            text += f"; {int((~self.seen).sum()):,} unseen"
        return f"ClientData({text})"

    @cached_property
    def hashes(self) -> Words:
        """The stable hash of each client's id, from which all its randomness comes."""
        return _read_only(client_hashes(self.ids))

    @cached_property
    def owners(self) -> Ints:
        """The position of the client that each entry of `rows` belongs to."""
        sizes = self.bounds[:, 3] - self.bounds[:, 0]
        return _read_only(np.repeat(np.arange(len(self)), sizes))

    @cached_property
    def row_words(self) -> Words:
        """A word for each entry of `rows`, by the client's id and the row's content."""
        return mix(self.hashes[self.owners], self.contents.of(self.columns)[self.rows])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {client: k for k, client in enumerate(self.ids)}

    def sizes(self, part: str = "train") -> Ints:
        """The number of rows of each client in a part: the paper's m_k."""
        j = _part_number(part)
        return self.bounds[:, j + 1] - self.bounds[:, j]

    def part(self, k: int, part: str = "train") -> Ints:
        """The row numbers of the client in position k."""
        j = _part_number(part)
        if not 0 <= checked("k", k, int) < len(self):
            raise DataError(f"there is no client in position {k}; there are {len(self):,} clients")
        return self.rows[self.bounds[k, j] : self.bounds[k, j + 1]]

    def position(self, client_id: Any) -> int:
        """The position of a client among `ids`."""
        client = text_of(client_id)
        if client not in self._positions:
            hint = nearest(client, self.ids)
            raise DataError(f"no client {client!r} among {len(self):,}; {hint}")
        return self._positions[client]

    def owner_of(self, entry: int) -> int:
        """The position of the client that an entry of `rows` belongs to."""
        return int(np.searchsorted(self.bounds[:, 3], entry, side="right"))

    def client(self, client_id: Any, part: str = "train") -> dict[str, Column]:
        """The columns of one client, restricted to its rows in a part."""
        rows = self.part(self.position(client_id), part)
        return {name: column[rows] for name, column in self.columns.items()}

    def scaled(self, scaling: Scaling | None) -> ClientData:
        """The same clients, whose features models see in another scale. Columns are shared."""
        if scaling is self.scaling:
            return self
        # Found again by the scaling, as copies of columns on a device are found by the data.
        if scaling not in self._scaled:
            self._scaled[scaling] = replace(self, scaling=scaling)
        return self._scaled[scaling]

    @cached_property
    def _scaled(self) -> dict[Scaling | None, ClientData]:
        return {}

    def seen_by_models(self, name: str, rows: Any) -> Column:
        """Rows of a column as models see them, which is scaled where there is a scaling."""
        values = np.asarray(self.columns[name][rows])
        return values if self.scaling is None or name != "x" else self.scaling(values)

    def select(self, clients: Bools | Iterable[Any]) -> ClientData:
        """Only these clients: a mask over clients, or ids in the wanted order. Columns are shared.

        >>> from sartor.data import synthetic
        >>> synthetic(clients=5).select(["client-003", "client-001"]).ids
        ('client-003', 'client-001')
        """
        several: list[Any] = list(clients) if is_list(clients) else [clients]
        if several and all(isinstance(one, bool | np.bool_) for one in several):
            if len(several) != len(self):
                raise DataError(
                    f"a mask over {len(self)} clients is needed, got one of {len(several)}"
                )
            k = np.flatnonzero(several)
        else:
            k = np.array([self.position(client) for client in several], dtype=np.int64)
        rows = [self.rows[start:end] for start, end in self.bounds[k][:, [0, 3]]]
        return replace(
            self,
            rows=np.concatenate([self.rows[:0], *rows]),
            bounds=bounds_of(np.diff(self.bounds[k])),
            ids=tuple(self.ids[i] for i in k),
            seen=self.seen[k],
            metadata={name: values[k] for name, values in self.metadata.items()},
        )

    @checks_arguments
    def split(
        self, unseen: Part = 0.0, validation: Part = 0.0, test: Part = 0.0, seed: int = 0,
        by: Any = "random",
    ) -> ClientData:  # fmt: skip
        """Set clients aside as unseen, and rows of every client for validation and test.

        Who and what is set aside depends on the seed, the client's id and the row's place inside
        the client alone: never on the order of clients, which often carries a shift (the paper
        shuffles clients for that reason). Rows come out of the training part, which keeps at least
        one row; parts that exist already stay.

        Args:
            unseen: fraction of clients left out of central training, in [0, 1).
            validation: fraction of each client's training rows, in [0, 1).
            test: fraction of each client's training rows; validation + test < 1.
            seed: any integer.
            by: ``"random"``; or ``"time"``: the test part is the last rows of every client, and the
                validation part those before them. A random split of rows that have groups keeps
                groups whole, for all clients alike, so the fractions hold on average. Or a date
                such as ``"2026-05-01"``, or a number: the test part is all rows from then on, and
                clients who come later are unseen. Or a list with the part of each row of the
                table: ``"train"``, ``"validation"`` or ``"test"``, or whether it is a test row.

        >>> from sartor.data import synthetic
        >>> synthetic(clients=10, samples=20).split(unseen=0.3, validation=0.1, test=0.2)
        ClientData(10 clients, 200 examples: y int64; train 140, validation 20, test 40; 3 unseen)
        """
        from sartor.data.splitting import split

        return split(self, unseen, validation, test, seed, by)

    def merge_parts(self) -> ClientData:
        """Undo splits: every row in training, in its original order, and every client seen.

        >>> from sartor.data import synthetic
        >>> data = synthetic(clients=4)
        >>> data.split(unseen=0.5, test=0.2).merge_parts().fingerprint == data.fingerprint
        True
        """
        from sartor.data.splitting import merge_parts

        return merge_parts(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash (hex) that tells whether two datasets are the same.

        Covers ids, parts, seen, metadata, label names and the columns. Of a column above 256 MB
        only its type, its shape and 256 blocks of 1 MB, spread evenly, are read.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([self.ids, self.label_names]).encode())
        index = {"rows": self.rows, "bounds": self.bounds, "seen": self.seen}
        index |= {n: a for n in ("time", "groups") if (a := getattr(self, n)) is not None}
        for group in (index, self.metadata, self.columns):
            for name, array in sorted(group.items()):
                digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
                blocks = row_blocks(array, MEGABYTE)
                if array.nbytes > 256 * MEGABYTE and group is self.columns:
                    blocks = [blocks[i] for i in np.linspace(0, len(blocks) - 1, 256).astype(int)]
                for block in blocks:
                    digest.update(array[block].tobytes())
        return digest.hexdigest()

    @checks_arguments
    def save(self, path: AnyPath, *, replace: bool = False) -> None:
        """Write a directory that `sartor.data.open` memory-maps again, whole or not at all.

        Args:
            path: where to. The same data may be there already.
            replace: whether to replace a directory of other data, which is lost then. Nothing but
                saved data is ever replaced.

        >>> import tempfile
        >>> from sartor.data import open, synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     synthetic(clients=3, samples=2).save(folder + "/toy")
        ...     open(folder + "/toy")
        ClientData(3 clients, 6 examples: y int64)
        """
        from sartor.data.store import save_store

        save_store(self, path, replace)


def assemble(
    columns: Mapping[str, Column],
    owner: npt.NDArray[np.integer[Any]],
    ids: Sequence[str],
    *,
    part: npt.NDArray[np.integer[Any]] | None = None,
    metadata: Mapping[str, Any] | None = None,
    label_names: tuple[str, ...] | None = None,
    feature_names: tuple[str, ...] | None = None,
    time: Column | None = None,
    groups: Column | None = None,
) -> ClientData:
    """Check columns and group their rows by client: the way every builder ends.

    Args:
        columns: "y" and features, one entry for each row.
        owner: the client of each row, as a position in `ids`.
        ids: the clients' ids.
        part: the part of each row, as a position in `PARTS`; None for training.
        metadata: one value for each client under every name.
        label_names: the word of each class number.
        feature_names: the column that each feature of "x" was.
        time: when each row was observed.
        groups: the number of each row's group.

    >>> assemble({"y": np.array([5, 6, 7])}, np.array([1, 0, 1]), ["a", "b"]).client("b")
    {'y': array([5, 7])}
    """
    columns = dict(columns)
    if "y" in columns and columns["y"].dtype == np.bool_:
        columns["y"] = columns["y"].view(np.uint8)
    slot = np.asarray(owner, dtype=np.int64) * 3 + (0 if part is None else part)
    in_order = bool((slot[1:] >= slot[:-1]).all())
    data = ClientData(
        columns=columns,
        rows=np.arange(len(slot)) if in_order else np.argsort(slot, kind="stable"),
        bounds=bounds_of(np.bincount(slot, minlength=3 * len(ids)).reshape(-1, 3)),
        ids=tuple(ids),
        seen=np.ones(len(ids), dtype=np.bool_),
        metadata=metadata or {},
        label_names=label_names,
        feature_names=feature_names,
        time=time,
        groups=groups,
    )
    from sartor.data.rounding import check_values

    for name, column in data.columns.items():
        check_values(data, name, column)
    return data


def bounds_of(sizes: Ints) -> Ints:
    """The bounds [p, 4] that belong to sizes [p, 3], clients following each other without gaps."""
    ends = np.cumsum(sizes, dtype=np.int64).reshape(sizes.shape)
    return np.concatenate([ends[:, -1:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)


def text_of(value: Any) -> str:
    """A client's id as a text; a number is the same client in whatever type it is given.

    >>> text_of(1005.0), text_of(1005), text_of(b"ann"), text_of(0.5), text_of(Decimal("0.50"))
    ('1005', '1005', 'ann', '0.5', '0.5')
    """
    value = value.item() if isinstance(value, np.generic) else value
    try:
        raw = value.encode() if isinstance(value, str) else value
        value = raw.decode() if isinstance(raw, bytes) else value
    except UnicodeError as error:
        raise DataError(f"the id {value!r} is not UTF-8; decode it before") from error
    known = isinstance(value, str | int | float | Decimal | datetime.date | datetime.time | UUID)
    finite = value.is_finite() if isinstance(value, Decimal) else value == value
    if not known or not finite or value in (math.inf, -math.inf):
        raise DataError(
            f"a client's id must be a text or a number (got {shown(value)}); make it one, such as "
            "'-'.join of several"
        )
    if isinstance(value, Decimal):  # Arrow writes as many zeros as the longest of a column has
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_sizes(name: str, value: int | Sequence[int], clients: int) -> Ints:
    """An argument with the number of examples, of every client or of each."""
    sizes = np.asarray(checked(name, value, Count | Sequence[Count]), np.int64)
    if sizes.shape not in ((), (clients,)):
        raise ConfigError(f"{name} must be one number, or {clients} (got {len(sizes)})")
    return np.broadcast_to(sizes, clients)


def equal_length(columns: Mapping[str, Any], where: str = "") -> int:
    """The number of rows of some columns, which must be the same for all."""
    lengths = {name: c.shape[0] if c.shape else "a single value" for name, c in columns.items()}
    if len(set(lengths.values())) > 1 or "a single value" in lengths.values():
        raise DataError(f"{where}columns must have equal lengths, got {lengths}")
    return int(next(iter(lengths.values())))


def shape_of(column: Column) -> str:
    """The type and shape of one example, as in `uint8[28, 28]`."""
    shape = ", ".join(map(str, column.shape[1:]))
    return f"{column.dtype.name}[{shape}]" if shape else column.dtype.name


def _read_only(array: npt.ArrayLike) -> Column:
    view = np.asanyarray(array).view()  # a view: the caller's own array stays writable
    view.setflags(write=False)
    return view


def _metadata_column(values: npt.ArrayLike) -> Column:
    array = np.asarray(values)
    plain = array.dtype.kind in "biufU"
    return _read_only(array if plain else [str(value) for value in array.ravel()])


def _part_number(part: str) -> int:
    if not isinstance(part, str) or part not in PARTS:
        raise ConfigError(f"part={shown(part)} is not a part; {nearest(str(part), PARTS)}")
    return PARTS.index(part)


def row_blocks(array: Column, size: int) -> list[slice]:
    """Slices of about `size` bytes that cover an array, so that a memmap is never loaded whole."""
    step = max(1, size * len(array) // max(1, array.nbytes))
    return [slice(i, i + step) for i in range(0, len(array), step)]


def _check_structure(data: ClientData) -> None:
    """All checks that do not need the values of columns."""
    p, rows, bounds = len(data.ids), data.rows, data.bounds
    if p == 0:
        raise DataError("no clients: at least one client with one example is needed")
    if len(set(data.ids)) < p:
        twice = Counter(data.ids).most_common(1)[0][0]
        raise DataError(f"client {twice!r} appears twice: ids must be unique (as texts)")
    if "y" not in data.columns:
        raise DataError(f"no column 'y' with the labels; {nearest('y', data.columns)}")
    n = equal_length(data.columns)
    if bounds.shape != (p, 4) or rows.ndim != 1 or bounds.dtype.kind != "i":
        raise DataError(f"bounds must be integers [{p}, 4], got {bounds.dtype} {bounds.shape}")
    starts = np.append(bounds[:, 0], len(rows))
    if starts[0] or (np.diff(bounds) < 0).any() or (bounds[:, 3] != starts[1:]).any():
        raise DataError("bounds must follow each other without gaps from 0 to len(rows)")
    empty = np.flatnonzero(bounds[:, 1] == bounds[:, 0])
    if len(empty):
        raise DataError(
            f"client {data.ids[empty[0]]!r} has no training rows ({len(empty)} such of {p}): "
            "leave it out or give it at least one"
        )
    if rows.dtype.kind != "i" or rows.min() < 0 or rows.max() >= n:
        raise DataError(f"rows must be integers in [0, {n}), the row numbers of the columns")
    for name, column in (("time", data.time), ("groups", data.groups)):
        if column is not None and column.shape != (n,):
            raise DataError(f"{name!r} needs one value for each of {n} rows, got {column.shape}")
    if data.time is not None and data.groups is not None:
        raise DataError(
            "time and groups: splits and folds follow one of them; name one, such as the time, or "
            "groups made from it, such as weeks"
        )
    for name, values in {"seen": data.seen, **data.metadata}.items():
        if values.shape != (p,):
            raise DataError(f"{name!r} needs one value for each of {p} clients, got {values.shape}")
