"""The methods of Figure 1, what is chosen for each by validation, and how they are scored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sartor.central import CentralModel, FedAvg, HypCluster
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.experiments.synthetic.population import (
    CLIENTS,
    SYMBOLS,
    Floats,
    Population,
    Settings,
    smoothed,
)
from sartor.models import Model
from sartor.personal import Dapper, Finetune, Local, Mapper, PersonalModels

Fitted = CentralModel | PersonalModels

BATCH = 100
"""Samples in a step; clients with fewer take all of theirs."""

STEPS = 20
"""About how many steps a client takes for a model of its own."""

ROUNDS, JOINT_ROUNDS = 30, 5
"""Rounds of central training, and of Mapper's joint training after them; all clients take part."""

COVER = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The λ that Dapper and Mapper choose from, for every client."""

RESTARTS = {2: 30, 3: 10, 4: 5, 5: 5}
"""Starts of HypCluster for each q; of two clusters most starts end in three kinds against one."""

EVERYBODY: dict[str, Any] = {"cohort": CLIENTS, "batch": BATCH, "server_momentum": 0.0}


class Choice(NamedTuple):
    """What is chosen for a method and a number of samples, by validation."""

    rate: float
    smoothing: float


class Method(NamedTuple):
    """A line of Figure 1.

    Attributes:
        name: what it is called.
        fit: ``fit(rate, start, data, seed)``, where start is a central model or a class.
        start: the central method that it starts from.
        held: whether λ is chosen on samples that were held out, from the central model as well.
        smooths: whether label smoothing is chosen even by ``--quick``, or taken over.
        like: the method whose step size it takes over, if it chooses none of its own.
    """

    name: str
    fit: Callable[[float, Any, ClientData, int], Fitted]
    start: str | None = None
    held: bool = False
    smooths: bool = False
    like: str | None = None

    def grid(self, settings: Settings) -> list[Choice]:
        """What is tried: the same grid for every method; ``--quick`` has as many points for all."""
        own = settings.smoothing
        if not settings.quick:
            return [Choice(rate, max(own, more)) for rate in RATES for more in SMOOTHINGS]
        points = QUICK_SMOOTHED if self.smooths else QUICK
        return [Choice(rate, max(own, more)) for rate, more in points]


RATES, SMOOTHINGS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), (0.0, 0.3)
"""The step sizes and the label smoothing that every method chooses from. Smoothing tells a client
that symbols which it has not seen are possible."""

QUICK = ((0.5, 0.0), (2.0, 0.0), (4.0, 0.0))
QUICK_SMOOTHED = ((2.0, 0.0), (2.0, 0.3), (4.0, 0.0))
"""Those of ``--quick``: another smoothing is another program to compile, so that only Local and
Finetune have the choice, whose programs are small."""


def epochs_for(samples: int) -> int:
    """So many passes that a client takes about the same number of steps, whatever it has."""
    return max(1, round(STEPS / -(-samples // BATCH)))


def rounds_for(samples: int) -> int:
    """Fewer where a client takes several steps in each."""
    return ROUNDS if samples <= BATCH else 2 * ROUNDS // 3


def _samples(data: ClientData) -> int:
    """How many samples a client has: the same number for all."""
    return int((data.bounds[0, 2] - data.bounds[0, 0]).item())


def _fedavg(rate: float, model: Model, data: ClientData, seed: int) -> CentralModel:
    rounds = rounds_for(_samples(data))
    return FedAvg(rounds=rounds, learning_rate=rate, **EVERYBODY).fit(
        model, data, seed=seed, progress=False
    )


def hypcluster(q: int) -> Callable[[float, Model, ClientData, int], CentralModel]:
    """HypCluster with q clusters."""

    def fit(rate: float, model: Model, data: ClientData, seed: int) -> CentralModel:
        algorithm = HypCluster(
            q=q, start="kmeans++", restarts=RESTARTS[q], rounds=rounds_for(_samples(data)),
            learning_rate=rate, **EVERYBODY,
        )  # fmt: skip
        return algorithm.fit(model, data, seed=seed, progress=False)

    return fit


def _local(rate: float, model: Model, data: ClientData, seed: int) -> PersonalModels:
    algorithm = Local(epochs=epochs_for(_samples(data)), batch=BATCH, learning_rate=rate)
    return algorithm.fit(model, data, seed=seed, progress=False)


def _unstopped(rate: float, model: Model, data: ClientData, seed: int) -> PersonalModels:
    algorithm = Local(epochs=10 * epochs_for(_samples(data)), batch=BATCH, learning_rate=rate)
    return algorithm.fit(model, data, seed=seed, progress=False)


def _finetune(rate: float, central: CentralModel, data: ClientData, seed: int) -> PersonalModels:
    algorithm = Finetune(epochs=epochs_for(_samples(data)), batch=BATCH, learning_rate=rate)
    return algorithm.fit(central, data, seed=seed, progress=False)


def _dapper(rate: float, central: CentralModel, data: ClientData, seed: int) -> PersonalModels:
    epochs = max(1, epochs_for(_samples(data)) // 5)  # of five times as many samples
    algorithm = Dapper(epochs=epochs, batch=BATCH, learning_rate=rate, cover=COVER)
    return algorithm.fit(central, data, seed=seed, progress=False)


def _mapper(rate: float, central: CentralModel, data: ClientData, seed: int) -> PersonalModels:
    algorithm = Mapper(
        epochs=epochs_for(_samples(data)), batch=BATCH, learning_rate=rate, cover=COVER,
        rounds=JOINT_ROUNDS, cohort=CLIENTS,
        central_learning_rate=float(central.algorithm["learning_rate"]),
    )  # fmt: skip
    return algorithm.fit(central, data, seed=seed, progress=False)


METHODS = (
    Method("FedAvg", _fedavg),
    Method("HypCluster", hypcluster(4)),
    Method("Local", _local, smooths=True),
    Method("Finetune", _finetune, "FedAvg", smooths=True),
    Method("Dapper", _dapper, "FedAvg", held=True),
    Method("Mapper", _mapper, "FedAvg", held=True),
    Method("HypCluster + Dapper", _dapper, "HypCluster", held=True),
    Method("HypCluster + Mapper", _mapper, "HypCluster", held=True),
    Method("Local, 10 × the steps", _unstopped, like="Local"),
)
"""Central methods first: others start from them. The last one shows what stopping early does."""

PAPERS = METHODS[:6]
"""Those of the paper's Figure 1; the others go beyond it."""


