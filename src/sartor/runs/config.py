"""The configuration of a run: a TOML file, checked key by key before anything starts."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sartor import central, personal
from sartor import data as data_room
from sartor.central import Central
from sartor.central.settings import describe
from sartor.checking import AnyPath, check_table, checks_arguments, hints_of
from sartor.data import ClientData
from sartor.documents import parse_toml
from sartor.engine import Engine
from sartor.errors import ConfigError, FileError, nearest
from sartor.models import FACTORIES, Model
from sartor.personal import Personal

Table = dict[str, Any]

MANY = 100
"""More classes than this are not taken from labels without words: they may be numbers."""

GENERATORS: dict[str, Callable[..., ClientData]] = {"synthetic": data_room.synthetic}
"""Generators of data, by the names for ``data.generator``."""

IMPORT = "(For your own algorithm, start with: sartor --import MODULE ...)"
"""What to do about an algorithm that is not known."""


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
        arguments = dict(self.data)
        name = arguments.pop("generator", None)
        data = GENERATORS[name](**arguments) if name else data_room.open(**arguments)
        return data.split(**self.split) if self.split else data

    def make_model(self, data: ClientData) -> Model:
        """The model, with sizes filled in from the data."""
        name = self.model["name"]
        arguments = {k: v for k, v in self.model.items() if k != "name"}
        parameters = inspect.signature(FACTORIES[name]).parameters
        if not {"classes", "symbols", "outputs"} & set(arguments):
            arguments |= _label_sizes(data, set(parameters))
        if "x" in data.columns and "features" in parameters:
            shape = data.columns["x"].shape[1:]
            arguments.setdefault("features", shape[0] if len(shape) == 1 else shape)
        for key, parameter in parameters.items():
            if parameter.default is parameter.empty and key not in arguments:
                floats = data.columns["y"].dtype.kind == "f"
                hint = ": its labels are floats, which 'linear' fits" if floats else ""
                raise ConfigError(
                    f"model {name!r} needs {key}, which {data!r} does not have{hint}; give "
                    f"model.{key}, make labels whole numbers or words, or choose another model"
                )
        return FACTORIES[name](**arguments)

    def to_table(self) -> Table:
        """Plain values, as they are written to ``config.toml``."""
        engine = _without_none(dataclasses.asdict(self.engine))
        table: Table = {"seed": self.seed, "data": self.data, "split": self.split}
        table |= {"model": self.model, "central": settings_of(self.central)}
        return table | {"personal": list(map(settings_of, self.personal)), "engine": engine}


@checks_arguments
def read_config(path: AnyPath, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration file; ``overrides`` are texts such as ``central.rounds=50``."""
    table = read_table(Path(path))
    for text in overrides:
        override(table, text)
    return parse_config(table, relative_to=Path(path).parent)


