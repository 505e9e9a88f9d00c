"""The cost ledger: what an algorithm asks of every client, in bytes, examples and steps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np

from sartor.types import Ints

COLUMNS = ("down", "up", "examples", "steps")


@dataclasses.dataclass(frozen=True, eq=False)
class Cost:
    """What was asked of every client, and what left it.

    Attributes:
        client: the clients.
        down: [clients] bytes that each received: models, and other clients' examples.
        up: [clients] bytes that each sent: updates of models.
        examples: [clients] examples that each used, in gradients and in losses, counted every
            time; those of other clients are included.
        steps: [clients] gradient steps that each took.
        left: what else left the clients, by name, over all of them: examples and their bytes.

    >>> one = Cost.nothing(("a", "b"))
    >>> (one + one).total()
    {'down': 0, 'up': 0, 'examples': 0, 'steps': 0}
    """

    client: tuple[str, ...]
    down: Ints
    up: Ints
    examples: Ints
    steps: Ints
    left: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def nothing(cls, clients: tuple[str, ...]) -> Cost:
        """No cost."""
        return cls(clients, *np.zeros((4, len(clients)), np.int64))

    def __add__(self, other: Cost) -> Cost:
        if self.client != other.client:
            raise ValueError("costs of different clients cannot be added")
        sums = {name: getattr(self, name) + getattr(other, name) for name in COLUMNS}
        left = Counter(self.left)
        left.update(other.left)
        return Cost(self.client, **sums, left=dict(left))

    def total(self) -> dict[str, int]:
        """Sums over all clients."""
        return {name: int(getattr(self, name).sum()) for name in COLUMNS} | self.left

    def table(self) -> dict[str, Any]:
        """Columns by name, one row for each client."""
        return {name: getattr(self, name) for name in ("client", *COLUMNS)}
