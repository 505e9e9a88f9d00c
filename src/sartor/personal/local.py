"""Local: every client trains from scratch on its own data alone (section 2.2)."""

import dataclasses

from sartor.checking import Count, Positive
from sartor.data import ClientData
from sartor.engine import SEARCHED, Own, Recipe, Searched, traced
from sartor.models import Model
from sartor.personal.base import Personal


@dataclasses.dataclass(frozen=True)
class Local(Personal):
    """A model trained on the client's own data alone. The central model only sets its class.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in one step.
        learning_rate: step size of SGD, or the best of several, on
            examples that some clients hold out.
        optimizer: replaces SGD: an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on held-out examples: its
            validation part, or folds of its training part if it has none. ``None`` does so
            wherever there is a central model and something is held out.
        folds: number of these folds.
        shrink: choose for a client not only by its own held-out examples, but also by what is good
            for others.

    >>> Local(learning_rate=0.05).epochs
    20
    """

    epochs: Count = 20
    learning_rate: Positive | Searched = traced(SEARCHED)

    def recipe(self, model: Model, data: ClientData) -> Recipe:
        """SGD on the client's own data, from a random model."""
        objective = Own(model, from_scratch=True)
        return Recipe(objective, self.optimizer, self.epochs, self.batch)
