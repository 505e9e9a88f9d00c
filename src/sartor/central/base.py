"""What all central algorithms share: the run over rounds, and the model that comes out of it."""

from __future__ import annotations

import abc
import dataclasses
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central.checkpoint import Checkpoint, History
from sartor.central.model import CentralModel
from sartor.central.settings import check_numbers, check_seed, describe, without
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.engine import Chunk, Cohort, Engine, Pass, check, run_rounds
from sartor.engine.engine import model_identity
from sartor.engine.rounds import visits
from sartor.engine.schedule import steps_of
from sartor.engine.scoring import positions
from sartor.errors import ConfigError, DataError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts
from sartor.models import Model, parameter_bytes
from sartor.progress import Bar
from sartor.randomness import key_data, mix
from sartor.trees import array_digest, flatten

FEW_ROUNDS = 10
"""A loss is measured while clients train; after fewer rounds it says little of the last model."""


@dataclasses.dataclass(frozen=True)
class Central(abc.ABC):
    """A central algorithm: what a cohort computes, and what the server does with the sum.

    Subclasses add hyper-parameters and three pure functions: ``init``, ``clients`` and ``server``.
    Their state has the hypotheses, stacked, in a field of that name: [q, ...].

    Attributes:
        rounds: communication rounds T.
        cohort: clients that take part in a round; all of them if there are fewer.
    """

    rounds: int = 100
    cohort: int = 20

    @property
    @abc.abstractmethod
    def epochs(self) -> int:
        """Passes of a client over its data in a round."""

    @property
    @abc.abstractmethod
    def batch(self) -> int:
        """Examples in a client's step."""

    @abc.abstractmethod
    def init(self, model: Model, data: ClientData, key: jax.Array) -> Any:
        """A state to begin with."""

    @abc.abstractmethod
    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """What a cohort uploads, summed over its clients; and metrics by client."""

    @abc.abstractmethod
    def server(self, state: Any, upload: Any) -> Any:
        """The state after a round."""

    @property
    def scores(self) -> bool:
        """Whether clients score hypotheses on their examples before they train."""
        return False

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What the algorithm has to know about every client, by name."""
        return {}

    def bare(self) -> Any:
        """The algorithm without the numbers that make no other program."""
        return without(self, rounds=1, cohort=1)

    def passes(self, data: ClientData, seed: int) -> dict[str, Pass]:
        """How a cohort goes over its examples in a round, by name."""
        return {"train": Pass(self.epochs, self.batch)}

    @property
    def messages(self) -> int:
        """How many models a client receives in a round, and sends the changes of."""
        return 1

    def cost(
        self, model: Model, data: ClientData, seed: int, start: CentralModel | None = None
    ) -> Cost:
        """What a run asks of every client, from a central model or from the beginning.

        A client that scores q models receives all of them; and it sends a block for each, of which
        all but one are zero, so that only sums have to be seen.
        """
        times = visits(data, seed, self.rounds, self.cohort)
        own = data.sizes("train")
        touched, steps = np.zeros((2, len(data)), np.int64)
        for spec in self.passes(data, seed).values():
            sizes = own[:, None] * np.ones(spec.jobs, np.int64)
            if spec.train is not None:
                sizes = spec.train.sizes
            touched += spec.epochs * sizes.sum(axis=1)
            steps += steps_of(sizes, spec.batch, spec.epochs).sum(axis=1)
            if spec.held is not None:
                touched += spec.copies * spec.held.sizes.sum(axis=1)
        if self.scores:
            touched += self.messages * own
        sent = self.messages * parameter_bytes(model) * times
        return Cost(data.ids, sent, sent.copy(), times * touched, times * steps)

    def resume(self, state: Any, start: CentralModel) -> Any:
        """The state that goes on from a central model."""
        return state._replace(hypotheses=start.hypotheses)

    def begin(self, state: Any, model: Model, data: ClientData, seed: int, engine: Engine) -> Any:
        """Where a run begins, if finding that takes work; a run that is resumed skips it."""
        return state

    def finish(self, trained: CentralModel, data: ClientData, state: Any) -> CentralModel:
        """What is left to do after the last round."""
        return trained

    def check(self, data: ClientData) -> None:  # noqa: B027  (most can work with any data)
        """Refuse data that the algorithm cannot work with, before any work starts."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least_one=("rounds", "cohort", "epochs", "batch"))

    def fit(
        self,
        model: Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        checkpoint: str | Path | None = None,
        progress: bool | None = None,
        on_chunk: Callable[[Chunk], None] | None = None,
        start: CentralModel | None = None,
    ) -> CentralModel:
        """Train on the training parts of the seen clients.

        Args:
            model: the hypothesis class.
            data: the clients.
            seed: seed of all randomness.
            engine: how to run it; sensible for the machine if not given.
            checkpoint: a file to keep the run in. If it is there, the run goes on from it, and
                ends with the same bits as one that was never stopped.
            progress: whether to show a bar; on a terminal only, if not given.
            on_chunk: called with every finished chunk of rounds, before it is in the checkpoint.
            start: a central model to go on from; a random one if not given.

        Returns:
            The trained central model.
        """
        engine, seed = engine or Engine(), check_seed(seed)
        check(model, data)
        if not data.seen.any():
            raise DataError("no client is seen, so there is nothing to train on; lower `unseen`")
        self.check(data)
        like = self.init(model, data, initial_key(seed))
        if start is not None:
            check_names(start.label_names, start.feature_names, data)
            _check_same(like.hypotheses, start)
        keeper, found = None, None
        if checkpoint is not None:
            keeper = self.keeper(checkpoint, model, data, seed=seed, engine=engine, start=start)
            found = keeper.load(like)
        if found is not None:
            done, state, history = found
        else:
            done, history = 0, {}
            if start is None:
                state = self.begin(like, model, data, seed, engine)
            else:
                state = self.resume(like, start)
        state = jax.tree.map(jnp.asarray, state)
        if done > self.rounds:
            raise ConfigError(f"{checkpoint} is at round {done}, past rounds={self.rounds}")
        run = run_rounds(self, model, data, state, seed=seed, engine=engine, start=done)
        name = type(self).__name__
        with Bar(name, self.rounds, progress) as bar, Interrupts() as interrupts:
            for chunk in run:
                self._check_finite(chunk, data, keeper)
                history = _longer(history, chunk, data.sizes("train"))
                state = chunk.state
                if on_chunk is not None:
                    on_chunk(chunk)
                if keeper is not None:
                    keeper.save(chunk.stop, state, history)
                bar.update(chunk.stop, f"loss {history['loss'][-1]:.4f}")
                if interrupts.requested and chunk.stop < self.rounds:
                    if keeper is None:
                        raise KeyboardInterrupt
                    raise InterruptedRun(
                        f"{name} stopped after round {chunk.stop} of {self.rounds}"
                    )
        _warn_of_guessing(name, history["loss"], model, data)
        hypotheses = jax.tree.map(np.asarray, state.hypotheses)
        trained = CentralModel(
            model, hypotheses, describe(self), history, data.label_names,
            feature_names=data.feature_names, engine=engine,
            cost=self.cost(model, data, seed, start),
        )  # fmt: skip
        return self.finish(trained, data, state)

    def keeper(
        self,
        checkpoint: str | Path,
        model: Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        start: CentralModel | None = None,
    ) -> Checkpoint:
        """The checkpoint of this run; its ``check`` refuses the file of another one."""
        identity = self._identity(model, data, seed, engine or Engine(), start)
        return Checkpoint(Path(checkpoint), identity)

    def _identity(
        self,
        model: Model,
        data: ClientData,
        seed: int,
        engine: Engine,
        start: CentralModel | None,
    ) -> dict[str, Any]:
        algorithm = describe(self)
        del algorithm["rounds"]  # more rounds may be added to a run
        return {
            "algorithm": algorithm,
            "model": model_identity(model, data),
            "data": data.fingerprint,
            "seed": seed,
            "precision": engine.precision,
            **({} if start is None else {"start": array_digest(start.hypotheses)}),
        }

    def _check_finite(self, chunk: Chunk, data: ClientData, keeper: Checkpoint | None) -> None:
        bad = ~chunk.metrics["finite"]
        if not bad.any():
            return
        first = int(np.argmax(bad.any(axis=1)))
        clients = tuple(data.ids[k] for k in chunk.clients[first][bad[first]])
        named = ", ".join(map(repr, clients[:3])) + (" …" if len(clients) > 3 else "")
        saved = keeper is not None and keeper.path.exists()
        kept = f"; the last good checkpoint is kept ({keeper.path})" if saved and keeper else ""
        raise DivergedError(
            f"{type(self).__name__} diverged in round {chunk.start + first + 1}: the update of "
            f"{len(clients)} of {len(bad[first])} clients is not finite ({named}){kept}. Lower the "
            "learning rate, standardize the features, or look at these clients' data",
            round=chunk.start + first + 1,
            clients=clients,
        )


