"""Mapper: mix the predictions of a local and a central model that are trained together.

Section 6 and figure 4 of the paper. In every round t, each client k of a cohort

1. finds for each λ in a cover of [0, 1] its local model h_l(λ), which minimises the loss of
   λ·h_l + (1−λ)·h_c on its data;
2. chooses the best λ*;
3. steps the central model h_c through the mixture of λ* and h_l(λ*).

In the end every client finds its local model and λ next to the final h_c. :class:`Joint` is the
rounds, :class:`Mapper` the settings and the end.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.central import Central, CentralModel, FedAvg, Fit
from sartor.central.fedavg import server_rule_of
from sartor.checking import Count, Positive, Whole
from sartor.data import ClientData
from sartor.engine import (
    SEARCHED,
    Automatic,
    Batch,
    Cohort,
    Job,
    Recipe,
    Searched,
    lowered,
    personalize,
    traced,
    trial,
)
from sartor.errors import CheckpointError, ConfigError, warn
from sartor.models import Model, check
from sartor.personal.base import Personal
from sartor.personal.choosing import COVER, Choices, Select, TrialReading, as_cover
from sartor.personal.mixture import Mixture
from sartor.personal.task import Task
from sartor.randomness import mix
from sartor.types import Ints

JOINT = "joint.safetensors"
"""The file, next to the clients' models, that keeps the joint rounds."""

GENTLE = Automatic(0.1)
"""Joint rounds begin with a model that is trained already, so they take small steps."""

CLUSTER = "cluster of Mapper"
"""The name of the metadata that holds each client's fixed cluster."""


