"""A run: from data to models, scores and a report. It can be stopped and resumed."""

import dataclasses
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sartor.central.checkpoint import difference, saved_round
from sartor.checking import AnyPath, checks_arguments
from sartor.data import ClientData
from sartor.documents import parse_toml
from sartor.errors import CheckpointError, ConfigError, DataError
from sartor.evaluation import Scores, compare, holm
from sartor.evaluation.statistics import Metric, jsonable
from sartor.locks import locked
from sartor.models import Model, check
from sartor.personal.fitting import check_fit
from sartor.runs.config import Config, override, parse_config, read_config, read_table
from sartor.runs.record import RunDirectory, noted, provenance, stacked
from sartor.runs.table_config import TableConfig, is_tabled, parse_table_config
from sartor.runs.tabled import run_table
from sartor.runs.toml import to_toml


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        directory: the run directory.
        results: the content of ``results.json``.
        scores: the score table of each method, central first.
    """

    directory: Path
    results: dict[str, Any]
    scores: tuple[Scores, ...]

    def __repr__(self) -> str:
        methods = ", ".join(f"{s.method} of {len(s):,} clients" for s in self.scores)
        return f"Run({str(self.directory)!r}: {methods})"


@checks_arguments
def read_any(path: AnyPath, overrides: Sequence[str] = ()) -> Config | TableConfig:
    """Read a configuration file, of a model in JAX or of an estimator for a table."""
    table = read_table(Path(path))
    for text in overrides:
        override(table, text)
    if is_tabled(table):
        return parse_table_config(table, relative_to=Path(path).parent)
    return parse_config(table, relative_to=Path(path).parent)


@checks_arguments
def run(
    config: Config | TableConfig | AnyPath,
    out: AnyPath,
    *,
    resume: bool = False,
    progress: bool | None = None,
) -> Run:
    """Train, personalize, evaluate and report, as a configuration says.

    Args:
        config: the configuration, or a file that holds it; of a model in JAX, or of an estimator
            for a table (see docs/tables.md).
        out: the run directory. It will hold ``config.toml``, ``results.json``,
            ``per_client.parquet``, ``events.jsonl``, ``checkpoint/``, ``models/`` and
            ``report.html``.
        resume: resume the run that is in ``out``; otherwise ``out`` must be new or empty. Runs of
            estimators are written whole in the end, so there is nothing to resume.
        progress: whether to show progress bars (default: only on a terminal).

    Returns:
        The finished run.
    """
    if isinstance(config, Config):  # checked like a file, so that config.toml can be read back
        config = parse_config(parse_toml(to_toml(config.to_table())))
    elif not isinstance(config, TableConfig):
        config = read_any(config)
    if isinstance(config, TableConfig):
        if resume:
            raise ConfigError(
                "--resume: a run of estimators is written whole in the end, so there is nothing to "
                "resume; start it again without --resume"
            )
        config = parse_table_config(parse_toml(to_toml(config.to_table())))
        results, scores = run_table(config, Path(out), progress)
        return Run(Path(out), results, scores)
    with locked(out), noted() as warned:
        return _run(config, Path(out), resume, progress, warned)


def _run(
    config: Config, out: Path, resume: bool, progress: bool | None, warned: list[str]
) -> Run:  # fmt: skip
    directory = RunDirectory(out, "run", resume)
    checkpoint = out / "checkpoint" / "central.safetensors"
    done = _rounds_done(config, directory.config, checkpoint) if directory.resumes else 0
    began = time.perf_counter()
    seconds: dict[str, float] = {}

    def clock(stage: str) -> None:
        seconds[stage] = round(time.perf_counter() - began - sum(seconds.values()), 3)

    data = config.open_data()
    model = config.make_model(data)
    _check_work(config, model, data)
    how: dict[str, Any] = {"seed": config.seed, "engine": config.engine}
    config.central.checkpoint_for(checkpoint, model, data, **how).check()
    clock("data")
    # Nothing is written before this line, so a refused configuration leaves the directory as it is.
    directory.begin(config.to_table(), done)
    events, sizes = directory.events, data.sizes("train")
    if done < config.central.rounds:  # models of fewer rounds are out of date
        shutil.rmtree(out / "models", ignore_errors=True)
    central = config.central.fit(
        model, data, **how, checkpoint=checkpoint, progress=progress,
        on_chunk=lambda chunk: events.rounds(chunk, sizes),
    )  # fmt: skip
    central.save(out / "models" / "central")
    clock("central")
    scores = [central.evaluate(data)]
    costs = {scores[0].method: central.cost}
    clock("evaluate central")
    for name, algorithm in zip(_names(config), config.personal, strict=True):
        folder = out / "models" / name
        personal = algorithm.fit(
            central, data, seed=config.seed, directory=folder, progress=progress
        )
        personal.save(folder)
        clock(name)
        scores.append(dataclasses.replace(personal.evaluate(data), method=name))
        costs[name] = personal.cost
        clock(f"evaluate {name}")
        events.write("personalized", method=name, clients=len(personal))
    results = _results(config, data, central.loss, scores, seconds)
    results["cost"] = {method: cost.total() for method, cost in costs.items() if cost is not None}
    results["warnings"] = warned
    clients = stacked(({"method": s.method}, s.table()) for s in scores)
    directory.finish(results, clients, sum(seconds.values()))
    return Run(out, results, tuple(scores))


def _rounds_done(config: Config, path: Path, checkpoint: Path) -> int:
    """The rounds that an earlier run has done; its configuration must be the same."""
    before, now = read_config(path).to_table(), config.to_table()
    for table in (before, now):
        table["central"] = {k: v for k, v in table["central"].items() if k != "rounds"}
    if before != now:
        raise CheckpointError(
            f"{path} is another configuration: {difference(before, now)}; set it back, or choose "
            "another --out (only central.rounds may change)"
        )
    done = saved_round(checkpoint)
    if done > config.central.rounds:
        raise ConfigError(
            f"central.rounds is {config.central.rounds}, but the run in {path.parent} has already "
            f"done {done} rounds; give at least {done}, or choose another --out"
        )
    return done


def _check_work(config: Config, model: Model, data: ClientData) -> None:
    """Refuse work that would fail after hours of training."""
    check(model, data)
    config.engine.local_devices()
    config.central.check(model, data)
    for algorithm in config.personal:
        check_fit(algorithm, model, data)
    if not data.sizes("test").any():
        raise DataError(
            "no client has a test part, so nothing can be measured; add test = 0.2 under [split]"
        )


def _names(config: Config) -> list[str]:
    """Directory and method names of the personal algorithms; two of a kind get numbers."""
    kinds = [type(p).__name__ for p in config.personal]
    return [
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: i + 1].count(kind)}"
        for i, kind in enumerate(kinds)
    ]


def _results(
    config: Config, data: ClientData, loss: Any, scores: list[Scores], seconds: dict[str, float]
) -> dict[str, Any]:
    metric: Metric = "loss" if scores[0].accuracy is None else "accuracy"
    pairs = [(a, b) for i, a in enumerate(scores) for b in scores[:i]]
    compared = [compare(a, b, metric=metric, seed=config.seed) for a, b in pairs]
    adjusted = holm([found.p_value for found in compared])
    return jsonable({
        "experiment": "run",
        "config": config.to_table(),
        "seed": config.seed,
        "data": {"fingerprint": data.fingerprint, "summary": repr(data)},
        "methods": {s.method: s.summary().to_dict() for s in scores},
        "chosen": {s.method: found for s in scores if (found := _chosen(s))},
        "metric": metric,
        "comparisons": [
            found.to_dict() | {"p_adjusted": p}
            for found, p in zip(compared, adjusted, strict=True)
        ],
        "training_loss": [round(float(v), 6) for v in np.asarray(loss)],
        **provenance(),
        "wall_seconds": seconds,
    })  # fmt: skip


def _chosen(scores: Scores) -> dict[str, dict[str, int]]:
    """How many clients have each λ and cluster, if the method has any, and keep the central model.

    The λ of a client that keeps the central model says nothing.
    """
    kept = scores.extra.get("kept", np.zeros(len(scores), np.bool_))
    found = {"kept": {"kept": int(kept.sum()), "own": int((~kept).sum())}} if kept.any() else {}
    if "cluster" in scores.extra:
        found["cluster"] = dict(Counter(f"{v:g}" for v in np.sort(scores.extra["cluster"])))
    if "lambda" in scores.extra and not kept.all():
        own = np.sort(scores.extra["lambda"][~kept])
        found["lambda"] = dict(Counter(f"{v:g}" for v in own))
    return found
