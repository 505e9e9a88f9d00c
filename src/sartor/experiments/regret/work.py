"""The work of the experiment: advise the clients of every population, and compute their losses."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sartor.advice import advise
from sartor.advice.advice import SHARING
from sartor.errors import ConfigError, InterruptedRun
from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.common.saved import load_saved
from sartor.experiments.common.workers import workers
from sartor.experiments.synthetic.methods import (
    RATES,
    MakeAlgorithm,
    dapper,
    fedavg,
    hypcluster,
    local,
    measure,
)
from sartor.experiments.synthetic.population import TUNING, Floats, SyntheticSettings, draw
from sartor.files import save_tree
from sartor.runs.record import versions

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


class ResultKey(NamedTuple):
    """Which result: samples per client, how Local is trained, and the number of the population."""

    samples: int
    local: str
    population: int

    def path(self, directory: Path) -> Path:
        """The file of the result."""
        name = f"{self.samples}-{LOCALS[self.local]}-{self.population}.safetensors"
        return directory / name


class PopulationResult(NamedTuple):
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
    chosen: Floats
    mixed: Floats
    lambda_: Floats
    vacuous: Floats
    rates: Floats

    def losses(self) -> dict[str, Floats]:
        """The expected loss of every client under each policy."""
        clients = np.arange(self.exact.shape[1])
        advice, bounds = (self.exact[rows.astype(int), clients] for rows in self.chosen)
        constant = dict(zip(CONSTANT, (*self.exact, *self.mixed), strict=True))
        mixed = self.mixed[self.lambda_.astype(int), clients]
        mixed = np.where(self.lambda_ < 0, advice, mixed)
        return {**constant, "advice": advice, "bounds": bounds, "interpolation": mixed}

    def regret(self) -> dict[str, Floats]:
        """The regret of every client under each policy."""
        return {name: losses - self.exact.min(axis=0) for name, losses in self.losses().items()}


Results = Mapping[ResultKey, PopulationResult]


def run_all(
    settings: RegretSettings, directory: ExperimentDirectory, progress: bool | None
) -> tuple[Results, dict[str, float]]:
    """All results, and how long each number of samples took."""
    results: dict[ResultKey, PopulationResult] = {}
    seconds: dict[str, float] = {}
    total = len(settings.samples) * len(LOCALS) * settings.seeds
    with workers("advice", total, 1, progress) as crew:

        def work(samples: int) -> None:
            began = time.perf_counter()
            rates: dict[str, float] = {}
            for key in (ResultKey(samples, k, n) for k in LOCALS for n in range(settings.seeds)):
                if crew.stopping.is_set():
                    raise InterruptedRun(f"{key} is not computed")
                path = key.path(directory.checkpoint)
                if path.exists():
                    arrays, _ = load_saved(path, str(versions()), "versions")
                    results[key] = PopulationResult(**arrays)
                else:
                    rates = rates or tune(settings, samples)
                    results[key] = advise_population(settings, key, rates)
                    arrays = results[key]._asdict()
                    save_tree(path, arrays, {"versions": str(versions())})
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


def tune(settings: RegretSettings, samples: int) -> dict[str, float]:
    """The step size of each candidate, chosen on populations that are not reported."""
    synthetic = settings.synthetic
    losses = {name: np.zeros(len(RATES)) for name in TUNED}
    for n in range(TUNING):
        population = draw(synthetic, settings.seeds + n, samples, tuning=True)
        common: dict[str, Any] = {"seed": population.seed, "progress": False}
        for place, rate in enumerate(RATES):
            algorithms = _algorithms(samples, 1, dict.fromkeys(TUNED, rate))
            central = algorithms["central"].fit(synthetic.model(), population.whole, **common)
            fitted = {"central": central}
            for name in ("cluster", "local"):
                fitted[name] = algorithms[name].fit(synthetic.model(), population.whole, **common)
            half = dataclasses.replace(algorithms["interpolation"], cover=(0.5,))
            fitted["interpolation"] = half.fit(central, population.whole, **common)
            for name, models in fitted.items():
                losses[name][place] += measure(synthetic, population, models).test.mean()
    return {name: RATES[int(np.argmin(found))] for name, found in losses.items()}


def advise_population(
    settings: RegretSettings, key: ResultKey, rates: Mapping[str, float]
) -> PopulationResult:
    """Advise the clients of a population, and compute every candidate's expected losses."""
    synthetic = settings.synthetic
    population = draw(synthetic, key.population, key.samples)
    algorithms = _algorithms(key.samples, LOCALS[key.local], rates)
    model, data = synthetic.model(), population.whole
    common: dict[str, Any] = {"seed": population.seed, "progress": False}
    advice = advise(data, model, **algorithms, **common)
    central = algorithms["central"].fit(model, data, **common)
    fitted = {
        "global": central,
        "local": algorithms["local"].fit(model, data, **common),
        "cluster": algorithms["cluster"].fit(model, data, **common),
    }
    mixed = [
        dataclasses.replace(algorithms["interpolation"], cover=(value,)).fit(
            central, data, **common
        )
        for value in LAMBDAS
    ]

    def exact(models: Any) -> Floats:
        return measure(synthetic, population, models).exact

    interpolates = advice.advice == "interpolation"
    lambda_ = np.where(interpolates, np.searchsorted(LAMBDAS, advice.lambda_), -1)
    chosen = [[SHARING.index(str(n)) for n in by] for by in (advice.sharing, advice.bounds_say)]
    return PopulationResult(
        exact=np.stack([exact(fitted[name]) for name in SHARING]),
        chosen=np.array(chosen, float),
        mixed=np.stack([exact(models) for models in mixed]),
        lambda_=lambda_.astype(float),
        vacuous=advice.vacuous.astype(float),
        rates=np.array([rates[name] for name in TUNED]),
    )
