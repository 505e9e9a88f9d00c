"""Mapper: mix the predictions of a local and a central model that are trained together.

Section 6 and figure 4 of the paper. In every round t, each client k of a cohort

1. finds for each λ in a cover of [0, 1] its local model h_l(λ), which minimises the loss of
   λ·h_l + (1−λ)·h_c on its data;
2. chooses the best λ*;
3. steps the central model h_c through the mixture of λ* and h_l(λ*).

In the end every client finds its local model and λ beside the final h_c.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sartor.central.settings import check_choices, check_numbers
from sartor.data import ClientData
from sartor.engine import check
from sartor.engine.blocks import Block, Jobs, Mix, Recipe
from sartor.engine.engine import model_identity
from sartor.errors import CheckpointError, ConfigError
from sartor.models import Model, parameter_bytes
from sartor.personal.bank import Bank
from sartor.personal.base import Personal, Setting
from sartor.personal.choosing import Select
from sartor.personal.cover import COVER, as_cover
from sartor.personal.joint import Joint, JointModel, with_clusters
from sartor.personal.models import PersonalModels
from sartor.personal.objectives import Beside, Mixture, rebuild_model
from sartor.randomness import mix


@dataclasses.dataclass(frozen=True)
class Mapper(Personal):
    """Model interpolation.

    Attributes:
        epochs: passes of a client over its own data for a local model (the paper: 1).
        batch: examples in a step.
        learning_rate: step size of SGD for local models (the paper: 0.03).
        optimizer: replaces that SGD; an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless the mixture is better on what was held out.
        folds: folds of the training part of a client that has no validation part.
        cover: Λ, the candidates for λ, the weight of the local model.
        select: how a client chooses λ, always by plain loss: on its validation part
            (``"holdout"``; a client that has none uses folds), by K folds of its training part
            (``"kfold"``), or on what it has trained on (``"train"``, as in the pseudo-code, which
            favours λ = 1 and then leaves the central model without a gradient).
        joint: train the central model through the mixtures, and local models inside them;
            otherwise both apart (the paper's counter-example shows what that costs).
        rounds: rounds T of joint training; 0 leaves the central model as it is.
        cohort: clients in a round; 1 is the pseudo-code.
        central_epochs: 0 makes one step along the gradient on all of a client's data, as in the
            pseudo-code; more make so many passes of SGD, as FedAvg does.
        central_learning_rate: step size η of the central model in a client's steps.
        keep_local: a client goes on with its local model when it is visited again, instead of
            starting anew from the central one, as the paper does. All of them are then in memory.
        local: the hypothesis class H_l of local models, if it is another than the central one's.

    >>> Mapper(cover=(0.0, 0.5, 1.0)).joint
    True
    """

    epochs: int = 1
    learning_rate: float = 0.03
    cover: tuple[float, ...] = COVER
    select: Select = "holdout"
    joint: bool = True
    rounds: int = 50
    cohort: int = 20
    central_epochs: int = 1
    central_learning_rate: float = 0.05
    keep_local: bool = False
    local: Model | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, at_least_one=("cohort",))
        object.__setattr__(self, "cover", as_cover("Mapper", self.cover))
        if not isinstance(self.local, Model | dict | None):
            raise ConfigError(
                f"Mapper: local must be a model, such as sartor.models.logistic(...) (got "
                f"{self.local!r})"
            )
        if isinstance(self.local, dict):  # from a configuration file
            try:
                local = rebuild_model(self.local)
            except (KeyError, TypeError) as error:
                raise ConfigError(
                    f"Mapper: local = {self.local!r} is not a ready model with all its arguments, "
                    f'such as {{name = "logistic", features = 4, classes = 2}} ({error})'
                ) from error
            object.__setattr__(self, "local", local)
        check_choices(self, select=get_args(Select))
        for name in ("rounds", "central_epochs"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(
                    f"Mapper: {name} must be a whole number of at least 0 (got {value!r})"
                )

    def objective(self, model: Model) -> Mixture:
        """The loss of the mixture."""
        local = self.local or model
        if local.kind != model.kind or local.classes != model.classes:
            raise ConfigError(
                f"Mapper: the local model predicts {local.kind} of {local.classes} classes and the "
                f"central one {model.kind} of {model.classes}, so they cannot be mixed"
            )
        return Mixture(model, local, self.joint)

    def steps(self, data: ClientData) -> tuple[int, int]:
        """Epochs and batch of local training; one step on everything if it is exact."""
        if self.local is not None and self.local.argmin is not None:
            return 1, int((data.bounds[:, 2] - data.bounds[:, 0]).max())
        return self.epochs, self.batch

    def recipe(self, setting: Setting) -> Recipe:
        """How a local model is trained."""
        epochs, batch = self.steps(setting.data)
        return super().recipe(setting)._replace(epochs=epochs, batch=batch)

    def shaped(self, jobs: Jobs) -> Jobs:
        """With λ = 0 there is nothing to train."""
        sizes = np.where(jobs.values["lambda"] > 0, jobs.train.sizes, 0)
        return jobs._replace(train=jobs.train._replace(sizes=sizes))

    def beside(self, setting: Setting) -> Any:
        """The central hypotheses, and the local models that clients have kept."""
        central = setting.central
        if self.keep_local and isinstance(central, JointModel):
            return Beside(central.hypotheses, central.kept, central.visited)
        return super().beside(setting)

    def _guarded(self, setting: Setting, decided: Any, block: Block) -> dict[str, Any]:
        """Local models stay as they are: who keeps the central one has λ = 0 in the end.

        One that is not finite is replaced by zeros: 0 · NaN would not be 0.
        """
        if not self.guard:
            return block.params
        return {
            name: np.where(block.finite.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)
            for name, leaf in block.params.items()
        }

    def check(self, setting: Setting) -> None:
        """Mapper can start from nothing, if it has rounds to train the central model in."""
        if setting.central is None and not (self.joint and self.rounds):
            super().check(setting)
        if setting.central is None and self.guard:
            raise ConfigError("Mapper: guard needs a central model to keep; give fit one")
        self.check_work(setting.model, setting.data)
        needed = len(setting.data) * parameter_bytes(self.local or setting.model)
        if self.keep_local and needed > setting.engine.budget() // 4:
            raise ConfigError(
                f"Mapper: keep_local holds {len(setting.data)} local models, {needed / 2**30:.1f} "
                "GiB, more than a quarter of the device's memory; leave it out"
            )

    def check_work(self, model: Model, data: ClientData) -> None:
        """The local class must fit the data, and kept local models need hold-outs to choose by."""
        super().check_work(model, data)
        if self.local is not None:
            check(self.local, data)
        if self.keep_local and self.select != "train":
            without = int((data.sizes("validation") == 0).sum())
            if without or self.select == "kfold":
                raise ConfigError(
                    "Mapper: with keep_local a local model has seen all folds of the training part,"
                    f" so λ has to be chosen by hold-out, and {without} clients have no validation "
                    "part; make one (split, validation = 0.2), and leave out clients that are too "
                    "small to have one, or set keep_local to false"
                )

    def _identity(self, setting: Setting, mixing: Mix | None = None) -> str:
        """Of the work as it was given: what is trained jointly follows from that.

        What a local model of the user's own functions computes is part of it, too.
        """
        base = super()._identity(setting._replace(central=setting.given), mixing)
        return base if self.local is None else f"{base} {model_identity(self.local, setting.data)}"

    def _fit(
        self,
        setting: Setting,
        folder: Path | None,
        progress: bool | None,
        mixing: Mix | None = None,
        keep: bool = True,
    ) -> PersonalModels:
        """Train the central model jointly with local ones, then make a mixture for every client."""
        given = setting.given
        if self.joint and self.rounds:
            one = parameter_bytes(self.local or setting.model)
            room = setting.engine.budget() // 8
            joint = Joint.after(given, self, self.cohort * len(self.cover) * one <= room)
            data = with_clusters(setting.data, setting.cluster)
            # Rounds after others draw other cohorts than those did.
            seed = setting.seed if given is None else int(mix(setting.seed, "joint"))
            checkpoint = None
            if folder is not None:
                checkpoint = folder / JOINT
                # Finished models of other work are refused now; what others left makes way.
                Bank(self.objective(setting.model).shapes(), folder, self._identity(setting))
                try:
                    joint.keeper(
                        checkpoint, setting.model, data,
                        seed=seed, engine=setting.engine, start=given,
                    ).check()  # fmt: skip
                except CheckpointError:
                    checkpoint.unlink()
            trained = joint.fit(
                setting.model, data, start=given, seed=seed, engine=setting.engine,
                progress=progress, checkpoint=checkpoint,
            )  # fmt: skip
            if given is not None:  # clients are assigned as before
                trained = dataclasses.replace(trained, blocks=given.blocks, rule=given.rule)
            setting = setting._replace(central=trained)
        personal = super()._fit(setting, folder, progress, mixing, keep)
        central = setting.central
        if central is not given and central and central.cost and personal.cost:
            cost = personal.cost + central.cost
            personal = dataclasses.replace(personal, baseline=given, cost=cost)
        return _guarded(personal) if self.guard else personal


def _guarded(personal: PersonalModels) -> PersonalModels:
    """Clients that keep the central model have λ = 0 beside the one that was given."""
    central = personal.central
    assert central is not None
    behind = 0 if personal.baseline is None else central.q  # see PersonalModels.beside
    clients = {
        client: {**decided, "lambda": 0.0, "hypothesis": behind + decided["cluster"]}
        if decided["kept"]
        else decided
        for client, decided in personal.clients.items()
    }
    return dataclasses.replace(personal, clients=clients)


JOINT = "joint.safetensors"
"""The file, beside the clients' models, that the joint rounds are kept in."""
