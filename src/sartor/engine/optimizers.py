"""Optimizers by name, so that a configuration file can hold them; or any of optax's, as it is."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.caching import made_once
from sartor.errors import ConfigError

NAMES = (
    "adabelief", "adafactor", "adagrad", "adam", "adamax", "adamw", "amsgrad", "lamb", "lars",
    "lion", "nadam", "novograd", "radam", "rmsprop", "sgd", "sm3", "yogi",
)  # fmt: skip
"""The optax optimizers that can be named."""


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optax optimizer by name and options.

    >>> Optimizer.of({"name": "adam", "learning_rate": 0.01})
    Optimizer(name='adam', options=(('learning_rate', 0.01),))
    """

    name: str
    options: tuple[tuple[str, float | bool], ...] = ()

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
        if self.name not in NAMES:
            near = get_close_matches(self.name, NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(NAMES)}"
            raise ConfigError(f"there is no optimizer {self.name!r}; {hint}")
        factory = getattr(optax, self.name)
        known = list(inspect.signature(factory).parameters)
        for key, _ in self.options:
            if key not in known:
                near = get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
                raise ConfigError(f"optimizer {self.name!r} takes no {key!r}; {hint}")
        try:
            return factory(**dict(self.options))
        except TypeError as error:
            raise ConfigError(f"optimizer {self.name!r}: {error}") from error


class Averaged(NamedTuple):
    """The memory of :func:`averaged_sgd`: a job that ends with it hands in the average."""

    centre: Any
    average: Any
    steps: jax.Array


@made_once(maxsize=32)
def averaged_sgd(radius: float) -> optax.GradientTransformation:
    """Gradient steps of size 1, projected on a ball around the start; the result is their average.

    Step sizes are the loss's business here: where they differ from client to client, it is scaled.
    """

    def init(params: Any) -> Averaged:
        return Averaged(params, params, jnp.zeros(()))

    def update(gradient: Any, memory: Averaged, params: Any) -> tuple[Any, Averaged]:
        steps = memory.steps + 1
        average = jax.tree.map(lambda a, p: a + (p - a) / steps, memory.average, params)
        away = jax.tree.map(lambda p, g, c: p - g - c, params, gradient, memory.centre)
        scale = jnp.minimum(1.0, radius / jnp.maximum(optax.tree.norm(away), 1e-30))
        updates = jax.tree.map(
            lambda a, c, p: (c + scale * a - p).astype(p.dtype), away, memory.centre, params
        )
        return updates, Averaged(memory.centre, average, steps)

    return optax.GradientTransformation(init, update)


UNIT_SGD = Optimizer("sgd", (("learning_rate", 1.0),))
"""SGD whose steps a job scales by its ``rate``: programs are compiled once for all step sizes."""

Chosen: TypeAlias = Optimizer | optax.GradientTransformation | None
"""An optimizer by name, any of optax's, or the algorithm's own default."""


def rates(chosen: Chosen, learning_rate: float, jobs: int) -> dict[str, npt.NDArray[np.float32]]:
    """What jobs have to know of their step size: nothing if the optimizer was chosen with its own.

    >>> rates(None, 0.5, jobs=2)
    {'rate': array([0.5, 0.5], dtype=float32)}
    """
    return {} if chosen is not None else {"rate": np.full(jobs, learning_rate, np.float32)}


def build(chosen: Chosen, otherwise: Optimizer) -> optax.GradientTransformation:
    """The transformation that was chosen, or the default one."""
    if chosen is None:
        return otherwise.build()
    return chosen.build() if isinstance(chosen, Optimizer) else chosen
