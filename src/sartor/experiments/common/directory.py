"""The directory of an experiment: its settings, its log, and in the end its results."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sartor.documents import check_schema, parse_toml
from sartor.errors import CheckpointError, FileError
from sartor.report import PageKind
from sartor.runs.record import RunDirectory, provenance


def plain_settings(settings: Any) -> dict[str, Any]:
    """The fields of a settings class as TOML has them: lists, and nothing that is None."""
    fields = {key: value for key, value in vars(settings).items() if value is not None}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}


class ExperimentDirectory:
    """The directory of an experiment, a new one or one to resume.

    Args:
        out: the directory.
        name: of the experiment, in ``results.json`` and as the table of ``config.toml``.
        page: how to report on it.
        settings: its settings.
        resume: whether to resume the experiment that is there.
        may_grow: settings that may be extended by a resumed run: larger numbers, longer lists.

    Attributes:
        checkpoint: where finished parts are saved.
        events: the log.
    """

    def __init__(
        self, out: str | Path, name: str, page: PageKind, settings: Any, *, resume: bool,
        may_grow: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._directory = RunDirectory(out, "experiment", resume)
        self.checkpoint, self.events = Path(out) / "checkpoint", self._directory.events
        self._name, self._page, self._settings = name, page, plain_settings(settings)
        if self._directory.resumes:
            self._check_settings(self._directory.config, may_grow)
        self._began = time.perf_counter()

    def begin(self) -> None:
        """Write the settings, and start or continue the log."""
        self._directory.begin({self._name: self._settings})
        self._began -= self.events.elapsed()

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
        total = round(time.perf_counter() - self._began, 1)
        wall = {"total": total, "cells": dict(seconds)}
        results = {"experiment": self._name, **found, **provenance(), "wall_seconds": wall}
        self._directory.finish(results, clients, total, {self._name: self._page})
        return results

    def _check_settings(self, path: Path, may_grow: Sequence[str]) -> None:
        try:
            before = parse_toml(path.read_text(encoding="utf-8"))
            check_schema(before, dict[str, dict[str, Any]])
            before = before[self._name]
        except (OSError, KeyError, ValueError) as error:
            raise FileError(f"{path} is not of this experiment; choose another --out") from error
        for key in {**self._settings, **before}:
            was, now = before.get(key), self._settings.get(key)
            if was != now and not (key in may_grow and _extends(now, was)):
                give = "at least these" if key in may_grow else "the same settings"
                raise CheckpointError(
                    f"{path} has {key} = {was}, not {now}; give {give}, or choose another --out"
                )


def _extends(now: Any, was: Any) -> bool:
    """Whether a setting still holds all that it did."""
    if type(was) is not type(now):
        return False
    return all(one in now for one in was) if isinstance(was, list) else bool(was <= now)