def _check_same(hypotheses: Any, start: CentralModel) -> None:
    """Refuse to go on from other hypotheses, or another number of them."""
    here, there = (
        {name: leaf.shape for name, leaf in flatten(tree).items()}
        for tree in (hypotheses, start.hypotheses)
    )
    shapes = [{name: shape[1:] for name, shape in side.items()} for side in (here, there)]
    if shapes[0] != shapes[1]:
        raise ConfigError(
            f"start is a model of another class: its leaves are {shapes[1]}, and the model's "
            f"{shapes[0]}; give fit the model that start was trained with"
        )
    wanted = next(iter(here.values()))[0]
    if wanted != start.q:
        raise ConfigError(
            f"start has {start.q} hypotheses, and {wanted} are trained here; give a central model "
            "with as many"
        )


def _longer(history: History, chunk: Chunk, sizes: npt.NDArray[np.int64]) -> History:
    """The history with a chunk's rounds: means of the clients' losses, the rest as it is."""
    new = {name: a for name, a in chunk.metrics.items() if name not in ("loss", "finite")}
    new["loss"] = mean_loss(chunk, sizes).astype(np.float32)
    return {name: np.concatenate([history[name], a]) if history else a for name, a in new.items()}


def mean_loss(chunk: Chunk, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The cohort's mean training loss in every round of a chunk, over all its examples."""
    weights = sizes[chunk.clients]
    return np.asarray((chunk.metrics["loss"] * weights).sum(axis=1) / weights.sum(axis=1))


def initial_key(seed: int) -> jax.Array:
    """The key that a run's first model is drawn with."""
    return jax.random.wrap_key_data(jnp.asarray(key_data(mix(seed, "init"))), impl="threefry2x32")


def loss_of_a_guess(model: Model, data: ClientData) -> tuple[float, str]:
    """What it costs to know nothing of an example, by seen clients' training parts; and how."""
    if model.classes is not None:
        return math.log(model.classes), "any class as likely as another"
    rows = data.rows[positions(data, np.flatnonzero(data.seen), "train")]
    y = np.asarray(data.columns["y"][rows], np.float64).reshape(len(rows), -1)
    spread = float(y.var(axis=0).sum())
    if spread > 0:
        return spread, "always the mean"
    return float((y**2).sum(axis=1).mean()), "always 0"  # any error is more than that of the mean


def _warn_of_guessing(name: str, losses: npt.NDArray[Any], model: Model, data: ClientData) -> None:
    """Say so where training ends far above what it costs to know nothing of an example."""
    if model.training_loss is not None or len(losses) < FEW_ROUNDS:
        return
    guess, how = loss_of_a_guess(model, data)
    found = float(np.mean(losses[-max(len(losses) // 10, 1) :]))
    if found > 3 * guess > 0:
        scaled = "features" if model.classes else "features and targets"
        warnings.warn(
            f"{name} ends with a training loss of {found:.4g}, more than 3 times that of a guess "
            f"({how}: {guess:.4g}); standardize {scaled}, take a smaller learning_rate, or train "
            "for longer",
            stacklevel=3,
        )
