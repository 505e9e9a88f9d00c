"""Check plain values, as files and settings hold them, against type hints."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from sartor.errors import ConfigError, nearest

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "dict": "a table",
    "list": "an array of tables, written [[personal]]",
    "Model": 'a table such as {name = "logistic", features = 4, classes = 2}',
    "Optimizer": 'a table such as {name = "adam", learning_rate = 0.01}',
}
"""Types in the words of error messages, by name: those of higher layers cannot be imported here."""


def check_table(where: str, table: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Refuse keys that have no type hint, and values that do not fit theirs.

    >>> check_table("engine", {"lane": 4}, {"lanes": int})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: engine.lane does not exist; did you mean 'lanes'?
    >>> check_table("engine", {"lanes": "many"}, {"lanes": int | None})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: engine.lanes must be a whole number (got 'many')
    """
    for key, value in table.items():
        name = f"{where}.{key}" if where else key
        if key not in hints:
            raise ConfigError(f"{name} does not exist; {nearest(key, hints)}")
        if not fits(value, hints[key]):
            raise ConfigError(f"{name} must be {_words(hints[key])} (got {value!r})")


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value fits a type hint.

    >>> fits(3, float), fits(True, int), fits(["a"], tuple[str, ...] | None), fits([1], list[str])
    (True, False, True, False)
    >>> fits([["dense_1", 0.5]], tuple[tuple[str, float], ...]), fits([0.5], tuple[str, float])
    (True, False)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if hint in (int, float):  # a whole number will do for a float
        return isinstance(value, int | hint) and not isinstance(value, bool)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):  # made from a table later on
        return isinstance(value, dict | hint)
    if origin in (tuple, list, Sequence):
        if not isinstance(value, list | tuple):
            return False
        if _is_fixed(hint):
            return len(value) == len(arguments) and all(map(fits, value, arguments))
        return all(fits(v, arguments[0]) for v in value)
    kind = origin or hint
    return isinstance(value, kind) if isinstance(kind, type) else True


def _is_fixed(hint: Any) -> bool:
    """Whether it is a tuple whose every entry has a type of its own."""
    return get_origin(hint) is tuple and Ellipsis not in get_args(hint)


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        found = [_words(one) for one in arguments if one is not types.NoneType]
        return " or ".join(words for words in found if words)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if _is_fixed(hint):
        return f"a list of {' and '.join(map(_words, arguments))}"
    if origin in (tuple, list, Sequence):
        return f"a list, each entry {_words(arguments[0])}"
    name = getattr(hint, "__name__", "")
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and name not in WORDS:
        return f"a table of {', '.join(field.name for field in dataclasses.fields(hint))}"
    return WORDS.get(name, "")
