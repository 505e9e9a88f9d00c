"""Covers of [0, 1]: the candidates for λ."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

from sartor.errors import ConfigError

COVER = tuple(i / 10 for i in range(11))
"""Eleven points, 0, 0.1, ... 1."""


def as_cover(name: str, cover: Any) -> tuple[float, ...]:
    """The cover in order and without repetitions; refuses one that is empty or not in [0, 1].

    >>> as_cover("Dapper", [1, 0.5, 0.5])
    (0.5, 1.0)
    """
    points = list(cover) if isinstance(cover, Iterable) and not isinstance(cover, str) else [cover]
    if not points:
        raise ConfigError(f"{name}: the cover is empty; give some λ between 0 and 1")
    for point in points:
        if isinstance(point, bool) or not isinstance(point, Real) or not 0 <= float(point) <= 1:
            raise ConfigError(f"{name}: a λ of the cover must be between 0 and 1 (got {point!r})")
    return tuple(sorted({float(point) for point in points}))
