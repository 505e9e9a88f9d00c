"""Plain values of JSON and TOML files: no deeper than they need be, of the types that are declared.

What a file should hold is declared as type hints, a ``TypedDict`` for each table. Whatever else is
found is a ``ValueError`` here; :mod:`sartor.files` and the readers of other files name the file.
"""

import functools
import hashlib
import json
import tomllib
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from sartor.checking import fits

DEPTH = 64
"""The most levels of a file: none of ours needs ten. Python's own limit depends on the caller."""

SEAL = "digest"
"""The key under which a JSON file keeps the digest of all its other values."""


def parse_json(text: str | bytes) -> Any:
    """Plain values from JSON; refuses keys that are there twice, and values that are too deep.

    >>> parse_json('{"ann": 1, "ann": 2}')
    Traceback (most recent call last):
        ...
    ValueError: the key 'ann' is there twice
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
        ...
    ValueError: it is nested more than 64 levels deep
    """
    try:
        return _not_too_deep(json.loads(text, object_pairs_hook=_without_doubles))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Plain values from TOML; refuses values that are too deep.

    >>> parse_toml("rounds = 5")
    {'rounds': 5}
    """
    try:
        table: dict[str, Any] = _not_too_deep(tomllib.loads(text))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return table


def check_schema(value: Any, schema: Any, where: str = "") -> None:
    """Refuse plain values that are not what a schema declares. Keys it does not name may be there.

    >>> from typing import TypedDict
    >>> Client = TypedDict("Client", {"cluster": int})
    >>> check_schema({"ann": {"cluster": 1}}, dict[str, Client])
    >>> check_schema({"ann": {"cluster": None}}, dict[str, Client], "clients")
    Traceback (most recent call last):
        ...
    ValueError: clients.ann.cluster must be int (got None)
    """
    if type(value) is schema or schema is Any:  # most values, without a further look
        return
    required = _if_there(schema)
    if value is None and required is not schema:
        return
    schema = required
    if is_typeddict(schema) and isinstance(value, dict):
        for key in sorted(schema.__required_keys__ - value.keys()):
            raise ValueError(f"{_below(where, key)} is missing")
        for key, hint in _hints(schema).items():
            if key in value:
                check_schema(value[key], hint, _below(where, key))
    elif get_origin(schema) is dict and isinstance(value, dict):
        for key, one in value.items():
            check_schema(one, get_args(schema)[1], _below(where, key))
    elif _is_table(schema) or not (_lists(value, schema) or fits(value, schema)):
        wanted = "a table" if _is_table(schema) else _named(schema)
        raise ValueError(f"{where or 'it'} must be {wanted} (got {value!r:.60})")


def sealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with a digest of itself, so that damage shows; see :func:`check_seal`.

    All keys in it must be texts: other ones are in another order when they are read again.
    """
    return {**table, SEAL: _digest(table)}


def check_seal(table: Mapping[str, Any]) -> None:
    """Refuse a table that has changed since it was sealed; one without a seal is taken as it is.

    Earlier versions did not seal tables, nor did they list the digests of ``files`` in them.

    >>> table = sealed({"q": 2})
    >>> check_seal(table)
    >>> check_seal({**table, "q": 3})
    Traceback (most recent call last):
        ...
    ValueError: its content has changed since it was written
    """
    content = {key: value for key, value in table.items() if key != SEAL}
    if (SEAL in table or "files" in table) and table.get(SEAL) != _digest(content):
        raise ValueError("its content has changed since it was written")


def _digest(table: Mapping[str, Any]) -> str:
    # Of the values rather than the text: another layout of the same values is no damage.
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


_TOO_DEEP = f"it is nested more than {DEPTH} levels deep"


def _not_too_deep(value: Any) -> Any:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH + 1):
        level = [inside for outside in level for inside in _tables_and_lists(outside)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def _tables_and_lists(value: Any) -> list[Any]:
    several = value.values() if isinstance(value, dict) else value
    return [one for one in several if isinstance(one, dict | list)]


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for key in table if keys.count(key) > 1)
        raise ValueError(f"the key {double!r} is there twice")
    return table


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


_hints = functools.lru_cache(get_type_hints)


def _lists(value: Any, schema: Any) -> bool:
    """Whether it is a list of the very types of the schema: a quick answer for long lists."""
    if get_origin(schema) is not list or type(value) is not list:
        return False
    entry = get_args(schema)[0]
    return set(map(type, value)) <= set(get_args(entry) or [entry])


@functools.lru_cache
def _if_there(schema: Any) -> Any:
    """What a value that may be left out is if it is there."""
    kinds = [one for one in get_args(schema) if one is not types.NoneType]
    optional = get_origin(schema) in (Union, types.UnionType) and len(kinds) == 1
    return kinds[0] if optional else schema


def _is_table(schema: Any) -> bool:
    return is_typeddict(schema) or get_origin(schema) is dict


def _named(schema: Any) -> str:
    return schema.__name__ if isinstance(schema, type) else str(schema).replace("typing.", "")
