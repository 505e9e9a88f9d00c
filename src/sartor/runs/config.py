"""The configuration of a run: a TOML file, checked key by key before anything starts."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sartor import central, personal
from sartor import data as data_room
from sartor.central import Central
from sartor.central.base import describe
from sartor.data import ClientData
from sartor.engine import Engine
from sartor.errors import ConfigError, FileError
from sartor.models import FACTORIES, Model
from sartor.personal import Personal

Table = dict[str, Any]

GENERATORS: dict[str, Callable[..., ClientData]] = {"synthetic": data_room.synthetic}
"""Data that is made, not read, by the name that ``data.generator`` uses."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run depends on.

    Attributes:
        data: where clients come from: ``path`` with the arguments of :func:`sartor.data.open`, or
            ``generator`` with its arguments.
        split: arguments of :meth:`sartor.ClientData.split`.
        model: ``name`` of a ready model and its arguments; sizes are taken from the data where
            they are not given.
        central: the central algorithm.
        personal: the personal algorithms, each starting from the central model.
        engine: how to run it.
        seed: seed of all randomness.
    """

    data: Table
    model: Table
    central: Central
    personal: tuple[Personal, ...] = ()
    split: Table = dataclasses.field(default_factory=dict)
    engine: Engine = dataclasses.field(default_factory=Engine)
    seed: int = 0

    def open_data(self) -> ClientData:
        """The data, split."""
        arguments = {k: v for k, v in self.data.items() if k not in ("path", "generator")}
        if "generator" in self.data:
            opened = GENERATORS[self.data["generator"]](**arguments)
        else:
            opened = data_room.open(self.data["path"], **arguments)
        return opened.split(**self.split) if self.split else opened

    def make_model(self, data: ClientData) -> Model:
        """The model, with sizes filled in from the data."""
        name = self.model["name"]
        arguments = {k: v for k, v in self.model.items() if k != "name"}
        accepted = inspect.signature(FACTORIES[name]).parameters
        y = data.columns["y"]
        if "features" in accepted and "features" not in arguments and "x" in data.columns:
            shape = data.columns["x"].shape[1:]
            arguments["features"] = shape[0] if len(shape) == 1 else shape
        for size in ("classes", "symbols"):
            wanted = size in accepted and not {size, "outputs"} & set(arguments)
            if wanted and y.dtype.kind in "iu":
                arguments[size] = len(data.label_names or ()) or int(y.max()) + 1
        try:
            return FACTORIES[name](**arguments)
        except TypeError as error:
            raise ConfigError(f"model {name!r}: {error}") from error

    def to_table(self) -> Table:
        """Plain values, as they are written to ``config.toml``."""
        engine = {k: v for k, v in dataclasses.asdict(self.engine).items() if v is not None}
        table: Table = {"seed": self.seed, "data": self.data, "split": self.split}
        table |= {"model": self.model, "central": _given(describe(self.central))}
        table |= {"personal": [_given(describe(p)) for p in self.personal], "engine": engine}
        return table


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration file; ``overrides`` are texts such as ``central.rounds=50``."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise FileError(f"there is no configuration file {path}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not readable TOML: {error}") from error
    for text in overrides:
        _override(table, text)
    return parse_config(table, relative_to=path.parent)


def parse_config(table: Mapping[str, Any], relative_to: Path | None = None) -> Config:
    """Check a table and make a :class:`Config` of it.

    >>> parse_config({"data": {"generator": "synthetic"}, "model": {"name": "categorical"},
    ...               "central": {"name": "FedAvg", "round": 5}})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: central.round does not exist; did you mean 'rounds'?
    """
    known = {f.name for f in dataclasses.fields(Config)}
    _check_keys("", table, known)
    for needed in ("data", "model", "central"):
        if not isinstance(table.get(needed), dict):
            raise ConfigError(f"the configuration needs a table [{needed}]")
    seed = table.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"seed must be a whole number (got {seed!r})")
    split = dict(table.get("split", {}))
    _check_keys("split", split, {"unseen", "validation", "test", "seed"})
    if split:
        split.setdefault("seed", seed)
    engine = dict(table.get("engine", {}))
    _check_keys("engine", engine, {f.name for f in dataclasses.fields(Engine)})
    model = dict(table["model"])
    _choose("model", model, FACTORIES)
    accepted = set(inspect.signature(FACTORIES[model["name"]]).parameters)
    _check_keys("model", model, accepted | {"name"})
    several = table.get("personal", [])
    if not isinstance(several, list):
        raise ConfigError("personal must be an array of tables: write [[personal]]")
    return Config(
        data=_data(dict(table["data"]), seed, relative_to),
        split=split,
        model=model,
        central=_algorithm("central", table["central"], central.ALGORITHMS),
        personal=tuple(
            _algorithm(f"personal.{i}", t, personal.ALGORITHMS) for i, t in enumerate(several)
        ),
        engine=Engine(**engine),
        seed=seed,
    )


def _data(table: Table, seed: int, relative_to: Path | None) -> Table:
    if ("path" in table) == ("generator" in table):
        raise ConfigError("[data] needs either path (a file or directory) or generator")
    if "generator" in table:
        _choose("data", table, GENERATORS, key="generator")
        function: Callable[..., Any] = GENERATORS[table["generator"]]
        table.setdefault("seed", seed)
    else:
        function = data_room.open
        path = Path(table["path"]).expanduser()
        table["path"] = str(path if relative_to is None else (relative_to / path).resolve())
    accepted = set(inspect.signature(function).parameters)
    _check_keys("data", table, accepted | {"path", "generator"})
    return table


def _algorithm(where: str, table: Any, algorithms: Mapping[str, Any]) -> Any:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table (got {table!r})")
    _choose(where, table, algorithms)
    kind = algorithms[table["name"]]
    arguments = {key: value for key, value in table.items() if key != "name"}
    _check_keys(where, arguments, {f.name for f in dataclasses.fields(kind)})
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _choose(where: str, table: Table, choices: Mapping[str, Any], key: str = "name") -> None:
    name = table.get(key)
    if name not in choices:
        near = get_close_matches(str(name), choices, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(choices)}"
        raise ConfigError(f"{where}.{key} is {name!r}; {hint}")


def _check_keys(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(sorted(known))}"
            raise ConfigError(f"{where + '.' if where else ''}{key} does not exist; {hint}")


def _override(table: Table, text: str) -> None:
    key, sign, value = text.partition("=")
    if not sign:
        raise ConfigError(f"--set takes key=value, such as central.rounds=50 (got {text!r})")
    *path, last = key.strip().split(".")
    place: Any = table
    for name in path:
        if isinstance(place, list):
            place = _entry(place, name, key)
        else:
            place = place.setdefault(name, {})
        if not isinstance(place, dict | list):
            raise ConfigError(f"--set {key}: {name} is a value, not a table")
    if isinstance(place, list):
        raise ConfigError(f"--set {key}: say which entry, such as personal.0.{last}")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        place[last] = value.strip()  # a bare word is a text


def _entry(several: list[Any], name: str, key: str) -> Any:
    if name.isdigit() and int(name) < len(several):
        return several[int(name)]
    for entry in several:
        if str(entry.get("name", "")).lower() == name.lower():
            return entry
    names = [str(entry.get("name")) for entry in several]
    raise ConfigError(f"--set {key}: there is no entry {name!r}; there are {names}")


def _given(table: Table) -> Table:
    return {key: value for key, value in table.items() if value is not None}


def to_toml(table: Mapping[str, Any]) -> str:
    """Write plain values as TOML.

    >>> print(to_toml({"seed": 0, "central": {"name": "FedAvg"}, "personal": [{"epochs": 5}]}))
    seed = 0
    <BLANKLINE>
    [central]
    name = "FedAvg"
    <BLANKLINE>
    [[personal]]
    epochs = 5
    <BLANKLINE>
    """
    lines = [f"{key} = {_value(v)}" for key, v in table.items() if not _is_section(v)]
    for key, value in table.items():
        if not _is_section(value) or not value:
            continue
        entries = value if isinstance(value, list) else [value]
        header = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
        for entry in entries:
            lines += ["", header, *(f"{k} = {_value(v)}" for k, v in entry.items())]
    return "\n".join(lines) + "\n"


def _is_section(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and all(isinstance(v, dict) for v in value)
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return repr(value)
