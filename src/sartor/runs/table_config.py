"""The configuration of a run on a table: a TOML file, or what the command line says."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from sartor.checking import Part, Positive, Range, check_table
from sartor.errors import ConfigError, nearest
from sartor.estimators import CANDIDATES
from sartor.models import FACTORIES
from sartor.runs import named

Table = dict[str, Any]

DATA: Mapping[str, Any] = {
    "path": str, "client": str, "label": str, "features": Sequence[str] | None,
    "second": str | None, "time": str | None, "groups": str | None,
    "task": Literal["classification", "regression"] | None,
}  # fmt: skip
SPLIT: Mapping[str, Any] = {"test": Part, "by": str | float | None, "given": str | None}
APPROACH: Mapping[str, Any] = {
    "name": str, "folds": Annotated[int, Range(2, 100)], "budget": Positive
}  # fmt: skip
"""The keys of the tables, and what they hold. ``[model]`` takes those of the estimator."""

ELSEWHERE = ("central", "personal", "engine", "cluster", "local", "interpolation", "advice")
"""Tables of configurations whose models are JAX's."""

USUAL_TEST = 0.2
"""The share of rows that a run holds out."""


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """Everything that a run on a table depends on.

    Attributes:
        data: ``path``, and the columns in their roles: ``client``, ``label``, ``features``,
            ``second``, ``time``, ``groups``; and the ``task``, where the label does not say it.
        split: ``test``, the share of rows held out; ``by``, how; or ``given``, a column that says
            "test" or "train".
        model: the ``name`` of an estimator and its arguments.
        approach: the ``name`` of what is fitted to clients, ``folds`` and ``budget``.
        seed: seed of all randomness.
    """

    data: Table
    split: Table = dataclasses.field(default_factory=dict)
    model: Table = dataclasses.field(default_factory=lambda: {"name": named.BOOSTING})
    approach: Table = dataclasses.field(default_factory=lambda: {"name": "auto"})
    seed: int = 0

    def to_table(self) -> Table:
        """Plain values, as they are written to ``config.toml``."""
        return {"seed": self.seed, **{k: getattr(self, k) for k in ("data", "split", "model")},
                "approach": self.approach}  # fmt: skip


def is_tabled(table: Mapping[str, Any]) -> bool:
    """Whether a configuration is of estimators for tables, and not of models in JAX.

    >>> is_tabled({"model": {"name": "lightgbm"}}), is_tabled({"model": {"name": "logistic"}})
    (True, False)
    """
    name = name_of_model(table)
    elsewhere = any(key in table for key in ELSEWHERE)
    if names_estimator(name):
        return True
    if "approach" in table and not elsewhere:
        return not names_jax(name)
    return name in named.NAMES and not elsewhere


def name_of_model(table: Mapping[str, Any]) -> Any:
    """The name of a configuration's model; ``None`` if it names none."""
    model = table.get("model", {})
    return model.get("name") if isinstance(model, dict) else None


def names_estimator(name: Any) -> bool:
    """Whether a model's name can be that of an estimator alone; both have a linear one.

    >>> names_estimator("xgboost"), names_estimator("linear"), names_estimator("logistic")
    (True, False, False)
    """
    if not isinstance(name, str):
        return False
    return "." in name or (name in named.NAMES and name not in FACTORIES)


def names_jax(name: Any) -> bool:
    """Whether a model's name can be that of a model in JAX alone."""
    return isinstance(name, str) and name in FACTORIES and name not in named.NAMES


def parse_table_config(
    table: Mapping[str, Any], relative_to: Path | None = None, *, tests: bool = True
) -> TableConfig:
    """Check a table and make a :class:`TableConfig` of it.

    Args:
        table: the content of a TOML file.
        relative_to: where its paths begin.
        tests: whether rows are held out, unless the table says otherwise.

    >>> parse_table_config({"data": {"path": "shops.csv", "clinet": "shop"}})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: data.clinet does not exist; did you mean 'client'?
    """
    model = {"name": named.BOOSTING, **_part(table, "model")}
    for key in ELSEWHERE:
        if key in table:
            raise ConfigError(
                f"[{key}] is for models in JAX, such as logistic, and model.name is "
                f"{model['name']!r}; leave it out, or choose another model"
            )
    known = ("data", "split", "model", "approach", "seed")
    for key in table:
        if key not in known:
            raise ConfigError(f"{key} does not exist; {nearest(key, (*known, *ELSEWHERE))}")
    data, split, approach = (_part(table, key) for key in ("data", "split", "approach"))
    if isinstance(split.get("by"), datetime.date | datetime.datetime):  # TOML knows dates
        split["by"] = split["by"].isoformat().replace("T", " ")
    check_table("data", data, DATA)
    check_table("split", split, SPLIT)
    check_table("approach", approach, APPROACH)
    check_table("", {"seed": table.get("seed", 0)}, {"seed": int})
    named.check_name(model["name"])
    approach = {"name": "auto", **approach}
    if approach["name"] not in ("auto", *CANDIDATES):
        hint = nearest(approach["name"], ("auto", *CANDIDATES), "choose one of")
        raise ConfigError(f"approach.name is {approach['name']!r}; {hint}")
    if "path" not in data:
        raise ConfigError(f"[data] needs path, a CSV or Parquet file, for {model['name']!r}")
    path = (relative_to or Path.cwd()) / os.path.expanduser(data["path"])
    return TableConfig(
        {**data, "path": str(path.resolve())}, _split(split, data, tests), model, approach,
        table.get("seed", 0),
    )  # fmt: skip


def _split(split: Table, data: Table, tests: bool) -> Table:
    """How rows are held out; the same for all who read the configuration again."""
    by = split.get("by")
    if "given" in split:
        if others := [key for key in ("test", "by") if key in split]:
            raise ConfigError(
                f"split.given={split['given']!r} says which rows are held out; leave out "
                f"split.{others[0]}"
            )
        return split
    if by is not None and by != "random" and "time" not in data:
        raise ConfigError(
            f"split.by={by!r}: say which column holds times: --time COLUMN (data.time)"
        )
    if isinstance(by, float | int) or (by is not None and by not in ("random", "time")):
        if "test" in split:
            raise ConfigError(f"split.by={by!r} says which rows are held out; leave out split.test")
        return split
    if "test" not in split and not tests:
        return {}
    return {
        "test": split.get("test", USUAL_TEST),
        "by": by or ("time" if "time" in data else "random"),
    }


def _part(table: Mapping[str, Any], key: str) -> Table:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{key} must be a table, written [{key}] (got {found!r})")
    return dict(found)
