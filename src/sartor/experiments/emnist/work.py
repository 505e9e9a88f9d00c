"""The work of one seed: central models, and what personal algorithms make of them."""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import Central, CentralModel
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.engine import Optimizer, losses_by_client, positions, score_shared
from sartor.errors import CheckpointError, DataError, DivergedError, FileError, InterruptedRun
from sartor.evaluation import Scores
from sartor.evaluation.statistics import jsonable
from sartor.experiments.emnist.cells import OTHER, Cell, recipe_of, slug
from sartor.experiments.emnist.methods import Line
from sartor.experiments.emnist.settings import (
    SMOOTHING,
    UNSEEN,
    VALIDATION,
    Order,
    Settings,
    divide,
    whole,
)
from sartor.files import read_json, write_json
from sartor.interrupts import stopped_by
from sartor.personal import Personal

TUNING = 100
"""Seen writers that Local's settings are chosen on."""

CONSTANTS = [TUNING, SMOOTHING, UNSEEN, VALIDATION]


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Every client's cluster as its training images say; those it chooses λ by have no part in it.

    Attributes:
        cluster: by client.
    """

    cluster: Mapping[str, int]

    def assign(self, data: ClientData) -> npt.NDArray[np.int64]:
        """The cluster of every client."""
        return np.array([self.cluster[client] for client in data.ids])

    def to_dict(self) -> dict[str, Any]:
        """The rule in plain values."""
        return {"name": "fixed", "cluster": dict(self.cluster)}


class Seed:
    """The writers of one seed.

    Args:
        settings: the size of the experiment.
        data: the writers.
        number: which seed it is, from 0 on.
        directory: where cells are kept.
    """

    def __init__(self, settings: Settings, data: ClientData, number: int, directory: Path) -> None:
        self.settings, self.raw, self.number = settings, data, number
        self.root, self.directory = directory, directory / f"seed-{number}"
        self.seed = settings.seed * 1009 + number
        self._views: dict[tuple[Order, bool], ClientData] = {}
        self._lock = threading.RLock()

    def view(self, order: Order, *, everything: bool = False) -> ClientData:
        """The writers in an order, the last ones unseen; with nothing held out, if so wanted."""
        with self._lock:
            key = order, everything
            if key not in self._views:
                self._views[key] = (
                    whole(self.view(order)) if everything else divide(self.raw, order, self.seed)
                )
            return self._views[key]


class Branch:
    """A line in one seed; its cells may be asked for on several threads.

    Args:
        seed: the writers.
        line: the central model, and what is made of it.
        stopping: set by another thread, asks to stop.
        say: called with a word about what is going on.
    """

    def __init__(
        self, seed: Seed, line: Line, stopping: threading.Event, say: Callable[[str], None]
    ) -> None:
        self.seed, self.line, self.settings = seed, line, seed.settings
        self.data = seed.view(line.order)
        for name, group in (("seen", self.data.seen), ("unseen", ~self.data.seen)):
            if not self.data.sizes("test")[group].any():
                raise DataError(f"{line.name}: no {name} writer has test images; give some of them")
        self._say, self._stopping = say, stopping
        self._lock = threading.RLock()
        self._left = set(line.cells())
        self._tried: dict[str, Any] | None = None
        self._trained: CentralModel | None = None

    def cell(self, name: str) -> tuple[Cell, bool]:
        """One of the line's cells, and whether it is new."""
        with stopped_by(self._stopping):
            facts = self._tune()
            path, recipe = self.seed.directory / f"{slug(name)}.safetensors", self._recipe(name)
            new = not path.exists()
            if new:
                central = self._central()
                began = time.perf_counter()
                self._say(name)
                cell = self._make(name, central)
                seconds = time.perf_counter() - began
                if name == self.line.name and central is not None:
                    seconds += self._seconds
                cell.facts.update(facts, seconds=round(seconds, 2), memory=_memory())
                cell.save(path, recipe)
            else:
                cell = Cell.load(path, recipe)
        with self._lock:
            self._left.discard(name)
            if not self._left:
                self._checkpoint.unlink(missing_ok=True)
        return cell, new

    def _recipe(self, name: str) -> str:
        algorithms: list[Any] = [self.line.central, self._personal(name)]
        how = [describe(a) for a in algorithms if a is not None]
        line, settings = self.line, self.settings
        settled = [settings.network, settings.precision, self.seed.seed]
        what = [how, line.order, line.everything, *settled, CONSTANTS]
        return recipe_of(json.dumps(what), self.seed.raw.fingerprint)

    def _personal(self, name: str) -> Personal | None:
        """The personal algorithm of a cell; the central model's own has none."""
        found = {self.line.cell(key): algorithm for key, algorithm in self.line.personal.items()}
        return found.get(name)

    @property
    def _checkpoint(self) -> Path:
        return self.seed.directory / f"central-{slug(self.line.name)}.safetensors"

    def _central(self) -> CentralModel | None:
        """The central model, trained by whoever needs it first."""
        line, data = self.line, self.data
        with self._lock:
            if line.central is None or self._trained is not None:
                return self._trained
            if self._stopping.is_set():  # while this thread waited for another one's training
                raise InterruptedRun(f"{line.name} is not trained")
            began = time.perf_counter()
            central = line.central.fit(
                self.settings.model, self.seed.view(line.order, everything=line.everything),
                seed=self.seed.seed, engine=self.settings.engine, checkpoint=self._checkpoint,
                progress=False,
                on_chunk=lambda chunk: self._say(f"{line.name}, round {chunk.stop}"),
            )  # fmt: skip
            if central.q > 1:
                rule = Fixed(dict(zip(data.ids, central.assign(data).tolist(), strict=True)))
                central = dataclasses.replace(central, rule=rule)
            self._trained, self._seconds = central, time.perf_counter() - began
            return central

    def _make(self, name: str, central: CentralModel | None) -> Cell:
        personal, line = self._personal(name), self.line
        if personal is None:
            assert central is not None
            scores = central.evaluate(self.data)
            facts: dict[str, Any] = {"loss": _thinned(central.history["loss"])}
            if central.q > 1:
                facts["q"] = central.q
                scores = self._with_oracle(scores, central)
                facts["margin"] = _thinned(central.history["margin"].mean(axis=1))
            if "domain_weights" in central.history:
                facts["domain_weights"] = central.history["domain_weights"][-1].tolist()
            facts["cost"] = central.cost.total() if central.cost else None
            if not line.everything:
                facts["validation_loss"] = _held_loss(central, self.data)
            return Cell(_named(scores, name), facts)
        chooses = len(personal.cover) > 1
        data = self.seed.view(line.order, everything=not chooses)
        models = personal.fit(
            central or self.settings.model, data, seed=self.seed.seed, keep=False,
            engine=self.settings.engine, progress=False,
        )  # fmt: skip
        scores = models.evaluate(data)
        cost = models.cost
        if cost is not None and central is not None and central.cost is not None:
            cost += central.cost
        scores = dataclasses.replace(scores, baseline=None)
        return Cell(_named(scores, name), {"cost": cost.total() if cost else None})

    def _with_oracle(self, scores: Scores, central: CentralModel) -> Scores:
        """With what the best hypothesis on the test images themselves would have."""
        data = self.data
        clients = np.array([data.position(client) for client in scores.client])
        rows = positions(data, clients, "test")
        correct = score_shared(
            central.model, data, rows, central.hypotheses, central.engine
        ).correct  # [q, rows]
        best = np.stack([scores.sum_by_client(c) for c in correct]).max(axis=0) / scores.test_size
        return dataclasses.replace(scores, extra={**scores.extra, "oracle_accuracy": best})

    def _tune(self) -> dict[str, Any]:
        """Set what validation has chosen on the first seed; and what it saw."""
        with self._lock:
            if self._tried is not None:
                return self._tried
            line, self._tried = self.line, {}
            if line.grid:
                losses = self._losses()
                best = line.grid[int(np.argmin(losses))]
                options = [_plain(change) for change in line.grid]
                self.line = _with(line, best)
                self._tried = {
                    "chosen": _plain(best), "tried": list(zip(options, losses, strict=True))
                }  # fmt: skip
            return self._tried

    def _losses(self) -> list[float]:
        """What every point of the grid costs seen clients of the first seed; kept as found."""
        grid, path = self.line.grid, self.seed.root / f"chosen-{slug(self.line.name)}.json"
        recipe = recipe_of(json.dumps(self._grid()), self.seed.raw.fingerprint)
        kept = read_json(path) if path.exists() else {"recipe": recipe, "losses": []}
        if not isinstance(kept, dict) or not isinstance(kept.get("losses"), list):
            raise FileError(f"{path} is damaged; remove it, and it is made again")
        if kept.get("recipe") != recipe:
            raise CheckpointError(OTHER.format(path))
        losses: list[float] = [np.inf if v is None else v for v in kept["losses"]]
        for number in range(len(losses), len(grid)):
            self._say(f"{self.line.name}, choice {number + 1} of {len(grid)}")
            try:
                losses.append(self._held_by(_with(self.line, grid[number])))
            except DivergedError:  # no choice
                losses.append(np.inf)
            write_json(path, jsonable({"recipe": recipe, "losses": losses}))
        return losses

    def _grid(self) -> list[Any]:
        """What a choice depends on beside the data: how its candidates are made."""
        algorithms = [a for a in (self.line.central, *self.line.personal.values()) if a is not None]
        settings = self.settings
        settled = [settings.network, settings.precision, settings.seed, self.line.order]
        return [[describe(a) for a in algorithms], *map(_plain, self.line.grid), settled, CONSTANTS]

    def _held_by(self, line: Line) -> float:
        """What a line costs seen clients on what they hold out."""
        data = self.data
        common: dict[str, Any] = {
            "seed": self.seed.seed, "engine": self.settings.engine, "progress": False
        }  # fmt: skip
        if line.central is not None:
            return _held_loss(line.central.fit(self.settings.model, data, **common), data)
        order = np.argsort(data.hashes[held := _held(data)], kind="stable")
        some = data.select([data.ids[k] for k in held[order[:TUNING]]])
        personal = next(iter(line.personal.values()))
        models = personal.fit(self.settings.model, some, keep=False, **common)
        return float(models.evaluate(some, part="validation", mixture=0).loss.mean())


