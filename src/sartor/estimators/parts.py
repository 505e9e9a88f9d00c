"""Fitted models, taken apart into plain values, arrays and estimators, and put together again.

A dataclass says by the annotations of its fields what it is made of. So nothing has to be written
to save a further one: what is an array is saved as an array, and an estimator as an estimator.
Where an annotation names a class that others are derived from, their names say which it is.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

import numpy as np

from sartor.checking import fits, hints_of
from sartor.errors import ConfigError

Arrays = dict[str, Any]
"""Arrays of numbers by their places in what they were taken from."""

Estimators = dict[str, Any]
"""Estimators by their places."""


class Stored:
    """A dataclass that may be saved in a field of any type, such as one of an estimator."""


def apart(value: Any, arrays: Arrays, estimators: Estimators, place: str = "") -> Any:
    """Plain values that JSON can hold; arrays and estimators are put aside.

    Args:
        value: what to take apart.
        arrays: here are arrays put.
        estimators: here is put all else that has settings.
        place: where the value is.

    >>> apart({"level": np.ones(2), "rows": 7}, arrays := {}, {})
    {'table': {'level': {'array': 'level'}, 'rows': 7}}
    >>> arrays
    {'level': array([1., 1.])}
    """

    def inside(name: Any, one: Any) -> Any:
        return apart(one, arrays, estimators, f"{place}/{name}" if place else str(name))

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            arrays[place] = np.asarray(value, order="C")  # as files have it
            return {"array": place}
        if value.ndim == 1 and value.dtype.kind in "UO":
            said = [inside(i, one) for i, one in enumerate(value.tolist())]
            return {"words": said, "objects": value.dtype.kind == "O"}
    sets = hasattr(value, "get_params") and not isinstance(value, Stored)  # such as estimators
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not sets:
        named = {name: inside(name, getattr(value, name)) for name in _fields(type(value))}
        return {"is": type(value).__name__, "of": named}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {"table": {key: inside(key, one) for key, one in value.items()}}
        return {"pairs": [[apart(k, {}, {}), inside(k, one)] for k, one in value.items()]}
    if isinstance(value, list | tuple):
        said = [inside(i, one) for i, one in enumerate(value)]
        return said if isinstance(value, list) else {"tuple": said}
    if sets and not isinstance(value, type):
        estimators[place] = value
        return {"estimator": place}
    raise ConfigError(
        f"{place or 'it'} is of {type(value).__name__}, which no file holds; save it elsewhere"
    )


def together(
    said: Any, hint: Any, arrays: Mapping[str, Any], estimator: Callable[[str], Any]
) -> Any:
    """What was taken apart, if it is what a type hint declares; else a ``ValueError``.

    Args:
        said: plain values.
        hint: what they should become.
        arrays: the arrays by their places.
        estimator: finds an estimator by its place.
    """
    found = _together(said, hint, arrays, estimator)
    if not any(_is(found, one) for one in _either(hint)):
        raise ValueError(f"{found!r:.60} is not {hint}")
    return float(found) if hint is float else found


def _together(
    said: Any, hint: Any, arrays: Mapping[str, Any], estimator: Callable[[str], Any]
) -> Any:
    def inside(one: Any, hint: Any = Any) -> Any:
        return together(one, hint, arrays, estimator)

    if isinstance(said, list):
        return [inside(one, _inner(hint, 0)) for one in said]
    if not isinstance(said, dict):
        return said
    match said:
        case {"float": str(text)}:
            return float(text)
        case {"array": str(place)}:
            return arrays[place]
        case {"words": list(words), "objects": bool(objects)}:
            return np.array([inside(word) for word in words], object if objects else np.str_)
        case {"estimator": str(place)}:
            return estimator(place)
        case {"tuple": list(several)}:
            return tuple(inside(one, _inner(hint, i)) for i, one in enumerate(several))
        case {"table": dict(table)}:
            return {key: inside(one, _inner(hint, 1)) for key, one in table.items()}
        case {"pairs": list(pairs)}:
            return {inside(key): inside(one, _inner(hint, 1)) for key, one in pairs}
        case {"is": str(name), "of": dict(parts)}:
            return _made(_named(name, hint), parts, inside)
    raise ValueError(f"{said!r:.60} is nothing that is saved")


def _made(kind: Any, parts: Mapping[str, Any], inside: Callable[..., Any]) -> Any:
    """A dataclass of its fields; those that it has got since then keep their defaults."""
    hints = hints_of(kind)
    if unknown := sorted(set(parts) - set(_fields(kind))):
        raise ValueError(f"{kind.__name__} has no {unknown[0]!r}")
    return kind(**{name: inside(one, hints.get(name, Any)) for name, one in parts.items()})


def _fields(kind: Any) -> list[str]:
    """The fields that are saved: not those with ``metadata={"saved": False}``."""
    several = [field for field in dataclasses.fields(kind) if field.init]
    return [field.name for field in several if field.metadata.get("saved", True)]


def _is(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; what is inside it has been looked at before."""
    if hint is Any:
        return True
    kind = get_origin(hint) or hint
    if kind is tuple or (isinstance(kind, type) and kind not in (int, float, str, bool)):
        return isinstance(value, kind)
    return fits(value, hint)


def _named(name: str, hint: Any) -> type:
    """The class of a name: the one that is declared, or one that is derived from it."""
    declared = [one for one in _either(hint) if isinstance(one, type) and one is not Any]
    for kind in declared or [Stored]:
        for found in _derived(kind):
            if found.__name__ == name and dataclasses.is_dataclass(found):
                return found
    raise ValueError(f"there is no {name!r}; import the module that defines it before")


def _derived(kind: type) -> Iterator[type]:
    yield kind
    several: list[type] = type.__subclasses__(kind)
    for below in several:
        yield from _derived(below)


def _either(hint: Any) -> Sequence[Any]:
    """The types that a hint allows."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else [hint]


def _inner(hint: Any, place: int) -> Any:
    """The type of what is in a list or tuple at a place, or of the values of a mapping (1)."""
    for one in _either(hint):
        several = get_args(one)
        if several and (several[-1] is Ellipsis or (len(several) == 1 and place)):
            return several[0]
        if len(several) > place:
            return several[place]
    return Any
