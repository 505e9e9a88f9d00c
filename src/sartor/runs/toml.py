"""Plain values as TOML: the half that Python's ``tomllib`` does not have."""

from __future__ import annotations

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
    sections = {key: value for key, value in table.items() if _is_section(value)}
    lines = _lines({key: value for key, value in table.items() if key not in sections})
    for key, value in sections.items():
        entries = value if isinstance(value, list | tuple) else [value]
        header = f"[{_key(key)}]" if entries is not value else f"[[{_key(key)}]]"
        for entry in entries:
            lines += ["", header, *_lines(entry)]
    return "\n".join(lines) + "\n"


def _is_section(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(entry, dict) for entry in value)
    return isinstance(value, dict)


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    # JSON's escapes are TOML's too; only "delete" needs one in TOML alone.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return "{" + ", ".join(_lines(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if type(value) in (int, float):
        return repr(value)
    raise ConfigError(f"{value!r} ({type(value).__name__}) cannot stand in a configuration file")
