"""The work of the experiment: central models, and the personal models that start from them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.advice.holdout import merge_validation
from sartor.caching import made_once
from sartor.central import CentralModel
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.engine import Engine, losses_by_client, positions, score_shared
from sartor.errors import DataError, DivergedError, InterruptedRun
from sartor.evaluation import Scores
from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.common.saved import Part, recipe_for, slug
from sartor.experiments.emnist.methods import Family, families
from sartor.experiments.emnist.settings import CONSTANTS, EmnistSettings, Order, divide
from sartor.interrupts import asked_to_stop
from sartor.personal import Personal
from sartor.types import Floats, Ints
from sartor.workers import workers

TUNING = 100
"""How many seen writers Local's settings are chosen on."""

AT_ONCE = 3
"""Methods that run at the same time on a GPU: while one computes, others are compiled."""

SAVED = (
    "method", "client", "domain", "size", "test_size", "seen", "example_loss", "example_correct"
)  # fmt: skip
"""What is saved of scores, besides their extra columns."""


@dataclasses.dataclass(frozen=True)
class SeedResult(Part):
    """One method on the writers of one seed.

    Attributes:
        scores: its scores on every writer's test images.
        facts: its cost, what was chosen, how long it took, and the like.
    """

    scores: Scores
    facts: dict[str, Any]

    def fields(self) -> dict[str, Any]:
        """What is saved, by name."""
        extra = {f"extra {name}": values for name, values in self.scores.extra.items()}
        return {name: getattr(self.scores, name) for name in SAVED} | extra | {"facts": self.facts}

    @classmethod
    def restored(cls, fields: dict[str, Any]) -> SeedResult:
        """The result that has these fields."""
        facts, known = fields.pop("facts"), {n: fields.pop(n) for n in SAVED if n in fields}
        extra = {name.removeprefix("extra "): values for name, values in fields.items()}
        return cls(Scores(**known, extra=extra), facts)


@dataclasses.dataclass(frozen=True)
class Tried(Part):
    """The validation losses of a family's candidates so far; infinite if training diverged."""

    losses: Floats


Results = dict[tuple[int, str], SeedResult]
"""Results by seed and method."""


@dataclasses.dataclass(frozen=True)
class FixedClusters:
    """Clusters chosen by training images alone, so that held-out images can choose λ.

    Attributes:
        cluster: by client.
    """

    cluster: Mapping[str, int]

    def assign(self, data: ClientData) -> Ints:
        """The cluster of every client."""
        return np.array([self.cluster[client] for client in data.ids])

    def to_dict(self) -> dict[str, Any]:
        """The rule in plain values."""
        return {"name": "fixed", "cluster": dict(self.cluster)}


@made_once(maxsize=8)
def view(writers: ClientData, order: Order, seed: int, all_images: bool) -> ClientData:
    """The writers in an order, the last ones unseen; with ``all_images``, none held out."""
    if all_images:
        return merge_validation(view(writers, order, seed, False))
    return divide(writers, order, seed)


