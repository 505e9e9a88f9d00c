"""The work of the experiment: every method at every number of samples, on all populations."""

import dataclasses
import functools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sartor.engine import side_by_side
from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.common.saved import Part, recipe_for, slug
from sartor.experiments.common.statistics import mean_cost
from sartor.experiments.synthetic.methods import (
    CONSTANTS,
    METHODS,
    Fitted,
    Method,
    PopulationScores,
    Tuned,
    measure,
    method_named,
)
from sartor.experiments.synthetic.population import (
    POPULATION,
    TABLE_SAMPLES,
    TUNING,
    SyntheticSettings,
    draw,
)
from sartor.types import Floats
from sartor.workers import workers

CLUSTERS = (1, 2, 3, 4, 5)
"""The numbers of clusters q of Table 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodResult(Part):
    """One method at one number of samples.

    Attributes:
        test: [seeds, clients] mean loss on the test samples.
        exact: [seeds, clients] expected loss under the client's true distribution.
        smoothed: [seeds, clients] the same for the loss that the paper trains with.
        lambda_: [seeds, clients] the chosen λ, where there is one.
        cluster: [seeds, clients] the cluster, where there are several.
        choice: what validation has chosen.
        tried: the mean validation loss of every candidate.
        cost: what it cost all clients together, mean over seeds.
        seconds: how long it took, with the tuning.
    """

    test: Floats
    exact: Floats
    smoothed: Floats
    lambda_: Floats | None = None
    cluster: Floats | None = None
    choice: Tuned
    tried: list[tuple[Tuned, float]]
    cost: dict[str, float]
    seconds: float

    def __post_init__(self) -> None:
        # JSON turns tuples into lists.
        object.__setattr__(self, "choice", Tuned(*self.choice))
        object.__setattr__(self, "tried", [(Tuned(*tuned), loss) for tuned, loss in self.tried])


def current_recipe() -> str:
    """What results depend on besides the settings: the constants and the versions."""
    return recipe_for(CONSTANTS, POPULATION)


ResultKey = tuple[int, str]
"""Which result: samples per client, and the name of the method."""

Results = Mapping[ResultKey, MethodResult]


def table_key(q: int) -> ResultKey:
    """The result that Table 1 shows for q clusters; q = 1 is FedAvg, q = 4 HypCluster."""
    return TABLE_SAMPLES, {1: "FedAvg", 4: "HypCluster"}.get(q, f"HypCluster q={q}")


def path_of(key: ResultKey, directory: Path) -> Path:
    """The file of a result."""
    return directory / f"{key[0]:04d}-{slug(key[1])}.safetensors"


def tasks(settings: SyntheticSettings) -> list[list[ResultKey]]:
    """All results, one list for each number of samples; long tasks first."""
    methods = [m.name for m in METHODS if not (settings.quick and m.start == "HypCluster")]
    found = {n: [(n, name) for name in methods] for n in sorted(settings.samples)[::-1]}
    keys = found.setdefault(TABLE_SAMPLES, [table_key(1), table_key(4)])
    keys[2:2] = [key for q in CLUSTERS if (key := table_key(q)) not in keys]
    return list(found.values())


class SizeRun:
    """All methods at one number of samples.

    Args:
        settings: the settings of the experiment.
        samples: the number of samples per client.
        chosen: what validation has chosen for the methods before.
        stopping: when set by another thread, work stops.
    """

    def __init__(
        self,
        settings: SyntheticSettings,
        samples: int,
        chosen: Mapping[str, Tuned],
        stopping: threading.Event | None = None,
    ) -> None:
        self.settings, self.samples, self.chosen = settings, samples, chosen
        self._populations = {
            True: [draw(settings, settings.seeds + n, samples, tuning=True) for n in range(TUNING)],
            False: [draw(settings, n, samples) for n in range(settings.seeds)],
        }
        self._centrals: dict[tuple[str, bool, bool], list[Any]] = {}
        # The width is always the same, so that all calls share a compiled program.
        width = TUNING * len(METHODS[0].grid(settings))
        self._vectorized = functools.partial(side_by_side, width=width, until=stopping)

    def run(self, name: str) -> MethodResult:
        """Tune a method, then fit and score it on every population."""
        began = time.perf_counter()
        method = method_named(name)
        tried = [] if method.tuned_like else self._tune(method)
        if method.tuned_like is None:
            choice = min(tried, key=lambda candidate: candidate[1])[0]
        else:
            choice = self.chosen[method.tuned_like]
            if not method.smooths:
                choice = choice._replace(smoothing=self.settings.smoothing)
        everyone = [(n, choice) for n in range(self.settings.seeds)]
        scores = self._scores(method, everyone, tuning=False)
        columns = dict(zip(PopulationScores._fields, zip(*scores, strict=True), strict=True))
        costs = columns.pop("cost")
        arrays = {n: np.stack(v).astype(float) for n, v in columns.items() if v[0] is not None}
        seconds = round(time.perf_counter() - began, 2)
        return MethodResult(
            **arrays, choice=choice, tried=tried, cost=mean_cost(costs), seconds=seconds
        )

    def _tune(self, method: Method) -> list[tuple[Tuned, float]]:
        """The mean validation loss of every candidate of a method."""
        grid = method.grid(self.settings)
        items = [(n, candidate) for candidate in grid for n in range(TUNING)]
        losses = [each.test.mean() for each in self._scores(method, items, tuning=True)]
        means = np.reshape(losses, (len(grid), TUNING)).mean(axis=1)
        return list(zip(grid, means.tolist(), strict=True))

    def _scores(
        self, method: Method, items: Sequence[tuple[int, Tuned]], *, tuning: bool
    ) -> list[PopulationScores]:
        """The scores of a method on some populations, each with a choice."""
        self._train_centrals(method, tuning=tuning)

        def score(item: tuple[int, Tuned]) -> PopulationScores:
            fitted = self._fit(method, *item, tuning=tuning)
            return measure(self.settings, self._populations[tuning][item[0]], fitted)

        return self._vectorized(score, items)

    def _fit(self, method: Method, n: int, choice: Tuned, *, tuning: bool) -> Fitted:
        population = self._populations[tuning][n]
        data = population.held_out if method.holds_out else population.whole
        start: Any = self.settings.model(choice.smoothing)
        if method.start is not None:
            central = self._centrals[method.start, method.holds_out, tuning][n]
            start = dataclasses.replace(central, model=start)
        return method.fit(choice.rate, start, data, population.seed)

    def _train_centrals(self, method: Method, *, tuning: bool) -> None:
        """Train the central models that a method starts from, with the step size chosen before."""
        key = method.start or "", method.holds_out, tuning
        if method.start is None or key in self._centrals:
            return
        central = method_named(method.start)._replace(holds_out=method.holds_out)
        choice = self.chosen[central.name]
        self._centrals[key] = self._vectorized(
            lambda n: self._fit(central, n, choice, tuning=tuning),
            range(len(self._populations[tuning])),
        )


def run_all(
    settings: SyntheticSettings, directory: ExperimentDirectory, progress: bool | None
) -> Results:
    """All results. Several numbers of samples run at a time, because one leaves cores idle."""
    sizes, recipe = tasks(settings), current_recipe()
    results: dict[ResultKey, MethodResult] = {}
    threads = min(len(sizes), os.cpu_count() or 1)
    with workers("synthetic", sum(map(len, sizes)), threads, progress) as crew:

        def work(keys: Sequence[ResultKey]) -> None:
            size: SizeRun | None = None
            chosen: dict[str, Tuned] = {}
            for samples, name in keys:
                path = path_of((samples, name), directory.checkpoint)
                if path.exists():
                    result = MethodResult.load(path, recipe)
                else:
                    size = size or SizeRun(settings, samples, chosen, crew.stopping)
                    result = size.run(name)
                    result.save(path, recipe)
                    loss, seconds = float(result.test.mean()), result.seconds
                    directory.events.write(
                        "cell", samples=samples, method=name, loss=loss, seconds=seconds
                    )
                chosen[name], results[samples, name] = result.choice, result
                crew.count(f"{name}, {samples} samples")

        crew.say("compiling")
        crew.run([functools.partial(work, keys) for keys in sizes])
    return results
