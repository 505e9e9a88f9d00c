"""What all central algorithms share: the run over rounds, and the model that comes out of it."""

from __future__ import annotations

import abc
import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.central.checkpoint import Checkpoint
from sartor.data import PARTS, ClientData
from sartor.engine import Chunk, Cohort, Engine, Optimizer, check, check_labels, run_rounds
from sartor.engine.engine import model_identity
from sartor.engine.scoring import Scored, positions, score_shared
from sartor.errors import ConfigError, DataError, DivergedError, InterruptedRun
from sartor.evaluation import Scores
from sartor.files import read_json, replacing, save_tree, write_json
from sartor.interrupts import Interrupts
from sartor.models import Model, Params
from sartor.progress import Bar
from sartor.randomness import key_data, mix
from sartor.trees import Tree, traced_hash

FORMAT = "sartor-models"
VERSION = 1


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
            "learning rate, or look at these clients' data",
            round=chunk.start + first + 1,
            clients=clients,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class CentralModel:
    """A trained central model: one hypothesis, or q of them.

    Attributes:
        model: the hypothesis class.
        hypotheses: the hypotheses, stacked: [q, ...].
        algorithm: name and hyper-parameters of what trained it.
        loss: the cohort's mean training loss in every round.
        label_names: the word of each class, if labels were words.
        engine: how it was run, and is run when evaluated.
    """

    model: Model
    hypotheses: Params
    algorithm: dict[str, Any]
    loss: npt.NDArray[np.float32]
    label_names: tuple[str, ...] | None = None
    engine: Engine = dataclasses.field(default_factory=Engine)

    def __repr__(self) -> str:
        return f"CentralModel({self.algorithm['name']}, q={self.q})"

    @property
    def q(self) -> int:
        """How many hypotheses there are."""
        return int(jax.tree.leaves(self.hypotheses)[0].shape[0])

    @property
    def params(self) -> Params:
        """The hypothesis, if there is only one."""
        if self.q > 1:
            raise ConfigError(f"there are {self.q} hypotheses; take one from `hypotheses`")
        return jax.tree.map(lambda a: a[0], self.hypotheses)

    def assign(self, data: ClientData) -> npt.NDArray[np.int64]:
        """The hypothesis of each client: the one with the lowest loss on its training part."""
        if self.q == 1:
            return np.zeros(len(data), np.int64)
        everyone = np.arange(len(data))
        scored = score_shared(
            self.model, data, positions(data, everyone, "train"), self.hypotheses, self.engine
        )
        sizes = data.sizes("train")
        sums = np.add.reduceat(scored.loss, np.cumsum(sizes) - sizes, axis=1)
        return np.asarray(sums.argmin(axis=0))

    def evaluate(self, data: ClientData, *, part: str = "test") -> Scores:
        """Score every client's test part: one row per client."""
        check(self.model, data)
        check_labels(self.label_names, data)
        clients = scored_clients(data, part)
        rows = positions(data, clients, part)
        scored = score_shared(self.model, data, rows, self.hypotheses, self.engine)
        sizes = data.sizes(part)[clients]
        cluster = self.assign(data)[clients]
        chosen = np.repeat(cluster, sizes)
        examples = np.arange(len(rows))
        mine = Scored(scored.loss[chosen, examples], scored.correct[chosen, examples])
        extra = {"cluster": cluster} if self.q > 1 else {}
        name = str(self.algorithm["name"])
        return make_scores(name, self.model, data, clients, part, mine, extra)

    def predict_proba(self, x: Any, cluster: int = 0) -> npt.NDArray[np.float32]:
        """Class probabilities [n, classes]."""
        if self.model.kind == "regression":
            raise ConfigError("a regression model predicts numbers, not probabilities: use predict")
        return np.exp(self._apply(x, cluster))

    def predict(self, x: Any, cluster: int = 0) -> npt.NDArray[Any]:
        """Labels (their words, if the data had words), or means for regression."""
        return decode(self.model, self._apply(x, cluster), self.label_names)

    def _apply(self, x: Any, cluster: int) -> npt.NDArray[np.float32]:
        params = jax.tree.map(lambda a: a[cluster], self.hypotheses)
        return np.asarray(self.model.apply(params, as_inputs(self.model, x), None))

    def save(self, directory: str | Path) -> None:
        """Write the model as safetensors with a JSON manifest; :func:`sartor.load` reads it."""
        with replacing(directory, is_models) as folder:
            save_tree(folder / "central.safetensors", self.hypotheses, {})
            write_json(folder / "manifest.json", self.manifest("central"))

    def manifest(self, kind: str) -> dict[str, Any]:
        """What a directory of saved models says about itself."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": kind,
            "model": self.model.spec,
            "central": self.algorithm,
            "q": self.q,
            "label_names": self.label_names,
        }


def initial_key(seed: int) -> jax.Array:
    """The key that a run's first model is drawn with."""
    return jax.random.wrap_key_data(jnp.asarray(key_data(mix(seed, "init"))), impl="threefry2x32")


