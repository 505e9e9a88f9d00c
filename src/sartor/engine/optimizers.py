"""Optimizers by name, so that a configuration file can hold them; or any of optax's, as it is."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import optax

from sartor.caching import made_once
from sartor.errors import ConfigError

NAMES = (
    "adabelief", "adafactor", "adagrad", "adam", "adamax", "adamw", "amsgrad", "lamb", "lars",
    "lion", "nadam", "novograd", "radam", "rmsprop", "sgd", "sm3", "yogi",
)  # fmt: skip
"""The optax optimizers that can be named."""


@dataclasses.dataclass(frozen=True, init=False)
class Optimizer:
    """An optax optimizer by name and options.

    >>> Optimizer("adam", learning_rate=0.01)
    Optimizer(name='adam', options=(('learning_rate', 0.01),))
    """

    name: str
    options: tuple[tuple[str, float | bool], ...] = ()

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        **more: float | bool,
    ) -> None:
        if more:
            Optimizer.of({"name": name, **more})  # refuses what optax would not take
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", tuple({**dict(options), **more}.items()))

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Optimizer:
        """From a table such as ``{name = "adam", learning_rate = 0.01}``."""
        options = tuple((key, value) for key, value in table.items() if key != "name")
        for key, value in options:
            if not isinstance(value, int | float):
                raise ConfigError(f"optimizer: {key} must be a number (got {value!r})")
        made = cls(str(table.get("name", "")), options)
        made.build()
        return made

    @made_once(maxsize=256)  # the same one each time: compiled programs are found again
    def build(self) -> optax.GradientTransformation:
        """The optax transformation."""
        _check(self.name, NAMES, "there is no optimizer", "choose one of")
        factory = getattr(optax, self.name)
        for key, _ in self.options:
            known = inspect.signature(factory).parameters
            _check(key, known, f"optimizer {self.name!r} takes no", "it takes")
        try:
            return factory(**dict(self.options))
        except TypeError as error:
            raise ConfigError(f"optimizer {self.name!r}: {error}") from error


def _check(word: str, known: Iterable[str], problem: str, choice: str) -> None:
    """Refuse a word that is not known, and say which one may be meant."""
    if word not in (known := list(known)):
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"{choice} {', '.join(known)}"
        raise ConfigError(f"{problem} {word!r}; {hint}")


Chosen: TypeAlias = Optimizer | optax.GradientTransformation | None
"""An optimizer by name, any of optax's, or plain SGD."""


def build(chosen: Chosen, learning_rate: Any) -> optax.GradientTransformation:
    """The transformation that was chosen; plain SGD with this step size if none was."""
    if chosen is None:
        return optax.sgd(learning_rate)
    return chosen.build() if isinstance(chosen, Optimizer) else chosen
