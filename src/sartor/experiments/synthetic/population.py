"""The settings of the experiment, its clients and samples, and the lowest possible losses."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import xlogy

from sartor.checking import check_fields
from sartor.data import ClientData, synthetic, synthetic_distributions
from sartor.data.synthetic import Layout
from sartor.errors import ConfigError
from sartor.models import Model, categorical
from sartor.types import Floats, Ints

CLIENTS, SYMBOLS = 100, 50
"""The paper's p and d."""

MOST = 1000
"""The largest number of training samples of a client."""

TEST = 100
"""Test samples of a client with the most training samples. With fewer training samples, it has more
test samples, so that all arrays have the same shape."""

TABLE_SAMPLES = 100
"""Samples per client m_k of Table 1."""

SMOOTHING = 0.1
"""The rest of the paper's label weight of 0.9; it is spread over all symbols."""

TUNING = 2
"""How many populations step sizes are chosen on; these are not reported."""

POPULATION = (CLIENTS, SYMBOLS, MOST, TEST, TUNING)
"""What populations depend on besides the settings."""


@dataclasses.dataclass(frozen=True)
class SyntheticSettings:
    """The size of the experiment.

    Attributes:
        samples: the numbers of samples per client m_k of the paper's synthetic plot (section 7.1).
        seeds: how many populations are drawn, trained on and averaged over.
        layout: where the clients' own symbols are; see ``sartor.data.synthetic``.
        loss: the training loss, plain or with the paper's label smoothing; tests are always plain.
        seed: seed of all randomness.
        quick: choose from a coarser grid, and leave out the personal methods on clusters.
    """

    samples: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 500, 1000)
    seeds: int = 20
    layout: Layout = "literal"
    loss: Literal["plain", "smoothed"] = "plain"
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.samples or len(set(self.samples)) < len(self.samples):
            raise ConfigError(f"samples={self.samples}: give at least one, and different numbers")
        for samples in self.samples:
            if not 3 <= samples <= MOST:
                raise ConfigError(
                    f"samples={samples}: a client needs at least 3, one each for training, for the "
                    f"choice of λ and for tuning, and has at most {MOST}"
                )
        if self.seeds < 2:
            raise ConfigError(f"seeds={self.seeds}: give at least 2, or 5 for intervals")

    @classmethod
    def small(cls, **changes: Any) -> SyntheticSettings:
        """The settings of ``--quick``."""
        return cls(**{"samples": (5, 20, 100), "seeds": 6, "quick": True, **changes})

    @property
    def truth(self) -> Floats:
        """The clients' true distributions D_k: [clients, symbols]."""
        return synthetic_distributions(CLIENTS, SYMBOLS, self.layout)

    @property
    def smoothing(self) -> float:
        """How much of a training label is spread over all symbols."""
        return SMOOTHING if self.loss == "smoothed" else 0.0

    def model(self, smoothing: float | None = None) -> Model:
        """The hypothesis class: all distributions over the symbols."""
        return categorical(SYMBOLS, smoothing=self.smoothing if smoothing is None else smoothing)


class Population(NamedTuple):
    """The samples of one draw of all clients.

    Attributes:
        seed: of all training on it.
        whole: every client trains on all of its samples.
        held_out: the same, with a fifth of them held out to choose λ.
        tests: how many samples of a client's test part count.
    """

    seed: int
    whole: ClientData
    held_out: ClientData
    tests: int


def draw(
    settings: SyntheticSettings, number: int, samples: int, *, tuning: bool = False
) -> Population:
    """Draw a population.

    A client's rows do not depend on its number of samples: first the training samples, then the
    test samples, and last every symbol once, to compute expectations from. For tuning, a fifth of
    the training samples serves as the test.
    """
    seed = settings.seed * 100_003 + number
    drawn = synthetic(CLIENTS, SYMBOLS, MOST + TEST, settings.layout, seed)
    every = np.broadcast_to(np.arange(SYMBOLS), (CLIENTS, SYMBOLS))
    y = np.concatenate([drawn.columns["y"].reshape(CLIENTS, -1), every], axis=1)
    first = y.shape[1] * np.arange(CLIENTS)[:, None]
    tests = _fifth(samples) if tuning else MOST + TEST - samples
    train = samples - tests if tuning else samples

    def parts(validation: int) -> ClientData:
        bounds = first + np.array([0, train - validation, train, y.shape[1]])
        columns, rows = {"y": y.reshape(-1)}, np.arange(y.size)
        return dataclasses.replace(drawn, columns=columns, rows=rows, bounds=bounds)

    return Population(seed, parts(0), parts(_fifth(train)), tests)


def smoothed(truth: Floats) -> Floats:
    """The distributions of labels that are smoothed as in the paper."""
    return (1 - SMOOTHING) * truth + SMOOTHING / truth.shape[1]


def _fifth(samples: int) -> int:
    return max(1, round(samples / 5))


def bayes_limit(truth: Floats) -> float:
    """The mean entropy of the clients' distributions: the least loss that any models can have.

    >>> round(bayes_limit(SyntheticSettings().truth), 3)
    1.929
    """
    return float(-xlogy(truth, truth).sum(axis=1).mean())


def population_limit(truth: Floats, q: int, starts: int = 40, seed: int = 0) -> float:
    """The least mean loss found for q distributions, where every client takes the best of them.

    The best distribution of a cluster is its clients' mean, so this is a search over partitions:
    alternate between means and clients' best means, then move single clients while that helps.

    >>> round(population_limit(SyntheticSettings().truth, 4), 3)
    2.469
    """
    if not 1 <= q <= len(truth):
        raise ConfigError(f"q={q}: {len(truth)} clients can have 1 to {len(truth)} clusters")
    if not (truth > 0).all():
        raise ConfigError("population_limit needs distributions in which every symbol is possible")
    random = np.random.default_rng(seed)
    begin = np.arange(len(truth)) % q
    return min(_search(truth, random.permutation(begin), q) for _ in range(starts))


def _search(truth: Floats, cluster: Ints, q: int) -> float:
    while True:
        means = np.stack([truth[cluster == c].mean(axis=0) for c in range(q)])
        best = -(truth @ np.log(means).T)
        after = best.argmin(axis=1)
        if len(set(after.tolist())) < q or (after == cluster).all():
            break
        cluster = after
    everyone = np.arange(len(truth))
    while True:
        sums = np.stack([truth[cluster == c].sum(axis=0) for c in range(q)])
        sizes = np.bincount(cluster, minlength=q).astype(np.float64)
        now = _entropy(sums, sizes)  # [q] of whole clusters
        joined = _entropy(sums + truth[:, None], sizes + 1) - now  # [clients, q]
        with np.errstate(divide="ignore", invalid="ignore"):
            left = _entropy(sums[cluster] - truth, sizes[cluster] - 1) - now[cluster]
        change = joined + left[:, None]
        change[everyone, cluster] = 0.0
        change[sizes[cluster] == 1] = 0.0  # no cluster is left empty
        client, to = np.unravel_index(change.argmin(), change.shape)
        if change[client, to] > -1e-9:
            return float(now.sum() / len(truth))
        cluster = cluster.copy()
        cluster[client] = to


def _entropy(sums: Floats, sizes: Floats) -> Floats:
    """Clients of a cluster times the entropy of their mean."""
    return np.asarray(xlogy(sizes, sizes) - xlogy(sums, sums).sum(axis=-1))