@dataclasses.dataclass(frozen=True)
class Mapper(Personal):
    """Model interpolation: predict with a λ-mixture of a local and the central model.

    Attributes:
        epochs: passes of a client over its own data to train its local model (the paper: 1).
        batch: examples in one step.
        learning_rate: step size of SGD for local models (the paper: 0.03), or the best of several,
            on examples that some clients hold out.
        optimizer: replaces that SGD: an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless the mixture is better on held-out examples.
            ``None`` does so wherever something is held out.
        folds: number of folds of the training part, for clients without a validation part.
        shrink: choose for a client not only by its own held-out examples, but also by what is good
            for others.
        cover: Λ, the candidates for λ, the weight of the local model.
        select: how a client chooses λ, always by plain loss: ``"holdout"`` on its validation part
            (or by folds if it has none), ``"kfold"`` by folds of its training part, ``"train"`` on
            the examples it trained on, as in the pseudo-code. ``"train"`` favours λ = 1, where
            the central model gets no gradient.
        joint: train the central model and the local models inside their mixture. Otherwise train
            them separately (the paper's counter-example shows what that costs).
        rounds: rounds T of joint training. 0 leaves the central model unchanged.
        cohort: number of clients in a round (the pseudo-code: 1).
        central_epochs: passes of SGD over a client's data that train the central model, as in
            FedAvg. 0 takes one gradient step on all of the client's data, as in the pseudo-code.
        central_learning_rate: step size η of the central model.
        keep_local: a client that is visited again continues with its local model. Otherwise the
            local model starts from the central model, as in the paper.
        local: hypothesis class H_l of the local models (default: the central model's class).

    >>> Mapper(cover=(0.0, 0.5, 1.0)).joint
    True
    """

    epochs: Count = 1
    learning_rate: Positive | Searched = traced(SEARCHED)
    cover: tuple[float, ...] = COVER
    select: Select = "holdout"
    joint: bool = True
    rounds: Whole = traced(50)
    cohort: Count = traced(20)
    central_epochs: Whole = 1
    central_learning_rate: Positive | Automatic = traced(GENTLE)
    keep_local: bool = False
    local: Model | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cover", as_cover("Mapper", self.cover))
        super().__post_init__()

    def recipe(self, model: Model, data: ClientData) -> Recipe:
        """A local model inside the mixture; one step on everything if it can be solved for."""
        objective = Mixture(model, self.local or model, self.joint)
        if objective.exact:
            everything = int((data.bounds[:, 2] - data.bounds[:, 0]).max())
            return Recipe(objective, self.optimizer, 1, everything)
        return Recipe(objective, self.optimizer, self.epochs, self.batch)

    def choices(self) -> Choices:
        """The best λ of the cover."""
        return Choices(self.cover, self.select)

    def check(self, model: Model, data: ClientData) -> None:
        """Models must fit each other and the data; kept local models need real hold-outs."""
        local = self.local or model
        if local.kind != model.kind or local.classes != model.classes:
            raise ConfigError(
                f"Mapper: the local model predicts {local.kind} of {local.classes} classes and the "
                f"central one {model.kind} of {model.classes}, so they cannot be mixed"
            )
        check(local, data)
        unheld = int((data.sizes("validation") == 0).sum())
        if self.keep_local and self.select != "train" and (unheld or self.select == "kfold"):
            raise ConfigError(
                "Mapper: with keep_local a local model has seen all folds of the training part, so "
                f"λ has to be chosen by hold-out, and {unheld} clients have no validation part; "
                "make one (split, validation = 0.2), and leave out clients that are too small to "
                "have one, or set keep_local to false"
            )

    def begin(self, task: Task, folder: Path | None, progress: bool | None) -> Task:
        """Train the central model jointly with local ones."""
        if not (self.joint and self.rounds):
            return task
        given = task.central
        # Joint rounds draw other cohorts than the central rounds before them.
        seed = task.seed if given is None else int(mix(task.seed, "joint"))
        metadata = {**task.data.metadata, CLUSTER: task.cluster}
        data = dataclasses.replace(task.data, metadata=metadata)
        joint = Joint.after(self, task, seed)
        if joint.reading is None and len(self.cover) > 1:
            warn(
                "Mapper: no seen client has enough data to hold anything out, so joint rounds take "
                f"the smallest λ of the cover, {self.cover[0]:g}; give it a cover of one λ to take "
                "another"
            )
        how: dict[str, Any] = {"seed": seed, "engine": task.engine, "start": given}
        checkpoint = folder and folder / JOINT
        if checkpoint is not None:
            try:
                joint.checkpoint_for(checkpoint, task.model, data, **how).check()
            except CheckpointError:  # left by other work
                checkpoint.unlink()
        trained = joint.fit(task.model, data, progress=progress, checkpoint=checkpoint, **how)
        if given is not None:  # clients are assigned as before
            trained = dataclasses.replace(trained, clusterings=given.clusterings, rule=given.rule)
        return task._replace(central=trained, kept=trained.kept)


