"""Data whose every value is known: drawn with numpy, and compared with what Sartor made of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from outcomes import chance, pick, same, sure

from sartor.data import ClientData

IDS = {
    "words": lambda k: f"shop-{k}",
    "odd": lambda k: ("Ünï cödé", " ", "a,b", 'quo"te', "tab\t", "line\nbreak", "../up", "nan",
                      "None", "😀", "007", "7.50", "-0", "x" * 300, "ﬁ", "NA")[k % 16],
    "numbers": lambda k: 3 * k,
    "negative": lambda k: -k,
    "floats": lambda k: k / 4,
}  # fmt: skip
"""Ids of clients by kind, each from the client's number; all are different below 16."""

LABELS = ("numbers", "words", "yes or no", "floats")


@dataclasses.dataclass
class Known:
    """A table of examples: what is given, and what must come of it.

    Attributes:
        who: the id of each row, as it is given.
        x: [n, features] what is given, exact in 32 bits.
        y: the label of each row, as it is given.
        kind: what the labels are, one of ``LABELS``.
        domain: the domain of each row, the same for all rows of a client.
        time: when each row was observed.
        groups: the group of each row.
    """

    who: list[Any]
    x: np.ndarray
    y: list[Any]
    kind: str
    domain: list[str]
    time: np.ndarray
    groups: list[str]

    @property
    def ids(self) -> list[str]:
        """The id of each row as a text, as the documentation has it."""
        return [str(int(w)) if isinstance(w, float) and w == int(w) else str(w) for w in self.who]

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """The words of the labels."""
        return tuple(sorted(set(self.y))) if self.kind == "words" else None

    @property
    def labels(self) -> np.ndarray:
        """What labels must become."""
        if self.kind == "words":
            return np.array([self.label_names.index(word) for word in self.y])
        return np.array(self.y, np.float32 if self.kind == "floats" else np.int64)

    def take(self, order: Any) -> Known:
        """The rows in another order, or some of them."""
        return dataclasses.replace(self, **{
            f.name: a[order] if isinstance(a := getattr(self, f.name), np.ndarray)
            else [a[i] for i in order] if isinstance(a, list) else a
            for f in dataclasses.fields(self)
        })  # fmt: skip


def known(
    rng: np.random.Generator, rows: int | None = None, clients: int | None = None,
    features: int | None = None, kind: str | None = None, ids: str | None = None,
) -> Known:  # fmt: skip
    """A random table; what is not given is drawn."""
    clients = clients or int(rng.integers(1, 7))
    rows = rows or int(rng.integers(clients, 40))
    number = rng.permutation(np.concatenate([
        np.arange(clients), rng.integers(0, clients, rows - clients)]))  # fmt: skip
    make = IDS[ids or pick(rng, IDS)]
    width = features or int(rng.integers(1, 5))
    scale = 2.0 ** rng.integers(-3, 4, width)
    x = np.round(rng.normal(size=(rows, width)) * 64) * scale  # exact in 32 bits
    kind = kind or pick(rng, LABELS)
    words = ("no", "yes", "Ünsure", "0", "a b")
    y = {
        "numbers": lambda: rng.integers(0, 3, rows).tolist(),
        "words": lambda: [words[j] for j in rng.integers(0, len(words), rows)],
        "yes or no": lambda: rng.integers(0, 2, rows).astype(bool).tolist(),
        "floats": lambda: (np.round(rng.normal(size=rows) * 16) / 4).tolist(),
    }[kind]()
    return Known(
        [make(k) for k in number.tolist()], x, y, kind, [f"d{k % 2}" for k in number],
        np.round(rng.random(rows) * 64), [f"g{g}" for g in rng.integers(0, 6, rows)],
    )  # fmt: skip


def check(data: ClientData, table: Known, inputs: bool = True, ordered: bool = True) -> None:
    """Every client has its rows, in the order of the table, and nothing else."""
    ids = table.ids
    first = list(dict.fromkeys(ids))
    same("ids", data.ids if ordered else set(data.ids), tuple(first) if ordered else set(first))
    same("label names", data.label_names, table.label_names)
    same("clients", len(data), len(first))
    same("examples", len(data.rows), len(ids))
    same("all are seen", bool(data.seen.all()), True)
    floats = data.columns["y"].dtype.kind == "f"
    same("labels that are floats", floats, table.kind == "floats")
    whose, labels = np.array(ids, object), table.labels
    for client in first:
        rows = np.flatnonzero(whose == client)
        found = data.client(client)
        same(f"labels of {client!r}", found["y"], labels[rows])
        if inputs:
            same(f"features of {client!r}", found["x"], table.x[rows].astype(np.float32))
        same(f"size of {client!r}", int(data.sizes()[data.position(client)]), len(rows))
    sure(str(len(ids)) in repr(data).replace(",", ""), f"repr without its size: {data!r}")


def some_order(rng: np.random.Generator, table: Known) -> Known:
    """The same table, perhaps with its rows shuffled."""
    return table.take(rng.permutation(len(table.who))) if chance(rng, 0.5) else table
