"""Advice as a command: data or a run in, a directory with every client's advice out."""

from __future__ import annotations

import dataclasses
import inspect
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sartor import central, personal
from sartor.advice import Advice, advise
from sartor.advice.advise import INTERPOLATION
from sartor.central import Central, FedAvg, KMeansPlusPlus, Warm
from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.errors import ConfigError, FileError
from sartor.evaluation.statistics import jsonable
from sartor.files import is_free, write_atomic, write_json
from sartor.personal import Local, Personal
from sartor.report import write_report
from sartor.runs.config import Config, Table, algorithm_of, override, parse_config, settings_of
from sartor.runs.record import noted, provenance, write_table
from sartor.runs.toml import to_toml
from sartor.runs.values import check_table

MOST_LAMBDAS = 5
"""So many λ of a run are tried; of a finer cover a few others, for a quick experiment."""

OPTIONS: dict[str, Any] = {"folds": int, "delta": float, "bound": float, "radius": float}
"""What ``[advice]`` may say: arguments of :func:`sartor.advise`."""


@dataclasses.dataclass(frozen=True)
class AdviceConfig:
    """Everything that advice depends on.

    Attributes:
        base: data, model, engine, seed, and as its central algorithm how the global model is made.
        cluster: how the clusters' models are made.
        local: how a model of a client's own is made.
        interpolation: what lies between; none if it is not to be tried.
        options: ``folds``, ``delta``, ``bound`` and ``radius``, where they are given.
    """

    base: Config
    cluster: Central
    local: Local
    interpolation: Personal | None
    options: Table

    def algorithms(self) -> dict[str, str]:
        """What stands for each candidate."""
        named = {"global": self.base.central, "cluster": self.cluster, "local": self.local}
        found = {name: type(algorithm).__name__ for name, algorithm in named.items()}
        if self.interpolation is not None:
            found["interpolation"] = type(self.interpolation).__name__
        return found

    def to_table(self) -> Table:
        """Plain values, as they are written to ``config.toml``."""
        mixed = settings_of(self.interpolation) if self.interpolation else {"name": "none"}
        table = {k: v for k, v in self.base.to_table().items() if k != "personal"}
        table |= {"cluster": settings_of(self.cluster), "local": settings_of(self.local)}
        return table | {"interpolation": mixed, "advice": self.options}


def advice_config(
    source: str | Path,
    *,
    overrides: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    model: str | None = None,
    seed: int | None = None,
) -> AdviceConfig:
    """What to advise on, and by which experiment.

    Args:
        source: a run directory, whose data, model and algorithms are taken, or data.
        overrides: texts such as ``central.rounds=50``.
        columns: of data that is a table; arguments of :func:`sartor.data.open`.
        model: the name of a ready model; one that fits the labels, if not given.
        seed: of all randomness; the run's, or 0.
    """
    source = Path(source)
    table = _table_of_run(source)
    if table is None:
        if not source.exists():
            raise FileError(f"there is no {source}; name a file or directory with data, or a run")
        if source.suffix == ".toml":
            raise ConfigError(
                f"{source} is a configuration; run it first (sartor run {source}), and name the "
                "directory of the run"
            )
        table = {"data": {"path": str(source.resolve()), **(columns or {})}}
    elif columns:
        raise ConfigError(f"{source} is a run, and says itself which columns to take")
    if model is not None:
        table["model"] = {"name": model}
    if seed is not None:
        table["seed"] = seed
    for text in overrides:
        override(table, text)
    return _parsed(table, source)


def advise_run(
    config: AdviceConfig, out: str | Path, *, progress: bool | None = None
) -> tuple[Advice, dict[str, Any]]:
    """Advise every client, and write a directory about it.

    Args:
        config: see :func:`advice_config`.
        out: the directory, new or empty; it will hold ``config.toml``, ``results.json``,
            ``per_client.parquet``, ``figures/`` and ``report.html``.
        progress: whether to show a bar; on a terminal only, if not given.

    Returns:
        The advice, and what is in ``results.json``.
    """
    out, began = Path(out), time.perf_counter()
    if not is_free(out):
        raise FileError(f"{out} is not empty; choose another --out")
    base = config.base
    with noted() as warned:
        data = base.open_data()
        model = base.make_model(data)
        advice = advise(
            data, model, central=base.central, cluster=config.cluster, local=config.local,
            interpolation=config.interpolation, seed=base.seed, engine=base.engine,
            progress=progress, **config.options,
        )  # fmt: skip
    results = jsonable({
        "experiment": "advice",
        "seed": base.seed,
        "data": {"fingerprint": data.fingerprint, "summary": repr(data)},
        "model": base.model["name"],
        "loss": "squared error" if model.kind == "regression" else "log-loss, in nats",
        "algorithms": config.algorithms(),
        **summary(advice),
        "warnings": warned,
        **provenance(),
        "wall_seconds": {"total": round(time.perf_counter() - began, 1)},
    })  # fmt: skip
    write_atomic(out / "config.toml", to_toml(config.to_table()))
    write_table(out / "per_client.parquet", pa.table(advice.columns()))
    write_json(out / "results.json", results)
    write_report([out], out / "report.html")
    return advice, results


