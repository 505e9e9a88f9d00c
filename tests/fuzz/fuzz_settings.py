"""Areas of settings, of all public functions, and of configurations."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import value_cases
from known import known
from outcomes import (
    Case,
    Refused,
    Wrong,
    chance,
    may_refuse,
    must_refuse,
    pick,
    refuses,
    same,
    sure,
)
from run_cases import SMALL, blank_figures
from value_cases import ODD, Place

import sartor
from sartor.documents import parse_toml
from sartor.errors import SartorError
from sartor.runs import parse_config, read_config, run
from sartor.runs.config import Config, override, settings_of
from sartor.runs.toml import to_toml

Rng = np.random.Generator

NO_NUMBER: list[Any] = ["3", True, [], [1], {}, math.nan, math.inf, 1j, b"1", ..., len, "", 2**70]
COUNT = [1, 2, 7, 20], [*NO_NUMBER, 0, -1, 1.5, None]
WHOLE = [0, 1, 5], [*NO_NUMBER, -1, 0.5, None]
POSITIVE = [0.1, 1, 2.5, 0.001, 2**70], [*NO_NUMBER[:-1], 0, -0.1, 1e300, 1e-300, 10**400, None]
RATE = POSITIVE[0], [bad for bad in POSITIVE[1] if bad != {}]  # a table may be Automatic()
PART = [0.0, 0.5, 0.9], [*NO_NUMBER[:-1], -0.1, 1.0, 3]
FLAG = [True, False], [0, 1, "yes", None, [], math.nan]
MAYBE = [True, False, None], [0, 1, "yes", [], math.nan]
COVER = (
    [[0.5], [0.0, 1.0], [0.0, 0.25, 0.5]],
    ["0.5", [], [2.0], [-0.1], [[0.5]], ["a"], {}, [None]],
)
CHOSEN = (
    [None, {"name": "adam", "learning_rate": 0.01}, {"name": "sgd", "learning_rate": 1}],
    ["adam", {"name": "adem"}, {}, 3, {"name": "adam", "rate": 1}, {"name": "adam"}, [], True,
     {"name": "sgd", "learning_rate": -1.0}, {"name": "sgd", "learning_rate": "0.1"}],
)  # fmt: skip


def words(*several: str) -> tuple[list[Any], list[Any]]:
    """A setting that takes one of some words."""
    return list(several), [*NO_NUMBER, "x", several[0].upper(), None, list(several)]


ROUNDS = {"rounds": COUNT, "cohort": COUNT}
FEDAVG = {
    **ROUNDS, "epochs": COUNT, "batch": COUNT, "learning_rate": RATE,
    "weights": words("size", "uniform"), "server_learning_rate": POSITIVE, "server_momentum": PART,
    "client_optimizer": CHOSEN, "server_optimizer": CHOSEN,
}  # fmt: skip
PERSONAL = {
    "epochs": COUNT, "batch": COUNT, "learning_rate": RATE, "optimizer": CHOSEN, "guard": MAYBE,
    "folds": ([2, 5, 1000], [*NO_NUMBER, 1, 0, 1001, None]), "shrink": FLAG,
}  # fmt: skip
SELECT = words("holdout", "kfold", "train")
KINDS: dict[str, dict[str, tuple[list[Any], list[Any]]]] = {
    "FedAvg": FEDAVG,
    "Agnostic": {
        **FEDAVG, "domain_step": ([0, 0.1], [*NO_NUMBER, -1, None]), "window": COUNT,
        "domain_start": words("uniform", "population"), "counts": words("population", "window"),
    },
    "HypCluster": {
        **FEDAVG, "rounds": ([100, 200], COUNT[1]),
        "q": ([1, 2, [2, 3]], ["2", 0, [], [0], 1.5, True, {}, [2, "3"], None, 2**70]),
        "restarts": ([1, 5], [*NO_NUMBER, 0, 101, 10**12, None]),
        "start": ([{"name": "Warm", "rounds": 2}, {"name": "Random"}, {"name": "KMeansPlusPlus"}],
                  ["hot", {"name": "Hot"}, {}, 3, [], {"name": "Warm", "rounds": 0}, None]),
    },
    "KMeansClusters": {**FEDAVG, "q": COUNT, "restarts": ([1, 9], [*NO_NUMBER, 0, 10**5, None])},
    "BregmanClusters": {**FEDAVG, "q": COUNT},
    "Local": PERSONAL,
    "Finetune": {**PERSONAL, "layers": ([None, ["dense_1"], "dense_1"], [1, [1], True, {}, 1.5])},
    "Dapper": {
        **PERSONAL, "cover": COVER, "select": SELECT, "r": COUNT, "step": words("sample", "weight"),
        "mixture": words("all", "cluster"),
        "theory": ([None], [0, True, "x", {}, {"mu": 1.0}, {"mu": 0, "G": 1, "R": 1}, []]),
    },
    "Mapper": {
        **PERSONAL, "cover": COVER, "select": SELECT, "joint": FLAG, "rounds": WHOLE,
        "cohort": COUNT, "central_epochs": WHOLE, "central_learning_rate": RATE,
        "keep_local": FLAG,
        "local": ([None], [3, "logistic", {}, {"name": "x"}, True, []]),
    },
}  # fmt: skip
"""What every setting takes and does not take, written down apart from Sartor's annotations."""

