"""Hard clustering with a Bregman divergence: k-means, with the distance that fits the points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sartor.randomness import Words, mix, uniforms
from sartor.types import Floats, Ints

STEPS = 300
"""The most alternations of one clustering; it ends as soon as nobody moves."""


class Points(NamedTuple):
    """Points that are vectors, distributions, or both.

    Attributes:
        vectors: [n, features], compared by squared distance.
        simplex: [n, classes], compared by KL divergence.
    """

    vectors: Floats
    simplex: Floats

    def divergence(self, centres: Points) -> Floats:
        """From every point to every centre, both terms added up: [points, centres].

        >>> one = Points(np.zeros((1, 0)), np.array([[0.5, 0.5]]))
        >>> other = Points(np.zeros((1, 0)), np.array([[0.25, 0.75]]))
        >>> one.divergence(other).round(4).tolist()
        [[0.1438]]
        """
        squared = (
            (self.vectors**2).sum(axis=1)[:, None]
            - 2 * self.vectors @ centres.vectors.T
            + (centres.vectors**2).sum(axis=1)
        )
        p, log_q = self.simplex, np.log(np.maximum(centres.simplex, SMALLEST))
        entropy = (p * np.log(np.maximum(p, SMALLEST))).sum(axis=1)
        return np.maximum(squared, 0) + np.maximum(entropy[:, None] - p @ log_q.T, 0)

    def take(self, which: Ints) -> Points:
        """Some of the points."""
        return Points(self.vectors[which], self.simplex[which])


SMALLEST = 1e-12
"""Stands for the probability zero, so that a divergence stays finite."""


def hard_clustering(points: Points, q: int, restarts: int, word: int) -> Points:
    """The centres of q clusters: of several clusterings, those with the smallest total divergence.

    Lloyd's algorithm from a k-means++ start. Whatever the Bregman divergence, the best centre of
    a cluster is the mean of its points.

    >>> two = Points(np.array([[0.0], [0.1], [5.0], [5.2]]), np.zeros((4, 0)))
    >>> sorted(hard_clustering(two, q=2, restarts=3, word=0).vectors.ravel().round(2).tolist())
    [0.05, 5.1]
    """
    found = [_one(points, q, mix(word, "bregman", r)) for r in range(restarts)]
    return min(found, key=lambda result: result[0])[1]


def _one(points: Points, q: int, word: Words) -> tuple[float, Points]:
    def cost(chosen: list[int]) -> Floats:
        if not chosen:
            return np.ones(len(points.vectors))
        return points.divergence(points.take(np.array(chosen))).min(axis=1)

    centres = points.take(np.array(spread_out(cost, q, word)))
    cluster = np.full(len(points.vectors), -1)
    for _ in range(STEPS):
        divergence = points.divergence(centres)
        new = divergence.argmin(axis=1)
        if (new == cluster).all():
            break
        cluster = new
        member = (cluster == np.arange(q)[:, None]).astype(np.float64)
        count = member.sum(axis=1, keepdims=True)
        means = [member @ a / np.maximum(count, 1) for a in points]
        centres = Points(*(np.where(count > 0, m, c) for m, c in zip(means, centres, strict=True)))
    return float(points.divergence(centres).min(axis=1).sum()), centres


def spread_out(cost: Callable[[list[int]], Floats], q: int, word: Words) -> list[int]:
    """Draw q different points one by one, in proportion to what those before leave to be paid.

    The draw of k-means++: ``cost(chosen)`` says what each point pays when these are the centres.
    """
    chosen: list[int] = []
    for draw in uniforms(mix(word, np.arange(q))):
        pays = cost(chosen)
        pays[chosen] = 0
        if not pays.any():  # all are served perfectly: any point that is left will do
            pays = np.ones(len(pays))
            pays[chosen] = 0
        share = np.cumsum(pays / pays.sum())
        chosen.append(int(np.searchsorted(share, draw * share[-1], side="right")))
    return chosen
