"""A cell of the experiment: one method at one number of samples, on all populations at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sartor.caching import made_once
from sartor.engine import side_by_side
from sartor.errors import CheckpointError, FileError
from sartor.experiments.synthetic.methods import (
    CONSTANTS,
    METHODS,
    Choice,
    Fitted,
    Method,
    Outcome,
    hypcluster,
    measure,
)
from sartor.experiments.synthetic.population import (
    CLIENTS,
    MOST,
    SYMBOLS,
    TABLE_SAMPLES,
    TEST,
    TUNING,
    Floats,
    Population,
    Settings,
    draw,
)
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.runs.record import versions

Item = TypeVar("Item")
Result = TypeVar("Result")

CLUSTERS = (1, 2, 3, 4, 5)
"""The numbers of clusters q of Table 1."""


ARRAYS = ("test", "exact", "smoothed", "lambda_", "cluster")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method at one number of samples.

    Attributes:
        test: [seeds, clients] mean loss on the test samples.
        exact: [seeds, clients] expected loss under the client's true distribution.
        smoothed: [seeds, clients] the same of the loss that the paper trains with.
        lambda_: [seeds, clients] the chosen λ, where there is one.
        cluster: [seeds, clients] the cluster, where there are several.
        choice: the step size and the smoothing that validation has chosen.
        tried: the mean validation loss of every point of the grid.
        cost: what was asked of all clients together, the mean over seeds.
        seconds: how long it took, the choice included.
    """

    test: Floats
    exact: Floats
    smoothed: Floats
    lambda_: Floats | None
    cluster: Floats | None
    choice: Choice
    tried: list[tuple[Choice, float]]
    cost: dict[str, float]
    seconds: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], **facts: Any) -> Cell:
        """From what a method did on every population."""
        arrays: list[Any] = [
            None if values[0] is None else np.stack(values).astype(np.float64)
            for values in zip(*(o[: len(ARRAYS)] for o in outcomes), strict=True)
        ]
        costs = [o.cost for o in outcomes]
        mean = {name: float(np.mean([c[name] for c in costs])) for name in costs[0]}
        return cls(**dict(zip(ARRAYS, arrays, strict=True)), cost=mean, **facts)

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        fields = vars(self)
        arrays = {name: fields[name] for name in ARRAYS if fields[name] is not None}
        facts = {name: fields[name] for name in ("choice", "tried", "cost", "seconds")}
        save_tree(path, arrays, {"facts": json.dumps(facts), "recipe": recipe()})

    @classmethod
    def load(cls, path: Path) -> Cell:
        """Read it back."""
        try:
            metadata = read_metadata(path)
            arrays: dict[str, Any] = {**dict.fromkeys(ARRAYS), **load_arrays(path, "")}
        except FileError as error:
            raise FileError(f"{path} is damaged; remove it, and it is made again") from error
        if metadata.get("recipe") != recipe():
            raise CheckpointError(
                f"{path} was made by another version of the experiment or of JAX; remove it, and "
                "it is made again"
            )
        facts = json.loads(metadata["facts"])
        facts["choice"] = Choice(*facts["choice"])
        facts["tried"] = [(Choice(*choice), loss) for choice, loss in facts["tried"]]
        return cls(**arrays, **facts)