class FamilyRun:
    """A family in one seed; several threads may ask for its results.

    Args:
        settings: the settings of the experiment.
        writers: all writers.
        number: the number of the seed, from 0 on.
        root: the directory for the results of all seeds.
        family: the central model and the personal models that start from it.
        say: called with a few words about the current work.
    """

    def __init__(
        self, settings: EmnistSettings, writers: ClientData, number: int, root: Path,
        family: Family, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.settings, self.number, self.family = settings, number, family
        self._writers, self._root, self._say = writers, root, say
        self._seed = settings.seed * 1009 + number
        self.data = self._view(all_images=False)
        for name, group in (("seen", self.data.seen), ("unseen", ~self.data.seen)):
            if not self.data.sizes("test")[group].any():
                raise DataError(f"{family.name}: no {name} writer has test images; add some")
        self._lock = threading.RLock()
        self._tuned: dict[str, Any] = {}
        self._trained: CentralModel | None = None
        self._seconds = 0.0
        self.checkpoint = self._path(f"central-{family.name}")
        self._common: dict[str, Any] = {
            "seed": self._seed, "engine": Engine(precision=settings.precision), "progress": False
        }  # fmt: skip

    def _view(self, all_images: bool) -> ClientData:
        return view(self._writers, self.family.order, self._seed, all_images)

    def _path(self, name: str) -> Path:
        return self._root / f"seed-{self.number}" / f"{slug(name)}.safetensors"

    def result(self, name: str) -> tuple[SeedResult, bool]:
        """The result of one of the family's methods, and whether it is new."""
        tuned, path = self.tune(), self._path(name)
        algorithms = [self.family.central, self.family.methods()[name]]
        recipe = self._recipe(algorithms, self.family.all_images, self._seed)
        new = not path.exists()
        if new:
            central = self.central()
            began = time.perf_counter()
            self._say(name)
            result = self.compute(name, central)
            seconds = time.perf_counter() - began
            if name == self.family.name:
                seconds += self._seconds
            result.facts.update(tuned, seconds=round(seconds, 2), memory=_memory())
            result.save(path, recipe)
        else:
            result = SeedResult.load(path, recipe)
        return result, new

    def _recipe(self, algorithms: Iterable[Any], *settled: Any) -> str:
        """What a result depends on: how it is computed, the data, and the versions."""
        described = [describe(algorithm) for algorithm in algorithms if algorithm is not None]
        how = self.settings.network, self.settings.precision, self.family.order, TUNING, CONSTANTS
        return recipe_for(described, how, settled, self._writers.fingerprint)

    def central(self) -> CentralModel | None:
        """The central model; the first thread that needs it trains it."""
        family, data = self.family, self.data
        with self._lock:
            if family.central is None or self._trained is not None:
                return self._trained
            if asked_to_stop():  # while this thread waited for another one's training
                raise InterruptedRun(f"{family.name} is not trained")
            began = time.perf_counter()
            central = family.central.fit(
                self.settings.model,
                self._view(family.all_images),
                checkpoint=self.checkpoint,
                on_chunk=lambda chunk: self._say(f"{family.name}, round {chunk.stop}"),
                **self._common,
            )
            if central.q > 1:
                clusters = dict(zip(data.ids, central.assign(data).tolist(), strict=True))
                central = dataclasses.replace(central, rule=FixedClusters(clusters))
            self._trained, self._seconds = central, time.perf_counter() - began
            return central

    def compute(self, name: str, central: CentralModel | None) -> SeedResult:
        """Train and score one of the family's methods."""
        personal = self.family.methods()[name]
        if personal is not None:
            scores, facts = self._score_personal(personal, central)
        else:
            assert central is not None
            scores, facts = self._score_central(central)
        return SeedResult(dataclasses.replace(scores, method=name), facts)

    def _score_central(self, central: CentralModel) -> tuple[Scores, dict[str, Any]]:
        scores, history = central.evaluate(self.data), central.history
        facts: dict[str, Any] = {"loss": _thinned(history["loss"])}
        if central.q > 1:
            scores = self._with_oracle(scores, central)
            facts |= {"q": central.q, "margin": _thinned(history["margin"].mean(axis=1))}
        if "domain_weights" in history:
            facts["domain_weights"] = history["domain_weights"][-1].tolist()
        facts["cost"] = central.cost.total() if central.cost else None
        if not self.family.all_images:
            facts["validation_loss"] = _validation_loss(central, self.data)
        return scores, facts

    def _score_personal(
        self, personal: Personal, central: CentralModel | None
    ) -> tuple[Scores, dict[str, Any]]:
        chooses = len(personal.choices().cover) > 1
        data = self._view(all_images=not chooses)
        models = personal.fit(central or self.settings.model, data, keep=False, **self._common)
        scores = dataclasses.replace(models.evaluate(data), baseline=None)
        cost = models.cost
        if cost is not None and central is not None and central.cost is not None:
            cost += central.cost
        return scores, {"cost": cost.total() if cost else None}

    def _with_oracle(self, scores: Scores, central: CentralModel) -> Scores:
        """Add the accuracy of the model that is best on each writer's own test images."""
        data = self.data
        clients = np.array([data.position(client) for client in scores.client])
        rows = positions(data, clients, "test")
        correct = score_shared(
            central.model, data, rows, central.hypotheses, central.engine
        ).correct  # [q, rows]
        best = np.stack([scores.sum_by_client(c) for c in correct]).max(axis=0) / scores.test_size
        return dataclasses.replace(scores, extra={**scores.extra, "oracle_accuracy": best})

    def tune(self) -> dict[str, Any]:
        """Set what validation chooses on the first seed; returns the choice and its reasons."""
        with self._lock:
            grid = self.family.grid
            if grid and not self._tuned:
                losses = self._validation_losses()
                best = grid[int(np.argmin(losses))]
                self.family = self.family.with_settings(best)
                self._tuned = {"chosen": best, "tried": list(zip(grid, losses, strict=True))}
            return self._tuned

    def _validation_losses(self) -> list[float]:
        """The loss of every candidate for seen writers of the first seed; saved one by one."""
        family = self.family
        path = self._root / f"chosen-{slug(family.name)}.safetensors"
        algorithms = [family.central, *family.personal.values()]
        recipe = self._recipe(algorithms, family.grid, self.settings.seed)
        losses = Tried.load(path, recipe).losses.tolist() if path.exists() else []
        for number in range(len(losses), len(family.grid)):
            self._say(f"{family.name}, candidate {number + 1} of {len(family.grid)}")
            try:
                losses.append(self._try(family.with_settings(family.grid[number])))
            except DivergedError:
                losses.append(np.inf)
            Tried(np.array(losses)).save(path, recipe)
        return losses

    def _try(self, family: Family) -> float:
        """The loss of a family for seen writers on their held-out images."""
        data, model = self.data, self.settings.model
        if family.central is not None:
            return _validation_loss(family.central.fit(model, data, **self._common), data)
        seen = _with_validation(data)
        order = np.argsort(data.hashes[seen], kind="stable")[:TUNING]
        some = data.select([data.ids[k] for k in seen[order]])
        personal = next(iter(family.personal.values()))
        models = personal.fit(model, some, keep=False, **self._common)
        return float(models.evaluate(some, part="validation", mixture=0).loss.mean())


def run_all(
    settings: EmnistSettings,
    data: ClientData,
    directory: ExperimentDirectory,
    progress: bool | None,
) -> Results:
    """All results, seed by seed."""
    todo = families(settings)
    names = [name for family in todo for name in family.methods()]
    results: Results = {}
    total = len(names) * settings.seeds
    with workers("emnist", total, _threads(), progress) as crew:

        def work(run: FamilyRun, name: str) -> None:
            result, new = run.result(name)
            number, accuracy = run.number, result.scores.accuracy
            results[number, name] = result
            crew.count()
            if new and accuracy is not None:
                seconds, mean = result.facts["seconds"], float(accuracy.mean())
                directory.events.write(
                    "cell", seed=number, method=name, accuracy=mean, seconds=seconds
                )
                crew.bar.line(f"seed {number}, {name}: {mean:.1%} in {seconds:.0f} s")

        for number in range(settings.seeds):
            where = settings, data, number, directory.checkpoint
            runs = [FamilyRun(*where, family, crew.say) for family in todo]
            tasks = [(run, name) for run in runs for name in run.family.methods()]
            crew.run([functools.partial(work, *task) for task in sorted(tasks, key=_rank)])
            for run in runs:
                run.checkpoint.unlink(missing_ok=True)
    return {key: results[key] for key in itertools.product(range(settings.seeds), names)}


def _rank(task: tuple[FamilyRun, str]) -> int:
    """Central models first, then personal ones; slow ones before fast ones."""
    run, name = task
    return 0 if name == run.family.name else 1 if name.endswith(("mapper", "dapper")) else 2


def _threads() -> int:
    """How many methods run at the same time; on a CPU one uses all cores."""
    return 1 if jax.default_backend() == "cpu" else AT_ONCE


def _with_validation(data: ClientData) -> Ints:
    """The seen clients with held-out examples."""
    return np.flatnonzero(data.seen & (data.sizes("validation") > 0))


def _validation_loss(central: CentralModel, data: ClientData) -> float:
    """The mean plain loss of seen clients on their held-out examples."""
    seen = _with_validation(data)
    losses = losses_by_client(
        central.model, data, seen, central.hypotheses, central.engine, part="validation",
        plain=True,
    )  # fmt: skip
    return float(losses[np.arange(len(seen)), central.assign(data)[seen]].mean())


def _memory() -> dict[str, int | None]:
    """The largest use of memory so far: by this process, and on the device."""
    stats = jax.local_devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "host_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "device_bytes": stats.get("peak_bytes_in_use"),
    }


def _thinned(values: npt.NDArray[Any]) -> list[float]:
    """At most 100 values of a history, each the mean of some rounds."""
    parts = np.array_split(np.asarray(values, np.float64), min(100, len(values)))
    return [round(float(part.mean()), 5) for part in parts]
