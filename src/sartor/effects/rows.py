"""Rows by client: clients with as many rows stand side by side, so that no row is padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sartor.types import Floats, Ints

MOST = 2**16
"""Rows in a block of several clients."""


class Block(NamedTuple):
    """Clients with the same number of rows.

    Attributes:
        clients: [clients] their positions.
        rows: [clients, rows] the numbers of their rows.
    """

    clients: Ints
    rows: Ints


def blocks(owner: Ints, clients: int) -> Iterator[Block]:
    """All clients that have rows, block by block.

    >>> [b.rows.tolist() for b in blocks(np.array([0, 2, 2, 0, 1]), 4)]
    [[[4]], [[0, 3], [1, 2]]]
    """
    counts = np.bincount(owner, minlength=clients)
    order = np.argsort(owner, kind="stable")
    first = np.cumsum(counts) - counts
    for count in np.unique(counts[counts > 0]):
        alike = np.flatnonzero(counts == count)
        step = max(1, MOST // int(count))
        for begin in range(0, len(alike), step):
            some = alike[begin : begin + step]
            yield Block(some, order[first[some][:, None] + np.arange(count)])


class Design(NamedTuple):
    """The columns of rows, sorted by client.

    Attributes:
        clients: [clients] of each block, their positions.
        rows: of each block, [clients, rows], the numbers of their rows.
        fixed: of each block, [clients, rows, fixed], the columns whose effects are everybody's.
        varying: the same for the columns whose effects vary.
    """

    clients: list[Ints]
    rows: list[Ints]
    fixed: list[Floats]
    varying: list[Floats]

    @classmethod
    def of(cls, fixed: Floats, varying: Floats, owner: Ints, clients: int) -> Design:
        """Gather the columns of rows that are in any order."""
        found = list(blocks(owner, clients))
        return cls(
            [block.clients for block in found],
            [block.rows for block in found],
            [fixed[block.rows] for block in found],
            [varying[block.rows] for block in found],
        )
