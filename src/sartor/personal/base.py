"""What all personal algorithms share: a model for each client, from data in to files out."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from pathlib import Path

import jax
import numpy as np

from sartor.central import CentralModel
from sartor.central.settings import check_numbers, check_seed, describe
from sartor.data import ClientData
from sartor.engine import Engine, Optimizer, check, check_labels
from sartor.engine.blocks import Block, Recipe, train_each
from sartor.engine.engine import model_identity
from sartor.engine.optimizers import Chosen, build
from sartor.errors import ConfigError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts
from sartor.models import Model, Params
from sartor.personal.bank import Bank
from sartor.personal.models import PersonalModels
from sartor.progress import Bar
from sartor.trees import flatten


@dataclasses.dataclass(frozen=True)
class Personal(abc.ABC):
    """A personal algorithm: how one client's model is made from the central one and its data.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in a step.
        learning_rate: step size of SGD.
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.
    """

    epochs: int = 5
    batch: int = 20
    learning_rate: float = 0.01
    optimizer: Chosen = None

    def __post_init__(self) -> None:
        check_numbers(self, at_least_one=("epochs", "batch"))

    @abc.abstractmethod
    def recipe(self, model: Model) -> Recipe:
        """How a client trains."""

    def _sgd(self, model: Model, layers: tuple[str, ...] | None = None) -> Recipe:
        """The recipe of gradient steps on the client's own data."""
        default = Optimizer("sgd", (("learning_rate", self.learning_rate),))
        optimizer, name = build(self.optimizer, default), type(self).__name__
        return Recipe(optimizer, self.epochs, self.batch, layer_names(model, layers), name)

    def fit(
        self,
        central: CentralModel | Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        directory: str | Path | None = None,
        progress: bool | None = None,
    ) -> PersonalModels:
        """Make a model for every client, seen and unseen, from the training part of that client.

        Args:
            central: what to start from.
            data: the clients.
            seed: seed of all randomness.
            engine: how to run it; the central model's if not given.
            directory: where to keep the models while they are made; if some are there from the
                same work, only the others are made. In memory, or in a temporary directory if
                they are large, when not given.
            progress: whether to show a bar; on a terminal only, if not given.

        Returns:
            The clients' models.
        """
        base = central if isinstance(central, CentralModel) else None
        model = base.model if base else central
        if not isinstance(model, Model):
            raise ConfigError(
                f"fit takes a central model or a model (got {type(central).__name__})"
            )
        engine = engine or (base.engine if base else Engine())
        seed = check_seed(seed)
        check(model, data)
        if base is not None:
            check_labels(base.label_names, data)
        recipe = self.recipe(model)
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        trained = {name: leaf for name, leaf in flatten(shapes).items() if name in recipe.trained}
        start = self._start(base)
        identity = self._identity(base, model, data, seed, engine)
        folder = None if directory is None else Path(directory)
        bank = Bank(trained, folder, identity, expected=len(data))
        cluster = base.assign(data) if base else np.zeros(len(data), np.int64)
        done = np.array([client in bank for client in data.ids])
        run = train_each(
            model, data, recipe, start=start, cluster=cluster, done=done, seed=seed, engine=engine
        )
        name = type(self).__name__
        with Bar(name, len(data), progress) as bar, Interrupts() as interrupts:
            bar.update(len(bank))
            for block in run:
                self._check_finite(block, data)
                bank.add(tuple(data.ids[k] for k in block.clients), block.params)
                bar.update(len(bank), f"loss {block.loss.mean():.4f}")
                if interrupts.requested and len(bank) < len(data):
                    if folder is None:
                        raise KeyboardInterrupt
                    raise InterruptedRun(f"{name} stopped after {len(bank)} of {len(data)} clients")
        clusters = dict(zip(data.ids, cluster.tolist(), strict=True))
        return PersonalModels(model, base, bank, clusters, describe(self), data.label_names, engine)

    def _start(self, base: CentralModel | None) -> Params | None:
        """The hypotheses that clients start from."""
        if base is None:
            raise ConfigError(
                f"{type(self).__name__} starts from a central model: fit(central, data) with "
                "central = sartor.FedAvg().fit(model, data)"
            )
        return base.hypotheses

    def _identity(
        self, base: CentralModel | None, model: Model, data: ClientData, seed: int, engine: Engine
    ) -> str:
        digest = hashlib.blake2b(digest_size=16)
        parts = [describe(self), model_identity(model, data), data.fingerprint, seed]
        parts.append(engine.precision)
        digest.update(json.dumps(parts).encode())
        for leaf in jax.tree.leaves(base.hypotheses if base else ()):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()

    def _check_finite(self, block: Block, data: ClientData) -> None:
        bad = tuple(data.ids[k] for k in block.clients[~block.finite])
        if bad:
            named = ", ".join(map(repr, bad[:3])) + (" …" if len(bad) > 3 else "")
            raise DivergedError(
                f"{type(self).__name__} diverged for {len(bad)} clients ({named}); lower the "
                "learning rate, standardize the features, or look at these clients' data",
                round=0,
                clients=bad,
            )


def layer_names(model: Model, layers: tuple[str, ...] | None) -> tuple[str, ...]:
    """Names of the leaves in some layers, or of all; refuses a layer that is not there.

    >>> from sartor.models import mlp
    >>> layer_names(mlp(4, (8,), classes=3), ("dense_2",))
    ('dense_2/b', 'dense_2/w')
    """
    names = tuple(flatten(jax.eval_shape(model.init, jax.random.key(0))))
    if layers is None:
        return names
    if not layers:
        raise ConfigError("layers is empty, so nothing would be trained; leave it out to train all")
    for layer in layers:
        if not any(name == layer or name.startswith(f"{layer}/") for name in names):
            there = sorted({name.split("/")[0] for name in names})
            raise ConfigError(f"there is no layer {layer!r} in the model; there are {there}")
    return tuple(
        name for name in names if any(name == y or name.startswith(f"{y}/") for y in layers)
    )
