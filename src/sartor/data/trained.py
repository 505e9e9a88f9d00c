"""Which rows a model was trained on, by their content: so that nobody scores them as test rows.

A row is known by a word of 64 bits, made from its client's id and its values. The word survives
shuffling, splitting and reading the table again. Rows of equal content are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.errors import DataError
from sartor.randomness import Words, mix
from sartor.types import Bools, Ints

if TYPE_CHECKING:
    from sartor.data.dataset import ClientData

IDENTIFYING = 0.9
"""If so many rows differ from all others of their client, equal content means the same row."""

ENOUGH = 5
"""Rows of a client that have to be known under other ids, to be no chance."""

_BYTES = 2**24


class Contents:
    """The words of the contents of a table's rows, made once for all data sets that share it."""

    def __init__(self) -> None:
        self._columns: Mapping[str, npt.NDArray[Any]] = {}
        self._words: Words = np.zeros(0, np.uint64)

    def of(self, columns: Mapping[str, npt.NDArray[Any]]) -> Words:
        """[rows] a word for each row."""
        if not _same(columns, self._columns):
            self._columns, self._words = dict(columns), content_words(columns)
        return self._words


class Trained(NamedTuple):
    """The rows that a model was trained on, or chosen by; and the clients that it has seen.

    Attributes:
        words: the words of these rows, sorted; as often as there are rows of that content.
        seen: the hashes of the clients that took part in central training, sorted.
        clients: the hashes of all clients that have such rows, sorted.
        rows: [clients] how many each of them has.
        contents: the words of contents that one row alone had, without its client's id, sorted: to
            know rows under other ids. None where many rows of clients are alike.
    """

    words: Words
    seen: Words
    clients: Words
    rows: Ints
    contents: Words = np.zeros(0, np.uint64)

    @classmethod
    def on(cls, data: ClientData, *, validation: bool = False, seen_only: bool = True) -> Trained:
        """The training parts of the seen clients, or of all clients.

        Args:
            data: the clients.
            validation: whether their validation parts belong to it.
            seen_only: whether only seen clients were trained on.
        """
        taken = data.seen if seen_only else np.ones(len(data), np.bool_)
        end = data.bounds[:, 2 if validation else 1]
        owner, place = data.owners, np.arange(len(data.rows))
        used = (place < end[owner]) & taken[owner]
        order = np.argsort(data.hashes)
        rows = np.bincount(owner[used], minlength=len(data))[order]
        clients = data.hashes[order]
        seen = np.sort(data.hashes[data.seen])
        contents, times = np.unique(
            data.contents.of(data.columns)[data.rows[used]], return_counts=True
        )
        contents = contents[times == 1] if (times == 1).mean() >= IDENTIFYING else contents[:0]
        words = np.sort(data.row_words[used])
        return cls(words, seen, clients[rows > 0], rows[rows > 0], contents)

    def with_(self, other: Trained | None, *, seen: bool = True) -> Trained:
        """Together with what was trained on before; ``seen`` are those of both, or of the other."""
        if other is None:
            return self
        # A row that both have is one row.
        mine, theirs = (np.unique(t.words, return_counts=True) for t in (self, other))
        words, counts = _larger(*mine, *theirs)
        clients, rows = _larger(self.clients, self.rows, other.clients, other.rows)
        known = np.union1d(self.seen, other.seen) if seen else other.seen
        contents = np.union1d(self.contents, other.contents)
        return Trained(np.repeat(words, counts), known, clients, rows, contents)

    def among(self, data: ClientData, part: str) -> Ints:
        """[clients] how many rows of a part were trained on, at least.

        Of equal rows nobody knows which were trained on. But if n rows of a client are equal, t of
        them were trained on and s are in the part, at least t + s − n are both.
        """
        begin, end = data.bounds[:, _PART[part]], data.bounds[:, _PART[part] + 1]
        owner, place = data.owners, np.arange(len(data.rows))
        inside = (place >= begin[owner]) & (place < end[owner])
        words = data.row_words
        known = _counts(self.words, words) > 0
        found = self._under_other_ids(data, inside, ~known)
        if not (known & inside).any():
            return found
        # Only clients with such rows have to be looked at more closely.
        suspects = np.zeros(len(data), np.bool_)
        suspects[owner[known & inside]] = True
        these = suspects[owner]
        unique, first, number = np.unique(words[these], return_index=True, return_inverse=True)
        client = owner[these][first]
        n = np.bincount(number, minlength=len(unique))
        s = np.bincount(number[inside[these]], minlength=len(unique))
        t = _counts(self.words, unique)
        both = np.where(t > 0, np.clip(t + s - n, 0, s), 0)
        # Where many rows are alike, equal rows in other data are chance, unless it has them all.
        if not self.identifying:
            there = np.bincount(client, np.minimum(t, n), len(data))
            place = np.minimum(np.searchsorted(self.clients, data.hashes), len(self.clients) - 1)
            both[(there < self.rows[place])[client]] = 0
        np.add.at(found, client, both)
        return found

    def _under_other_ids(self, data: ClientData, inside: Bools, new: Bools) -> Ints:
        """[clients] how many of these rows were trained on as rows of clients with other ids.

        Of rows that are new under their client's id, at least half and ``ENOUGH`` have to have the
        content of one row that was trained on: a few may have it by chance.
        """
        contents = data.contents.of(data.columns)[data.rows]
        known = new & (_counts(self.contents, contents) > 0)
        if not known.any():
            return np.zeros(len(data), np.int64)
        _, number, times = np.unique(contents, return_inverse=True, return_counts=True)
        known &= times[number] == 1
        rows, all_known, found = (
            np.bincount(data.owners[mask], minlength=len(data))
            for mask in (new, known, known & inside)
        )
        return np.where((all_known >= ENOUGH) & (2 * all_known >= rows), found, 0)

    @property
    def identifying(self) -> bool:
        """Whether the content of a row tells which row it is."""
        return _mostly_different(self.words)

    def refuse(self, data: ClientData, parts: tuple[str, ...], what: str, allowed: bool) -> Ints:
        """Refuse data with rows in these parts that were trained on; [clients] how many there are.

        Args:
            data: the clients.
            parts: the parts that should hold no such row.
            what: what the model is wanted for, as an error message says it.
            allowed: whether such rows are allowed, and only counted.
        """
        found = np.sum([self.among(data, part) for part in parts], axis=0)
        clients = np.flatnonzero(found)
        if len(clients) and not allowed:
            most = clients[np.argsort(-found[clients], kind="stable")][:3]
            named = ", ".join(f"{data.ids[k]!r}: {found[k]}" for k in most)
            more = ", ..." if len(clients) > len(most) else ""
            if not np.isin(data.hashes[clients], self.clients).all():
                more += "; under other ids"
            raise DataError(
                f"{int(found.sum()):,} {' and '.join(parts)} rows of {len(clients):,} "
                f"client{'s' * (len(clients) > 1)} "
                f"({named}{more}) were trained on by this model, so {what} would look better than "
                "it is; use the split that the model was fitted on, or split once and keep it. "
                "allow_trained=True does it all the same, and marks the scores"
            )
        return found


