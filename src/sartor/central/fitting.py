"""How a central algorithm is fitted: rounds, checkpoints, progress, interrupts and history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central.checkpoint import Checkpoint, History
from sartor.central.guessing import Guess, guessed_loss, warn_of_few_steps, warn_of_guessing
from sartor.central.ledger import rounds_cost
from sartor.central.model import CentralModel
from sartor.central.settings import check_seed, describe, models_in
from sartor.checking import AnyPath
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.data.trained import Trained
from sartor.engine import (
    Automatic,
    Chunk,
    Engine,
    Planner,
    run_rounds,
)
from sartor.errors import ConfigError, DataError, DivergedError, InterruptedRun, warn
from sartor.interrupts import Interrupts
from sartor.models import Model, check, model_identity
from sartor.progress import Bar
from sartor.randomness import key_data, mix
from sartor.trees import array_digest, flatten
from sartor.types import Floats, Ints

if TYPE_CHECKING:
    from sartor.central.base import Central

FEW_ROUNDS = 10
"""Rounds over which losses of cohorts are averaged."""

GROWN = 4
"""A loss that grows to so many times that of the first rounds diverges."""

RAREST = 32.0
"""Most times that automatic steps are larger because classes are rare."""

HALVINGS = "halvings"
"""The name in the history of how often an automatic step size was halved."""

MOST_HALVINGS = 12


class Fit(NamedTuple):
    """What a central algorithm is fitted to.

    Attributes:
        model: the hypothesis class.
        data: the clients.
        seed: seed of all randomness.
        engine: how to run it.
        start: the central model to start from, if one was given.
    """

    model: Model
    data: ClientData
    seed: int
    engine: Engine
    start: CentralModel | None = None


def prepared(
    algorithm: Central,
    model: Model,
    data: ClientData,
    seed: int,
    engine: Engine | None,
    start: CentralModel | None,
) -> Fit:
    """Refuse what cannot work, before any work starts."""
    check(model, data)
    if not data.seen.any():
        raise DataError("no client is seen, so there is nothing to train on; lower `unseen`")
    data = data.scaled(model.scaling_of(data) if start is None else start.scaling)
    what = Fit(model, data, check_seed(seed), engine or Engine(), start)
    shapes = jax.eval_shape(lambda: first_state(algorithm, what))
    if start is not None:
        check_names(start.label_names, start.feature_names, data)
        _check_same(shapes.hypotheses, start)
    return what


def fit(
    algorithm: Central,
    what: Fit,
    checkpoint: AnyPath | None = None,
    progress: bool | None = None,
    on_chunk: Callable[[Chunk], None] | None = None,
) -> CentralModel:
    """Run an algorithm's rounds, from a checkpoint if there is one.

    Where an automatic step size diverges, the rounds are restarted with half of it.
    """
    name = type(algorithm).__name__
    saved = None if checkpoint is None else Checkpoint(Path(checkpoint), identity(algorithm, what))
    found = None if saved is None else saved.load(first_state(algorithm, what))
    halvings = 0 if found is None else int(found[2].get(HALVINGS, np.zeros(1))[-1])
    larger = _evenness(algorithm, what)
    while True:
        smaller = _times(algorithm, larger * 0.5**halvings)
        said = _times(algorithm, 0.5**halvings)
        try:
            trained = _fit(smaller, said, what, halvings, saved, found, progress, on_chunk)
            break
        except DivergedError:
            if halvings == MOST_HALVINGS or smaller == _times(smaller, 0.5):
                raise
        halvings, found = halvings + 1, None
        if saved is not None:
            saved.path.unlink(missing_ok=True)
    if halvings:  # whether it was in this process or in one before
        share = "half the" if halvings == 1 else f"1/{2**halvings} of its"
        warn(f"{name} diverged. It was restarted with {share} step size and finished")
    return trained


def _evenness(algorithm: Central, what: Fit) -> float:
    """How many times larger automatic steps can be because some classes are rare.

    The curvature of the log loss is p (1 − p), and its mean is at most that of the share of a
    class, if probabilities are right on average. This holds for the logistic model, if examples
    count alike.
    """
    model, alike = what.model, getattr(algorithm, "weights", "size") == "size"
    if model.kind == "regression" or model.scale != "whiten" or not alike:
        return 1.0
    shares = np.exp(Guess.of(model, what.data).value)
    shares += model.smoothing * (1 / len(shares) - shares)  # as in the training loss
    return float(min(model.curvature / (shares * (1 - shares)).max(), RAREST))


def _informed(state: Any, what: Fit) -> Any:
    """A first state whose hypotheses predict the shares of the classes, or the mean target."""
    model = what.model
    assert model.informed is not None
    guess = Guess.of(model, what.data)
    value, unit = jnp.asarray(guess.value, jnp.float32), jnp.asarray(guess.unit, jnp.float32)
    hypotheses = jax.vmap(model.informed, (0, None, None))(state.hypotheses, value, unit)
    return state._replace(hypotheses=hypotheses)


def _times(algorithm: Central, factor: float) -> Central:
    """The algorithm with its automatic step sizes times a factor; the same if it has none."""
    rates: dict[str, Any] = {
        field.name: Automatic(rate.first * factor)
        for field in dataclasses.fields(algorithm)
        if isinstance(rate := getattr(algorithm, field.name), Automatic)
    }
    return dataclasses.replace(algorithm, **rates) if rates and factor != 1 else algorithm


def _fit(
    algorithm: Central, said: Central, what: Fit, halvings: int, saved: Checkpoint | None,
    found: tuple[int, Any, History, History] | None, progress: bool | None,
    on_chunk: Callable[[Chunk], None] | None,
) -> CentralModel:  # fmt: skip
    """All rounds with one step size; the model says that it was trained by ``said``."""
    model, data, name = what.model, what.data, type(algorithm).__name__
    state = first_state(algorithm, what)
    if found is None:
        done, history, states = 0, History(), History()
        if model.informed is not None and algorithm != _times(algorithm, 0.5):
            state = _informed(state, what)
        state = algorithm.begin(state, what)
    else:
        done, state, history, states = found
    state = jax.tree.map(jnp.asarray, state)
    if done > algorithm.rounds:
        where = saved and saved.path
        raise ConfigError(f"{where} is at round {done}, past rounds={algorithm.rounds}")
    usual = np.inf if model.training_loss is not None else guessed_loss(model, data)
    planner = Planner(algorithm, model, data, state, what.engine, seed=what.seed)
    if planner.states is not None and states:
        planner.states.restore(states)
    with Bar(name, algorithm.rounds, progress) as bar, Interrupts() as interrupts:
        for chunk in run_rounds(planner, state, done):
            _check_finite(name, chunk, data, saved)
            history = _longer(history, chunk, data.sizes("train"), halvings)
            _check_falling(algorithm, history["loss"], usual)
            state = chunk.state
            if on_chunk is not None:
                on_chunk(chunk)
            if saved is not None:
                saved.save(chunk.stop, state, history, planner.states)
            bar.update(chunk.stop, f"loss {history['loss'][-1]:.4f}")
            if interrupts.requested and chunk.stop < algorithm.rounds:
                if saved is None:
                    raise KeyboardInterrupt
                raise InterruptedRun(
                    f"{name} stopped after round {chunk.stop} of {algorithm.rounds}"
                )
    hypotheses = jax.tree.map(np.asarray, state.hypotheses)
    if any(np.isnan(leaf).any() for leaf in jax.tree.leaves(hypotheses)):
        raise DivergedError(
            f"{name} diverged in round {algorithm.rounds}: the server's last step gave NaN. Lower "
            "the server's learning rate, or look at the weights of uploads",
            round=algorithm.rounds,
            clients=(),
        )
    trained = CentralModel(
        model, hypotheses, describe(said), history,
        data.label_names, feature_names=data.feature_names, engine=what.engine,
        cost=rounds_cost(planner, hypotheses), kept=planner.states, scaling=data.scaling,
        trained=Trained.on(data).with_(what.start.trained if what.start else None),
    )  # fmt: skip
    trained = algorithm.finish(trained, state, what)
    # Not where another loss was minimised, or a part of the model is with the clients.
    judged = algorithm.for_everybody and model.training_loss is None and trained.kept is None
    if judged and algorithm.rounds >= FEW_ROUNDS:
        warn_of_guessing(trained, data, what.engine)
        if getattr(algorithm, "weights", None) == "size":
            warn_of_few_steps(trained, data)
    return trained


def first_state(algorithm: Central, what: Fit) -> Any:
    """The state that an algorithm says to begin with."""
    word = key_data(mix(what.seed, "init"))
    key = jax.random.wrap_key_data(jnp.asarray(word), impl="threefry2x32")
    state = algorithm.init(what.model, what.data, key)
    first = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(getattr(state, "hypotheses", ()))}
    if len(first) != 1 or first == {()}:
        raise ConfigError(
            f"{type(algorithm).__name__}.init must return a NamedTuple with a field `hypotheses`, "
            f"the central hypotheses stacked [q, ...] (got {type(state).__name__}"
            f"{f' with first axes {sorted(first)}' if first else ''})"
        )
    return jax.tree.map(jnp.asarray, state)


def identity(algorithm: Central, what: Fit) -> dict[str, Any]:
    """What must be the same for a run to resume from a checkpoint."""
    described = describe(algorithm)
    del described["rounds"]  # more rounds may be added to a run
    # A model of the user's own functions is described by what it computes.
    own = {name: model_identity(m, what.data) for name, m in models_in(algorithm).items()}
    return {
        "algorithm": described,
        "model": model_identity(what.model, what.data),
        "data": what.data.fingerprint,
        "seed": what.seed,
        "precision": what.engine.precision,
        **({} if what.data.scaling is None else {"scaling": what.data.scaling.digest}),
        **({} if what.start is None else {"start": array_digest(what.start.hypotheses)}),
        **own,
    }


def _check_finite(name: str, chunk: Chunk, data: ClientData, saved: Checkpoint | None) -> None:
    bad = ~chunk.metrics["finite"]
    if not bad.any():
        return
    first = int(np.argmax(bad.any(axis=1)))
    clients = tuple(data.ids[k] for k in chunk.clients[first][bad[first]])
    named = ", ".join(map(repr, clients[:3])) + (" …" if len(clients) > 3 else "")
    kept = ""
    if saved is not None and saved.path.exists():
        kept = f"; the last good checkpoint is kept ({saved.path})"
    raise DivergedError(
        f"{name} diverged in round {chunk.start + first + 1}: the update of {len(clients)} of "
        f"{len(bad[first])} clients is not finite ({named}){kept}. Lower the learning rate, "
        "standardize features and targets, or look at these clients' data",
        round=chunk.start + first + 1,
        clients=clients,
    )


def _check_same(hypotheses: Any, start: CentralModel) -> None:
    """Refuse to start from other hypotheses, or another number of them."""
    here, there = (
        {name: leaf.shape[1:] for name, leaf in flatten(tree).items()}
        for tree in (hypotheses, start.hypotheses)
    )
    if here != there:
        raise ConfigError(
            f"start is a model of another class: its leaves are {there}, and the model's "
            f"{here}; give fit the model that start was trained with"
        )
    wanted = jax.tree.leaves(hypotheses)[0].shape[0]
    if wanted != start.q:
        raise ConfigError(
            f"start has {start.q} hypotheses, and {wanted} are trained here; give a central model "
            f"with {wanted}"
        )


def _longer(history: History, chunk: Chunk, sizes: Ints, halvings: int) -> History:
    """The history with a chunk's rounds: means of the clients' losses, the rest as it is."""
    new = {name: a for name, a in chunk.metrics.items() if name not in ("loss", "finite")}
    new["loss"] = mean_loss(chunk, sizes).astype(np.float32)
    if halvings:
        new[HALVINGS] = np.full(len(new["loss"]), halvings)
    return {name: np.concatenate([history[name], a]) if history else a for name, a in new.items()}


def mean_loss(chunk: Chunk, sizes: Ints) -> Floats:
    """The cohort's mean training loss in every round of a chunk, over all its examples."""
    weights = sizes[chunk.clients]
    return np.asarray((chunk.metrics["loss"] * weights).sum(axis=1) / weights.sum(axis=1))


def _check_falling(algorithm: Central, losses: npt.NDArray[Any], usual: float) -> None:
    """Refuse an automatic step size with which the loss grows out of all proportion.

    It may do so within the first rounds, so the start's loss and a guess's set a limit, too.
    """
    if algorithm == _times(algorithm, 0.5) or len(losses) <= FEW_ROUNDS:
        return
    sums = np.cumsum(np.insert(losses.astype(np.float64), 0, 0.0))
    means = (sums[FEW_ROUNDS:] - sums[:-FEW_ROUNDS]) / FEW_ROUNDS
    start = max(usual, float(losses[0]))
    grown = np.flatnonzero(means > GROWN * max(min(means[0], GROWN * start), 1e-6))
    if len(grown):
        round_ = int(grown[0]) + FEW_ROUNDS
        raise DivergedError(
            f"{type(algorithm).__name__} diverged: in round {round_} the training loss is more "
            f"than {GROWN} times that of the first rounds, or {GROWN**2} times that of the start",
            round=round_,
            clients=(),
        )
