"""A personal algorithm: what a client trains, on what, and what there is to choose for it."""

from __future__ import annotations

import abc
import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax

from sartor.central import CentralModel
from sartor.central.settings import check_subclass
from sartor.checking import AnyPath, Count, Positive, Range, checks_arguments
from sartor.data import ClientData
from sartor.engine import Chosen, Engine, Recipe, Searched, traced
from sartor.errors import ConfigError
from sartor.locks import locked
from sartor.models import Model
from sartor.personal import fitting
from sartor.personal.choosing import Choices
from sartor.personal.models import PersonalModels
from sartor.personal.task import Source, Task
from sartor.registry import register
from sartor.trees import flatten


@dataclasses.dataclass(frozen=True)
class Personal(abc.ABC):
    """A personal algorithm.

    A subclass is a frozen dataclass of hyper-parameters. It defines :meth:`recipe`; and where it
    needs them :meth:`trains_on`, :meth:`choices`, :meth:`begin` and :meth:`check`. Everything
    else, such as trials, the guard, storing models, resuming and the cost ledger, is done for it.
    Its class name is what configurations call it.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in a step.
        learning_rate: step size of SGD.
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is expected to be better, by examples
            that were held out: its validation part, or folds of its training part where it has
            none. By default, wherever there is a central model and something is held out.
        folds: how many folds.
        shrink: choose for a client not only by its own held-out examples, but also by what is good
            for others.
    """

    epochs: Count = 5
    batch: Count = 20
    learning_rate: Positive | Searched = traced(0.01)
    optimizer: Chosen = None
    guard: bool | None = None
    folds: Annotated[int, Range(2, 1000)] = 5
    shrink: bool = True

    known: ClassVar[dict[str, type[Personal]]] = {}
    """The personal algorithms by the name that configurations use."""

    def __init_subclass__(cls, listed: bool = True) -> None:
        super().__init_subclass__()
        if listed:
            register(Personal.known, cls.__name__, cls)

    @abc.abstractmethod
    def recipe(self, model: Model, data: ClientData) -> Recipe:
        """What a client trains, and how: an objective, an optimizer, epochs and a batch size."""

    def trains_on(self, task: Task) -> Source:
        """What clients train on; arguments of ``fit`` beyond the usual ones arrive here."""
        return Source()

    def choices(self) -> Choices:
        """What there is to choose for a client."""
        return Choices()

    def begin(self, task: Task, folder: Path | None, progress: bool | None) -> Task:
        """What has to be done before clients train by themselves; it may change the task."""
        return task

    def check(self, model: Model, data: ClientData) -> None:  # noqa: B027  (most need no more)
        """Refuse what cannot work, before any work starts."""

    def __post_init__(self) -> None:
        check_subclass(self)
        if self.guard and self.choices().select == "train":
            raise ConfigError(
                f"{type(self).__name__}: a guard needs examples that were held out; choose "
                "select='holdout' or 'kfold'"
            )

    @checks_arguments
    def fit(
        self,
        central: CentralModel | Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        directory: AnyPath | None = None,
        progress: bool | None = None,
        keep: bool = True,
        allow_trained: bool = False,
        **inputs: Any,
    ) -> PersonalModels:
        """Make a model for every client, seen and unseen, from the training part of that client.

        Args:
            central: what to start from.
            data: the clients. Where there is something to choose, clients choose by their
                validation parts, and train on these too once the choice is made.
            seed: seed of all randomness.
            engine: how to run it; the central model's if not given.
            directory: where to keep the models while they are made. Models of the same work that
                are there already are not made again. Without a directory, models are kept in
                memory, or in a temporary directory if they are large.
            progress: whether to show a progress bar; only on a terminal if not given.
            keep: whether to keep the models. With ``False`` they are made when they are evaluated,
                a block at a time, and forgotten, so that large models of very many clients never
                go through the host's memory. Every evaluation makes them again; choices are made
                once.
            allow_trained: whether validation and test parts may hold rows that the central model
                was trained on. Choices by them lean towards it, and scores of such rows are marked.
            inputs: what only some algorithms take, such as ``public`` and ``sampler`` of Dapper.

        Returns:
            The clients' models.
        """
        task = fitting.prepared(self, central, data, seed, engine, allow_trained, inputs)
        with nullcontext() if directory is None else locked(directory):
            return fitting.fit(self, task, directory, progress, keep, inputs)


def layer_names(model: Model, layers: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the leaves in some layers; refuses a layer that is not there.

    >>> from sartor.models import mlp
    >>> layer_names(mlp(4, (8,), classes=3), ("dense_2",))
    ('dense_2/b', 'dense_2/w')
    """
    names = tuple(flatten(jax.eval_shape(model.init, jax.random.key(0))))
    if not layers:
        raise ConfigError("layers is empty, so nothing would be trained; leave it out to train all")
    inside = {layer: [n for n in names if f"{n}/".startswith(f"{layer}/")] for layer in layers}
    for layer, found in inside.items():
        if not found:
            there = sorted({name.split("/")[0] for name in names})
            raise ConfigError(f"there is no layer {layer!r} in the model; there are {there}")
    return tuple(name for name in names if any(name in found for found in inside.values()))
