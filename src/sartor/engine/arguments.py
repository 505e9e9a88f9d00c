"""Settings that compiled programs take as arguments: another value needs no other compilation."""

import dataclasses
from typing import Any

import numpy as np


def traced(default: Any) -> Any:
    """A field of an algorithm whose number is an argument of compiled programs.

    Inside ``clients`` and ``server`` such a number is a JAX array: compute with it, but do not
    decide in Python by it. A grid of step sizes then shares one compilation.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Example:
    ...     learning_rate: float = traced(0.1)
    >>> Example().learning_rate
    0.1
    """
    return dataclasses.field(default=default, metadata={"traced": True})


def separate(settings: Any) -> tuple[Any, tuple[Any, ...]]:
    """Settings without their traced numbers, and these numbers; inside nested settings, too.

    What is left is the same for all settings that share a compiled program.
    """
    same = _copy(settings)
    numbers: list[Any] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if _is_settings(value):
            inside, found = separate(value)
            numbers.append(found)
            object.__setattr__(same, field.name, inside)
        elif field.metadata.get("traced"):
            numbers.append(np.asarray(value, np.int32 if isinstance(value, int) else np.float32))
            object.__setattr__(same, field.name, 0)
    return same, tuple(numbers)


def unite(same: Any, numbers: tuple[Any, ...]) -> Any:
    """Settings with traced numbers, the inverse of :func:`separate`.

    >>> from sartor import FedAvg
    >>> unite(*separate(FedAvg(rounds=7, learning_rate=0.5))).rounds
    array(7, dtype=int32)
    """
    whole, left = _copy(same), iter(numbers)
    for field in dataclasses.fields(same):
        value = getattr(same, field.name)
        if _is_settings(value):
            object.__setattr__(whole, field.name, unite(value, next(left)))
        elif field.metadata.get("traced"):
            object.__setattr__(whole, field.name, next(left))
    return whole


def _copy(settings: Any) -> Any:
    """A copy of the fields alone: a cached property of one number must not serve another."""
    new = object.__new__(type(settings))
    for field in dataclasses.fields(settings):
        object.__setattr__(new, field.name, getattr(settings, field.name))
    return new


def _is_settings(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
