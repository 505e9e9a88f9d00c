"""The directory of an experiment: its settings, its log, and in the end its results."""

import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sartor.errors import CheckpointError, FileError
from sartor.files import is_free, sweep, write_atomic, write_json
from sartor.report import PageKind, write_report
from sartor.runs.record import Events, provenance, write_table
from sartor.runs.toml import to_toml


def plain_settings(settings: Any) -> dict[str, Any]:
    """The fields of a settings class as TOML has them: lists, and nothing that is None."""
    fields = {key: value for key, value in vars(settings).items() if value is not None}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}


class ExperimentDirectory:
    """A directory for a new experiment, or one to resume.

    A directory with anything else in it is refused, and nothing is written before :meth:`begin`.

    Args:
        out: the directory.
        name: of the experiment, in ``results.json`` and as the table of ``config.toml``.
        page: how to report on it.
        settings: its settings.
        resume: whether to resume the experiment that is there.
        may_grow: settings that may be extended by a resumed run: larger numbers, longer lists.
    """

    def __init__(
        self, out: str | Path, name: str, page: PageKind, settings: Any, *, resume: bool,
        may_grow: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.path, self._name, self._page, self._resume = Path(out), name, page, resume
        self._settings, self._may_grow = plain_settings(settings), may_grow
        self._began, self._before = time.perf_counter(), 0.0
        self.events = Events(self.path / "events.jsonl")
        self._check()

    @property
    def checkpoint(self) -> Path:
        """Where finished parts are saved."""
        return self.path / "checkpoint"

    def begin(self) -> None:
        """Write the settings, and start or continue the log."""
        write_atomic(self.path / "config.toml", to_toml({self._name: self._settings}))
        sweep(self.path)
        self._before = self.events.elapsed() if self._resume else 0.0
        self.events.start(0 if self._resume else None)

    def finish(
        self, found: Mapping[str, Any], clients: pa.Table, seconds: Mapping[str, float]
    ) -> dict[str, Any]:
        """Write the results, with where and when they were computed, and the report.

        Args:
            found: the results.
            clients: the table of clients.
            seconds: how long each part took.

        Returns:
            The content of ``results.json``.
        """
        total = round(self._before + time.perf_counter() - self._began, 1)
        wall = {"total": total, "cells": dict(seconds)}
        results = {"experiment": self._name, **found, **provenance(), "wall_seconds": wall}
        write_table(self.path / "per_client.parquet", clients)
        write_json(self.path / "results.json", results)
        write_report([self.path], self.path / "report.html", {self._name: self._page})
        self.events.write("finished", seconds=total)
        return results

    def _check(self) -> None:
        out, path = self.path, self.path / "config.toml"
        if self._resume and path.exists():
            self._check_settings(path)
        elif out.exists() and not out.is_dir():
            raise FileError(f"{out} is a file; --out names a directory")
        elif not is_free(out):
            wrong = "is not empty; continue its experiment with --resume, or"
            if self._resume:
                wrong = "holds no experiment to resume, but other files;"
            raise FileError(f"{out} {wrong} choose another --out")

    def _check_settings(self, path: Path) -> None:
        try:
            before = dict(tomllib.loads(path.read_text(encoding="utf-8"))[self._name])
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is not of this experiment; choose another --out") from error
        for key in {**self._settings, **before}:
            was, now = before.get(key), self._settings.get(key)
            may_grow = key in self._may_grow
            if was != now and not (may_grow and _extends(now, was)):
                give = "at least these" if may_grow else "the same settings"
                raise CheckpointError(
                    f"{path} has {key} = {was}, not {now}; give {give}, or choose another --out"
                )


def _extends(now: Any, was: Any) -> bool:
    """Whether a setting still holds all that it did."""
    return set(was) <= set(now) if isinstance(was, list) else bool(was <= now)