def summary(advice: Advice) -> dict[str, Any]:
    """What there is to say about all clients together."""
    says = np.where(advice.vacuous, "nothing", advice.bounds_say)
    pairs = Counter(zip(advice.sharing.tolist(), says.tolist(), strict=True))
    promised = advice.agree[~advice.vacuous]
    known = advice.lambda_[np.isfinite(advice.lambda_)]
    return {
        "settings": dict(advice.settings),
        "clients": len(advice.client),
        "shares": advice.shares(),
        "policies": advice.policies(),
        "sharing": [{"experiment": a, "bounds": b, "clients": n} for (a, b), n in pairs.items()],
        "agree": float(promised.mean()) if len(promised) else None,
        "vacuous": float(advice.vacuous.mean()),
        "clear": float(advice.clear.mean()),
        "lambda": {f"{v:g}": int((known == v).sum()) for v in np.unique(known)},
        "bounds_lambda": np.quantile(advice.bounds_lambda, [0.0, 0.5, 1.0]).tolist(),
    }


def _table_of_run(source: Path) -> Table | None:
    """The configuration of a run, if it is one: what it has of each kind is taken over.

    A central algorithm of one model gives its settings to the clusters', and the other way round.
    Mapper's joint rounds are no quick experiment; Dapper stands for it.
    """
    path = source / "config.toml"
    if not path.is_file():
        return None
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is not readable TOML: {error}") from error
    if not {"data", "model", "central"} <= set(table):
        raise FileError(f"{path} is not of a run; name a run directory, or data")
    if "advice" in table:
        return table
    run = parse_config(table, relative_to=source)
    taken = {k: v for k, v in run.to_table().items() if k != "personal"}
    shared = set(inspect.signature(FedAvg).parameters)
    common = {k: v for k, v in taken["central"].items() if k in shared}
    if hasattr(run.central, "q"):
        taken["cluster"], taken["central"] = taken["central"], {"name": "FedAvg", **common}
    else:
        warm = min(Warm().rounds, run.central.rounds // 4)
        start = describe(Warm(warm) if warm else KMeansPlusPlus())
        taken["cluster"] = {"name": "HypCluster", "start": start, **common}
    kinds = {type(p).__name__: p for p in reversed(run.personal)}
    for kind, names in {"local": ("Local",), "interpolation": ("Dapper", "Finetune")}.items():
        for algorithm in [kinds[name] for name in names if name in kinds][:1]:
            mine = settings_of(algorithm)
            if len(mine.get("cover", ())) > MOST_LAMBDAS:
                mine["cover"] = list(INTERPOLATION.cover)
            taken[kind] = mine
    return taken


def _parsed(table: Table, source: Path) -> AdviceConfig:
    own = ("cluster", "local", "interpolation", "advice")
    known = dict.fromkeys(("data", "split", "model", "central", "engine", *own), dict)
    check_table("", table, {**known, "seed": int})
    rest = {key: value for key, value in table.items() if key not in own}
    rest["central"] = {"name": "FedAvg", **rest.get("central", {})}
    if "name" not in (given := rest.get("model", {})):  # the labels tell which
        any_model = parse_config({**rest, "model": {"name": "logistic"}})
        rest["model"] = {"name": _model_for(any_model), **given}
    options = table.get("advice", {})
    check_table("advice", options, OPTIONS)
    given = table.get("interpolation", {})
    if given.get("name", "Dapper") == "Dapper":
        given = settings_of(INTERPOLATION) | given

    def algorithm(kind: str, name: str, known: Mapping[str, Any]) -> Any:
        return algorithm_of(kind, {"name": name, **table.get(kind, {})}, known)

    return AdviceConfig(
        base=parse_config(rest, relative_to=source if source.is_dir() else source.parent),
        cluster=algorithm("cluster", "HypCluster", central.ALGORITHMS),
        local=algorithm("local", "Local", {"Local": Local}),
        interpolation=None
        if given["name"] == "none"
        else algorithm_of("interpolation", given, personal.ALGORITHMS),
        options=options,
    )


def _model_for(config: Config) -> str:
    """A model for these labels, quick to train."""
    data: ClientData = config.open_data()
    if "x" not in data.columns:
        return "categorical"
    return "linear" if data.columns["y"].dtype.kind == "f" else "logistic"
