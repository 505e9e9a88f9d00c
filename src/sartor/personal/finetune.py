"""Finetune: every client continues to train the central model on its own data.

The baseline of the paper's section 5 and of its tables: popular, without guarantees, and prone to
forgetting what the central model knew.
"""

import dataclasses

from sartor.checking import Positive
from sartor.data import ClientData
from sartor.engine import SEARCHED, Own, Recipe, Searched, traced
from sartor.models import Model
from sartor.personal.base import Personal, layer_names


@dataclasses.dataclass(frozen=True)
class Finetune(Personal):
    """Finetuning: the central model, trained further on the client's own data.

    Attributes:
        epochs: passes of a client over its own data (the paper: 5).
        batch: examples in one step.
        learning_rate: step size of SGD (the paper: 0.01), or the best of several,
            on examples that some clients hold out.
        optimizer: replaces SGD: an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on held-out examples: its
            validation part, or folds of its training part if it has none. ``None`` does so
            wherever there is a central model and something is held out.
        folds: number of these folds.
        shrink: choose for a client not only by its own held-out examples, but also by what is good
            for others.
        layers: names of the layers to train (default: all). The other layers stay those of the
            central model and are stored once.

    >>> Finetune(epochs=3, layers=("dense_2",)).layers
    ('dense_2',)
    """

    learning_rate: Positive | Searched = traced(SEARCHED)
    layers: tuple[str, ...] | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.layers, str):
            object.__setattr__(self, "layers", (self.layers,))
        super().__post_init__()

    def recipe(self, model: Model, data: ClientData) -> Recipe:
        """SGD on the client's own data, from the central model or some layers of it."""
        names = None if self.layers is None else layer_names(model, tuple(self.layers))
        objective = Own(model, names)
        return Recipe(objective, self.optimizer, self.epochs, self.batch)
