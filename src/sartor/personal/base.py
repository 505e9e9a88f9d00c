"""What all personal algorithms share: a model for each client, from data in to files out."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import optax

from sartor.central import CentralModel
from sartor.central.settings import check_numbers, check_seed, describe
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.engine import Engine, check
from sartor.engine.blocks import (
    Block,
    Jobs,
    Mix,
    Recipe,
    Stack,
    everybody,
    lanes_of,
    train_each,
)
from sartor.engine.engine import model_identity
from sartor.engine.objectives import Objective
from sartor.engine.optimizers import UNIT_SGD, Chosen, build, rates
from sartor.engine.schedule import Ints, steps_of
from sartor.engine.scoring import losses_by_client
from sartor.errors import ConfigError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts, asked_to_stop
from sartor.models import Model, parameter_bytes
from sartor.personal.bank import Bank, Fleeting
from sartor.personal.choosing import (
    TRIALS,
    Book,
    Choice,
    Select,
    choose,
    make_trials,
    trial_jobs,
    warn_of_fallbacks,
)
from sartor.personal.models import PersonalModels
from sartor.progress import Bar
from sartor.trees import flatten


class Setting(NamedTuple):
    """What a personal algorithm is applied to.

    Attributes:
        model: the hypothesis class.
        central: the central model to start from, if there is one.
        cluster: [clients] the central hypothesis of each client.
        data: the clients.
        seed: seed of all randomness.
        engine: how to run it.
        given: the central model that was given, which clients are guarded by.
    """

    model: Model
    central: CentralModel | None
    cluster: Ints
    data: ClientData
    seed: int
    engine: Engine
    given: CentralModel | None = None


class Work(NamedTuple):
    """What is to be done, and where it is kept.

    Attributes:
        setting: what the algorithm is applied to.
        recipe: how clients train.
        mixing: what is mixed into their batches.
        identity: what makes work the same, so that it can go on where it was stopped.
        folder: where to keep it; ``None`` for in memory.
        progress: whether to show bars.
    """

    setting: Setting
    recipe: Recipe
    mixing: Mix | None
    identity: str
    folder: Path | None
    progress: bool | None


@dataclasses.dataclass(frozen=True)
class Personal(abc.ABC):
    """A personal algorithm: how one client's model is made from the central one and its data.

    Attributes:
        epochs: passes of a client over its own data.
        batch: examples in a step.
        learning_rate: step size of SGD.
        optimizer: replaces SGD; an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on examples that were
            held out: its validation part, or folds of its training part where it has none.
        folds: how many folds that are.
    """

    epochs: int = 5
    batch: int = 20
    learning_rate: float = 0.01
    optimizer: Chosen = None
    guard: bool = False
    folds: int = 5

    def __post_init__(self) -> None:
        check_numbers(self, at_least_one=("epochs", "batch", "folds"))
        if self.folds < 2:
            raise ConfigError(f"{type(self).__name__}: folds must be at least 2 (got 1)")
        if not isinstance(self.guard, bool):
            raise ConfigError(
                f"{type(self).__name__}: guard must be true or false (got {self.guard!r})"
            )
        if self.guard and self.select == "train":
            raise ConfigError(
                f"{type(self).__name__}: a guard needs examples that were held out; choose "
                "select='holdout' or 'kfold'"
            )

    @abc.abstractmethod
    def objective(self, model: Model) -> Objective:
        """What a client minimises."""

    @property
    def sgd(self) -> optax.GradientTransformation:
        """The client's optimizer; of SGD the step size comes with the job."""
        return build(self.optimizer, UNIT_SGD)

    def rates(self, jobs: int) -> dict[str, npt.NDArray[np.float32]]:
        """The step sizes of jobs."""
        return rates(self.optimizer, self.learning_rate, jobs)

    @property
    def cover(self) -> tuple[float, ...]:
        """The candidates λ that a client chooses from; one where there is no choice."""
        return ()

    @property
    def select(self) -> Select:
        """How it chooses."""
        return "holdout"

    def recipe(self, setting: Setting) -> Recipe:
        """How a client trains."""
        return Recipe(self.objective(setting.model), self.sgd, self.epochs, self.batch)

    def shaped(self, jobs: Jobs) -> Jobs:
        """The jobs as this algorithm wants them."""
        return jobs

    def beside(self, setting: Setting) -> Any:
        """What clients have beside their own leaves: the central hypotheses, if there are any."""
        return setting.central.hypotheses if setting.central else None

    def check_work(self, model: Model, data: ClientData) -> None:
        """Refuse what cannot work whatever the central model is, before there is one."""
        self.objective(model)

    def check(self, setting: Setting) -> None:
        """Refuse what cannot work, before any work starts."""
        if setting.central is None:
            raise ConfigError(
                f"{type(self).__name__} starts from a central model: fit(central, data) with "
                "central = sartor.FedAvg().fit(model, data)"
            )

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
    ) -> PersonalModels:
        """Make a model for every client, seen and unseen, from the training part of that client.

        Args:
            central: what to start from.
            data: the clients. Where there is something to choose, clients choose by their
                validation parts, and train on these too once the choice is made.
            seed: seed of all randomness.
            engine: how to run it; the central model's if not given.
            directory: where to keep the models while they are made; if some are there from the
                same work, only the others are made. In memory, or in a temporary directory if
                they are large, when not given.
            progress: whether to show a bar; on a terminal only, if not given.
            keep: whether to keep the models. Where only numbers are wanted, of very many clients
                or large models, they are made when they are evaluated, a block at a time, and
                forgotten: nothing of them goes through the host's memory. Every evaluation makes
                them again; choices are made once.

        Returns:
            The clients' models.
        """
        setting = self._setting(central, data, seed, engine)
        return self._fit(setting, as_folder(directory, keep), progress, keep=keep)

    def _setting(
        self, central: CentralModel | Model, data: ClientData, seed: int, engine: Engine | None
    ) -> Setting:
        base = central if isinstance(central, CentralModel) else None
        model = base.model if base else central
        if not isinstance(model, Model):
            raise ConfigError(
                f"fit takes a central model or a model (got {type(central).__name__}): "
                "fit(central, data)"
            )
        engine = engine or (base.engine if base else Engine())
        check(model, data)
        if base is not None:
            check_names(base.label_names, base.feature_names, data)
        cluster = base.assign(data) if base else np.zeros(len(data), np.int64)
        setting = Setting(model, base, cluster, data, check_seed(seed), engine, base)
        self.check(setting)
        return setting

    def _fit(
        self,
        setting: Setting,
        folder: Path | None,
        progress: bool | None,
        mixing: Mix | None = None,
        keep: bool = True,
    ) -> PersonalModels:
        data, name = setting.data, type(self).__name__
        recipe = self.recipe(setting)
        work = Work(setting, recipe, mixing, self._identity(setting, mixing), folder, progress)
        bank: Bank | None = None
        if keep:
            bank = Bank(recipe.objective.shapes(), folder, work.identity, expected=len(data))
        with Interrupts() as interrupts:

            def stop(done: int, what: str) -> None:
                if interrupts.requested:
                    if folder is None:
                        raise KeyboardInterrupt
                    raise InterruptedRun(f"{name} stopped after {done} {what}")

            decided, cost = self._decide(work, stop)
            tried = "how" in decided and not (decided["how"] == "given").all()
            jobs = everybody(
                data, setting.seed, setting.cluster,
                until="validation" if tried and self.select != "train" else "train",
                **{k: v.astype(np.float32) for k, v in decided.items() if k == "lambda"},
            )  # fmt: skip
            jobs = self.shaped(jobs)
            cost += self.received(setting) + job_cost(data, recipe, jobs, mixing)
            if bank is None:

                def make() -> Iterator[tuple[tuple[str, ...], Stack]]:
                    for ids, params, _ in self._made(work, jobs, decided, fetch=False):
                        if asked_to_stop():
                            raise InterruptedRun(f"{name} stopped while it was evaluated")
                        yield ids, params

                widest = lanes_of(data, recipe, jobs, setting.engine, mixing)
                fleeting = Fleeting(data.ids, make, widest)
                return self._models(setting, recipe.objective, fleeting, decided, cost)
            done = np.array([client in bank for client in data.ids])
            with Bar(name, len(data), progress) as bar:
                bar.update(len(bank))
                for ids, params, loss in self._made(work, jobs, decided, done):
                    bank.add(ids, params)
                    bar.update(len(bank), f"loss {loss:.4f}")
                    if len(bank) < len(data):
                        stop(len(bank), f"of {len(data)} clients")
        return self._models(setting, recipe.objective, bank, decided, cost)

    def _made(
        self,
        work: Work,
        jobs: Jobs,
        decided: dict[str, npt.NDArray[Any]],
        done: npt.NDArray[np.bool_] | None = None,
        *,
        fetch: bool = True,
    ) -> Iterator[tuple[tuple[str, ...], Stack, float]]:
        """Clients with their models, a block at a time, and the block's mean training loss."""
        data = work.setting.data
        nobody = np.zeros(len(data), bool)
        for block in self._train(work, jobs, nobody if done is None else done, fetch=fetch):
            self._check_finite(block, data, decided.get("kept", nobody)[block.jobs])
            params = self._guarded(work.setting, decided, block)
            yield tuple(data.ids[k] for k in block.jobs), params, float(block.loss.mean())

    def _models(
        self,
        setting: Setting,
        objective: Objective,
        bank: Bank | Fleeting,
        decided: dict[str, npt.NDArray[Any]],
        cost: Cost,
    ) -> PersonalModels:
        columns = {key: values.tolist() for key, values in decided.items()}
        clients = {
            client: {key: values[k] for key, values in columns.items()}
            for k, client in enumerate(setting.data.ids)
        }
        names = setting.data.feature_names
        if names is None and setting.central is not None:
            names = setting.central.feature_names
        return PersonalModels(
            objective, setting.central, bank, clients, describe(self), setting.data.label_names,
            setting.engine, cost=cost, feature_names=names,
        )  # fmt: skip

    def _train(
        self, work: Work, jobs: Jobs, done: npt.NDArray[np.bool_], *, fetch: bool = True
    ) -> Iterator[Block]:
        jobs = jobs._replace(values={**jobs.values, **self.rates(jobs.number)})
        return train_each(
            work.setting.data, work.recipe, jobs, central=self.beside(work.setting), done=done,
            engine=work.setting.engine, mix_rows=work.mixing, fetch=fetch,
        )  # fmt: skip

    def received(self, setting: Setting) -> Cost:
        """What clients receive before they train: the central hypotheses, if there are any.

        Of several, each client scores all on its own data, to find its own.
        """
        cost, central = Cost.nothing(setting.data.ids), setting.central
        if central is not None:
            cost.down[:] = central.q * parameter_bytes(setting.model)
            if central.q > 1 and central.rule is None:
                cost.examples[:] = central.q * setting.data.sizes("train")
                if len(central.blocks) > 1:
                    cost.examples[:] += central.q * setting.data.sizes("validation")
        return cost

    def _decide(
        self, work: Work, stop: Callable[[int, str], None]
    ) -> tuple[dict[str, npt.NDArray[Any]], Cost]:
        """What every client chooses, its λ and whether to keep the central model; and the cost."""
        setting, data = work.setting, work.setting.data
        decided: dict[str, npt.NDArray[Any]] = {"cluster": setting.cluster}
        cover = np.array(self.cover or (1.0,))
        if self._single:
            return decided | self._given(data), Cost.nothing(data.ids)
        name = type(self).__name__
        trials = make_trials(data, self.select, self.folds, setting.seed)
        warn_of_fallbacks(name, self.select, trials.how)
        jobs = self.shaped(trial_jobs(data, trials, setting.seed, setting.cluster, cover))
        book = Book(work.folder and work.folder / TRIALS, work.identity, jobs.number)
        with Bar(f"{name}: trials", jobs.number, work.progress) as bar:
            for block in self._train(work, jobs, book.done) if jobs.number else ():
                book.note(block)
                bar.update(int(book.done.sum()))
                if not book.done.all():
                    stop(int(book.done.sum()), f"of {jobs.number} trials")
        choice = choose(data, trials, book.losses, len(cover))
        cost = job_cost(data, work.recipe, jobs, work.mixing) + self._guard_cost(setting, choice)
        return decided | self._chosen(setting, choice, cover), cost

    @property
    def _single(self) -> bool:
        """Whether there is nothing to choose."""
        return len(self.cover) <= 1 and not self.guard

    def _given(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What is decided without a choice."""
        if not self.cover:
            return {}
        return {"lambda": np.full(len(data), self.cover[0]), "how": np.full(len(data), "given")}

    def _guard_cost(self, setting: Setting, choice: Choice) -> Cost:
        """What it takes to score the central model on what is held out."""
        cost, data = Cost.nothing(setting.data.ids), setting.data
        if self.guard:
            held = np.where(choice.how == "holdout", data.sizes("validation"), data.sizes("train"))
            cost.examples[:] = np.where(choice.how == "prior", 0, held)
        return cost

    def _chosen(self, setting: Setting, choice: Choice, cover: Any) -> dict[str, Any]:
        """What a choice decides for every client."""
        decided: dict[str, Any] = {"how": choice.how}
        if self.cover:
            decided["lambda"] = cover[choice.candidate]
        if self.guard:
            decided["kept"] = self._keeps(setting, choice)
        return decided

    def _keeps(self, setting: Setting, choice: Choice) -> npt.NDArray[np.bool_]:
        """Whether each client does as well with the central model, on what was held out."""
        assert setting.given is not None
        everyone = np.arange(len(setting.data))
        central = np.full(len(everyone), np.nan)
        for how, part in (("holdout", "validation"), ("kfold", "train"), ("train", "train")):
            these = everyone[choice.how == how]
            losses = losses_by_client(
                setting.model, setting.data, these, setting.given.hypotheses, setting.engine,
                part=part, plain=True,
            )  # fmt: skip
            central[these] = losses[np.arange(len(these)), setting.cluster[these]]
        own = choice.loss[everyone, choice.candidate]
        # Rounding is no gain; and a client that could not be tried keeps it, too.
        return ~(own < central - 1e-6 * np.abs(central))

    def _guarded(self, setting: Setting, decided: dict[str, Any], block: Block) -> dict[str, Any]:
        """The block's models, with the central one's parameters where a client keeps that."""
        if "kept" not in decided or setting.central is None:
            return block.params
        kept = decided["kept"][block.jobs]
        leaves = flatten(setting.central.hypotheses)
        cluster = setting.cluster[block.jobs]
        return {
            name: np.where(kept.reshape(-1, *[1] * (leaf.ndim - 1)), leaves[name][cluster], leaf)
            for name, leaf in block.params.items()
        }

    def _identity(self, setting: Setting, mixing: Mix | None = None) -> str:
        """What makes work the same, so that it can go on where it was stopped."""
        digest = hashlib.blake2b(digest_size=16)
        data = setting.data
        parts: list[Any] = [describe(self), model_identity(setting.model, data), data.fingerprint]
        if mixing is not None:
            parts.append(mixing.data.fingerprint)
        digest.update(json.dumps([*parts, setting.seed, setting.engine.precision]).encode())
        for leaf in jax.tree.leaves(setting.central.hypotheses if setting.central else ()):
            digest.update(np.ascontiguousarray(leaf).tobytes())
        digest.update(np.ascontiguousarray(setting.cluster).tobytes())
        return digest.hexdigest()

    def _check_finite(self, block: Block, data: ClientData, kept: npt.NDArray[np.bool_]) -> None:
        """A client whose model is lost must have one that it keeps."""
        bad = tuple(data.ids[k] for k in block.jobs[~block.finite & ~kept])
        if bad:
            named = ", ".join(map(repr, bad[:3])) + (" …" if len(bad) > 3 else "")
            raise DivergedError(
                f"{type(self).__name__} diverged for {len(bad)} clients ({named}); lower the "
                "learning rate, standardize the features, or look at these clients' data",
                round=0,
                clients=bad,
            )


def as_folder(directory: str | Path | None, keep: bool) -> Path | None:
    """Where models are to be kept, if they are."""
    if directory is not None and not keep:
        raise ConfigError(f"keep=False keeps no models, so leave out directory={str(directory)!r}")
    return None if directory is None else Path(directory)


def job_cost(data: ClientData, recipe: Recipe, jobs: Jobs, mixing: Mix | None) -> Cost:
    """What jobs ask of the clients they belong to."""
    sizes = jobs.train.sizes
    wide = (mixing.width(recipe.batch) if mixing else recipe.batch) // recipe.batch
    touched = wide * recipe.epochs * sizes + (0 if jobs.held is None else jobs.held.sizes)
    cost = Cost.nothing(data.ids)
    np.add.at(cost.examples, jobs.client, touched)
    np.add.at(cost.steps, jobs.client, steps_of(sizes, recipe.batch, recipe.epochs))
    return cost


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
