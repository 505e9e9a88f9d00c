"""Runs and advice on tables: from a file to models, scores and a report."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from sartor.data.notes import notes_on
from sartor.errors import ConfigError, DataError, FileError, SartorError, warn
from sartor.estimators import PersonalClassifier, PersonalRegressor
from sartor.estimators.findings import effects_of, findings
from sartor.evaluation import Scores
from sartor.evaluation.statistics import jsonable
from sartor.files import is_free, replacing, sha256_of, write_atomic
from sartor.locks import locked
from sartor.report import write_report
from sartor.runs import named
from sartor.runs.reading import Rows, read_rows
from sartor.runs.record import noted, provenance, write_results, write_table
from sartor.runs.table_config import TableConfig
from sartor.runs.toml import to_toml

PACKAGES = {"scikit-learn": "sklearn", "lightgbm": "lightgbm", "xgboost": "xgboost"}
"""Packages that numbers depend on, and the modules in them."""


def run_table(
    config: TableConfig, out: Path, progress: bool | None = None
) -> tuple[dict[str, Any], tuple[Scores, Scores]]:
    """Fit, evaluate on rows that were held out, and write a run directory.

    Returns:
        The content of ``results.json``, and the scores of the global model and of all clients' own.
    """
    with _writing(out):
        began, seconds = time.perf_counter(), {}
        with noted() as warned:
            rows = read_rows(config)
            if not rows.test.any():
                several = (
                    "say --test 0.2 (split.test), or a larger share where clients have few rows"
                )
                if rows.largest < 2:
                    several = f"each client ({config.data['client']}) has one row: is it a key?"
                raise DataError(f"no row is held out, so nothing can be measured; {several}")
            if rows.test.all():
                raise DataError("all rows are held out, and none is left to learn from")
            seconds["data"] = time.perf_counter() - began
            model = _fitted(config, rows, progress)
            seconds["fit"] = time.perf_counter() - began - sum(seconds.values())
            fresh = rows.part(rows.test)
            scores = model.evaluate(*fresh)
            measures = model.measure(*fresh)
            found, clients = findings(model, scores, measures)
            seconds["evaluate"] = time.perf_counter() - began - sum(seconds.values())
        results = {
            **_results("table", config, rows, model, found, warned, seconds),
            "columns": _noted(found["columns"], rows, model),
            "config": config.to_table(),
            "command": "sartor run config.toml --out DIRECTORY",
        }
        with replacing(out, lambda _: False) as folder:
            with noted() as more:
                _save(model, folder / "models")
            results["warnings"] = warned + more
            _write(folder, config, results, clients, model)
    assert scores.baseline is not None
    return results, (scores.baseline, scores)


def advise_table(config: TableConfig, out: Path, progress: bool | None = None) -> dict[str, Any]:
    """Say for each client whether to personalize, how, and what it should gain.

    All rows that the configuration does not hold out are used; the others are left alone.

    Returns:
        The content of ``results.json``.
    """
    with _writing(out):
        began, seconds = time.perf_counter(), {}
        with noted() as warned:
            rows = read_rows(config)
            if rows.test.all():
                raise DataError("all rows are held out, and none is left to learn from")
            seconds["data"] = time.perf_counter() - began
            model = _fitted(config, rows, progress)
            found, clients = findings(model, None, None)
            seconds["fit"] = time.perf_counter() - began - sum(seconds.values())
        results = {
            **_results("table advice", config, rows, model, found, warned, seconds),
            "columns": _noted(found["columns"], rows, model),
            "config": config.to_table(),
            "command": "sartor advise DIRECTORY --out ANOTHER  # its data and settings",
        }
        with replacing(out, lambda _: False) as folder:
            _write(folder, config, results, clients, model)
    return results


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Be the only writer of a directory, which is free."""
    with locked(out):
        if not is_free(out):
            raise FileError(f"{out} is not empty; choose another --out, or remove it")
        yield