@dataclasses.dataclass(frozen=True)
class Joint(Central, listed=False):
    """The rounds of Mapper, under the server's rule of a central row.

    Attributes:
        rounds: communication rounds T.
        cohort: clients that take part in a round.
        mapper: Mapper's settings.
        rule: the algorithm of the server: FedAvg weighs clients, Agnostic domains.
        q: the number of central hypotheses; every client stays with its own.
        local_epochs: passes of a client over its data for a local model.
        local_batch: examples in a step of that.
        reading: what trials read; ``None`` if no client can be tried.
        capped: whether steps of local models are cut where they would make the loss explode.
    """

    mapper: Mapper = dataclasses.field(default_factory=Mapper)
    rule: FedAvg = dataclasses.field(default_factory=FedAvg)
    q: int = 1
    local_epochs: int = 1
    local_batch: int = 20
    reading: TrialReading | None = None
    capped: bool = False

    @classmethod
    def after(cls, mapper: Mapper, task: Task, seed: int) -> Joint:
        """The rounds after those of a central model; without one, FedAvg with plain steps."""
        central, recipe = task.central, mapper.recipe(task.model, task.data)
        rule = FedAvg(server_momentum=0.0) if central is None else server_rule_of(central)
        reading = TrialReading.of(task.data, mapper.select, mapper.folds, mapper.cover, seed)
        return cls(
            mapper.rounds, mapper.cohort, mapper, rule, central.q if central else 1,
            recipe.epochs, recipe.batch, reading, task.capped,
        )  # fmt: skip

    def init(self, model: Model, data: ClientData, key: jax.Array) -> Any:
        """A random model, q times."""
        state = self.rule.init(model, data, key)
        if self.q == 1:
            return state
        stacked = jax.tree.map(lambda a: jnp.repeat(a, self.q, axis=0), state.hypotheses)
        return self.rule.state_of(stacked)

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """Every client's cluster, and what the rule needs."""
        cluster = data.metadata[CLUSTER].astype(np.int32)
        return {**self.rule.attributes(data), "cluster": cluster}

    def strata(self, data: ClientData) -> Ints | None:
        """The rule's."""
        return self.rule.strata(data)

    def begin(self, state: Any, fit: Fit) -> Any:
        """Start from a central model as the rule does."""
        return self.rule.begin(state, fit)

    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Steps 1 to 3 of the figure, for every client of the cohort."""
        mapper, h_c, f = self.mapper, state.hypotheses, cohort.attributes["cluster"]
        mixture = Mixture(cohort.model, mapper.local or cohort.model, mapper.joint)
        mixture = lowered(mixture, cohort.engine.precision)
        recipe = Recipe(
            mixture, mapper.optimizer, self.local_epochs, self.local_batch, capped=self.capped
        )
        rate: Any = jnp.full(len(cohort.sizes), mapper.learning_rate)  # type: ignore[arg-type]
        how: dict[str, Any] = {"hypothesis": f, "keeps": mapper.keep_local}

        if len(mapper.cover) == 1 or self.reading is None:  # there is nothing to choose, or to try
            lambda_ = jnp.full(len(cohort.sizes), mapper.cover[0])
            known = {"learning_rate": rate, "lambda": lambda_}
            local = personalize(cohort, recipe, h_c, values=known, **how)
        else:
            # 1. For every λ, the local model that minimises the loss of the mixture.
            cover = jnp.array(self.reading.cover)
            tried = trial(
                cohort, recipe, h_c, {"lambda": cover}, self.reading, self.reading.parts,
                values={"learning_rate": rate}, **how,
            )  # fmt: skip
            # 2. The best of them; of equals, the smallest λ. A client that cannot be tried takes
            # the λ that is best on average for the others; where nobody can, the smallest one.
            mean = jnp.where(tried.tried[:, None], tried.losses, 0).sum(axis=0)
            losses = jnp.where(tried.tried[:, None], tried.losses, mean)
            best = len(cover) - 1 - losses[:, ::-1].argmin(axis=1)
            lambda_, local = cover[best], tried.take(best)

        # 3. A step of the central model through the mixture.
        def mixture_loss(h: Any, batch: Batch, job: Job) -> jax.Array:
            return mixture.central_loss(h, job.values["local"], batch, job)

        def eta(steps: Any) -> Any:
            rate = mapper.central_learning_rate
            return self.rule.step_size(rate, cohort.model, steps, cohort.round / self.rounds)

        def sgd(job: Job) -> optax.GradientTransformation:
            return optax.sgd(eta(mapper.central_epochs * jnp.ceil(job.size / mapper.batch)))

        trained = cohort.train(
            h_c, sgd if mapper.central_epochs else None, learning_rate=eta(1),
            epochs=max(mapper.central_epochs, 1), batch=mapper.batch,
            weights=self.rule.weigh(state, cohort), hypothesis=f, loss=mixture_loss,
            values={"lambda": lambda_, "local": local},
        )  # fmt: skip
        loss = trained.record["loss"]
        notes = {"loss": loss, "lambda": lambda_.mean(), **self.rule.notes(state)}
        return self.rule.upload(state, cohort, trained, loss), notes

    def server(self, state: Any, upload: Any) -> Any:
        """The rule's step."""
        return self.rule.server(state, upload)

    def finish(self, trained: CentralModel, state: Any, fit: Fit) -> CentralModel:
        """What the rule has left to do."""
        return self.rule.finish(trained, state, fit)
