"""A bound: a number with the terms that it is the sum of, and whether it promises anything."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from sartor.errors import ConfigError


class Number(float):
    """A number with facts about it, as attributes."""

    def __new__(cls, value: float, **facts: Any) -> Self:
        """The number, and its facts by name."""
        self = super().__new__(cls, value)
        vars(self).update(facts)
        return self


class Bound(Number):
    """A number that a loss, or a difference of losses, does not exceed.

    Attributes:
        terms: the terms that it is the sum of.
        vacuous: whether it promises nothing: it is no less than the largest loss, or there are
            fewer samples than dimensions.

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
        """The sum of some terms.

        Args:
            largest: the largest possible loss.
            few: whether there are fewer samples than dimensions.
            **terms: the terms.
        """
        total = math.fsum(terms.values())
        vacuous = few or total >= largest
        return cls(total, terms=terms, vacuous=vacuous, _largest=largest, _few=few)

    def plus(self, **terms: float) -> Self:
        """The bound with more terms."""
        return self.of(self._largest, few=self._few, **self.terms, **terms)

    def __repr__(self) -> str:
        parts = " + ".join(f"{name} {value:.4f}" for name, value in self.terms.items())
        words = [f"{float(self):.4f}", parts, "vacuous" if self.vacuous else ""]
        return f"Bound({', '.join(filter(None, words))})"


def check_largest_loss(bound: float, classes: int) -> None:
    """Refuse a largest log-loss that the uniform distribution over the classes exceeds."""
    if classes * math.exp(-bound) > 1 + 1e-12:
        guess = math.log(classes)
        raise ConfigError(
            f"bound={bound}: with {classes} classes a guess already loses {guess:.3f}; give more"
        )