def _fitted(config: TableConfig, rows: Rows, progress: bool | None) -> Any:
    """The estimator that a configuration asks for, fitted to the rows that are not held out."""
    data, approach = config.data, config.approach
    settings = {key: approach[key] for key in ("folds", "budget") if key in approach}
    kind = PersonalClassifier if rows.kind == "classification" else PersonalRegressor
    model = kind(
        named.make_estimator(config.model, rows.kind, config.seed), client=data["client"],
        approach=approach["name"], time=data.get("time"), groups=data.get("groups"),
        second=data.get("second"), random_state=config.seed, progress=progress, **settings,
    )  # fmt: skip
    x, y = rows.part(~rows.test)
    try:
        return model.fit(x, y)
    except (SartorError, MemoryError):
        raise
    except Exception as error:  # whatever the estimator does
        if model.estimator is None:
            raise
        text = " ".join(str(error).split())
        raise ConfigError(
            f"{config.model['name']} cannot be fitted to this table: {text}; change the model, or "
            "its arguments"
        ) from error


def _results(
    experiment: str, config: TableConfig, rows: Rows, model: Any, found: Mapping[str, Any],
    warned: Sequence[str], seconds: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    """What results and report say of a run."""
    data = config.data
    held = int(rows.test.sum())
    about = {
        "file": Path(data["path"]).name, "client": data["client"], "label": data["label"],
        "rows": len(rows.test), "held_out": held, "how": how_held_out(config),
        "without_label": rows.left_out, "without_client": rows.nobody,
        "digest": sha256_of(Path(data["path"])),
    }  # fmt: skip
    about["summary"] = (
        f"{about['file']}: {about['rows']:,} rows, label {data['label']!r}, client "
        f"{data['client']!r}"
        + f"; {rows.left_out:,} more rows without a label are left out" * bool(rows.left_out)
        + f"; {rows.nobody:,} rows without a client train the global model" * bool(rows.nobody)
        + (f"; {held:,} rows are held out, {about['how']}." if held else ".")
    )
    origin = provenance()
    modules = {type(model.estimator).__module__.partition(".")[0], "sklearn"}
    origin["versions"] |= {
        name: importlib.metadata.version(name)
        for name, module in PACKAGES.items()
        if module in modules
    }
    return jsonable({
        "experiment": experiment, "seed": config.seed, "data": about, **found,
        "warnings": list(warned), **origin,
        "wall_seconds": {name: round(taken, 1) for name, taken in seconds.items()},
    })  # fmt: skip


def _noted(columns: list[Any], rows: Rows, model: Any) -> list[dict[str, Any]]:
    """Columns with all that people should know of them, also beside the label and the client."""
    x, y = rows.part(~rows.test)
    beside = {"client": x[model.client].combine_chunks(), "label": pa.array(y)}
    found: dict[str, list[str]] = {}
    for name, what in notes_on(x, model.models_.view.preparation.kinds, beside):
        found.setdefault(name, []).append(what)
    return [{**one, "attention": "; ".join(found.get(one["name"], ()))} for one in columns]


def how_held_out(config: TableConfig) -> str:
    """How rows were held out, for people."""
    split, groups = config.split, config.data.get("groups")
    by = split.get("by")
    if "given" in split:
        return f"as column {split['given']!r} says"
    if by == "time":
        return f"the last {split['test']:.0%} of each client by {config.data['time']!r}"
    if by == "random":
        together = f", whole groups of {groups!r}" if groups else " of each client"
        return f"{split['test']:.0%}{together}, at random"
    return f"from {by} on, by {config.data['time']!r}" if by is not None else ""


def _save(model: Any, folder: Path) -> None:
    """Save models; those that cannot be saved cost no results."""
    try:
        model.save(folder)
    except ConfigError as error:
        warn(f"the models were not saved: {error}")


def _write(
    folder: Path, config: TableConfig, results: Mapping[str, Any], clients: pa.Table, model: Any
) -> None:
    """Write what belongs in the directory."""
    write_atomic(folder / "config.toml", to_toml(config.to_table()))
    effects = effects_of(model)
    if effects is not None:
        write_table(folder / "effects.parquet", effects)
    write_results(folder, dict(results), clients)
    write_report([folder], folder / "report.html")
