"""Dapper: from the central model, train on a λ-mixture of the client's data and everybody's.

Section 5 and figure 3 of the paper. For every client k:

1. sample r · m_k examples Ĉ' from Ĉ, the data of all seen clients or of its cluster;
2. for each λ in a cover of [0, 1], start from h_c and minimise λ·L_k(h) + (1−λ)·L_Ĉ'(h) by SGD;
3. take the best λ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.central.settings import check_choices, check_numbers
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Engine
from sartor.engine.blocks import Block, Recipe
from sartor.engine.objectives import Own
from sartor.engine.optimizers import averaged_sgd
from sartor.engine.schedule import Spans
from sartor.errors import ConfigError
from sartor.models import Model
from sartor.personal.bank import Bank
from sartor.personal.base import Personal, Setting, as_folder, layer_names
from sartor.personal.choosing import Select, choose, make_trials, trial_jobs, warn_of_fallbacks
from sartor.personal.cover import COVER, as_cover
from sartor.personal.models import PersonalModels
from sartor.personal.objectives import Guaranteed, Theory, Weighted
from sartor.personal.sources import (
    Interpolation,
    Sample,
    check_density,
    clients_sample,
    generated,
    public_sample,
)
from sartor.personal.statistics import Solver, as_leaves
from sartor.randomness import mix

Step = Literal["sample", "weight"]
Source = Literal["clients", "statistics", "generated", "public"]


@dataclasses.dataclass(frozen=True)
class Dapper(Personal):
    """Data interpolation.

    Attributes:
        epochs: passes over the mixed data (the paper: 1).
        batch: examples in a step; with ``step="weight"`` those of the client, and r times as many
            others beside them.
        learning_rate: step size of SGD (the paper: 0.04).
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on what was held out.
        folds: folds of the training part of a client that has no validation part.
        cover: Λ, the candidates for λ, the weight of the client's own data.
        select: how a client chooses λ, always by plain loss: on its validation part
            (``"holdout"``; a client that has none uses folds), by K folds of its training part
            (``"kfold"``), or on what it has trained on (``"train"``, as in the pseudo-code, which
            favours λ = 1).
        r: how many examples are sampled for each one of the client (the paper: 5). One pass is
            r · m_k examples (``step="sample"``) or (r + 1) · m_k (``"weight"``), whatever λ is.
        step: ``"sample"`` draws every example from the client with probability λ and else from the
            sample (the pseudo-code); ``"weight"`` weighs the losses of both, which has the same
            expectation and less variance.
        mixture: Ĉ: the examples of ``"all"`` seen clients, or of those in the client's
            ``"cluster"``.
        source: where Ĉ' comes from: ``"clients"`` sends examples of clients to others;
            ``"statistics"`` sends second moments instead, from which linear regression is solved
            exactly, for all of Ĉ and without any steps;
            ``"generated"`` draws them from the central model (densities) or a ``sampler`` given to
            ``fit``; ``"public"`` takes data given to ``fit`` as ``public``.

        theory: run as the theorem has it: its r and step size (instead of ``r`` and
            ``learning_rate``), single examples, projection, and the average of all iterates.

    >>> Dapper(cover=(0.0, 0.5, 1.0)).r
    5
    """

    epochs: int = 1
    learning_rate: float = 0.04
    cover: tuple[float, ...] = COVER
    select: Select = "holdout"
    r: int = 5
    step: Step = "sample"
    mixture: Literal["all", "cluster"] = "all"
    source: Source = "clients"
    theory: Theory | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.theory, dict):  # from a configuration file
            constants = {key: v for key, v in self.theory.items() if key != "name"}
            object.__setattr__(self, "theory", Theory(**constants))
        if self.theory is not None:
            if self.step != "sample" or self.optimizer is not None or self.epochs != 1:
                raise ConfigError(
                    "Dapper: the theorem is about one pass of SGD with step='sample'; leave out "
                    "step, optimizer and epochs"
                )
            object.__setattr__(self, "r", self.theory.r)
            object.__setattr__(self, "batch", 1)
        check_numbers(self, at_least_one=("r",))
        object.__setattr__(self, "cover", as_cover("Dapper", self.cover))
        check_choices(
            self,
            select=get_args(Select),
            step=get_args(Step),
            mixture=("all", "cluster"),
            source=get_args(Source),
        )

    def objective(self, model: Model) -> Own:
        """The loss on mixed batches, or the weighted loss of their two halves."""
        names = layer_names(model, None)
        if self.theory is not None:
            return Guaranteed(model, names, theory=self.theory, r=self.r)
        return Own(model, names) if self.step == "sample" else Weighted(model, names, r=self.r)

    def rates(self, jobs: int) -> dict[str, npt.NDArray[np.float32]]:
        """The theorem has step sizes of its own."""
        return super().rates(jobs) if self.theory is None else {}

    def recipe(self, setting: Setting) -> Recipe:
        """With source sampling, a pass over r · m_k slots is r epochs over the client's data."""
        passes = self.epochs * (self.r if self.step == "sample" else 1)
        recipe = super().recipe(setting)._replace(epochs=passes)
        if self.theory is not None:
            recipe = recipe._replace(optimizer=averaged_sgd(self.theory.R / 2))
        return recipe

    def fit(
        self,
        central: CentralModel | Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        directory: str | Path | None = None,
        progress: bool | None = None,
        keep: bool = True,
        public: ClientData | None = None,
        sampler: Callable[[jax.Array, int, int], dict[str, Any]] | None = None,
    ) -> PersonalModels:
        """Make a model for every client, as :meth:`Personal.fit` says.

        Args:
            central: what to start from.
            data: the clients.
            seed: seed of all randomness.
            engine: how to run it; the central model's if not given.
            directory: where to keep the models while they are made.
            progress: whether to show a bar.
            keep: whether to keep the models, or to make them when they are evaluated.
            public: with ``source="public"``, the data that is mixed with the clients'.
            sampler: with ``source="generated"``, ``sampler(key, count, cluster)`` gives columns of
                examples; not needed for density models, which are sampled themselves.
        """
        setting = self._setting(central, data, seed, engine)
        folder = as_folder(directory, keep)
        if self.source == "statistics":
            return self._solve(setting, folder)
        sample = self._sample(setting, public, sampler)
        words = mix(setting.seed, "personal", data.hashes)
        mixing = Interpolation(sample, words, self.r, self.step)
        return self._fit(setting, folder, progress, mixing, keep)

    def check_work(self, model: Model, data: ClientData) -> None:
        """Sources that are arguments of ``fit`` have to be given there."""
        super().check_work(model, data)
        if self.source == "public":
            raise ConfigError(
                "Dapper: source='public' takes the public data as an argument, fit(..., "
                "public=data), so it cannot be run from a configuration; use Python for it"
            )
        if self.source == "statistics":
            _check_linear(model)
        if self.source == "generated":
            check_density(model, None)

    def _solve(self, setting: Setting, folder: Path | None) -> PersonalModels:
        """Every client's minimiser from statistics, for each λ; and the best λ."""
        data = setting.data
        _check_linear(setting.model)
        trials = make_trials(data, self.select, self.folds, setting.seed)
        solver = Solver.of(data, *self._circles(setting))
        cover = np.array(self.cover)
        cost = super().received(setting)
        chosen = self._given(data)
        if not self._single:
            warn_of_fallbacks("Dapper", self.select, trials.how)
            jobs = trial_jobs(data, trials, setting.seed, setting.cluster, cover)
            choice = choose(data, trials, solver.trial_losses(jobs), len(cover))
            chosen = self._chosen(setting, choice, cover)
            assert jobs.held is not None
            np.add.at(cost.examples, jobs.client, jobs.held.sizes)
            cost += self._guard_cost(setting, choice)
        end = data.bounds[:, 1 if self._single or self.select == "train" else 2]
        everything = Spans(data.bounds[:, 0], end - data.bounds[:, 0])
        leaves = as_leaves(solver.solve(everything, chosen["lambda"]))
        made = Block(np.arange(len(data)), leaves, chosen["lambda"], chosen["lambda"] >= 0, None)
        params = self._guarded(setting, chosen, made)
        objective = self.objective(setting.model)
        bank = Bank(objective.shapes(), folder, self._identity(setting), expected=len(data))
        if not len(bank):
            bank.add(data.ids, params)
        cost.up[data.seen] += 8 * solver.own.numbers()
        cost.down[:] += 8 * solver.own.numbers()
        cost.examples[:] += everything.sizes
        cost.left["statistics"] = solver.own.numbers() * int(data.seen.sum())
        decided = {"cluster": setting.cluster, **chosen}
        return self._models(setting, objective, bank, decided, cost)

    def received(self, setting: Setting) -> Cost:
        """The central hypotheses, and r · m_k examples; where from, the ledger says too."""
        cost = super().received(setting)
        if self.source == "generated":
            return cost  # clients make them from the model they have
        example = sum(
            c.dtype.itemsize * int(np.prod(c.shape[1:])) for c in setting.data.columns.values()
        )
        end = 1 if self._single or self.select == "train" else 2
        count = self.r * (setting.data.bounds[:, end] - setting.data.bounds[:, 0])
        cost.down[:] += count * example
        if self.source == "clients":
            total = int(count.sum())
            cost.left.update({"shared_examples": total, "shared_bytes": total * example})
        return cost

    def _sample(self, setting: Setting, public: Any, sampler: Any) -> Sample:
        if (public is not None) != (self.source == "public"):
            raise ConfigError(
                "Dapper: give public= to fit together with source='public'"
                if self.source != "public"
                else "Dapper: source='public' needs the public data: fit(..., public=data)"
            )
        if public is not None:
            return public_sample(setting.data, public)
        if self.source == "generated":
            return generated(setting, self.r, sampler)
        return clients_sample(setting.data, *self._circles(setting))

    def _circles(self, setting: Setting) -> tuple[Any, ...]:
        """What Ĉ depends on, if it is not the same for everybody."""
        if self.mixture != "cluster" or setting.central is None:
            return ()
        return setting.cluster, setting.central.members(setting.data)


def _check_linear(model: Model) -> None:
    if (model.spec or {}).get("name") != "linear":
        raise ConfigError(
            "Dapper: source='statistics' solves linear regression, sartor.models.linear; use "
            "another source for this model"
        )