CONSTANTS = (
    BATCH, STEPS, ROUNDS, JOINT_ROUNDS, COVER, RESTARTS, RATES, SMOOTHINGS, QUICK, QUICK_SMOOTHED
)  # fmt: skip
"""What the numbers depend on beside the settings."""


class Outcome(NamedTuple):
    """What a method does for every client of a population: [clients].

    Attributes:
        test: mean loss on the test samples.
        exact: expected loss under the client's true distribution.
        smoothed: the same of the loss that the paper trains with.
        lambda_: the chosen λ, where there is one.
        cluster: the cluster, where there are several.
        cost: what it asked of the clients, the central model's training included.
    """

    test: Floats
    exact: Floats
    smoothed: Floats
    lambda_: Floats | None
    cluster: Floats | None
    cost: dict[str, int]


def measure(settings: Settings, population: Population, fitted: Fitted) -> Outcome:
    """Score what was fitted, on test samples and exactly."""
    data = population.whole
    if isinstance(fitted, CentralModel):
        scores, cost = fitted.evaluate(data), fitted.cost
    else:
        scores, cost = fitted.evaluate(data, mixture=0), fitted.cost
        if fitted.given is not None:
            cost = _sum(cost, fitted.given.cost)
    losses = np.asarray(scores.example_loss, np.float64).reshape(CLIENTS, -1)
    return Outcome(
        losses[:, : population.tests].mean(axis=1),
        (settings.truth * losses[:, -SYMBOLS:]).sum(axis=1),
        (smoothed(settings.truth) * losses[:, -SYMBOLS:]).sum(axis=1),
        scores.extra.get("lambda"),
        scores.extra.get("cluster"),
        {} if cost is None else cost.total(),
    )


def _sum(a: Cost | None, b: Cost | None) -> Cost | None:
    return a if b is None else b if a is None else a + b
