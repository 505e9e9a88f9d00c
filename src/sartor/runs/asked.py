"""What a command line asks for: estimators for a table, or a model in JAX."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sartor.data.files import is_table
from sartor.errors import ConfigError
from sartor.runs import named
from sartor.runs.config import Config, override, parse_config, read_table
from sartor.runs.run import read_any
from sartor.runs.table_config import (
    ELSEWHERE,
    USUAL_TEST,
    Table,
    TableConfig,
    is_tabled,
    name_of_model,
    names_estimator,
    names_jax,
    parse_table_config,
)

SUFFIXES = (".csv", ".parquet", ".pq")
"""Endings of files that are meant to be tables, whether they are there or not."""

SPREADSHEETS = (".xlsx", ".xls", ".ods")

IN_JAX: Table = {"central": {"name": "FedAvg"}, "personal": [{"name": "Finetune"}]}
"""What is run on a table with a model in JAX, if nothing else is said."""


def run_asked(
    path: Path, columns: Mapping[str, Any], options: Mapping[str, Any], overrides: Sequence[str]
) -> Config | TableConfig:
    """The configuration of a run.

    Args:
        path: a table, or a configuration file.
        columns: keys of ``[data]``, for a table.
        options: ``model``, ``approach``, ``test`` and ``seed``, those that were given.
        overrides: texts such as ``split.by=time``.
    """
    if path.suffix.lower() in SPREADSHEETS:
        raise ConfigError(
            f"{path} is a spreadsheet; save the table as CSV or Parquet, such as by to_parquet"
        )
    if not is_source(path):
        if path.is_dir() and not (path / "config.toml").is_file():
            raise ConfigError(f"{path} is a directory; name a table (CSV or Parquet) in it")
        for name, value in {**columns, **options}.items():
            raise ConfigError(
                f"--{name}: {path} is a configuration, which says that itself; change it by --set "
                f"{_key(name)}={value}"
            )
        return read_any(path, overrides)
    for_jax: Table = {head: {} for text in overrides if (head := _head(text)) in ELSEWHERE}
    own = [text for text in overrides if _head(text) not in for_jax]
    table = {**_table_of(path, columns, options, own), **for_jax}
    if for_estimators(table):
        return parse_table_config(table)
    if "approach" in table or "task" in columns:
        raise ConfigError(
            "approach and task are for estimators, and this asks for a model in JAX; leave them "
            f"out, or choose one of {', '.join(named.NAMES)}"
        )
    usual = {**IN_JAX, "data": {"path": str(path.resolve()), **columns}}
    full: Table = copy.deepcopy(usual)
    _add(full, {"test": USUAL_TEST, **options}, overrides)
    return parse_config(full)


def advice_asked(
    source: Path, columns: Mapping[str, Any], options: Mapping[str, Any], overrides: Sequence[str]
) -> TableConfig | None:
    """The configuration of advice for a table, or for a run on one; ``None`` for all else.

    Args:
        source: what advice is about.
        columns: keys of ``[data]``.
        options: ``model``, ``approach``, ``seed``, ``folds``, ``bound`` and ``delta``, those that
            were given.
        overrides: texts such as ``approach.budget=60``.
    """
    before = _table_of_run(source)
    if before is not None and columns:
        raise ConfigError(f"{source} is a run, which says itself which columns to take")
    if before is None and not (source.exists() and is_source(source)):
        return None
    table = _table_of(source, columns, options, overrides) if before is None else before
    if before is not None:
        _add(table, options, overrides)
    if not for_estimators(table):
        return None
    return parse_table_config(table, relative_to=source if source.is_dir() else None, tests=False)


def for_estimators(table: Mapping[str, Any]) -> bool:
    """Whether a table is meant for estimators: unless what is asked is known to JAX alone.

    >>> for_estimators({"data": {}}), for_estimators({"data": {}, "model": {"name": "logistic"}})
    (True, False)
    """
    name, data = name_of_model(table), table["data"]
    if any(key in table for key in ELSEWHERE) or (isinstance(data, dict) and "domain" in data):
        return names_estimator(name)
    return not names_jax(name)


def is_source(path: Path) -> bool:
    """Whether a path is a table: a CSV or Parquet file.

    >>> is_source(Path("absent.csv")), is_source(Path("absent.toml"))
    (True, False)
    """
    if not path.exists():
        return path.suffix.lower() in SUFFIXES
    return path.is_file() and path.suffix.lower() != ".toml" and is_table(path)


def _table_of(
    path: Path, columns: Mapping[str, Any], options: Mapping[str, Any], overrides: Sequence[str]
) -> Table:
    table: Table = {"data": {"path": str(path.resolve()), **columns}}
    _add(table, options, overrides)
    return table


def _add(table: Table, options: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Put options and overrides in their places."""
    for name, value in options.items():
        place, _, key = _key(name).rpartition(".")
        part = table.setdefault(place, {}) if place else table
        if not isinstance(part, dict):
            raise ConfigError(f"{place} must be a table, written [{place}] (got {part!r})")
        part[key] = value
    for text in overrides:
        override(table, text)


def _head(override: str) -> str:
    """The table that an override is of."""
    return override.partition("=")[0].partition(".")[0].strip()


def _key(option: str) -> str:
    """The key of a configuration that an option stands for."""
    places = {
        "model": "model.name", "approach": "approach.name", "test": "split.test", "seed": "seed",
        "folds": "approach.folds", "bound": "advice.bound", "delta": "advice.delta",
    }  # fmt: skip
    return places.get(option, f"data.{option}")


def _table_of_run(path: Path) -> Table | None:
    """The configuration of a run or of advice on a table; ``None`` if a directory is of others."""
    config = path / "config.toml"
    table = read_table(config) if config.is_file() else {}
    return table if is_tabled(table) else None