def is_models(path: Path) -> bool:
    """Whether a directory holds models saved by Sartor and nothing else."""
    names = {file.name for file in path.iterdir()}
    shards = {name for name in names if re.fullmatch(r"shard-\d+\.safetensors", name)}
    if "manifest.json" not in names or names - shards - {"manifest.json", "central.safetensors"}:
        return False
    found = read_json(path / "manifest.json")
    return isinstance(found, dict) and found.get("format") == FORMAT


def as_inputs(model: Model, x: Any) -> Any:
    """Inputs of a prediction as arrays; refuses a shape that the model does not take."""
    if x is None or isinstance(x, Mapping):
        return x if x is None else {name: jnp.asarray(column) for name, column in x.items()}
    inputs = jnp.asarray(x)
    if model.input_shape is not None and inputs.shape[1:] != model.input_shape:
        raise DataError(
            f"x has shape {inputs.shape}, but the model takes a batch of examples of shape "
            f"{model.input_shape}: (n, {', '.join(map(str, model.input_shape))})"
        )
    return inputs


def scored_clients(data: ClientData, part: str) -> npt.NDArray[np.int64]:
    """Positions of the clients that have examples in a part; refuses data where none has."""
    if part not in PARTS:
        raise ConfigError(f"part must be one of {PARTS} (got {part!r})")
    sizes = data.sizes(part)
    clients = np.flatnonzero(sizes)
    if not len(clients):
        raise DataError(
            f"no client has a {part} part, so there is nothing honest to measure; make one with "
            f"data.split({part}=0.2, seed=0) before fitting"
        )
    left = len(data) - len(clients)
    if left:
        warnings.warn(
            f"{left} of {len(data)} clients have no {part} examples and are left out of the scores",
            stacklevel=3,
        )
    return clients


def make_scores(
    method: str,
    model: Model,
    data: ClientData,
    clients: npt.NDArray[np.int64],
    part: str,
    scored: Scored,
    extra: dict[str, npt.NDArray[Any]],
    baseline: Scores | None = None,
) -> Scores:
    """The score table of some clients from their examples' results."""
    domain = data.metadata.get("domain")
    return Scores(
        method=method,
        client=tuple(data.ids[k] for k in clients),
        size=data.sizes("train")[clients],
        test_size=data.sizes(part)[clients],
        seen=data.seen[clients],
        example_loss=scored.loss,
        example_correct=scored.correct if model.has_accuracy else None,
        domain=None if domain is None else tuple(str(d) for d in domain[clients]),
        extra=extra,
        baseline=baseline,
    )


def decode(
    model: Model, prediction: npt.NDArray[Any], label_names: tuple[str, ...] | None
) -> npt.NDArray[Any]:
    """Labels of log-probabilities, in words if there are words; means as they are."""
    if model.kind == "regression":
        return prediction
    labels = prediction.argmax(axis=-1)
    return np.asarray(labels if label_names is None else np.asarray(label_names)[labels])


def describe(algorithm: Any) -> dict[str, Any]:
    """An algorithm's name and hyper-parameters, as plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, Optimizer):
            return {"name": value.name, **dict(value.options)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, optax.GradientTransformation):
            weights = {"w": jnp.zeros(2)}
            return "custom " + traced_hash(value.update, weights, value.init(weights), weights)
        return [plain(v) for v in value]

    fields = {f.name: plain(getattr(algorithm, f.name)) for f in dataclasses.fields(algorithm)}
    return {"name": type(algorithm).__name__, **fields}


def check_numbers(algorithm: Any, *, at_least_one: tuple[str, ...]) -> None:
    """Refuse hyper-parameters that cannot be meant; tables become optimizers."""

    def refuse(name: str, wanted: str) -> None:
        value = getattr(algorithm, name)
        raise ConfigError(f"{type(algorithm).__name__}: {name} must be {wanted} (got {value!r})")

    for name in at_least_one:
        value = getattr(algorithm, name)
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            refuse(name, "a whole number of at least 1")
        object.__setattr__(algorithm, name, int(value))
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name.endswith("learning_rate"):
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0 < float(value) < math.inf):
                refuse(field.name, "a positive number")
            object.__setattr__(algorithm, field.name, float(value))
        if field.name.endswith("optimizer") and isinstance(value, dict):
            object.__setattr__(algorithm, field.name, Optimizer.of(value))


def check_seed(seed: Any) -> int:
    """The seed as a whole number, or an error."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ConfigError(f"seed must be a whole number (got {seed!r})")
    return int(seed)
