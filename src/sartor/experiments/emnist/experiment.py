"""The whole experiment: every cell, kept as soon as it is done; then the results."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import jax

from sartor.data import ClientData
from sartor.errors import InterruptedRun
from sartor.experiments.directory import Directory
from sartor.experiments.emnist.methods import lines
from sartor.experiments.emnist.pool import Cells
from sartor.experiments.emnist.results import client_table, most_memory, summarise
from sartor.experiments.emnist.settings import Settings
from sartor.experiments.emnist.work import Branch, Seed
from sartor.interrupts import Interrupts
from sartor.models import check
from sartor.progress import Bar
from sartor.runs.record import Events, noted

AT_ONCE = 3
"""Cells that are made side by side on a GPU: while one computes, others are compiled."""


def reproduce(
    settings: Settings, out: str | Path, *, resume: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the EMNIST experiment and write its report.

    Args:
        settings: its size, and its data.
        out: the directory; it will hold ``results.json``, ``per_client.parquet``, ``report.html``,
            ``figures/``, ``events.jsonl`` and in ``checkpoint/`` every finished cell.
        resume: go on with the experiment in that directory, perhaps with more seeds or parts;
            without it, ``out`` must be new.
        progress: whether to show a progress bar; on a terminal only, if not given.

    Returns:
        What is in ``results.json``.
    """
    directory = Directory(
        out, "emnist", settings.to_table(), resume=resume, may_grow=("seeds", "parts", "rows")
    )
    with noted() as warned:
        data = settings.open(progress)
        check(settings.model, data)
        for line in lines(settings):
            if line.central is not None:
                line.central.check(data)
        directory.begin()
        cells = _run(settings, data, directory.cells, directory.events, progress)
    found = {**summarise(settings, data, cells), "memory": most_memory(cells.values())}
    found["warnings"] = warned
    seconds = {f"{n} {name}": cell.facts["seconds"] for (n, name), cell in cells.items()}
    return directory.finish(found, client_table(cells), seconds)


def _run(
    settings: Settings, data: ClientData, directory: Path, events: Events, progress: bool | None
) -> Cells:
    """All cells, by seed and name."""
    todo = lines(settings)
    per_seed = sum(len(line.cells()) for line in todo)
    stopping = threading.Event()
    found: Cells = {}
    latest = ["opening the data"]

    def work(branch: Branch, name: str) -> None:
        cell, new = branch.cell(name)
        number, accuracy = branch.seed.number, cell.scores.accuracy
        found[number, name] = cell
        if new and accuracy is not None:
            seconds, mean = cell.facts["seconds"], float(accuracy.mean())
            events.write("cell", seed=number, method=name, accuracy=mean, seconds=seconds)
            bar.line(f"seed {number}, {name}: {mean:.1%} in {seconds:.0f} s")

    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(_workers()) as pool,
        Bar("emnist", per_seed * settings.seeds, progress) as bar,
        Interrupts() as interrupts,
    ):
        # Empty clusters are to be expected of some starts, and their shares are reported.
        warnings.filterwarnings("ignore", message="HypCluster: some")
        for number in range(settings.seeds):
            seed = Seed(settings, data, number, directory)
            branches = [Branch(seed, line, stopping, latest.append) for line in todo]
            waiting = {pool.submit(work, branch, name) for branch, name in _order(branches)}
            try:
                while waiting:
                    done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                    bar.update(len(found), f"seed {number}: {latest[-1]}")
                    del latest[:-1]
                    for future in done:
                        future.result()
                    if interrupts.requested and waiting:
                        stopping.set()
                        wait([future for future in waiting if not future.cancel()])
                        total = per_seed * settings.seeds
                        raise InterruptedRun(f"stopped with {len(found)} of {total} cells done")
            except BaseException:
                stopping.set()
                for future in waiting:
                    future.cancel()
                raise
    names = [name for line in todo for name in line.cells()]
    return {(n, name): found[n, name] for n in range(settings.seeds) for name in names}


def _order(branches: list[Branch]) -> list[tuple[Branch, str]]:
    """Central models first, then what is made of them: the longest work before the short."""
    everything = [(branch, name) for branch in branches for name in branch.line.cells()]

    def rank(item: tuple[Branch, str]) -> int:
        branch, name = item
        return 0 if name == branch.line.name else 1 if name.endswith(("mapper", "dapper")) else 2

    return sorted(everything, key=rank)


def _workers() -> int:
    """How many cells are made side by side: on a CPU one has all cores."""
    return 1 if jax.default_backend() == "cpu" else AT_ONCE
