"""The directory of an experiment: its settings, its log, and in the end its results."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sartor.errors import CheckpointError, FileError
from sartor.files import is_free, sweep, write_atomic, write_json
from sartor.report import write_report
from sartor.runs.record import Events, provenance, write_table
from sartor.runs.toml import to_toml


class Directory:
    """A directory that an experiment is begun in, or gone on with.

    What holds something else is refused here, and nothing is written before :meth:`begin`.

    Args:
        out: the directory.
        kind: the experiment's name, and that of its table in ``config.toml``.
        settings: that table.
        resume: whether to go on with what is there.
        may_grow: settings that may be more than they were: larger numbers, longer lists.
    """

    def __init__(
        self,
        out: str | Path,
        kind: str,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        may_grow: tuple[str, ...] = (),
    ) -> None:
        self.path, self._kind, self._resume = Path(out), kind, resume
        self._settings, self._may_grow = dict(settings), may_grow
        self._began, self._before = time.perf_counter(), 0.0
        self.events = Events(self.path / "events.jsonl")
        self._look()

    @property
    def cells(self) -> Path:
        """Where finished cells are kept."""
        return self.path / "checkpoint"

    def begin(self) -> None:
        """Write the settings down, and start the log or go on with it."""
        write_atomic(self.path / "config.toml", to_toml({self._kind: self._settings}))
        sweep(self.path)
        self._before = self.events.elapsed() if self._resume else 0.0
        self.events.start(0 if self._resume else None)

    def finish(
        self, found: Mapping[str, Any], clients: pa.Table, seconds: Mapping[str, float]
    ) -> dict[str, Any]:
        """Write what was found, with where and when, and the report.

        Args:
            found: what ``results.json`` says, but for that.
            clients: the table of clients.
            seconds: how long each cell took.

        Returns:
            What is in ``results.json``.
        """
        total = round(self._before + time.perf_counter() - self._began, 1)
        wall = {"total": total, "cells": dict(seconds)}
        results = {**found, **provenance(), "wall_seconds": wall}
        write_table(self.path / "per_client.parquet", clients)
        write_json(self.path / "results.json", results)
        write_report([self.path], self.path / "report.html")
        self.events.write("finished", seconds=total)
        return results

    def _look(self) -> None:
        out, path = self.path, self.path / "config.toml"
        if self._resume and path.exists():
            before = self._read(path)
            for key in {**self._settings, **before}:
                was, now = before.get(key), self._settings.get(key)
                if was == now or (key in self._may_grow and _grown(was, now)):
                    continue
                give = "at least these" if key in self._may_grow else "the same settings"
                raise CheckpointError(
                    f"{path} has {key} = {was}, not {now}; give {give}, or choose another --out"
                )
        elif out.exists() and not out.is_dir():
            raise FileError(f"{out} is a file; --out names a directory")
        elif not is_free(out):
            what = "holds no experiment to resume, but other files"
            if self._resume:
                raise FileError(f"{out} {what}; choose another --out")
            raise FileError(
                f"{out} is not empty; go on with its experiment by --resume, or choose another "
                "--out"
            )

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return dict(tomllib.loads(path.read_text(encoding="utf-8"))[self._kind])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is not of this experiment; choose another --out") from error


def _grown(was: Any, now: Any) -> bool:
    """Whether nothing of a setting is gone."""
    return set(was) <= set(now) if isinstance(was, list) else bool(was <= now)