def _held_loss(central: CentralModel, data: ClientData) -> float:
    """The mean plain loss of seen clients on what they hold out."""
    seen = _held(data)
    losses = losses_by_client(
        central.model, data, seen, central.hypotheses, central.engine, part="validation",
        plain=True,
    )  # fmt: skip
    return float(losses[np.arange(len(seen)), central.assign(data)[seen]].mean())


def _with(line: Line, change: dict[str, Any]) -> Line:
    """A line with other settings of its central algorithm, or of its personal one."""
    if line.central is not None:
        central: Central = dataclasses.replace(line.central, **change)
        return line._replace(central=central)
    personal: dict[str, Personal] = {
        name: dataclasses.replace(algorithm, **change) for name, algorithm in line.personal.items()
    }
    return line._replace(personal=personal)


def _held(data: ClientData) -> npt.NDArray[np.int64]:
    """The seen clients that hold anything out."""
    return np.flatnonzero(data.seen & (data.sizes("validation") > 0))


def _memory() -> dict[str, int | None]:
    """The most memory that was in use so far: by this process, and on the device."""
    stats = jax.local_devices()[0].memory_stats() or {}
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "host_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "device_bytes": stats.get("peak_bytes_in_use"),
    }


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    """Settings in plain values."""
    return {
        key: {"name": value.name, **dict(value.options)} if isinstance(value, Optimizer) else value
        for key, value in change.items()
    }


def _named(scores: Scores, name: str) -> Scores:
    return dataclasses.replace(scores, method=name)


def _thinned(values: npt.NDArray[Any], points: int = 100) -> list[float]:
    """At most so many points of a history, each the mean of some rounds."""
    blocks = np.array_split(np.asarray(values, np.float64), min(points, len(values)))
    return [round(float(block.mean()), 5) for block in blocks]
