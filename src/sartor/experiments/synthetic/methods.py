"""The methods of the plot, the settings that validation chooses for them, and how to score them."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from sartor.central import CentralModel, FedAvg, HypCluster
from sartor.data import ClientData
from sartor.experiments.common import PAPER
from sartor.experiments.synthetic.population import (
    CLIENTS,
    SYMBOLS,
    Population,
    SyntheticSettings,
    smoothed,
)
from sartor.personal import Dapper, Finetune, Local, Mapper, PersonalModels
from sartor.types import Floats

Fitted = CentralModel | PersonalModels

MakeAlgorithm = Callable[[int, float, Any], Any]
"""Makes an algorithm for a number of samples, a step size, and a central model or a class."""

BATCH = 100
"""Samples in a step; clients with fewer use all of theirs."""

STEPS = 20
"""About how many steps a client takes to train its own model."""

ROUNDS, JOINT_ROUNDS = 30, 5
"""Rounds of central training, and of Mapper's joint training after them; all clients take part."""

COVER = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The candidates for every client's λ, of Dapper and Mapper."""

RESTARTS = {2: 30, 3: 10, 4: 5, 5: 5}
"""Starts of HypCluster for each q. With two clusters, most starts separate three kinds of clients
from one."""

EVERYBODY: dict[str, Any] = {"cohort": CLIENTS, "batch": BATCH, "server_momentum": 0.0}

RATES, SMOOTHINGS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.0, 0.3)
"""The step sizes and the label smoothing that every method chooses from. Smoothing tells a client
that symbols it has not seen are possible."""

QUICK = ((0.5, 0.0), (2.0, 0.0), (4.0, 0.0))
QUICK_SMOOTHED = ((2.0, 0.0), (2.0, 0.3), (4.0, 0.0))
"""The candidates of ``--quick``. Another smoothing is another program to compile, so only Local and
Finetune, with their small programs, can choose it."""

CONSTANTS = (
    BATCH, STEPS, ROUNDS, JOINT_ROUNDS, COVER, RESTARTS, RATES, SMOOTHINGS, QUICK, QUICK_SMOOTHED
)  # fmt: skip
"""What the numbers depend on besides the settings."""


class Tuned(NamedTuple):
    """What validation chooses for a method and a number of samples."""

    rate: float
    smoothing: float


class Method(NamedTuple):
    """A line of the paper's synthetic plot (section 7.1).

    Attributes:
        name: its name in tables and figures.
        algorithm: makes the algorithm.
        start: the central method that it starts from.
        holds_out: whether λ is chosen on samples that are held out, also from the central model.
        smooths: whether ``--quick`` chooses the label smoothing, too, or it is taken over.
        tuned_like: the method whose step size it takes over, if it chooses none of its own.
    """

    name: str
    algorithm: MakeAlgorithm
    start: str | None = None
    holds_out: bool = False
    smooths: bool = False
    tuned_like: str | None = None

    def grid(self, settings: SyntheticSettings) -> list[Tuned]:
        """The candidates: the same for every method; ``--quick`` has equally many for each."""
        candidates: Iterable[tuple[float, float]] = itertools.product(RATES, SMOOTHINGS)
        if settings.quick:
            candidates = QUICK_SMOOTHED if self.smooths else QUICK
        least = settings.smoothing
        return [Tuned(rate, max(least, smoothing)) for rate, smoothing in candidates]

    def fit(self, rate: float, start: Any, data: ClientData, seed: int) -> Fitted:
        """Train it on clients that all have the same number of samples."""
        samples = int((data.bounds[0, 2] - data.bounds[0, 0]).item())
        return self.algorithm(samples, rate, start).fit(start, data, seed=seed, progress=False)


