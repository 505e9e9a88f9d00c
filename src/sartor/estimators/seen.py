"""Which rows models were fitted to, so that nobody takes them for fresh ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sartor.data.trained import IDENTIFYING, content_words
from sartor.errors import DataError
from sartor.estimators.rows import Rows
from sartor.randomness import Words
from sartor.types import Ints

BY_CHANCE = 0.1
"""Fresh rows may be equal to others: so many of them are, in tables with copies of rows."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The rows that models were fitted to.

    Attributes:
        words: [rows] a word of 64 bits for each that no other is equal to, by its content; none
            where many rows are alike.
        owner: [rows] the client of each.
    """

    words: Words = field(default_factory=lambda: np.zeros(0, np.uint64))
    owner: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(cls, rows: Rows) -> Seen:
        """These rows."""
        words, first, times = np.unique(_words(rows), return_index=True, return_counts=True)
        alone = times == 1  # of rows that are alike, fresh ones may be further ones
        if alone.sum() < IDENTIFYING * len(rows):
            return cls()
        return cls(words[alone], rows.owner[first[alone]])

    def with_(self, rows: Rows) -> Seen:
        """The same with further rows."""
        if not len(self.words):
            return self
        words, owner = (self.words, _words(rows)), (self.owner, rows.owner)
        return Seen(np.concatenate(words), np.concatenate(owner))

    def without(self, client: int) -> Seen:
        """The same without the rows of a client."""
        others = self.owner != client
        return Seen(self.words[others], self.owner[others])

    def refuse(self, rows: Rows) -> None:
        """Refuse rows as fresh ones, if more were fitted to than would be by chance."""
        known = int(np.isin(_words(rows), self.words).sum())
        if known > BY_CHANCE * len(rows):
            raise DataError(
                f"the models were fitted to {known:,} of these {len(rows):,} rows, so they are no "
                "fresh ones; give rows that were held out. score(X, y) takes any rows"
            )


def _words(rows: Rows) -> Words:
    return content_words({"x": rows.linear, "y": rows.y, "client": rows.owner})