CENTRAL = ("FedAvg", "Agnostic", "HypCluster", "KMeansClusters", "BregmanClusters")


def drawn_settings(rng: Rng, kind: str, bad: float) -> tuple[dict[str, Any], str]:
    """Some settings of an algorithm, and the name of one that is wrong, if one is."""
    chosen = [name for name in KINDS[kind] if chance(rng, 0.25)]
    values = {name: pick(rng, KINDS[kind][name][0]) for name in chosen}
    wrong = pick(rng, KINDS[kind]) if chance(rng, bad) else ""
    if wrong:
        values[wrong] = pick(rng, KINDS[kind][wrong][1])
    return values, wrong


def settings(rng: Rng, scratch: Path) -> None:
    """Settings are taken or refused as the list above says, in Python and in TOML alike."""
    kind = pick(rng, KINDS)
    values, wrong = drawn_settings(rng, kind, bad=0.4)
    made = getattr(sartor, kind)
    if wrong:
        in_toml(kind, values, wrong)
        with must_refuse(f"{kind}({wrong}={values[wrong]!r})"):
            made(**values)
    guarded = values.get("guard") and values.get("select") == "train"
    if guarded:  # of which one needs what the other has not
        with must_refuse(f"{kind}({values})"):
            made(**values)
    algorithm = made(**values)
    for name, value in values.items():
        if not isinstance(value, dict | list) and (kind, name) != ("Finetune", "layers"):
            same(f"{kind}.{name}", getattr(algorithm, name), value)
    same("of numpy's numbers", made(**{n: as_numpy(v) for n, v in values.items()}), algorithm)
    same("the same hash", hash(made(**values)), hash(algorithm))
    same("copied", dataclasses.replace(algorithm), algorithm)
    sure(kind in repr(algorithm), repr(algorithm))
    table = {name: value for name, value in values.items() if value is not None}
    section = "central" if kind in CENTRAL else "personal"
    for given in (table, {k: v for k, v in settings_of(algorithm).items() if k != "name"}):
        same("from TOML", from_toml(section, kind, given), algorithm)
    typo = pick(rng, KINDS[kind]) + "z"
    with refuses(f"{kind}({typo}=...)"):
        from_toml(section, kind, {**table, typo: 1})


