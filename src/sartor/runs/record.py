"""What a run writes besides its models: settings, a log, results and where they come from."""

import contextlib
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import jax
import pyarrow as pa
import pyarrow.parquet as pq

from sartor.central.fitting import mean_loss
from sartor.documents import check_schema, parse_json
from sartor.engine import Chunk
from sartor.errors import FileError, explaining_writes
from sartor.evaluation.statistics import jsonable
from sartor.files import (
    SUMS,
    is_free,
    sweep,
    write_atomic,
    write_json,
    write_sums,
    writing,
)
from sartor.report import PAGES, PageKind, write_report
from sartor.runs.toml import to_toml
from sartor.types import Ints
from sartor.version import __version__

PACKAGES = ("jax", "jaxlib", "optax", "numpy")


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """A list that collects warnings, which are still shown."""
    found: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Any, category: Any, *rest: Any, **more: Any) -> None:
            if issubclass(category, UserWarning) and str(message) not in found:
                found.append(str(message))
            show(message, category, *rest, **more)

        warnings.showwarning = note
        yield found


class Line(TypedDict):
    """A line of the log. The other keys depend on the event."""

    event: str
    time: str
    round: NotRequired[int]


class Events:
    """The log of a run: one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path, self._round = path, 0

    def start(self, done: int | None) -> None:
        """Start a new log; or resume after ``done`` rounds, and drop the lines of later ones."""
        kept = [line for line in self._lines() if done is not None and line.get("round", 0) <= done]
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self.write("started" if done is None else "resumed")

    def elapsed(self) -> float:
        """How many seconds the processes so far have worked, each up to its last line."""
        total = datetime.timedelta()
        for before, line in itertools.pairwise(self._lines()):
            if line["event"] not in ("started", "resumed"):
                now, then = (datetime.datetime.fromisoformat(at["time"]) for at in (line, before))
                total += now - then
        return total.total_seconds()

    def _lines(self) -> list[dict[str, Any]]:
        """The lines so far, up to one that a kill has cut off, or that is damaged."""
        lines: list[dict[str, Any]] = []
        if self.path.exists():
            for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    line = parse_json(text)
                    check_schema(line, Line)
                    datetime.datetime.fromisoformat(line["time"])
                except ValueError:
                    break
                lines.append(line)
        return lines

    def rounds(self, chunk: Chunk, sizes: Ints) -> None:
        """Append a line for each round of a chunk; ``sizes`` are the clients' training examples."""
        if chunk.start < self._round:  # training diverged, and started anew
            self.start(chunk.start)
        seconds = round(chunk.seconds / (chunk.stop - chunk.start), 6)
        for number, loss in enumerate(mean_loss(chunk, sizes), chunk.start + 1):
            self.write("round", round=number, loss=float(loss), seconds=seconds)
        self._round = chunk.stop

    def write(self, event: str, **fields: Any) -> None:
        """Append a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps(jsonable({"event": event, "time": now, **fields}))
        with explaining_writes(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class RunDirectory:
    """The directory of a run or an experiment, a new one or one to resume.

    A directory with anything else in it is refused, and nothing is written before :meth:`begin`.

    Args:
        out: the directory.
        what: is run there: a "run" or an "experiment".
        resume: whether to resume what is there.

    Attributes:
        path: the directory.
        config: the file of the settings.
        resumes: whether there is something to resume.
        events: the log.
    """

    def __init__(self, out: str | Path, what: str, resume: bool) -> None:
        self.path = Path(out)
        self.config, self.events = self.path / "config.toml", Events(self.path / "events.jsonl")
        self.resumes = resume and self.config.exists()
        if not (self.resumes or is_free(self.path)):
            wrong = (
                f"is not empty; resume its {what} with --resume (and the same settings), or choose "
                "another --out"
            )
            if not self.config.exists():
                wrong = f"holds no {what} to resume, but other files; choose an empty --out"
            raise FileError(f"{out} {wrong}")

    def begin(self, settings: Mapping[str, Any], done: int = 0) -> None:
        """Write the settings, and start the log or continue it after ``done`` rounds."""
        write_atomic(self.config, to_toml(settings))
        (self.path / SUMS).unlink(missing_ok=True)  # until the run is finished again
        sweep(self.path)
        self.events.start(done if self.resumes else None)

    def finish(
        self, results: Any, clients: pa.Table, seconds: float, pages: Mapping[str, PageKind] = PAGES
    ) -> None:
        """Write the results, the table of clients and the report; it took some seconds."""
        write_results(self.path, results, clients)
        write_report([self.path], self.path / "report.html", pages)
        self.events.write("finished", seconds=seconds)


def write_results(directory: Path, results: Any, clients: pa.Table) -> None:
    """Write the results and the table of clients, and checksums of all that is final."""
    write_table(directory / "per_client.parquet", clients)
    write_json(directory / "results.json", results)
    # Manifests know the digests of models.
    models = [*directory.glob("models/manifest.json"), *directory.glob("models/*/manifest.json")]
    names = ["config.toml", "per_client.parquet", "results.json"]
    write_sums(
        directory, [*names, *(path.relative_to(directory).as_posix() for path in sorted(models))]
    )


def provenance() -> dict[str, Any]:
    """Versions, device and date: where numbers come from."""
    device = jax.devices()[0]
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "cores": os.cpu_count(),
        },
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def versions() -> dict[str, str]:
    """The versions of Sartor and of the packages that its numbers depend on."""
    found = {package: importlib.metadata.version(package) for package in PACKAGES}
    return {"sartor": __version__, **found}


def stacked(tables: Iterable[tuple[Mapping[str, Any], pa.Table]]) -> pa.Table:
    """Tables below each other. Each comes with columns that are the same in all of its rows.

    >>> stacked([({"method": "Local"}, pa.table({"loss": [0.5, 1.0]}))]).to_pylist()
    [{'method': 'Local', 'loss': 0.5}, {'method': 'Local', 'loss': 1.0}]
    """
    found = []
    for labels, table in tables:
        first = {name: pa.repeat(label, len(table)) for name, label in labels.items()}
        found.append(pa.table({**first, **dict(zip(table.column_names, table, strict=True))}))
    return pa.concat_tables(found, promote_options="default")


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet, whole or not at all."""
    with writing(path) as file:
        pq.write_table(table, file)
