"""How a personal algorithm is fitted: trials, the guard, storing models, resuming and the cost."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.central.settings import check_seed, describe, models_in
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.engine import (
    Block,
    Engine,
    Job,
    Jobs,
    Recipe,
    Stack,
    everybody,
    lanes_of,
    leaf_shapes,
    losses_by_client,
)
from sartor.errors import ConfigError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts, asked_to_stop
from sartor.models import Model, check, model_identity, parameter_bytes
from sartor.personal.choosing import (
    TRIALS,
    Chosen,
    TrialLosses,
    choose,
    make_trials,
    trial_jobs,
    warn_of_fallbacks,
)
from sartor.personal.models import PersonalModels
from sartor.personal.store import ModelStore, OnDemand
from sartor.personal.task import Source, Task
from sartor.progress import Bar

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
        identity: what makes work the same, so that it can go on where it was stopped.
        folder: where to keep it; ``None`` for in memory.
        progress: whether to show progress bars.
        stop: ``stop(done, what)`` raises an error if somebody has asked to stop.
    """

    algorithm: Personal
    task: Task
    recipe: Recipe
    source: Source
    identity: str
    folder: Path | None
    progress: bool | None
    stop: Callable[[int, str], None]

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return type(self.algorithm).__name__

    def train(
        self, jobs: Jobs, done: npt.NDArray[np.bool_], *, fetch: bool = True
    ) -> Iterator[Block]:
        """Do all jobs that are not done, a block at a time."""
        if self.recipe.optimizer is None:
            rates = np.full(jobs.number, self.algorithm.learning_rate, np.float32)
            jobs = jobs._replace(values={**jobs.values, "learning_rate": rates})
        return self.source.train(self.task, self.recipe, jobs, done, fetch=fetch)

    def shaped(self, jobs: Jobs) -> Jobs:
        """The jobs, with nothing to train for those whose λ makes it count for nothing."""
        if not self.recipe.objective.idle_at_zero:
            return jobs
        sizes = np.where(jobs.values["lambda"] > 0, jobs.train.sizes, 0)
        return jobs._replace(train=jobs.train._replace(sizes=sizes))


def check_fit(algorithm: Personal, model: Model, data: ClientData, **inputs: Any) -> None:
    """Refuse what cannot work whatever the central model is, before there is one."""
    algorithm.check(model, data, **inputs)
    algorithm.recipe(model, data)