def as_numpy(value: Any) -> Any:
    """A number as numpy has it."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int) and value < 2**31:
        return np.int32(value)
    return np.float64(value) if isinstance(value, float) else value


def in_toml(kind: str, values: dict[str, Any], wrong: str) -> None:
    """What Python refuses, a configuration refuses too, if it can be written."""
    table = {name: value for name, value in values.items() if value is not None}
    if wrong not in table:
        return
    try:
        text = to_toml({"value": table})
    except SartorError:
        return  # of a type that TOML does not have
    try:
        from_toml("central" if kind in CENTRAL else "personal", kind, parse_toml(text)["value"])
    except SartorError:
        return
    raise Wrong(f"TOML takes {kind}.{wrong} = {values[wrong]!r}")


def from_toml(section: str, kind: str, table: dict[str, Any]) -> Any:
    """An algorithm out of a configuration, through its text."""
    one = {"name": kind, **table}
    whole = {"data": {"generator": "synthetic"}, "model": {"name": "categorical"},
             "central": {"name": "FedAvg"}}  # fmt: skip
    whole[section] = [one] if section == "personal" else one  # type: ignore[assignment]
    config = parse_config(parse_toml(to_toml(whole)))
    return config.central if section == "central" else config.personal[0]


MORE_ODD: dict[str, Any] = {
    **ODD, "False": False, "frame": pd.DataFrame({"a": [1.0, 2.0]}), "empty": np.zeros((0, 3)),
    "nans": np.full((2, 3), np.nan), "set": {1, 2}, "path": Path("/proc/nowhere"), "1.5": 1.5,
    "long": "x" * 5000, "surrogate": "\ud800", "NUL": "a\0b", "ellipsis": ..., "type": int,
    "deep": functools.reduce(lambda inside, _: [inside], range(50), 1), "nested": {"a": {"b": 1}},
    "huge": np.float64(1e308), "-inf": -math.inf, "3-d": np.zeros((2, 2, 2)), "1e-320": 1e-320,
    "bytes": np.array([b"a", b"b"]), "objects": np.array([None, "a"], object), "-0": -0.0,
    "generator": (n for n in range(3)), "series": pd.Series(["c1", "c2"]), "masked": np.ma.masked,
    "date": np.datetime64("2026-01-01"), "NaT": np.datetime64("NaT"), "module": np,
}  # fmt: skip


@functools.cache
def places() -> dict[str, Place]:
    """All public functions with arguments that work."""
    return {place.name: place for place in value_cases.places()}


def calls(rng: Rng, scratch: Path) -> None:
    """No public function answers odd values, one or two at a time, with somebody else's error."""
    place = places()[pick(rng, places())]
    if place.slow and chance(rng, 0.7):
        place = places()["Optimizer"]
    arguments = dict(place.arguments)
    changed = rng.permutation(list(arguments))[: int(rng.integers(1, 3))].tolist()
    for name in changed:
        odd = chance(rng, 0.5)
        arguments[name] = MORE_ODD[pick(rng, MORE_ODD)] if odd else nearby(rng, arguments[name])
    with may_refuse():
        place.call(**arguments)


