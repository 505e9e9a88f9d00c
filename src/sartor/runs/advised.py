"""Advice as a command: from data or a run to a directory with each client's advice."""

import dataclasses
import inspect
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sartor import central, personal
from sartor.advice import Advice, advise
from sartor.advice.advise import INTERPOLATION
from sartor.central import FedAvg, KMeansPlusPlus, Warm
from sartor.central.settings import describe
from sartor.checking import AnyPath, check_table, checks_arguments, hints_of
from sartor.data import ClientData
from sartor.errors import ConfigError, FileError
from sartor.evaluation.statistics import jsonable
from sartor.files import check_sum, is_free, replacing, write_atomic
from sartor.locks import locked
from sartor.personal import Local
from sartor.report import write_report
from sartor.runs.config import Config, algorithm_of, override, parse_config, read_table, settings_of
from sartor.runs.record import noted, provenance, write_results
from sartor.runs.toml import to_toml

MOST_LAMBDAS = 5
"""A run's cover with more λ than this is replaced by a smaller one, for a quick experiment."""

CANDIDATES = {"Local": "local", "Finetune": "interpolation", "Dapper": "interpolation"}
"""Personal algorithms of a run that become candidates; the last one of a kind is preferred."""

USUAL = {"central": "FedAvg", "cluster": "HypCluster", "local": "Local", "interpolation": "Dapper"}
"""The algorithm of each candidate whose table names none."""

OPTIONS = {key: hints_of(advise)[key] for key in ("folds", "delta", "bound", "radius")}
"""The keys of ``[advice]``: arguments of :func:`sartor.advise`."""


@dataclasses.dataclass(frozen=True)
class AdviceConfig:
    """Everything that advice depends on.

    Attributes:
        base: data, model, engine and seed; its central algorithm trains the global model.
        others: the algorithms that train the other candidates: cluster models (``cluster``), a
            model of the client alone (``local``), and models between the local and the global one
            (``interpolation``; ``None`` tries none).
        options: ``folds``, ``delta``, ``bound`` and ``radius``, if given.
    """

    base: Config
    others: dict[str, Any]
    options: dict[str, Any]

    def algorithms(self) -> dict[str, str]:
        """The name of each candidate's algorithm."""
        found = {"global": self.base.central, **self.others}
        return {name: type(a).__name__ for name, a in found.items() if a is not None}

    def to_table(self) -> dict[str, Any]:
        """Plain values, as they are written to ``config.toml``."""
        table = {k: v for k, v in self.base.to_table().items() if k != "personal"}
        for name, algorithm in self.others.items():
            table[name] = settings_of(algorithm) if algorithm else {"name": "none"}
        return table | {"advice": self.options}


@checks_arguments
def advice_config(
    source: AnyPath,
    *,
    overrides: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    model: str | None = None,
    seed: int | None = None,
) -> AdviceConfig:
    """The configuration of advice.

    Args:
        source: data, or a run directory, whose data, model and algorithms are taken.
        overrides: texts such as ``central.rounds=50``.
        columns: the columns of a table; arguments of :func:`sartor.data.open`.
        model: the name of a ready model (default: the run's, or one that fits the labels).
        seed: seed of all randomness (default: the run's, or 0).
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
        raise ConfigError(f"{source} is a run, which says itself which columns to take")
    if model is not None:
        table["model"] = {"name": model}
    if seed is not None:
        table["seed"] = seed
    for text in overrides:
        override(table, text)
    return _parsed(table, source)


@checks_arguments
def advise_run(
    config: AdviceConfig, out: AnyPath, *, progress: bool | None = None
) -> tuple[Advice, dict[str, Any]]:
    """Advise every client, and write a directory about it.

    Args:
        config: see :func:`advice_config`.
        out: the directory, new or empty; it will hold ``config.toml``, ``results.json``,
            ``per_client.parquet``, ``figures/`` and ``report.html``.
        progress: whether to show a bar (default: only on a terminal).

    Returns:
        The advice, and the content of ``results.json``.
    """
    with locked(out):
        if not is_free(Path(out)):
            raise FileError(f"{out} is not empty; choose another --out")
        return _advise_run(config, Path(out), progress)


def _advise_run(
    config: AdviceConfig, out: Path, progress: bool | None
) -> tuple[Advice, dict[str, Any]]:
    began = time.perf_counter()
    base = config.base
    with noted() as warned:
        data = base.open_data()
        model = base.make_model(data)
        advice = advise(
            data, model, central=base.central, **config.others, seed=base.seed,
            engine=base.engine, progress=progress, **config.options,
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
    # Whole or not at all: advice does not resume, so a part of it would only be in the way.
    with replacing(out, lambda _: False) as folder:
        write_atomic(folder / "config.toml", to_toml(config.to_table()))
        write_results(folder, results, pa.table(advice.columns()))
        write_report([folder], folder / "report.html")
    return advice, results


def summary(advice: Advice) -> dict[str, Any]:
    """The advice to all clients in a few numbers."""
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
        "lambda": dict(Counter(f"{v:g}" for v in np.sort(known))),
        "bounds_lambda": np.quantile(advice.bounds_lambda, [0.0, 0.5, 1.0]).tolist(),
    }


def _table_of_run(source: Path) -> dict[str, Any] | None:
    """The configuration of a run, with its algorithms as candidates; ``None`` if it is not a run.

    A central algorithm with one model gives its settings to the clusters' algorithm, and the other
    way round. Mapper's joint rounds take too long for a quick experiment; Dapper replaces it.
    """
    path = check_sum(source, "config.toml")
    if not path.is_file():
        return None
    table = read_table(path)
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
    first = {type(p).__name__: settings_of(p) for p in reversed(run.personal)}
    for name, kind in CANDIDATES.items():
        if name in first:
            taken[kind] = first[name]
    if len(taken.get("interpolation", {}).get("cover", ())) > MOST_LAMBDAS:
        taken["interpolation"]["cover"] = list(INTERPOLATION.cover)
    return taken


def _parsed(table: dict[str, Any], source: Path) -> AdviceConfig:
    own = ("cluster", "local", "interpolation", "advice")
    sections = dict.fromkeys(("data", "split", "model", "central", "engine", *own), dict)
    check_table("", table, {**sections, "seed": int})
    options = table.get("advice", {})
    check_table("advice", options, OPTIONS)
    table = table | {kind: {"name": name, **table.get(kind, {})} for kind, name in USUAL.items()}
    base = {key: value for key, value in table.items() if key not in own}
    if "name" not in (model := base.get("model", {})):
        any_model = parse_config({**base, "model": {"name": "logistic"}})
        base["model"] = {"name": _model_for(any_model.open_data()), **model}
    between = table["interpolation"]
    if between["name"] == "Dapper":
        between = settings_of(INTERPOLATION) | between
    others = {
        "cluster": algorithm_of("cluster", table["cluster"], central.ALGORITHMS),
        "local": algorithm_of("local", table["local"], {"Local": Local}),
        "interpolation": None,
    }
    if between["name"] != "none":
        others["interpolation"] = algorithm_of("interpolation", between, personal.ALGORITHMS)
    where = source if source.is_dir() else source.parent
    return AdviceConfig(parse_config(base, relative_to=where), others, options)


def _model_for(data: ClientData) -> str:
    """The name of a model that fits the labels, and is quick to train."""
    if "x" not in data.columns:
        return "categorical"
    return "linear" if data.columns["y"].dtype.kind == "f" else "logistic"
