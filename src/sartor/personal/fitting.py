"""How a personal algorithm is fitted: trials, the guard, storing models, resuming and the cost."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.central.settings import check_seed, check_settings, describe, models_in
from sartor.checking import AnyPath
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.data.trained import Trained
from sartor.engine import (
    Block,
    Engine,
    Job,
    Jobs,
    Objective,
    Recipe,
    Searched,
    Stack,
    everybody,
    leaf_shapes,
    ragged,
    score_shared,
)
from sartor.errors import ConfigError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts, asked_to_stop
from sartor.models import Model, check, model_identity, parameter_bytes
from sartor.personal.choosing import (
    TRIALS,
    HeldOut,
    TrialLosses,
    Trials,
    lowest,
    make_trials,
    pooled,
    trial_jobs,
    warn_of_fallbacks,
)
from sartor.personal.models import PersonalModels
from sartor.personal.store import ModelStore, OnDemand
from sartor.personal.task import Source, Task
from sartor.progress import Bar
from sartor.randomness import mix
from sartor.types import Bools, Ints

if TYPE_CHECKING:
    from sartor.personal.base import Personal

Decided = dict[str, npt.NDArray[Any]]
"""What was decided for every client, by name: each [clients]."""


class Work(NamedTuple):
    """A fit under way.

    Attributes:
        algorithm: what is fitted.
        task: what it is applied to.
        recipe: how clients train.
        source: what they train on.
        identity: identifies the work, so that it can resume.
        folder: where to keep it; ``None`` for in memory.
        progress: whether to show progress bars.
        interrupts: whether somebody has asked to stop.
        guard: whether clients may keep the central model.
        searched: whether held-out examples have chosen the step size.
    """

    algorithm: Personal
    task: Task
    recipe: Recipe
    source: Source
    identity: str
    folder: Path | None
    progress: bool | None
    interrupts: Interrupts
    guard: bool
    searched: bool = False

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return type(self.algorithm).__name__

    @property
    def chooses(self) -> bool:
        """Whether there is anything to choose."""
        return self.guard or len(self.algorithm.choices().cover) > 1

    def stop(self, done: int, what: str) -> None:
        """Raise an error if somebody has asked to stop."""
        if self.interrupts.requested:
            if self.folder is None:
                raise KeyboardInterrupt
            raise InterruptedRun(f"{self.name} stopped after {done} {what}")

    def train(self, jobs: Jobs, done: Bools, *, fetch: bool = True) -> Iterator[Block]:
        """Do all jobs that are not done, a block at a time."""
        if self.recipe.optimizer is None and "learning_rate" not in jobs.values:
            rates = np.full(jobs.number, self.algorithm.learning_rate, np.float32)
            jobs = jobs._replace(values={**jobs.values, "learning_rate": rates})
        return self.source.train(self.task, self.recipe, jobs, done, fetch=fetch)

    def shaped(self, jobs: Jobs) -> Jobs:
        """The jobs, with nothing to train where λ = 0 makes training pointless."""
        if not self.recipe.objective.idle_at_zero:
            return jobs
        sizes = np.where(jobs.values["lambda"] > 0, jobs.train.sizes, 0)
        return jobs._replace(train=jobs.train._replace(sizes=sizes))

    def decide(self) -> tuple[Decided, Cost]:
        """What every client chooses, its λ and whether to keep the central model; and the cost."""
        task, data, (cover, select) = self.task, self.task.data, self.algorithm.choices()
        decided: Decided = {"cluster": task.cluster}
        if not self.chooses:
            if cover:
                given = {"lambda": cover[0], "how": "given"}
                decided |= {key: np.full(len(data), value) for key, value in given.items()}
            return decided, Cost.nothing(data.ids)
        candidates = np.array(cover or (1.0,))
        trials = make_trials(data, select, self.algorithm.folds, task.seed)
        if len(candidates) > 1:
            warn_of_fallbacks(self.name, select, trials.how)
        jobs = self.shaped(trial_jobs(data, trials, task.seed, task.cluster, candidates))
        losses = TrialLosses(self.folder and self.folder / TRIALS, self.identity, jobs.number)
        with Bar(f"{self.name}: trials", jobs.number, self.progress) as bar:
            for block in self.train(jobs, losses.done) if jobs.number else ():
                losses.note(block)
                bar.update(losses.ended)
                if losses.ended < jobs.number:
                    self.stop(losses.ended, f"of {jobs.number} trials")
        held = HeldOut.of(trials, losses.losses.reshape(-1, len(candidates), 2))
        central = self._central_losses(trials) if task.given is not None else None
        cost = self.source.work(task, self.recipe, jobs)
        decided["how"] = trials.how
        if self.algorithm.shrink and select != "train":
            best, kept = pooled(held, data.sizes("train"), central, self.guard)
        else:
            best = lowest(held)
            loss = held.loss[0, np.arange(len(data)), best]
            # Rounding is no gain. A client that could not be tried keeps the central model, too.
            under = np.full(len(data), np.nan) if central is None else central.loss[0, :, 0]
            kept = ~(loss < under - 1e-6 * np.abs(under))
        if cover:
            decided["lambda"] = candidates[best]
        if self.guard:
            decided["kept"] = kept
            cost.examples[:] += held.examples[0].astype(np.int64)
        return decided, cost

    def _central_losses(self, trials: Trials) -> HeldOut:
        """The losses of each client's given central hypothesis on what the client held out."""
        task, held = self.task, trials.held
        assert task.given is not None
        owner, place = ragged(held.sizes)
        rows = held.at(held.first[owner] + place)
        scored = score_shared(task.model, task.data, rows, task.given.hypotheses, task.engine)
        loss = scored.loss[task.cluster[trials.client[owner]], np.arange(len(rows))]
        means = np.zeros((2, len(held.sizes)))
        for half, counted in enumerate((np.ones(len(rows), bool), place % 2 == 1)):
            totals = np.bincount(owner[counted], loss[counted], len(held.sizes))
            means[half] = totals / np.maximum(held.sizes // (1 + half), 1)
        return HeldOut.of(trials, means.T[:, None])

    def received(self) -> Cost:
        """The central hypotheses, if they are needed. Of several, each client scores all."""
        task, cost = self.task, Cost.nothing(self.task.data.ids)
        central, data = task.central, task.data
        if central is None or (self.recipe.objective.standalone and not self.guard):
            return cost
        cost.down[:] = central.q * parameter_bytes(task.model)
        if central.q > 1 and central.rule is None:
            cost.examples[:] = central.q * data.sizes("train")
            if len(central.clusterings) > 1:
                cost.examples[:] += central.q * data.sizes("validation")
        return cost

    def make(
        self, jobs: Jobs, kept: Bools, done: Bools, *, fetch: bool = True
    ) -> Iterator[tuple[tuple[str, ...], Stack, float]]:
        """Clients with their models, a block at a time, and the block's mean training loss."""
        task, objective = self.task, self.recipe.objective
        for block in self.train(jobs, done, fetch=fetch):
            ids, keeps, params = _ids(task.data, block.jobs), kept[block.jobs], block.params
            lost = _ids(task.data, block.jobs[~block.finite & ~keeps])
            if lost:
                named = ", ".join(map(repr, lost[:3])) + (" …" if len(lost) > 3 else "")
                raise DivergedError(
                    f"{self.name} diverged for {len(lost)} clients ({named}); lower the learning "
                    "rate, standardize features and targets, or look at these clients' data",
                    round=0,
                    clients=lost,
                )
            if keeps.any():
                assert task.given is not None
                job = Job(task.cluster[block.jobs], None, None)
                instead, _ = objective.abstain(params, task.given.hypotheses, job)
                params = {
                    name: np.where(keeps.reshape(-1, *[1] * (leaf.ndim - 1)), instead[name], leaf)
                    for name, leaf in params.items()
                }
            yield ids, params, float(block.loss.mean())

    def models(self, store: ModelStore | OnDemand, decided: Decided, cost: Cost) -> PersonalModels:
        """The finished models, with what was decided for every client."""
        task, objective, central = self.task, self.recipe.objective, self.task.central
        rows = zip(*(values.tolist() for values in decided.values()), strict=True)
        clients = {
            client: dict(zip(decided, row, strict=True))
            for client, row in zip(task.data.ids, rows, strict=True)
        }
        further = central is not task.given
        if further and central is not None and central.cost is not None:
            cost += central.cost
        if self.guard:
            # Clients that keep the central model are predicted for by the one that was given.
            assert central is not None
            behind = central.q if further else 0
            _, values = objective.abstain({}, central.hypotheses, Job(task.cluster, None, None))
            for one in clients.values():
                if one["kept"]:
                    one |= values | ({"hypothesis": behind + one["cluster"]} if values else {})
        return PersonalModels(
            objective, central, store, clients, describe(self.algorithm), task.data.label_names,
            task.engine, task.given if further else None, cost,
            task.data.feature_names or (central.feature_names if central else None),
            task.data.scaling, self._trained(),
        )  # fmt: skip

    def _trained(self) -> Trained:
        """The rows that the models were trained on or chosen by, and those of the central model."""
        central, (_, select) = self.task.central, self.algorithm.choices()
        chosen = self.chooses and select != "train"
        both = chosen or (self.searched and select == "holdout")
        mine = Trained.on(self.task.data, validation=both, seen_only=False)
        if self.source.public is not None:
            mine = Trained.on(self.source.public, seen_only=False).with_(mine, seen=False)
        return mine.with_(central.trained if central else None, seen=False)


def check_fit(algorithm: Personal, model: Model, data: ClientData, **inputs: Any) -> None:
    """Refuse what cannot work with any central model, before there is one."""
    check_settings(algorithm)
    algorithm.check(model, data, **inputs)
    recipe, name = algorithm.recipe(model, data), type(algorithm).__name__
    objective = recipe.objective if isinstance(recipe, Recipe) else None
    if not isinstance(objective, Objective):
        raise ConfigError(
            f"{name}.recipe must return Recipe(objective, optimizer, epochs, batch) of "
            f"sartor.engine, with an Objective (got {recipe!r:.80})"
        )
    check_settings(objective)
    if algorithm.guard is True and type(objective).abstain is Objective.abstain:
        raise ConfigError(
            f"{name}: guard lets clients keep the central model, which "
            f"{type(objective).__name__} cannot do: define its `abstain`, or leave out guard"
        )


def prepared(
    algorithm: Personal,
    central: CentralModel | Model,
    data: ClientData,
    seed: int,
    engine: Engine | None,
    allow_trained: bool,
    inputs: dict[str, Any],
) -> Task:
    """Refuse what cannot work, before any work starts."""
    name = type(algorithm).__name__
    base = central if isinstance(central, CentralModel) else None
    model = base.model if base else central
    if not isinstance(model, Model):
        raise ConfigError(
            f"fit takes a central model or a model (got {type(central).__name__}): "
            "fit(central, data)"
        )
    taken = inspect.signature(algorithm.trains_on).parameters
    for key in inputs:
        if key not in taken:
            raise ConfigError(f"{name}.fit takes no {key!r}")
    check(model, data)
    if base is not None:
        check_names(base.label_names, base.feature_names, data)
        if base.trained is not None:
            base.trained.refuse(data, ("validation", "test"), "what is made of it", allow_trained)
    elif algorithm.guard:
        raise ConfigError(f"{name}: guard needs a central model to keep; give fit one")
    check_fit(algorithm, model, data, **inputs)
    data = data.scaled(base.scaling if base else model.scaling_of(data))
    cluster = base.assign(data) if base else np.zeros(len(data), np.int64)
    engine = engine or (base.engine if base else Engine())
    return Task(model, base, cluster, data, check_seed(seed), engine)


def fit(
    algorithm: Personal,
    task: Task,
    directory: AnyPath | None,
    progress: bool | None,
    keep: bool,
    inputs: dict[str, Any],
) -> PersonalModels:
    """Make every client's model: choose, train, keep."""
    if directory is not None and not keep:
        raise ConfigError(f"keep=False keeps no models, so leave out directory={str(directory)!r}")
    folder = None if directory is None else Path(directory)
    data, name = task.data, type(algorithm).__name__
    # Losses of the user's own may be negative, and a step size that was given is taken as it is.
    searches = isinstance(algorithm.learning_rate, Searched)
    task = task._replace(capped=searches and task.model.training_loss is None)
    source = algorithm.trains_on(task, **inputs)
    identity = _identity(algorithm, task, source)
    with Interrupts() as interrupts:
        algorithm, searched = _with_step_size(algorithm, task, inputs, interrupts)
    recipe = _recipe(algorithm, task)
    store: ModelStore | None = None
    if keep:  # finished models of other work are refused now, and unfinished ones deleted
        store = ModelStore(leaf_shapes(recipe.objective), folder, identity, data.ids)
    task = algorithm.begin(task, folder, progress)._replace(given=task.central)
    if task.central is None and not recipe.objective.standalone:
        raise ConfigError(
            f"{name} starts from a central model: fit(central, data) with "
            "central = sartor.FedAvg().fit(model, data)"
        )
    with Interrupts() as interrupts:
        guard = guards(algorithm, recipe.objective, task.given)
        work = Work(
            algorithm, task, recipe, source, identity, folder, progress, interrupts, guard,
            searched=searched,
        )  # fmt: skip
        decided, cost = work.decide()
        both = work.chooses and algorithm.choices().select != "train"
        jobs = everybody(
            data, task.seed, task.cluster, until="validation" if both else "train",
            **{key: a.astype(np.float32) for key, a in decided.items() if key == "lambda"},
        )  # fmt: skip
        cost += work.received() + source.received(task, jobs.train.sizes)
        jobs = work.shaped(jobs)
        cost += source.work(task, recipe, jobs)
        nobody = np.zeros(len(data), bool)
        kept = decided.get("kept", nobody)
        if store is None:

            def make() -> Iterator[tuple[tuple[str, ...], Stack]]:
                for ids, params, _ in work.make(jobs, kept, nobody, fetch=False):
                    if asked_to_stop():
                        raise InterruptedRun(f"{name} stopped while it was evaluated")
                    yield ids, params

            widest = source.widest(task, recipe, jobs)
            return work.models(OnDemand(make, widest), decided, cost)
        done = np.array([client in store for client in data.ids])
        with Bar(name, len(data), progress) as bar:
            bar.update(len(store))
            for ids, params, loss in work.make(jobs, kept, done):
                store.add(ids, params)
                bar.update(len(store), f"loss {loss:.4f}")
                if len(store) < len(data):
                    work.stop(len(store), f"of {len(data)} clients")
    return work.models(store, decided, cost)


def guards(algorithm: Personal, objective: Objective, central: CentralModel | None) -> bool:
    """Whether clients may keep the central model: by default, wherever that can be decided."""
    if algorithm.guard is not None:
        return algorithm.guard
    able = type(objective).abstain is not Objective.abstain
    return central is not None and able and algorithm.choices().select != "train"


def _recipe(algorithm: Personal, task: Task) -> Recipe:
    recipe = algorithm.recipe(task.model, task.data)
    return recipe._replace(capped=task.capped and recipe.objective.never_negative)


def _with_step_size(
    algorithm: Personal, task: Task, inputs: dict[str, Any], interrupts: Interrupts
) -> tuple[Personal, bool]:
    """The algorithm with the best of the step sizes that it is to search among, if it searched.

    Some clients try them, with the largest λ. Steps that are too large have infinite losses.
    """
    search = algorithm.learning_rate
    if not isinstance(search, Searched):
        return algorithm, False
    rates = np.array(search.of(task.model.curvature), np.float32)
    data, (cover, select) = task.data, algorithm.choices()
    able = np.flatnonzero(data.bounds[:, 2] - data.bounds[:, 0] > 1)
    chosen = able[np.argsort(mix(task.seed, "step size", data.hashes[able]))[: search.clients]]
    recipe = _recipe(algorithm, task)
    able_to_start = task.central is not None or recipe.objective.standalone
    needed = recipe.optimizer is None and not recipe.objective.exact
    if not (needed and able_to_start and len(chosen)):
        usual = float(rates[len(rates) // 2 - 1])
        return dataclasses.replace(algorithm, learning_rate=usual), False
    chosen = np.sort(chosen)
    some = data.select([data.ids[k] for k in chosen])
    if not some.seen.any():
        some = dataclasses.replace(some, seen=np.ones(len(some), bool))
    task = task._replace(data=some, cluster=task.cluster[chosen], given=task.central)
    source = algorithm.trains_on(task, **inputs)
    work = Work(algorithm, task, recipe, source, "", None, False, interrupts, False)
    trials = make_trials(some, "kfold" if select == "train" else select, algorithm.folds, task.seed)
    largest = np.full(len(rates), max(cover, default=1.0))
    jobs = trial_jobs(some, trials, task.seed, task.cluster, largest)
    jobs.values["learning_rate"] = np.tile(rates, len(trials.client))
    losses = TrialLosses(None, "", jobs.number)
    for block in work.train(jobs, losses.done):
        losses.note(block)
        work.stop(0, "clients")
    held = HeldOut.of(trials, losses.losses.reshape(-1, len(rates), 2))
    tried = held.examples[0] > 0
    means = (held.loss[0] * held.examples[0][:, None])[tried].mean(axis=0)
    return dataclasses.replace(algorithm, learning_rate=float(rates[means.argmin()])), True


def _identity(algorithm: Personal, task: Task, source: Source) -> str:
    """What identifies a piece of work, so that it can resume."""
    digest, data = hashlib.blake2b(digest_size=16), task.data
    parts: list[Any] = [describe(algorithm), model_identity(task.model, data), data.fingerprint]
    if source.fingerprint:
        parts.append(source.fingerprint)
    digest.update(json.dumps([*parts, task.seed, task.engine.precision]).encode())
    for leaf in jax.tree.leaves(task.central.hypotheses if task.central else ()):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    digest.update(np.ascontiguousarray(task.cluster).tobytes())
    # A model of the user's own functions is described by what it computes.
    own = [str(model_identity(model, data)) for model in models_in(algorithm).values()]
    return " ".join([digest.hexdigest(), *own])


def _ids(data: ClientData, clients: Ints) -> tuple[str, ...]:
    return tuple(data.ids[k] for k in clients)
