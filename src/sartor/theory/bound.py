"""A bound: a number that says what it is made of, and whether it says anything."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from sartor.errors import ConfigError


class Bound(float):
    """A number that a loss, or a difference of losses, does not exceed.

    Attributes:
        terms: what it is the sum of.
        vacuous: it promises nothing: it is no less than the largest loss, or there are fewer
            samples than dimensions.

    >>> found = Bound.of(1.0, complexity=0.25, discrepancy=0.5)
    >>> found < 0.8, found.terms["discrepancy"], found.vacuous
    (True, 0.5, False)
    """

    terms: Mapping[str, float] = MappingProxyType({})
    vacuous: bool = False
    _largest: float = math.inf
    _few: bool = False

    @classmethod
    def of(cls, largest: float, *, few: bool = False, **terms: float) -> Self:
        """The sum of some terms, where no loss exceeds ``largest``."""
        self = cls(math.fsum(terms.values()))
        self.terms, self._largest, self._few = terms, largest, few
        self.vacuous = few or float(self) >= largest
        return self

    def plus(self, **terms: float) -> Self:
        """The bound with more terms."""
        return self.of(self._largest, few=self._few, **self.terms, **terms)

    def __repr__(self) -> str:
        parts = " + ".join(f"{name} {value:.4f}" for name, value in self.terms.items())
        told = [f"{float(self):.4f}", *[parts] * bool(parts), *["vacuous"] * self.vacuous]
        return f"Bound({', '.join(told)})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self._largest, self._few, dict(self.terms))


def _made(cls: type[Bound], largest: float, few: bool, terms: dict[str, float]) -> Bound:
    return cls.of(largest, few=few, **terms)


def check_number(**values: Any) -> None:
    """Refuse what is not one number."""
    for name, value in values.items():
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ConfigError(f"{name}: one number is needed, got {type(value).__name__}")


def check_delta(delta: float) -> None:
    """Refuse what is no probability of failing."""
    check_number(delta=delta)
    if not 0 < delta < 1:
        raise ConfigError(f"delta={delta}: it must be between 0 and 1, say 0.05")


def check_positive(**values: Any) -> None:
    """Refuse what is not a positive number."""
    check_number(**values)
    for name, value in values.items():
        if not 0 < float(value) < math.inf:
            what = "; a client without samples has no bound" if name in ("m", "m_k") else ""
            raise ConfigError(f"{name}={value}: it must be positive and finite{what}")


def check_counts(least: int = 1, **values: Any) -> None:
    """Refuse what does not count anything."""
    for name, value in values.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or value < least:
            raise ConfigError(f"{name}={value}: it must be a whole number, at least {least}")