def read_table(path: Path) -> Table:
    """Read a TOML file, and check nothing else."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"there is no configuration file {path}") from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}; name a configuration file"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}; correct it, or name another file"
        ) from error


def parse_config(table: Mapping[str, Any], relative_to: Path | None = None) -> Config:
    """Check a table and make a :class:`Config` of it.

    >>> parse_config({"data": {"generator": "synthetic"}, "model": {"name": "categorical"},
    ...               "central": {"name": "FedAvg", "round": 5}})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: central.round does not exist; did you mean 'rounds'?
    """
    sections = dict.fromkeys(("data", "split", "model", "central", "engine"), dict)
    keys: dict[str, Any] = {**sections, "personal": list, "seed": int}
    for needed in ("data", "model", "central"):
        if needed not in table:
            near = get_close_matches(needed, [str(key) for key in table if key not in keys], n=1)
            hint = f"; did you mean [{needed}], not [{near[0]}]?" if near else "; add it"
            raise ConfigError(f"the configuration needs a table [{needed}]{hint}")
    for key in table:
        if key not in keys and (inside := _places(key, table)):
            raise ConfigError(f"{key} does not exist; did you mean {' or '.join(inside)}?")
    check_table("", table, keys)
    seed = table.get("seed", 0)
    split = dict(table.get("split", {}))
    check_table("split", split, hints_of(ClientData.split))
    if split:
        split.setdefault("seed", seed)
    engine = table.get("engine", {})
    check_table("engine", engine, hints_of(Engine))
    _choose("model", table["model"], FACTORIES)
    return Config(
        data=_data(dict(table["data"]), seed, relative_to or Path.cwd()),
        split=split,
        model=dict(table["model"]),
        central=algorithm_of("central", table["central"], central.ALGORITHMS),
        personal=tuple(
            algorithm_of(f"personal.{i}", one, personal.ALGORITHMS)
            for i, one in enumerate(table.get("personal", []))
        ),
        engine=Engine(**engine),
        seed=seed,
    )


def _places(key: str, table: Mapping[str, Any]) -> list[str]:
    """Where in the tables of a configuration a key exists, such as ``'central.rounds'``."""
    several = table.get("personal")
    entries = enumerate(several) if isinstance(several, list) else ()
    named: list[tuple[str, Any, Mapping[str, Any]]]
    named = [("central", table["central"], central.ALGORITHMS)]
    named += [(f"personal.{i}", one, personal.ALGORITHMS) for i, one in entries]
    takes: dict[str, Any] = {"split": ClientData.split, "engine": Engine}
    for where, chosen, known in named:
        name = chosen.get("name") if isinstance(chosen, dict) else None
        if isinstance(name, str) and name in known:
            takes[where] = known[name]
    return [repr(f"{where}.{key}") for where, kind in takes.items() if key in hints_of(kind)]


def _label_sizes(data: ClientData, parameters: set[str]) -> Table:
    """The number of classes, symbols or outputs of the labels, whichever the model takes."""
    y = data.columns["y"]
    if y.dtype.kind == "f":
        return {"outputs": int(y[0].size)} if "outputs" in parameters else {}
    count = len(data.label_names) if data.label_names else int(y.max()) + 1
    if count > MANY and not data.label_names and "classes" in parameters:
        say = "say model.outputs=1, " if "outputs" in parameters else ""
        raise ConfigError(
            f"the labels are whole numbers up to {count - 1:,}: numbers to predict, or classes? "
            f"For numbers, {say}choose the model 'linear', or make the labels floats, such as "
            f"212.0; for classes, say how many: model.classes={count}"
        )
    return {size: count for size in ("classes", "symbols") if size in parameters}


def _data(table: Table, seed: int, relative_to: Path) -> Table:
    if ("path" in table) == ("generator" in table):
        raise ConfigError("[data] needs either path (a file or directory) or generator")
    if "generator" in table:
        _choose("data", table, GENERATORS, key="generator")
        return {**table, "seed": table.get("seed", seed)}
    check_table("data", table, {**hints_of(data_room.open), "path": str})
    path = relative_to / os.path.expanduser(table["path"])
    return {**table, "path": str(path.resolve())}


def algorithm_of(where: str, table: Any, algorithms: Mapping[str, Any]) -> Any:
    """The algorithm that a table names, with the settings in it."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table (got {table!r})")
    kind = _choose(where, table, algorithms)
    try:
        return kind(**{key: value for key, value in table.items() if key != "name"})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _choose(where: str, table: Table, choices: Mapping[str, Any], key: str = "name") -> Any:
    """The choice that a table names, which has to take the other keys of the table."""
    if key not in table:
        hint = f"choose one of {', '.join(choices)}"
        if near := get_close_matches(key, table, n=1):
            hint = f"did you mean {key!r}, not {near[0]!r}?"
        raise ConfigError(f"{where}.{key} is missing; {hint}")
    name = table[key]
    if not isinstance(name, str) or name not in choices:
        hint = nearest(str(name), choices, "choose one of")
        if choices is central.ALGORITHMS or choices is personal.ALGORITHMS:
            hint += f" {IMPORT}"
        raise ConfigError(f"{where}.{key} is {name!r}; {hint}")
    check_table(where, table, {key: str, **hints_of(choices[name])})
    return choices[name]


def override(table: Table, text: str) -> None:
    """Change a setting of a table, by a text such as ``central.rounds=50``."""
    key, sign, value = text.partition("=")
    *path, last = key.strip().split(".")
    if not sign or not all((*path, last)):
        raise ConfigError(f"--set takes key=value, such as central.rounds=50 (got {text!r})")
    place: Any = table
    for name in path:
        if isinstance(place, list):
            place = _entry(place, name, key)
        else:
            place = place.setdefault(name, [] if name == "personal" else {})
        if not isinstance(place, dict | list):
            raise ConfigError(f"--set {key}: {name} is a value, not a table")
    if isinstance(place, list):
        raise ConfigError(f"--set {key}: name an entry and its key, such as personal.0.epochs")
    try:
        place[last] = parse_toml(f"value = {value}")["value"]
    except ValueError:
        place[last] = value.strip()  # a bare word is a text


def _entry(several: list[Any], name: str, key: str) -> Any:
    """The entry of an array of tables that has this number, or this name."""
    names = [str(entry.get("name")) if isinstance(entry, dict) else "" for entry in several]
    found = [n for n, other in enumerate(names) if name.lower() in (str(n), other.lower())]
    if len(found) != 1:
        what = f"there are {len(found)} entries" if found else "there is no entry"
        near = [] if found else get_close_matches(name.lower(), map(str.lower, names), n=1)
        like = [other for other in names if other.lower() in near]
        hint = f"did you mean {like[0]!r}? Or " if like else ""
        raise ConfigError(
            f"--set {key}: {what} {name!r} in {names}; {hint}give its number, counted from 0"
        )
    return several[found[0]]


def settings_of(algorithm: Any) -> Table:
    """An algorithm's name and settings, as a configuration has them: TOML has no None."""
    return _without_none(describe(algorithm))


def _without_none(table: Table) -> Table:
    return {key: value for key, value in table.items() if value is not None}
