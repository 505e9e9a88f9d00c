"""The whole experiment: every cell on all cores, kept as soon as it is done; then the results."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from sartor.errors import InterruptedRun
from sartor.experiments.directory import Directory
from sartor.experiments.synthetic.cells import Cell, Place, run_task, tasks
from sartor.experiments.synthetic.population import Settings
from sartor.experiments.synthetic.results import client_table, summarise
from sartor.interrupts import Interrupts
from sartor.progress import Bar
from sartor.runs.record import Events


def reproduce(
    settings: Settings, out: str | Path, *, resume: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the synthetic experiment and write its report.

    Args:
        settings: its size.
        out: the directory; it will hold ``results.json``, ``per_client.parquet``, ``report.html``,
            ``figures/``, ``events.jsonl`` and in ``checkpoint/`` every finished cell.
        resume: go on with the experiment in that directory; without it, ``out`` must be new.
        progress: whether to show a progress bar; on a terminal only, if not given.

    Returns:
        What is in ``results.json``.
    """
    directory = Directory(out, "synthetic", settings.to_table(), resume=resume)
    directory.begin()
    cells = _run(settings, directory.cells, directory.events, progress)
    seconds = {f"{p.samples} {p.method}": c.seconds for p, c in sorted(cells.items())}
    return directory.finish(summarise(settings, cells), client_table(cells), seconds)


def _run(
    settings: Settings, directory: Path, events: Events, progress: bool | None
) -> dict[Place, Cell]:
    """All cells; of as many sizes at a time as there are cores, since one leaves cores idle."""
    todo = tasks(settings)
    cells: dict[Place, Cell] = {}
    total = sum(map(len, todo))
    stopping = threading.Event()

    def work(places: Sequence[Place]) -> None:
        for place, cell, new in run_task(settings, places, directory, stopping):
            cells[place] = cell
            if new:
                loss, seconds = float(cell.test.mean()), cell.seconds
                events.write(
                    "cell", samples=place.samples, method=place.method, loss=loss, seconds=seconds
                )

    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(len(todo), os.cpu_count() or 1)) as pool,
        Bar("synthetic", total, progress) as bar,
        Interrupts() as interrupts,
    ):
        # Clusters without clients are to be expected of a grid's ends; their shares are reported.
        warnings.filterwarnings("ignore", message="HypCluster: some")
        waiting = {pool.submit(work, places) for places in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                latest = next(reversed(cells), None)
                note = f"{latest.method}, {latest.samples} samples" if latest else "compiling"
                bar.update(len(cells), note)
                for future in done:
                    future.result()
                if interrupts.requested and waiting:
                    raise InterruptedRun(f"stopped with {len(cells)} of {total} cells done")
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
        finally:
            stopping.set()
    return cells