def prepared(
    algorithm: Personal,
    central: CentralModel | Model,
    data: ClientData,
    seed: int,
    engine: Engine | None,
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
    elif algorithm.guard:
        raise ConfigError(f"{name}: guard needs a central model to keep; give fit one")
    check_fit(algorithm, model, data, **inputs)
    cluster = base.assign(data) if base else np.zeros(len(data), np.int64)
    engine = engine or (base.engine if base else Engine())
    return Task(model, base, cluster, data, check_seed(seed), engine)


def as_folder(directory: str | Path | None, keep: bool) -> Path | None:
    """Where models are to be kept, if they are."""
    if directory is not None and not keep:
        raise ConfigError(f"keep=False keeps no models, so leave out directory={str(directory)!r}")
    return None if directory is None else Path(directory)


def fit(
    algorithm: Personal,
    task: Task,
    folder: Path | None,
    progress: bool | None,
    keep: bool,
    inputs: dict[str, Any],
) -> PersonalModels:
    """Make every client's model: choose, train, keep."""
    data, name, given = task.data, type(algorithm).__name__, task.central
    recipe = algorithm.recipe(task.model, data)
    source = algorithm.trains_on(task, **inputs)
    identity = _identity(algorithm, task, source)
    store: ModelStore | None = None
    if keep:  # finished models of other work are refused now; what others left makes way
        store = ModelStore(leaf_shapes(recipe.objective), folder, identity, expected=len(data))
    task = algorithm.begin(task, folder, progress)
    if task.central is None and not recipe.objective.standalone:
        raise ConfigError(
            f"{name} starts from a central model: fit(central, data) with "
            "central = sartor.FedAvg().fit(model, data)"
        )
    with Interrupts() as interrupts:

        def stop(done: int, what: str) -> None:
            if interrupts.requested:
                if folder is None:
                    raise KeyboardInterrupt
                raise InterruptedRun(f"{name} stopped after {done} {what}")

        work = Work(algorithm, task, recipe, source, identity, folder, progress, stop)
        decided, cost = _decide(work, given)
        chosen = "how" in decided and not (decided["how"] == "given").all()
        both = chosen and algorithm.choices().select != "train"
        jobs = everybody(
            data, task.seed, task.cluster, until="validation" if both else "train",
            **{key: a.astype(np.float32) for key, a in decided.items() if key == "lambda"},
        )  # fmt: skip
        cost += _received(work) + source.received(task, jobs.train.sizes)
        jobs = work.shaped(jobs)
        cost += source.work(task, recipe, jobs)
        if store is None:

            def make() -> Iterator[tuple[tuple[str, ...], Stack]]:
                for ids, params, _ in _made(work, jobs, decided, given, fetch=False):
                    if asked_to_stop():
                        raise InterruptedRun(f"{name} stopped while it was evaluated")
                    yield ids, params

            mixing = getattr(source, "mixing", None)
            widest = lanes_of(data, recipe, jobs, task.engine, mixing)
            on_demand = OnDemand(data.ids, make, widest)
            return _models(work, on_demand, decided, cost, given)
        done = np.array([client in store for client in data.ids])
        with Bar(name, len(data), progress) as bar:
            bar.update(len(store))
            for ids, params, loss in _made(work, jobs, decided, given, done):
                store.add(ids, params)
                bar.update(len(store), f"loss {loss:.4f}")
                if len(store) < len(data):
                    stop(len(store), f"of {len(data)} clients")
    return _models(work, store, decided, cost, given)


def _decide(work: Work, given: CentralModel | None) -> tuple[Decided, Cost]:
    """What every client chooses, its λ and whether to keep the central model; and the cost."""
    algorithm, task, name = work.algorithm, work.task, work.name
    data, (cover, select) = task.data, algorithm.choices()
    decided: Decided = {"cluster": task.cluster}
    if len(cover) <= 1 and not algorithm.guard:  # there is nothing to choose
        if cover:
            decided |= {"lambda": np.full(len(data), cover[0]), "how": np.full(len(data), "given")}
        return decided, Cost.nothing(data.ids)
    candidates = np.array(cover or (1.0,))
    trials = make_trials(data, select, algorithm.folds, task.seed)
    warn_of_fallbacks(name, select, trials.how)
    jobs = work.shaped(trial_jobs(data, trials, task.seed, task.cluster, candidates))
    losses = TrialLosses(work.folder and work.folder / TRIALS, work.identity, jobs.number)
    with Bar(f"{name}: trials", jobs.number, work.progress) as bar:
        for block in work.train(jobs, losses.done) if jobs.number else ():
            losses.note(block)
            bar.update(int(losses.done.sum()))
            if not losses.done.all():
                work.stop(int(losses.done.sum()), f"of {jobs.number} trials")
    choice = choose(data, trials, losses.losses, len(candidates))
    cost = work.source.work(task, work.recipe, jobs)
    decided["how"] = choice.how
    if cover:
        decided["lambda"] = candidates[choice.candidate]
    if algorithm.guard:
        assert given is not None
        decided["kept"] = _keeps(task, given, choice)
        held = np.where(choice.how == "holdout", data.sizes("validation"), data.sizes("train"))
        cost.examples[:] += np.where(choice.how == "prior", 0, held)
    return decided, cost


def _keeps(task: Task, given: CentralModel, choice: Chosen) -> npt.NDArray[np.bool_]:
    """Whether each client does as well with the central model, on what was held out."""
    everyone = np.arange(len(task.data))
    central = np.full(len(everyone), np.nan)
    for how, part in (("holdout", "validation"), ("kfold", "train"), ("train", "train")):
        these = everyone[choice.how == how]
        losses = losses_by_client(
            task.model, task.data, these, given.hypotheses, task.engine, part=part, plain=True
        )
        central[these] = losses[np.arange(len(these)), task.cluster[these]]
    own = choice.loss[everyone, choice.candidate]
    # Rounding is no gain; and a client that could not be tried keeps it, too.
    return ~(own < central - 1e-6 * np.abs(central))


def _received(work: Work) -> Cost:
    """The central hypotheses, if they are needed. Of several, each client scores all of them."""
    task, cost = work.task, Cost.nothing(work.task.data.ids)
    central, data = task.central, task.data
    if central is None or (work.recipe.objective.standalone and not work.algorithm.guard):
        return cost
    cost.down[:] = central.q * parameter_bytes(task.model)
    if central.q > 1 and central.rule is None:
        cost.examples[:] = central.q * data.sizes("train")
        if len(central.clusterings) > 1:
            cost.examples[:] += central.q * data.sizes("validation")
    return cost


def _made(
    work: Work,
    jobs: Jobs,
    decided: Decided,
    given: CentralModel | None,
    done: npt.NDArray[np.bool_] | None = None,
    *,
    fetch: bool = True,
) -> Iterator[tuple[tuple[str, ...], Stack, float]]:
    """Clients with their models, a block at a time, and the block's mean training loss."""
    data = work.task.data
    nobody = np.zeros(len(data), bool)
    for block in work.train(jobs, nobody if done is None else done, fetch=fetch):
        kept = decided.get("kept", nobody)[block.jobs]
        _check_finite(work.name, block, data, kept)
        params = block.params
        if kept.any():
            assert given is not None
            job = Job(work.task.cluster[block.jobs], None, None)
            instead, _ = work.recipe.objective.abstain(params, given.hypotheses, job)
            params = {
                name: np.where(kept.reshape(-1, *[1] * (leaf.ndim - 1)), instead[name], leaf)
                for name, leaf in params.items()
            }
        yield tuple(data.ids[k] for k in block.jobs), params, float(block.loss.mean())


def _models(
    work: Work,
    store: ModelStore | OnDemand,
    decided: Decided,
    cost: Cost,
    given: CentralModel | None,
) -> PersonalModels:
    task, objective, central = work.task, work.recipe.objective, work.task.central
    columns = {key: values.tolist() for key, values in decided.items()}
    clients = {
        client: {key: values[k] for key, values in columns.items()}
        for k, client in enumerate(task.data.ids)
    }
    further = central is not given
    if further and central is not None and central.cost is not None:
        cost += central.cost
    if work.algorithm.guard:
        # Clients that keep the central model are predicted for by the one that was given.
        assert central is not None
        behind = central.q if further else 0
        _, values = objective.abstain({}, central.hypotheses, Job(task.cluster, None, None))
        for one in clients.values():
            if one["kept"]:
                one |= values | ({"hypothesis": behind + one["cluster"]} if values else {})
    names = task.data.feature_names
    if names is None and central is not None:
        names = central.feature_names
    models = PersonalModels(
        objective, central, store, clients, describe(work.algorithm), task.data.label_names,
        task.engine, cost=cost, feature_names=names,
    )  # fmt: skip
    return dataclasses.replace(models, baseline=given) if further else models


def _identity(algorithm: Personal, task: Task, source: Source) -> str:
    """What makes work the same, so that it can go on where it was stopped."""
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


def _check_finite(
    name: str, block: Block, data: ClientData, kept: npt.NDArray[np.bool_]
) -> None:  # fmt: skip
    """A client whose model is lost must have one that it keeps."""
    bad = tuple(data.ids[k] for k in block.jobs[~block.finite & ~kept])
    if bad:
        named = ", ".join(map(repr, bad[:3])) + (" …" if len(bad) > 3 else "")
        raise DivergedError(
            f"{name} diverged for {len(bad)} clients ({named}); lower the learning rate, "
            "standardize the features, or look at these clients' data",
            round=0,
            clients=bad,
        )
