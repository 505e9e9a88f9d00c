"""The work of one seed: central models, and what personal algorithms make of them."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.central import Central, CentralModel
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.engine import Optimizer
from sartor.engine.scoring import losses_by_client, positions, score_shared
from sartor.evaluation import Scores
from sartor.experiments.emnist.cells import Cell, recipe_of, slug
from sartor.experiments.emnist.methods import Line
from sartor.experiments.emnist.settings import Order, Settings, divide, whole
from sartor.files import read_json, write_json
from sartor.interrupts import stopped_by
from sartor.personal import Personal

TUNING = 100
"""Seen writers that Local's settings are chosen on."""


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
    """All cells of one seed.

    Args:
        settings: the size of the experiment.
        data: the writers.
        number: which seed it is, from 0 on.
        directory: where cells are kept.
        stopping: set by another thread, asks to stop.
        say: called with a word about what is going on.
    """

    def __init__(
        self,
        settings: Settings,
        data: ClientData,
        number: int,
        directory: Path,
        stopping: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self.settings, self.raw, self.number = settings, data, number
        self.root, self.directory = directory, directory / f"seed-{number}"
        self.stopping, self.say = stopping, say
        self.seed = settings.seed * 1009 + number
        self._views: dict[Order, ClientData] = {}
        self._lock = threading.Lock()

    def view(self, order: Order) -> ClientData:
        """The writers in an order, the last ones unseen."""
        with self._lock:
            if order not in self._views:
                self._views[order] = divide(self.raw, order, self.seed)
            return self._views[order]

    def run(self, line: Line) -> Iterator[tuple[str, Cell, bool]]:
        """The cells of a line, with their names, and whether they are new."""
        with stopped_by(self.stopping):
            line, tried = self._tuned(line)
            central: CentralModel | None = None
            for name in line.cells():
                path = self.directory / f"{slug(name)}.safetensors"
                recipe = self._recipe(line, name)
                if path.exists():
                    yield name, Cell.load(path, recipe), False
                    continue
                began = time.perf_counter()
                if line.central is not None and central is None:
                    central = self._central(line)
                cell = self._cell(line, name, central)
                cell.facts.update(tried)
                cell.facts["seconds"] = round(time.perf_counter() - began, 2)
                cell.save(path, recipe)
                yield name, cell, True
            self._checkpoint(line).unlink(missing_ok=True)

    def _recipe(self, line: Line, name: str) -> str:
        algorithms: list[Any] = [line.central, *line.personal.values()]
        if name == line.name and line.central is not None:
            algorithms = [line.central]
        elif line.central is not None:
            algorithms = [line.central, line.personal[name.removeprefix(f"{line.name} + ")]]
        how = [describe(a) for a in algorithms if a is not None]
        settings = self.settings
        what = [how, line.order, line.everything, settings.network, settings.precision, self.seed]
        return recipe_of(json.dumps(what), self.raw.fingerprint)

    def _checkpoint(self, line: Line) -> Path:
        return self.directory / f"central-{slug(line.name)}.safetensors"

    def _central(self, line: Line) -> CentralModel:
        assert line.central is not None
        data = self.view(line.order)
        settings = self.settings
        central = line.central.fit(
            settings.model, whole(data) if line.everything else data, seed=self.seed,
            engine=settings.engine, checkpoint=self._checkpoint(line), progress=False,
            on_chunk=lambda chunk: self.say(f"{line.name}, round {chunk.stop}"),
        )  # fmt: skip
        if central.q > 1:
            rule = Fixed(dict(zip(data.ids, central.assign(data).tolist(), strict=True)))
            central = dataclasses.replace(central, rule=rule)
        return central

    def _cell(self, line: Line, name: str, central: CentralModel | None) -> Cell:
        data, settings = self.view(line.order), self.settings
        if name == line.name and central is not None:
            scores = central.evaluate(data)
            facts: dict[str, Any] = {"loss": _thinned(central.history["loss"])}
            if central.q > 1:
                facts["q"] = central.q
                scores = self._with_oracle(scores, central, data)
                facts["margin"] = _thinned(central.history["margin"].mean(axis=1))
            if "domain_weights" in central.history:
                facts["domain_weights"] = central.history["domain_weights"][-1].tolist()
            facts["cost"] = central.cost.total() if central.cost else None
            if not line.everything:
                facts["validation_loss"] = self._held_loss(central, data)
            return Cell(_named(scores, name), facts)
        personal = line.personal[name.removeprefix(f"{line.name} + ")] if central else None
        personal = personal or next(iter(line.personal.values()))
        chooses = len(personal.cover) > 1
        mine = data if chooses else whole(data)
        models = personal.fit(
            central or settings.model, mine, seed=self.seed, engine=settings.engine, keep=False,
            progress=False,
        )  # fmt: skip
        scores = models.evaluate(mine)
        cost = models.cost
        if cost is not None and central is not None and central.cost is not None:
            cost += central.cost
        scores = dataclasses.replace(scores, baseline=None)
        return Cell(_named(scores, name), {"cost": cost.total() if cost else None})

    def _with_oracle(self, scores: Scores, central: CentralModel, data: ClientData) -> Scores:
        """With what the best hypothesis on the test images themselves would have."""
        clients = np.array([data.position(client) for client in scores.client])
        rows = positions(data, clients, "test")
        correct = score_shared(
            central.model, data, rows, central.hypotheses, central.engine
        ).correct  # [q, rows]
        best = np.stack([scores.sum_by_client(c) for c in correct]).max(axis=0) / scores.test_size
        return dataclasses.replace(scores, extra={**scores.extra, "oracle_accuracy": best})

    def _tuned(self, line: Line) -> tuple[Line, dict[str, Any]]:
        """The line with the settings that validation has chosen, on the first seed; what it saw."""
        if not line.grid:
            return line, {}
        path = self.root / f"chosen-{slug(line.name)}.json"
        if not path.exists():
            losses = []
            for number, change in enumerate(line.grid, 1):
                self.say(f"{line.name}, choice {number} of {len(line.grid)}")
                losses.append(self._validation_loss(_with(line, change)))
            write_json(path, {"losses": losses})
        losses = read_json(path)["losses"]
        best = line.grid[int(np.argmin(losses))]
        options = [_plain(change) for change in line.grid]
        facts = {"chosen": _plain(best), "tried": list(zip(options, losses, strict=True))}
        return _with(line, best), facts

    def _validation_loss(self, line: Line) -> float:
        """What the models of a line cost seen clients on what they hold out."""
        data, settings = self.view(line.order), self.settings
        if line.central is None:
            seen = _held(data)
            order = np.argsort(data.hashes[seen], kind="stable")
            some = data.select([data.ids[k] for k in seen[order[:TUNING]]])
            personal = next(iter(line.personal.values()))
            models = personal.fit(
                settings.model, some, seed=self.seed, engine=settings.engine, keep=False,
                progress=False,
            )  # fmt: skip
            return float(models.evaluate(some, part="validation", mixture=0).loss.mean())
        central = line.central.fit(
            settings.model, data, seed=self.seed, engine=settings.engine, progress=False
        )
        return self._held_loss(central, data)

    def _held_loss(self, central: CentralModel, data: ClientData) -> float:
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