def nearby(rng: Rng, value: Any) -> Any:
    """Something of the kind of a value that works."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return pick(rng, [value + 1, max(value - 1, 0), np.int64(value), value * 2, -value])
    if isinstance(value, float):
        return pick(rng, [value / 2, value * 1.5, np.float32(value), 1.0, 0.0, 1, 1e-7, 1e7])
    if isinstance(value, np.ndarray):
        return pick(rng, [value[::-1], value.tolist(), value[:1], value * 2, value[..., None]])
    if isinstance(value, list | tuple) and value:
        return pick(rng, [list(value), tuple(value), value[:1], value * 2, value[::-1], value[0]])
    return value


BASE = parse_toml(SMALL)
ODD_TOML: list[Any] = [
    -1, 0, 2**63, 1e308, math.nan, "", "x", [], {}, [[]], True, "2026-01-01", [{}],
]  # fmt: skip


def mutated(rng: Rng, table: dict[str, Any]) -> dict[str, Any]:
    """A configuration with one to three changes anywhere in it."""
    table = json.loads(json.dumps(table))
    for _ in range(int(rng.integers(1, 4))):
        holder: Any = table
        while isinstance(holder, dict | list) and holder:
            key = pick(rng, holder if isinstance(holder, dict) else range(len(holder)))
            inside = holder[key]
            if not isinstance(inside, dict | list) or not inside or chance(rng, 0.2):
                break
            holder = inside
        what = int(rng.integers(4))
        if what == 0 or not isinstance(holder, dict):
            holder[key] = pick(rng, ODD_TOML)
        elif what == 1:
            del holder[key]
        elif what == 2:
            holder[f"{key}s"] = holder.pop(key)
        else:
            holder[pick(rng, ["lanes", "seed", "name", "ünï", "a b", ""])] = pick(rng, ODD_TOML)
    return table


def good_table(rng: Rng, scratch: Path) -> dict[str, Any]:
    """A configuration that works, on data that takes moments."""
    table = json.loads(json.dumps(BASE))
    table |= {"seed": int(rng.integers(0, 3)), "central": {"name": "FedAvg", "rounds": 1}}
    table["personal"] = []
    if chance(rng, 0.5):
        frame = known(rng, rows=36, clients=4, features=2, kind=pick(rng, ["words", "numbers"]),
                      ids="words")  # fmt: skip
        path = scratch / "table.csv"
        columns = {"who": frame.who, "a": frame.x[:, 0], "b": frame.x[:, 1], "y": frame.y}
        pd.DataFrame(columns).to_csv(path, index=False)
        table["data"] = {"path": str(path), "client": "who", "label": "y"}
        table["model"] = {"name": "logistic", "classes": 5}
    if chance(rng, 0.3):
        table["split"] = {"test": 0.25, "validation": 0.25}
    if chance(rng, 0.7):
        names = [name for name in ("Local", "Finetune") if chance(rng, 0.6)]
        table["personal"] = [{"name": n, "epochs": 1, "learning_rate": 0.1} for n in names]
    return table


def configurations(rng: Rng, scratch: Path) -> None:
    """A configuration is refused by the check or runs; what is written reads back the same."""
    table = good_table(rng, scratch)
    fresh = chance(rng, 0.3)
    if not fresh:
        table = mutated(rng, table)
        with may_refuse():
            config = parse_config(table, relative_to=scratch)
    else:
        config = parse_config(table, relative_to=scratch)
    again = parse_config(parse_toml(to_toml(config.to_table())))
    same("through TOML", as_plain(again), as_plain(config))
    file = scratch / "config.toml"
    file.write_text(to_toml(table), encoding="utf-8")
    same("from a file", as_plain(read_config(file)), as_plain(config))
    if chance(rng, 0.5):
        change_by_text(rng, file)
    if not small(config) or chance(rng, 0.5):
        return
    out = scratch / "out"
    try:
        with blank_figures():
            finished = run(config, out, progress=False)
    except SartorError as error:
        sure(not (out / "config.toml").exists(), f"the check took what failed: {error}")
        with may_refuse():
            raise
    check_run(finished, config)


def as_plain(config: Config) -> dict[str, Any]:
    """A configuration as plain values; NaN is equal to itself."""
    return json.loads(json.dumps(config.to_table(), default=str))


def change_by_text(rng: Rng, file: Path) -> None:
    """Texts of --set change what they name, and nothing else."""
    rounds = int(rng.integers(1, 9))
    before = read_config(file).to_table()
    if before["central"]["name"] != "FedAvg":
        return  # others may need more rounds
    after = read_config(file, [f"central.rounds={rounds}"]).to_table()
    same("--set", after, {**before, "central": {**before["central"], "rounds": rounds}})
    table: dict[str, Any] = {}
    text = "".join(pick(rng, list("a.=[]{}\"'0-é\n 1#\\")) for _ in range(int(rng.integers(0, 9))))
    with contextlib.suppress(Refused), may_refuse():
        override(table, text)
        sure(table, f"--set {text!r} changed nothing")


def small(config: Config) -> bool:
    """Whether it takes moments."""
    few = {"clients": 16, "samples": 64, "symbols": 16}
    return (
        all(config.data.get(name, 1) <= most for name, most in few.items())
        and config.central.rounds <= 20
        and all(p.epochs <= 20 and type(p).__name__ != "Mapper" for p in config.personal)
        and config.engine.memory is None
    )


def check_run(finished: Any, config: Config) -> None:
    """The results of a run are the means of its scores, over the clients that have test rows."""
    data = config.open_data()
    names = [type(p).__name__ for p in config.personal]
    same("methods", len(finished.scores), 1 + len(names))
    tested = [c for c, n in zip(data.ids, data.sizes("test"), strict=True) if n]
    for scores in finished.scores:
        same("clients", scores.client, tuple(tested))
        same("test rows", scores.test_size, data.sizes("test")[data.sizes("test") > 0])
    model = sartor.load(finished.directory / "models" / "central")
    same("the saved model's scores", model.evaluate(data).example_loss,
         finished.scores[0].example_loss)  # fmt: skip


AREAS: dict[str, tuple[int, Case]] = {
    "settings": (1500, settings), "calls": (900, calls), "configurations": (600, configurations),
}  # fmt: skip
