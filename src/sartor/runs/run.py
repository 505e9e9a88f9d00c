"""A run: data in; models, honest numbers and a report out. It can be stopped and resumed."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sartor.engine import Chunk
from sartor.errors import CheckpointError, FileError
from sartor.evaluation import Scores, compare
from sartor.evaluation.statistics import Metric
from sartor.files import write_atomic, write_json
from sartor.report import write_report
from sartor.runs.config import Config, read_config, to_toml
from sartor.version import __version__

PACKAGES = ("jax", "jaxlib", "optax", "numpy")


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        directory: where everything is.
        results: what is in ``results.json``.
        scores: the score table of every method, central first.
    """

    directory: Path
    results: dict[str, Any]
    scores: tuple[Scores, ...]


def run(
    config: Config | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool | None = None,
) -> Run:
    """Train, personalize, evaluate and report, as a configuration says.

    Args:
        config: the configuration, or a file that holds it.
        out: the run directory. It will hold ``config.toml``, ``results.json``,
            ``per_client.parquet``, ``events.jsonl``, ``checkpoint/``, ``models/`` and
            ``report.html``.
        resume: go on with the run that is in ``out``; without it, ``out`` must be new.
        progress: whether to show progress bars; on a terminal only, if not given.

    Returns:
        The finished run.
    """
    config = config if isinstance(config, Config) else read_config(config)
    out = Path(out)
    _prepare(config, out, resume)
    events = Events(out / "events.jsonl")
    began = time.perf_counter()
    seconds: dict[str, float] = {}

    def clock(stage: str) -> None:
        seconds[stage] = round(time.perf_counter() - began - sum(seconds.values()), 3)

    data = config.open_data()
    model = config.make_model(data)
    clock("data")
    checkpoint = out / "checkpoint" / "central.safetensors"
    events.start(resume)
    central = config.central.fit(
        model, data, seed=config.seed, engine=config.engine,
        checkpoint=checkpoint, progress=progress, on_chunk=events.rounds,
    )  # fmt: skip
    central.save(out / "models" / "central")
    clock("central")
    scores = [central.evaluate(data)]
    clock("evaluate central")
    for name, algorithm in zip(_names(config), config.personal, strict=True):
        personal = algorithm.fit(
            central, data, seed=config.seed,
            directory=out / "models" / name, progress=progress,
        )  # fmt: skip
        personal.save(out / "models" / name)
        clock(name)
        scored = personal.evaluate(data)
        scores.append(dataclasses.replace(scored, method=name))
        clock(f"evaluate {name}")
        events.write("personalized", method=name, clients=len(personal))
    results = _results(config, data, central.loss, scores, seconds)
    _write_table(out / "per_client.parquet", scores)
    write_json(out / "results.json", results)
    write_report([out], out / "report.html")
    events.write("finished", seconds=sum(seconds.values()))
    return Run(out, results, tuple(scores))


class Events:
    """The log of a run: one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, resume: bool) -> None:
        """Begin, or go on; what a kill tore off the last line is dropped."""
        lines = []
        if resume and self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    lines.append(json.dumps(json.loads(line)))
                except ValueError:
                    break
        write_atomic(self.path, "".join(line + "\n" for line in lines))
        self.write("resumed" if resume else "started")

    def rounds(self, chunk: Chunk) -> None:
        """A line for every round of a chunk."""
        loss = chunk.metrics["loss"].mean(axis=1)
        seconds = chunk.seconds / (chunk.stop - chunk.start)
        for place, value in enumerate(loss):
            self.write(
                "round", round=chunk.start + place + 1, loss=float(value), seconds=round(seconds, 6)
            )

    def write(self, event: str, **fields: Any) -> None:
        """Append a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        try:
            with self.path.open("a") as file:
                file.write(json.dumps({"event": event, "time": now, **fields}) + "\n")
        except OSError as error:
            raise FileError(
                f"cannot write {self.path}: {error.strerror or error}; free some space, then resume"
            ) from error


def _prepare(config: Config, out: Path, resume: bool) -> None:
    path = out / "config.toml"
    if not resume:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise FileError(
                f"{out} is not empty; go on with the run in it by --resume, or choose another --out"
            )
        write_atomic(path, to_toml(config.to_table()))
        return
    if not path.exists():
        if out.exists() and any(out.iterdir()):
            raise FileError(f"there is no run in {out} to resume (no config.toml); choose another")
        write_atomic(path, to_toml(config.to_table()))
        return
    before, now = read_config(path).to_table(), config.to_table()
    for table in (before, now):
        table["central"] = {k: v for k, v in table["central"].items() if k != "rounds"}
    if before != now:
        part = next(key for key in now if before.get(key) != now[key])
        raise CheckpointError(
            f"{path} is another configuration: [{part}] was {before.get(part)} and is {now[part]} "
            "now; set it back, or choose another --out (only central.rounds may change)"
        )
    write_atomic(path, to_toml(config.to_table()))


def _names(config: Config) -> list[str]:
    """Directory and method names of the personal algorithms; two of a kind get numbers."""
    kinds = [type(p).__name__ for p in config.personal]
    return [
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: i + 1].count(kind)}"
        for i, kind in enumerate(kinds)
    ]


def _results(
    config: Config, data: Any, loss: Any, scores: list[Scores], seconds: dict[str, float]
) -> dict[str, Any]:
    metric: Metric = "loss" if scores[0].accuracy is None else "accuracy"
    pairs = [(a, b) for i, a in enumerate(scores) for b in scores[:i]]
    return {
        "experiment": "run",
        "config": config.to_table(),
        "seed": config.seed,
        "data": {"fingerprint": data.fingerprint, "summary": repr(data)},
        "methods": {s.method: s.summary(seed=config.seed).to_dict() for s in scores},
        "metric": metric,
        "comparisons": [compare(a, b, metric=metric, seed=config.seed).to_dict() for a, b in pairs],
        "training_loss": [round(float(v), 6) for v in np.asarray(loss)],
        **provenance(),
        "wall_seconds": seconds,
    }


def provenance() -> dict[str, Any]:
    """Versions, device and date: what a number needs to be believed."""
    device = jax.devices()[0]
    return {
        "versions": {"sartor": __version__, "python": platform.python_version(), **_versions()},
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "cores": os.cpu_count(),
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _write_table(path: Path, scores: list[Scores]) -> None:
    tables = [
        s.table().add_column(0, "method", pa.array([s.method] * len(s), pa.string()))
        for s in scores
    ]
    whole = pa.concat_tables(tables, promote_options="default")
    sink = pa.BufferOutputStream()
    pq.write_table(whole, sink)
    write_atomic(path, sink.getvalue().to_pybytes())
