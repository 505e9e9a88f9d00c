"""The work of the experiment: advise the clients of every population, and compute their losses."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sartor.advice import advise
from sartor.advice.advice import SHARING
from sartor.errors import ConfigError, InterruptedRun
from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.common.saved import Part
from sartor.experiments.synthetic.methods import (
    RATES,
    MakeAlgorithm,
    PopulationScores,
    dapper,
    fedavg,
    hypcluster,
    local,
    measure,
)
from sartor.experiments.synthetic.population import TUNING, Population, SyntheticSettings, draw
from sartor.experiments.synthetic.work import current_recipe
from sartor.interrupts import asked_to_stop
from sartor.types import Bools, Floats, Ints
from sartor.workers import workers

LAMBDAS = (0.25, 0.5, 0.75, 1.0)
"""The candidates for λ of interpolation."""

LOCALS = {"trained for long": 10, "stopped early": 1}
"""Two ways to train Local, by how many times the steps of the synthetic experiment it takes. The
step size is the best one for early stopping. Stopped early, Local is the best for nearly everybody,
and nothing is left to decide. Trained for long, it overfits, and the best model depends on the
number of samples."""

TUNED = ("central", "cluster", "local", "interpolation")
"""The candidates whose step sizes are chosen."""

CONSTANT = (*SHARING, *(f"λ = {value:g}" for value in LAMBDAS))
"""Policies that give all clients the same answer."""

POLICIES = (*CONSTANT, "advice", "bounds", "interpolation")
"""The same answer for all; as advised; as the bounds say; and as advised, with interpolation as
another possible answer."""


@dataclasses.dataclass(frozen=True)
class RegretSettings:
    """The size of the experiment.

    Attributes:
        samples: the numbers of samples per client m_k.
        seeds: how many populations are drawn.
        seed: seed of all randomness. The rules of advice were developed on seed 0.
    """

    samples: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 500, 1000)
    seeds: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.samples, default=5) < 5:
            raise ConfigError(f"samples={self.samples}: advice needs 5, one for each fold")
        self.synthetic  # noqa: B018 - it checks the other settings

    @classmethod
    def small(cls, **changes: Any) -> RegretSettings:
        """The settings of ``--quick``."""
        return cls(**{"samples": (5, 20, 100), "seeds": 2, **changes})

    @property
    def synthetic(self) -> SyntheticSettings:
        """The experiment with these clients."""
        return SyntheticSettings(samples=self.samples, seeds=self.seeds, seed=self.seed)


ResultKey = tuple[int, str, int]
"""Which result: samples per client, how Local is trained, and the number of the population."""


@dataclasses.dataclass(frozen=True)
class PopulationResult(Part):
    """Losses and advice for every client of a population.

    Attributes:
        exact: [candidates, clients] expected losses, in the order of ``SHARING``.
        chosen: [2, clients] the number of the candidate that advice, and that the bounds choose.
        mixed: [λ, clients] expected losses with interpolation, for each of ``LAMBDAS``.
        lambda_: [clients] the number of the advised λ; -1 without interpolation.
        vacuous: [clients] whether all bounds are vacuous.
        rates: the step sizes of ``TUNED``.
    """

    exact: Floats
    chosen: Ints
    mixed: Floats
    lambda_: Ints
    vacuous: Bools
    rates: Floats

    def losses(self) -> dict[str, Floats]:
        """The expected loss of every client under each policy."""
        clients = np.arange(self.exact.shape[1])
        advice, bounds = (self.exact[rows, clients] for rows in self.chosen)
        constant = dict(zip(CONSTANT, (*self.exact, *self.mixed), strict=True))
        mixed = np.where(self.lambda_ < 0, advice, self.mixed[self.lambda_, clients])
        return {**constant, "advice": advice, "bounds": bounds, "interpolation": mixed}

    def regret(self) -> dict[str, Floats]:
        """The regret of every client under each policy."""
        return {name: losses - self.exact.min(axis=0) for name, losses in self.losses().items()}


Results = Mapping[ResultKey, PopulationResult]


def path_of(key: ResultKey, directory: Path) -> Path:
    """The file of a result."""
    samples, local, population = key
    return directory / f"{samples}-{LOCALS[local]}-{population}.safetensors"


def run_all(
    settings: RegretSettings, directory: ExperimentDirectory, progress: bool | None
) -> tuple[Results, dict[str, float]]:
    """All results, and how long each number of samples took."""
    results: dict[ResultKey, PopulationResult] = {}
    seconds: dict[str, float] = {}
    total = len(settings.samples) * len(LOCALS) * settings.seeds
    recipe = current_recipe()
    with workers("advice", total, 1, progress) as crew:

        def work(samples: int) -> None:
            began = time.perf_counter()
            rates: dict[str, float] = {}
            for local, population in itertools.product(LOCALS, range(settings.seeds)):
                key = samples, local, population
                if asked_to_stop():
                    raise InterruptedRun(f"{key} is not computed")
                path = path_of(key, directory.checkpoint)
                if path.exists():
                    results[key] = PopulationResult.load(path, recipe)
                else:
                    rates = rates or tune(settings, samples)
                    results[key] = advise_population(settings, key, rates)
                    results[key].save(path, recipe)
                crew.count(f"{samples} samples")
            took = seconds[f"{samples} samples"] = round(time.perf_counter() - began, 1)
            directory.events.write("samples", samples=samples, seconds=took)

        crew.run([functools.partial(work, samples) for samples in settings.samples])
    return results, seconds


def _algorithms(samples: int, times: int, rates: Mapping[str, float]) -> dict[str, Any]:
    """The candidates, with the algorithms of the synthetic experiment."""
    makers: dict[str, MakeAlgorithm] = {
        "central": fedavg, "cluster": hypcluster(4), "local": local(times),
        "interpolation": dapper(LAMBDAS),
    }  # fmt: skip
    return {name: make(samples, rates[name], None) for name, make in makers.items()}


def _scores(
    synthetic: SyntheticSettings, population: Population, algorithms: Mapping[str, Any],
    lambdas: Sequence[float],
) -> list[PopulationScores]:  # fmt: skip
    """The scores of all candidates on a population, in the order of ``SHARING``; then of each λ."""

    def fit(algorithm: Any, start: Any) -> Any:
        return algorithm.fit(start, population.whole, seed=population.seed, progress=False)

    names = ("central", "cluster", "local")
    models = [fit(algorithms[name], synthetic.model()) for name in names]
    mixing = [dataclasses.replace(algorithms["interpolation"], cover=(value,)) for value in lambdas]
    models += [fit(algorithm, models[0]) for algorithm in mixing]
    return [measure(synthetic, population, each) for each in models]


def tune(settings: RegretSettings, samples: int) -> dict[str, float]:
    """The step size of each candidate, chosen on populations that are not reported."""
    losses = np.zeros((len(TUNED), len(RATES)))
    for n in range(TUNING):
        population = draw(settings.synthetic, settings.seeds + n, samples, tuning=True)
        for place, rate in enumerate(RATES):
            algorithms = _algorithms(samples, 1, dict.fromkeys(TUNED, rate))
            scores = _scores(settings.synthetic, population, algorithms, (0.5,))
            losses[:, place] += [each.test.mean() for each in scores]
    return {name: RATES[int(np.argmin(found))] for name, found in zip(TUNED, losses, strict=True)}


def advise_population(
    settings: RegretSettings, key: ResultKey, rates: Mapping[str, float]
) -> PopulationResult:
    """Advise the clients of a population, and compute every candidate's expected losses."""
    synthetic, (samples, local, number) = settings.synthetic, key
    population = draw(synthetic, number, samples)
    algorithms = _algorithms(samples, LOCALS[local], rates)
    advice = advise(
        population.whole, synthetic.model(), **algorithms, seed=population.seed, progress=False
    )
    scores = _scores(synthetic, population, algorithms, LAMBDAS)
    exact = np.stack([each.exact for each in scores])
    interpolates = advice.advice == "interpolation"
    chosen = [[SHARING.index(str(n)) for n in by] for by in (advice.sharing, advice.bounds_say)]
    return PopulationResult(
        exact=exact[: len(SHARING)],
        chosen=np.array(chosen),
        mixed=exact[len(SHARING) :],
        lambda_=np.where(interpolates, np.searchsorted(LAMBDAS, advice.lambda_), -1),
        vacuous=advice.vacuous,
        rates=np.array([rates[name] for name in TUNED]),
    )