@made_once(maxsize=1)
def recipe() -> str:
    """What cells depend on beside the settings: the constants, and the versions."""
    parts = [versions(), CONSTANTS, TUNING, CLIENTS, SYMBOLS, MOST, TEST]
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Which cell it is: samples per client, and the name of the method."""

    samples: int
    method: str

    def path(self, directory: Path) -> Path:
        """The file that holds the cell."""
        name = re.sub("[^a-zA-Z0-9]+", "-", self.method)
        return directory / f"{self.samples:04d}-{name}.safetensors"


def table_place(q: int) -> Place:
    """Where Table 1 has its q clusters from; one cluster is FedAvg, and four are in Figure 1."""
    return Place(TABLE_SAMPLES, {1: "FedAvg", 4: "HypCluster"}.get(q, f"HypCluster q={q}"))


def tasks(settings: Settings) -> list[list[Place]]:
    """The cells, by what is done one after the other; the long ones first."""
    methods = [m.name for m in METHODS if not (settings.quick and m.start == "HypCluster")]
    found = {n: [Place(n, name) for name in methods] for n in sorted(settings.samples)[::-1]}
    size = found.setdefault(TABLE_SAMPLES, [table_place(1), table_place(4)])
    size[2:2] = [place for q in CLUSTERS if (place := table_place(q)) not in size]
    return list(found.values())


class Size:
    """All methods for one number of samples."""

    def __init__(
        self, settings: Settings, samples: int, stopping: threading.Event | None = None
    ) -> None:
        self.settings, self.samples, self.stopping = settings, samples, stopping
        self.chosen: dict[str, Choice] = {}
        seeds = settings.seeds
        self._pools = {
            True: [draw(settings, seeds + n, samples, tuning=True) for n in range(TUNING)],
            False: [draw(settings, n, samples) for n in range(seeds)],
        }
        self._centrals: dict[tuple[str, bool, bool], list[Any]] = {}

    def run(self, name: str) -> Cell:
        """Choose a method's step size, then fit and score it on every population."""
        began = time.perf_counter()
        method = _method(name)
        tried = [] if method.like else self._try(method)
        if method.like:
            choice = self.chosen[method.like]
            if not method.smooths:
                choice = choice._replace(smoothing=self.settings.smoothing)
        else:
            choice = min(tried, key=lambda point: point[1])[0]
        self.chosen[name] = choice
        self._prepare(method, tuning=False)
        outcomes = self._together(
            lambda n: self._one(method, n, choice, tuning=False), range(self.settings.seeds)
        )
        seconds = round(time.perf_counter() - began, 2)
        return Cell.of(outcomes, choice=choice, tried=tried, seconds=seconds)

    def _try(self, method: Method) -> list[tuple[Choice, float]]:
        """The validation loss of every point of a method's grid."""
        grid = method.grid(self.settings)
        items = [(n, point) for point in grid for n in range(TUNING)]
        self._prepare(method, tuning=True)
        losses = self._together(
            lambda item: float(self._one(method, *item, tuning=True).test.mean()), items
        )
        means = np.reshape(losses, (len(grid), TUNING)).mean(axis=1)
        return list(zip(grid, means.tolist(), strict=True))

    def _together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Do something for many populations, vectorised over them; always over equally many."""
        width = TUNING * len(METHODS[0].grid(self.settings))
        return side_by_side(work, items, width=width, until=self.stopping)

    def _one(self, method: Method, n: int, choice: Choice, *, tuning: bool) -> Outcome:
        fitted = self._fit(method, n, choice, tuning=tuning)
        return measure(self.settings, self._pools[tuning][n], fitted)

    def _fit(self, method: Method, n: int, choice: Choice, *, tuning: bool) -> Fitted:
        population: Population = self._pools[tuning][n]
        data = population.held if method.held else population.whole
        start: Any = self.settings.model(choice.smoothing)
        if method.start is not None:
            central = self._centrals[method.start, method.held, tuning][n]
            start = dataclasses.replace(central, model=start)
        return method.fit(choice.rate, start, data, population.seed)

    def _prepare(self, method: Method, *, tuning: bool) -> None:
        """Train the central models that a method starts from, with the step size chosen before."""
        key = method.start or "", method.held, tuning
        if method.start is None or key in self._centrals:
            return
        central = _method(method.start)._replace(held=method.held)
        choice = self.chosen[central.name]
        self._centrals[key] = self._together(
            lambda n: self._fit(central, n, choice, tuning=tuning), range(len(self._pools[tuning]))
        )


def run_task(
    settings: Settings, places: Sequence[Place], directory: Path, stopping: threading.Event
) -> Iterator[tuple[Place, Cell, bool]]:
    """Run the cells of one size, one after the other; those that are there already are read.

    Yields every cell with its place, and whether it is new.
    """
    size: Size | None = None
    chosen: dict[str, Choice] = {}
    for place in places:
        path = place.path(directory)
        new = not path.exists()
        if not new:
            cell = Cell.load(path)
        else:
            size = size or Size(settings, place.samples, stopping)
            size.chosen |= chosen
            cell = size.run(place.method)
            cell.save(path)
        chosen[place.method] = cell.choice
        yield place, cell, new


def _method(name: str) -> Method:
    if name.startswith("HypCluster q="):
        return Method(
            name, hypcluster(int(name.partition("=")[2])), like="HypCluster", smooths=True
        )
    return next(method for method in METHODS if method.name == name)
