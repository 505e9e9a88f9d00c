"""What all central algorithms share: the run over rounds, and the model that comes out of it."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sartor.central.checkpoint import Checkpoint
from sartor.central.model import CentralModel
from sartor.central.settings import check_numbers, check_seed, describe
from sartor.data import ClientData
from sartor.engine import Chunk, Cohort, Engine, check, run_rounds
from sartor.engine.engine import model_identity
from sartor.errors import ConfigError, DataError, DivergedError, InterruptedRun
from sartor.interrupts import Interrupts
from sartor.models import Model, Params
from sartor.progress import Bar
from sartor.randomness import key_data, mix
from sartor.trees import Tree


@dataclasses.dataclass(frozen=True)
class Central(abc.ABC):
    """A central algorithm: what a cohort computes, and what the server does with the sum.

    Subclasses add hyper-parameters and four pure functions: ``init``, ``clients``, ``server``
    and ``hypotheses``.

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
    def init(self, model: Model, key: jax.Array) -> Tree:
        """The state before the first round."""

    @abc.abstractmethod
    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """What a cohort uploads, summed over its clients; and metrics by client."""

    @abc.abstractmethod
    def server(self, state: Any, upload: Any) -> Any:
        """The state after a round."""

    @abc.abstractmethod
    def hypotheses(self, state: Any) -> Params:
        """The models, stacked: [q, ...]."""

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

        Returns:
            The trained central model.
        """
        engine, seed = engine or Engine(), check_seed(seed)
        check(model, data)
        if not data.seen.any():
            raise DataError("no client is seen, so there is nothing to train on; lower `unseen`")
        state = self.init(model, initial_key(seed))
        keeper, start = None, 0
        losses = np.zeros(0, np.float32)
        if checkpoint is not None:
            keeper = Checkpoint(Path(checkpoint), self._identity(model, data, seed, engine))
            found = keeper.load(state)
            if found is not None:
                start, state, losses = found
                state = jax.tree.map(jnp.asarray, state)
        if start > self.rounds:
            raise ConfigError(f"{checkpoint} is at round {start}, past rounds={self.rounds}")
        run = run_rounds(self, model, data, state, seed=seed, engine=engine, start=start)
        name = type(self).__name__
        with Bar(name, self.rounds, progress) as bar, Interrupts() as interrupts:
            for chunk in run:
                self._check_finite(chunk, data, keeper)
                sizes = data.sizes("train")[chunk.clients]
                mean = (chunk.metrics["loss"] * sizes).sum(axis=1) / sizes.sum(axis=1)
                losses = np.concatenate([losses, mean.astype(np.float32)])
                state = chunk.state
                if on_chunk is not None:
                    on_chunk(chunk)
                if keeper is not None:
                    keeper.save(chunk.stop, state, losses)
                bar.update(chunk.stop, f"loss {losses[-1]:.4f}")
                if interrupts.requested and chunk.stop < self.rounds:
                    if keeper is None:
                        raise KeyboardInterrupt
                    raise InterruptedRun(
                        f"{name} stopped after round {chunk.stop} of {self.rounds}"
                    )
        hypotheses = jax.tree.map(np.asarray, self.hypotheses(state))
        return CentralModel(model, hypotheses, describe(self), losses, data.label_names, engine)

    def _identity(
        self, model: Model, data: ClientData, seed: int, engine: Engine
    ) -> dict[str, Any]:
        algorithm = describe(self)
        del algorithm["rounds"]  # more rounds may be added to a run
        return {
            "algorithm": algorithm,
            "model": model_identity(model, data),
            "data": data.fingerprint,
            "seed": seed,
            "precision": engine.precision,
        }

    def _check_finite(self, chunk: Chunk, data: ClientData, keeper: Checkpoint | None) -> None:
        bad = ~chunk.metrics["finite"]
        if not bad.any():
            return
        first = int(np.argmax(bad.any(axis=1)))
        clients = tuple(data.ids[k] for k in chunk.clients[first][bad[first]])
        named = ", ".join(map(repr, clients[:3])) + (" …" if len(clients) > 3 else "")
        kept = "" if keeper is None else f"; the last good checkpoint is kept ({keeper.path})"
        raise DivergedError(
            f"{type(self).__name__} diverged in round {chunk.start + first + 1}: the update of "
            f"{len(clients)} of {len(bad[first])} clients is not finite ({named}){kept}. Lower the "
            "learning rate, standardize the features, or look at these clients' data",
            round=chunk.start + first + 1,
            clients=clients,
        )


def initial_key(seed: int) -> jax.Array:
    """The key that a run's first model is drawn with."""
    return jax.random.wrap_key_data(jnp.asarray(key_data(mix(seed, "init"))), impl="threefry2x32")
