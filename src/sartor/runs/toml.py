"""Write plain values as TOML, which Python's ``tomllib`` only reads."""

import json
import re
from collections.abc import Mapping
from typing import Any

from sartor.errors import ConfigError

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that need no quotes."""


def to_toml(table: Mapping[str, Any]) -> str:
    """Write plain values as TOML, so that ``tomllib`` reads the same values back.

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
    values: list[str] = []
    sections: list[str] = []
    for key, value in table.items():
        if isinstance(value, dict):
            sections += ["", f"[{_key(key)}]", *_lines(value)]
        elif isinstance(value, list | tuple) and value and all(isinstance(v, dict) for v in value):
            for entry in value:
                sections += ["", f"[[{_key(key)}]]", *_lines(entry)]
        else:
            values += _lines({key: value})
    return "\n".join(values + sections) + "\n"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str) or type(value) in (bool, int):
        # JSON writes them as TOML does, but for "delete", which only TOML escapes.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if type(value) is float:
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(_lines(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise ConfigError(f"{value!r} ({type(value).__name__}) cannot stand in a configuration file")
