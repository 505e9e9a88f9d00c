"""Who takes part in each round: cohorts, drawn from the seed and the round alone."""

import numpy as np

from sartor.data import ClientData
from sartor.engine.schedule import ragged
from sartor.randomness import mix, uniforms
from sartor.types import Floats, Ints


def in_order(data: ClientData) -> Ints:
    """The seen clients by their hashes: so draws do not depend on their order in the data."""
    seen = np.flatnonzero(data.seen)
    return seen[np.argsort(data.hashes[seen], kind="stable")]


def sample_cohorts(seed: int, rounds: range | Ints, population: int, size: int) -> Ints:
    """Which clients take part in each round, without replacement: [rounds, size].

    The cost is that of the cohort, not of the population.

    >>> sample_cohorts(0, range(2), population=1_000_000, size=5).shape
    (2, 5)
    """
    if size >= population:
        return np.broadcast_to(np.arange(population), (len(rounds), population))
    few = 4 * size < population
    draws = 2 * size + 32 if few else population
    cohorts = np.empty((len(rounds), size), np.int64)
    for place, round_ in enumerate(rounds):
        words = mix(seed, "cohort", round_, np.arange(draws))
        if few:  # draw with replacement and keep the first of each: enough are left
            picks, first = np.unique(words % np.uint64(population), return_index=True)
            cohorts[place] = picks[np.argsort(first)][:size]
        else:
            cohorts[place] = np.argsort(words, kind="stable")[:size]
    return cohorts


SEATS = 2
"""Seats of a rare stratum in a cohort."""


class Sampler:
    """Draws cohorts: uniformly, or with seats for clients of rare strata.

    A stratum is *rare* if a uniform cohort of C clients holds less than two of its clients on
    average. It gets two seats in every cohort, or one if it is a single client. All seats together
    may take half of the cohort, or more where a uniform cohort has more clients of rare strata; if
    that is not enough, the seats that are filled in a round are drawn uniformly. The clients of a
    stratum take its seats with the same probability, and so do all other clients with the rest of
    the cohort.

    A client that is drawn with probability π stands for (C/N)/π clients of a uniform cohort of N.
    Weighted by that, a sum over a cohort has the mean that it has with uniform cohorts.

    So a cohort holds at least one client of each stratum on average, or with D > C/4 strata at
    least C/4D: a stratum's sum over its clients is not carried by a client that comes once in many
    rounds. Without knowing more than D, nobody can promise more than C/D to all of them.

    Args:
        seed: the seed.
        population: how many clients there are, N.
        size: how many take part in a round; all if there are fewer.
        strata: [population] the stratum of each client; ``None`` for uniform cohorts.

    Attributes:
        size: how many really take part.
        stands_for: [population] how many clients of a uniform cohort each client stands for;
            ``None`` if all are drawn equally often.

    >>> sampler = Sampler(0, 1000, 20, np.arange(1000) < 5)
    >>> sampler.stands_for[[0, 999]].round(3).tolist()
    [0.05, 1.106]
    >>> bool(((sampler.draw(range(100)) < 5).sum(axis=1) == 2).all())
    True
    """

    def __init__(self, seed: int, population: int, size: int, strata: Ints | None = None) -> None:
        self.seed, self.population = seed, population
        self.size = min(size, population)
        self.stands_for: Floats | None = None
        if strata is None or size >= population:
            return
        # Numbered by their first clients, since what strata are called should change nothing.
        _, first, which = np.unique(strata, return_index=True, return_inverse=True)
        which = np.argsort(np.argsort(first))[which.reshape(-1)]
        counts = np.bincount(which)
        rare = size * counts < SEATS * population
        others = population - int(counts[rare].sum())
        seats = np.where(rare, np.minimum(counts, SEATS), 0)
        filled = min(float(seats.sum()), size * max(0.5, 1 - others / population))
        expected = seats * filled / max(seats.sum(), 1)
        expected[~rare] = (size - filled) * counts[~rare] / max(others, 1)
        stands_for = size / population * counts / expected
        if np.allclose(stands_for, 1):
            return
        self.stands_for = stands_for[which]
        # Clients by stratum, and those of no rare stratum last.
        number = np.where(rare, np.arange(len(rare)), len(rare))
        self._clients = np.argsort(number[which], kind="stable")
        self._others, self._filled = others, filled
        self._stratum, self._seat = ragged(seats[rare])  # of every seat
        self._counts = counts[rare]
        self._firsts = np.cumsum(self._counts) - self._counts

    def draw(self, rounds: range) -> Ints:
        """Which clients take part in each round: [rounds, size]."""
        if self.stands_for is None:
            return sample_cohorts(self.seed, rounds, self.population, self.size)
        # A fraction of a seat is a seat in that fraction of all rounds.
        numbers = np.arange(rounds.start, rounds.stop)
        toss = uniforms(mix(self.seed, "filled", numbers))
        filled = int(self._filled) + (toss < self._filled % 1)
        cohorts = np.empty((len(rounds), self.size), np.int64)
        for count in np.unique(filled).tolist():
            these = numbers[filled == count]
            seats = sample_cohorts(int(mix(self.seed, "seats")), these, len(self._seat), count)
            rest = sample_cohorts(self.seed, these, self._others, self.size - count)
            places = [self._sitting(these, seats), self.population - self._others + rest]
            cohorts[filled == count] = self._clients[np.concatenate(places, axis=1)]
        return cohorts

    def _sitting(self, rounds: Ints, seats: Ints) -> Ints:
        """Who takes these seats: [rounds, seats].

        A stratum's clients stand in a circle, and its seats around them, evenly. A random turn of
        the circle gives every client the same probability, and no client two seats.
        """
        stratum = self._stratum[seats]
        count = self._counts[stratum]
        around = np.minimum(count, SEATS)
        turn = mix(self.seed, "turn", rounds[:, None], stratum) % (count * around).astype(np.uint64)
        place = (turn.astype(np.int64) + self._seat[seats] * count) // around % count
        return np.asarray(self._firsts[stratum] + place)
