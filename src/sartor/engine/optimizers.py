"""Optimizers by name, so that a configuration file can hold them; or any of optax's, as it is.

And step sizes that need no choosing.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, TypeAlias

import jax.numpy as jnp
import optax

from sartor.caching import made_once
from sartor.checking import Count, Finite, Positive, check_fields, checked
from sartor.engine.arguments import traced
from sartor.errors import ConfigError, nearest

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
        several = Mapping[str, Any] | tuple[tuple[str, Any], ...]
        given = {**dict(checked("optimizer: options", options, several)), **more}
        for key, value in given.items():
            hint = Positive if key == "learning_rate" else bool | Finite
            plain = checked(f"optimizer: {key}", value, hint)
            whole = isinstance(value, Integral) and not isinstance(plain, bool)
            given[key] = int(value) if whole else plain
        object.__setattr__(self, "name", checked("optimizer: name", name, str))
        object.__setattr__(self, "options", tuple(given.items()))
        self.build()  # refuses what optax would not take

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Optimizer:
        """From a table such as ``{name = "adam", learning_rate = 0.01}``."""
        options = {key: value for key, value in table.items() if key != "name"}
        return cls(table.get("name", ""), options)

    @made_once(maxsize=256)  # the same one each time: compiled programs are found again
    def build(self) -> optax.GradientTransformation:
        """The optax transformation."""
        if self.name not in NAMES:
            hint = nearest(self.name, NAMES, "choose one of")
            raise ConfigError(f"there is no optimizer {self.name!r}; {hint}")
        factory = getattr(optax, self.name)
        known = inspect.signature(factory).parameters
        for key, _ in self.options:
            if key not in known:
                hint = nearest(key, known, "it takes")
                raise ConfigError(f"optimizer {self.name!r} takes no {key!r}; {hint}")
        for key, parameter in known.items():
            if parameter.default is parameter.empty and key not in dict(self.options):
                raise ConfigError(f"optimizer {self.name!r} needs {key}; give it, {key} = 0.01")
        try:
            return factory(**dict(self.options))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer {self.name!r}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Automatic:
    """A step size that needs no choosing, for features on one scale.

    All steps of a client in round t, counted from 0, add up to first · (1 − t/T)², divided by the
    curvature of the loss. So clients count by their weights, and not by how many steps they take;
    and late steps are too small to carry clients away from each other. If training diverges, it is
    restarted with half the step size.

    Attributes:
        first: what a client's steps in the first round add up to, with all that the server's
            momentum makes of them later on.

    >>> float(Automatic(0.5).at(done=0.5, steps=4, curvature=0.25))
    0.125
    """

    first: Positive = traced(0.5)

    def __post_init__(self) -> None:
        check_fields(self)

    def at(self, done: Any, steps: Any, curvature: float) -> Any:
        """The size of each of so many steps when a share of the rounds is done."""
        left = jnp.maximum(1.0 - done, 0.0)
        return self.first / curvature / steps * left**2


@dataclasses.dataclass(frozen=True)
class Searched:
    """The best of some step sizes, on examples that some clients hold out.

    All clients take the same. How far a client moves then depends on how many examples it has. A
    step is at most the loss over the squared norm of its gradient (Polyak's step size), and a tenth
    longer than the step before, so that a client whose examples lie far out does not diverge.
    Objectives and training losses of one's own may be negative, and are not cut.

    Attributes:
        among: the step sizes, for log loss. Squared error is steeper, and takes an eighth of them.
        clients: how many clients try them.

    >>> Searched().of(curvature=2.0)
    (0.0025, 0.01, 0.04, 0.16)
    """

    among: tuple[Positive, ...] = (0.02, 0.08, 0.32, 1.28)
    clients: Count = 100

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.among:
            raise ConfigError("Searched: among is empty; give at least one step size")

    def of(self, curvature: float) -> tuple[float, ...]:
        """The step sizes for a loss."""
        return tuple(rate * 0.25 / curvature for rate in self.among)


GROWTH = 1.1
"""How much longer than the step before a step of `Searched` may be."""

AUTOMATIC = Automatic()
SEARCHED = Searched()


Chosen: TypeAlias = Optimizer | optax.GradientTransformation | None
"""An optimizer by name, any of optax's, or plain SGD."""


def build(chosen: Chosen, learning_rate: Any, capped: bool = False) -> optax.GradientTransformation:
    """The transformation that was chosen; plain SGD with this step size if none was.

    Args:
        chosen: what was chosen.
        learning_rate: the step size of plain SGD.
        capped: whether plain SGD cuts its steps to Polyak's step size.
    """
    if chosen is None:
        return capped_sgd(learning_rate) if capped else optax.sgd(learning_rate)
    return chosen.build() if isinstance(chosen, Optimizer) else chosen


def capped_sgd(learning_rate: Any) -> optax.GradientTransformationExtraArgs:
    """SGD with steps of at most the loss over the squared norm of its gradient.

    For losses that are never negative. Where one curves by L, this is at least 1/(2L), and close to
    it far from the minimum. So after a step that was too long, the next ones are short enough to
    come back. From there on steps may grow by a tenth each: near a minimum above 0, long ones would
    else follow at once (Loizou et al. 2021 limit growth, too). ``optax.polyak_sgd`` does not, and
    takes small gradients for none.
    """

    def init(params: Any) -> Any:
        return jnp.asarray(learning_rate, jnp.float32)

    def update(gradient: Any, state: Any, params: Any = None, *, value: Any, **_: Any) -> Any:
        square = optax.tree.norm(gradient, squared=True)
        room = jnp.minimum(jnp.asarray(learning_rate, jnp.float32), GROWTH * state)
        step = jnp.where(square > 0, jnp.minimum(room, value / square), room)
        return optax.tree.scale(-step, gradient), step

    return optax.GradientTransformationExtraArgs(init, update)
