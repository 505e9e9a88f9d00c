"""Several clusterings in one stack of hypotheses: several q, and restarts of each.

They train on the same cohorts. A client is in one cluster of each clustering.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sartor.trees import Tree
from sartor.types import Floats, Ints

Assign = Callable[[jax.Array, int], tuple[jax.Array, jax.Array]]
"""``assign(losses, restart)``: every client's cluster in one clustering, and the margin."""


class Clusterings(NamedTuple):
    """For each q, a clustering from every restart. Their hypotheses lie end to end.

    Attributes:
        several: the numbers of clusters.
        restarts: how many clusterings there are for each of them.
    """

    several: tuple[int, ...]
    restarts: int

    @property
    def number(self) -> int:
        """How many hypotheses there are in all."""
        return self.restarts * sum(self.several)

    def by_q(self, stacked: Tree) -> Iterator[Tree]:
        """What belongs to the clusterings of each q, of arrays that hold all: [hypotheses, ...]."""
        ends = np.cumsum([self.restarts * q for q in self.several])
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            yield jax.tree.map(lambda a, begin=begin, end=end: a[begin:end], stacked)

    def assign(self, losses: jax.Array, assign: Assign) -> tuple[jax.Array, jax.Array]:
        """Every client's hypothesis, [clients, clusterings], and the margin of each clustering."""
        f, margins, begin = [], [], 0
        for q in self.several:
            for restart in range(self.restarts):
                best, margin = assign(losses[:, begin : begin + q], restart)
                f.append(begin + best)
                margins.append(margin)
                begin += q
        return jnp.stack(f, axis=1), jnp.stack(margins)

    def best(
        self, hypotheses: Tree, losses: Floats, weights: Floats | Ints
    ) -> Iterator[tuple[Tree, Floats]]:
        """For each q, the restart with the lowest weighted loss: its hypotheses, and its losses."""
        for mine, under in self.by_q((hypotheses, losses.T)):
            each = np.split(under, self.restarts)  # of every restart, [q, clients]
            n = int(np.argmin([weights @ one.min(axis=0) for one in each]))
            yield jax.tree.map(lambda a, n=n: np.split(a, self.restarts)[n], mine), each[n]