def epochs_for(samples: int) -> int:
    """Passes over a client's samples, so that all clients take about the same number of steps."""
    return max(1, round(STEPS / -(-samples // BATCH)))


def rounds_for(samples: int) -> int:
    """Rounds of central training: fewer where a client takes several steps in each."""
    return ROUNDS if samples <= BATCH else 2 * ROUNDS // 3


def fedavg(samples: int, rate: float, start: Any) -> FedAvg:
    """One model for all clients."""
    return FedAvg(rounds=rounds_for(samples), learning_rate=rate, **EVERYBODY)


def hypcluster(q: int) -> MakeAlgorithm:
    """HypCluster with q clusters."""
    return lambda samples, rate, start: HypCluster(
        q=q, start="kmeans++", restarts=RESTARTS[q], rounds=rounds_for(samples),
        learning_rate=rate, **EVERYBODY,
    )  # fmt: skip


def local(times: int) -> MakeAlgorithm:
    """Local, with ``times`` times the usual steps."""
    return lambda samples, rate, start: Local(
        epochs=times * epochs_for(samples), batch=BATCH, learning_rate=rate, **PAPER
    )


def dapper(cover: tuple[float, ...]) -> MakeAlgorithm:
    """Dapper with candidates for λ; an epoch has five times as many samples as the client."""
    return lambda samples, rate, start: Dapper(
        epochs=max(1, epochs_for(samples) // 5), batch=BATCH, learning_rate=rate, cover=cover,
        **PAPER,
    )  # fmt: skip


def _finetune(samples: int, rate: float, start: Any) -> Finetune:
    return Finetune(epochs=epochs_for(samples), batch=BATCH, learning_rate=rate, **PAPER)


def _mapper(samples: int, rate: float, start: Any) -> Mapper:
    return Mapper(
        epochs=epochs_for(samples), batch=BATCH, learning_rate=rate, cover=COVER,
        rounds=JOINT_ROUNDS, cohort=CLIENTS,
        central_learning_rate=float(start.algorithm["learning_rate"]), **PAPER,
    )  # fmt: skip


METHODS = (
    Method("FedAvg", fedavg),
    Method("HypCluster", hypcluster(4)),
    Method("Local", local(1), smooths=True),
    Method("Finetune", _finetune, "FedAvg", smooths=True),
    Method("Dapper", dapper(COVER), "FedAvg", holds_out=True),
    Method("Mapper", _mapper, "FedAvg", holds_out=True),
    Method("HypCluster + Dapper", dapper(COVER), "HypCluster", holds_out=True),
    Method("HypCluster + Mapper", _mapper, "HypCluster", holds_out=True),
    Method("Local, 10 × the steps", local(10), tuned_like="Local"),
)
"""Central methods first, because others start from them. The last shows the effect of early
stopping."""

PAPERS = METHODS[:6]
"""The methods of the paper's plot; the others go beyond it."""


def method_named(name: str) -> Method:
    """The method of a name; for Table 1 also HypCluster with another q."""
    if name.startswith("HypCluster q="):
        q = int(name.partition("=")[2])
        return Method(name, hypcluster(q), tuned_like="HypCluster", smooths=True)
    return next(method for method in METHODS if method.name == name)


class PopulationScores(NamedTuple):
    """A method's scores for every client of a population: [clients].

    Attributes:
        test: mean loss on the test samples.
        exact: expected loss under the client's true distribution.
        smoothed: the same for the loss that the paper trains with.
        lambda_: the chosen λ, where there is one.
        cluster: the cluster, where there are several.
        cost: what it cost the clients, with the training of the central model.
    """

    test: Floats
    exact: Floats
    smoothed: Floats
    lambda_: Floats | None
    cluster: Floats | None
    cost: dict[str, int]


def measure(
    settings: SyntheticSettings, population: Population, fitted: Fitted
) -> PopulationScores:
    """Score fitted models, on test samples and exactly."""
    if isinstance(fitted, CentralModel):
        scores, costs = fitted.evaluate(population.whole), [fitted.cost]
    else:
        scores = fitted.evaluate(population.whole, mixture=0)
        costs = [fitted.cost, None if fitted.given is None else fitted.given.cost]
    known = [cost for cost in costs if cost is not None]
    losses = np.asarray(scores.example_loss, np.float64).reshape(CLIENTS, -1)
    return PopulationScores(
        losses[:, : population.tests].mean(axis=1),
        (settings.truth * losses[:, -SYMBOLS:]).sum(axis=1),
        (smoothed(settings.truth) * losses[:, -SYMBOLS:]).sum(axis=1),
        scores.extra.get("lambda"),
        scores.extra.get("cluster"),
        sum(known[1:], start=known[0]).total() if known else {},
    )
