"""Local: every client trains from scratch on its own data alone (section 2.2)."""

from __future__ import annotations

import dataclasses

from sartor.central import CentralModel
from sartor.engine.blocks import Recipe
from sartor.models import Model
from sartor.personal.base import Personal


@dataclasses.dataclass(frozen=True)
class Local(Personal):
    """The purely local model. Of a central model it takes only the hypothesis class.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in a step.
        learning_rate: step size of SGD.
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.

    >>> Local(epochs=20).learning_rate
    0.05
    """

    epochs: int = 20
    learning_rate: float = 0.05

    def recipe(self, model: Model) -> Recipe:
        """SGD on the client's own data."""
        return self._sgd(model)

    def _start(self, base: CentralModel | None) -> None:
        return None
