"""Local: every client trains from scratch on its own data alone (section 2.2)."""

from __future__ import annotations

import dataclasses

from sartor.cost import Cost
from sartor.engine.objectives import Own
from sartor.models import Model
from sartor.personal.base import Personal, Setting, layer_names


@dataclasses.dataclass(frozen=True)
class Local(Personal):
    """The purely local model. Of a central model it takes only the hypothesis class.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in a step.
        learning_rate: step size of SGD.
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on examples that were
            held out: its validation part, or folds of its training part where it has none.
        folds: how many folds that are.

    >>> Local(epochs=20).learning_rate
    0.05
    """

    epochs: int = 20
    learning_rate: float = 0.05

    def objective(self, model: Model) -> Own:
        """The client's own model from scratch."""
        return Own(model, layer_names(model, None), from_scratch=True)

    def received(self, setting: Setting) -> Cost:
        """Nothing but the hypothesis class, unless there is a model to be guarded by."""
        return super().received(setting) if self.guard else Cost.nothing(setting.data.ids)

    def check(self, setting: Setting) -> None:
        """A central model is needed only to be guarded by."""
        if self.guard:
            super().check(setting)