_PART = {"train": 0, "validation": 1, "test": 2}


def part_words(data: ClientData, clients: Ints, part: str) -> Words:
    """[clients] a word for all rows in a part of some clients, whatever their order."""
    begin, end = data.bounds[:, _PART[part]], data.bounds[:, _PART[part] + 1]
    owner, place = data.owners, np.arange(len(data.rows))
    inside = (place >= begin[owner]) & (place < end[owner])
    sums = np.zeros(len(data), np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(sums, owner[inside], data.row_words[inside])
    return sums[clients]


def _larger(a: Words, times: Ints, b: Words, often: Ints) -> tuple[Words, Ints]:
    """The words of both, with the larger of their counts."""
    words = np.union1d(a, b)
    counts = np.zeros(len(words), np.int64)
    counts[np.searchsorted(words, a)] = times
    place = np.searchsorted(words, b)
    counts[place] = np.maximum(counts[place], often)
    return words, counts


def _mostly_different(words: Words) -> bool:
    """Whether most of these sorted words are there once."""
    if not len(words):
        return True
    same = words[1:] == words[:-1]
    alone = ~(np.append(same, False) | np.insert(same, 0, False))
    return bool(alone.mean() >= IDENTIFYING)


def _counts(known: Words, words: Words) -> Ints:
    """How often each word is among sorted ones."""
    return np.searchsorted(known, words, "right") - np.searchsorted(known, words, "left")


def _same(a: Mapping[str, npt.NDArray[Any]], b: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether columns are the same arrays in memory."""

    def place(column: npt.NDArray[Any]) -> tuple[Any, ...]:
        return column.__array_interface__["data"], column.shape, column.strides, column.dtype

    return a.keys() == b.keys() and all(place(a[name]) == place(b[name]) for name in a)


def content_words(columns: Mapping[str, npt.NDArray[Any]]) -> Words:
    """[rows] a word for the content of each row."""
    words = np.zeros(len(columns["y"]), np.uint64)
    for name, column in sorted(columns.items()):
        step = max(1, _BYTES // max(column[:1].nbytes, 1))
        for begin in range(0, len(column), step):
            here = slice(begin, begin + step)
            words[here] = mix(words[here], name, _block_words(column[here]))
    return words


def _block_words(block: npt.NDArray[Any]) -> Words:
    """[rows] a word for the values of each row as models see them, whatever their type."""
    flat = np.ascontiguousarray(block).reshape(len(block), -1)
    flat = flat.astype(np.float32) + np.float32(0)  # −0 and 0 are equal
    raw = np.ascontiguousarray(flat).view(np.uint8).reshape(len(block), -1)
    wide = -(-raw.shape[1] // 8) * 8
    if wide != raw.shape[1]:
        raw = np.pad(raw, [(0, 0), (0, wide - raw.shape[1])])
    chunks = raw.view(np.uint64)
    with np.errstate(over="ignore"):
        return np.asarray(mix(chunks, np.arange(chunks.shape[1])).sum(axis=1), np.uint64)
