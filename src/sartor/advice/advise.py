"""Should a client join the global model, be clustered, interpolate, or stay alone?

Two answers stand beside each other: what the paper's bounds say, and what a quick experiment on
held-out training examples says. The advice is the experiment's; where the bounds disagree, the
table tells.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sartor.advice.advice import CANDIDATES, SHARING, Advice
from sartor.advice.beside import beside
from sartor.advice.decide import Decision, best, decide
from sartor.advice.holdout import Losses, fold_count, held_out, merged
from sartor.advice.promises import Promises, largest, promises
from sartor.central import Central, FedAvg, HypCluster
from sartor.central.fitting import loss_of_a_guess
from sartor.data import ClientData
from sartor.engine import Engine
from sartor.errors import ConfigError, DataError
from sartor.evaluation import Scores
from sartor.models import Model, check
from sartor.personal import Dapper, Local, Personal
from sartor.progress import Bar
from sartor.theory.ascent import bounded_loss
from sartor.theory.bound import check_delta, check_positive

INTERPOLATION = Dapper(cover=(0.25, 0.5, 0.75, 1.0))
"""Data interpolation with a few λ; with 1 it is Finetune, and with 0 about the global model."""


def advise(
    data: ClientData,
    model: Model,
    *,
    central: Central | None = None,
    cluster: Central | None = None,
    local: Local | None = None,
    interpolation: Personal | None = INTERPOLATION,
    bound: float | None = None,
    radius: float | None = None,
    delta: float = 0.05,
    folds: int = 5,
    seed: int = 0,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Advice:
    """Advise every client: join the global model, be clustered, interpolate, or stay local.

    Only training and validation parts are used, both to train on.

    Args:
        data: the clients.
        model: the hypothesis class.
        central: how the global model is trained; ``FedAvg()`` if not given.
        cluster: how the clusters' models are; ``HypCluster()`` if not given.
        local: how a model of a client's own is; ``Local()`` if not given. A guard is left out:
            whether it is better than the global model is what is asked.
        interpolation: how one between the client's and the global one is: each λ of its ``cover``
            is tried, without a guard. ``None`` tries none.
        bound: the largest loss that bounds and discrepancies reckon with; if not given, for a
            log-loss that of a tenth of the uniform probability, and for a squared error 4·y² of
            the largest label.
        radius: of the ball of parameters around the global model that a discrepancy is searched in;
            as far as that is from where its training began, if not given.
        delta: δ of the bounds.
        folds: of the experiment; fewer where no client has as many examples.
        seed: of all randomness.
        engine: how it is run.
        progress: whether to show a bar; on a terminal only, if not given.

    Returns:
        What is advised to every client, and why; ``print(advice.summary())`` says the most.
    """
    check(model, data)
    data = merged(data)
    central, cluster, local = central or FedAvg(), cluster or HypCluster(), local or Local()
    _check_kinds(central=(central, Central), cluster=(cluster, Central), local=(local, Local),
                 interpolation=(interpolation, (Personal, type(None))))  # fmt: skip
    local = dataclasses.replace(local, guard=False)
    most = largest(model, data) if bound is None else bound
    _check(data, model, central, cluster, interpolation, most, radius, delta, folds)
    folds = fold_count(data, folds)
    told: dict[str, Any] = {"seed": seed, "engine": engine or Engine(), "progress": False}
    between = _by_lambda(interpolation)
    curve = folds > 2  # a fold less says what more examples bring
    work = folds * (len(SHARING) + len(between) + curve) + 3
    with Bar("advice", work, progress) as bar, warnings.catch_warnings():
        # Who has nothing in a fold is to be expected; and of clusters all examples tell.
        warnings.filterwarnings("ignore", message=".*left out of the scores|HypCluster: some")
        done = _Counter(bar, work)

        def alone(part: ClientData) -> dict[str, Scores]:
            models = local.fit(model, part, keep=False, **told)
            return {"local": done(models.evaluate(part, mixture=0), "local models")}

        def fit(part: ClientData) -> dict[str, Scores]:
            one = central.fit(model, part, **told)
            found = {"global": done(one.evaluate(part), "global model")}
            several = cluster.fit(model, part, **told)
            found["cluster"] = done(several.evaluate(part), "clusters")
            for name, (_, algorithm) in between.items():
                models = algorithm.fit(one, part, keep=False, **told)
                found[name] = done(models.evaluate(part, mixture=0), name)
            return found | alone(part)

        def promise() -> Promises:
            one = done(central.fit(model, data, **told), "global model")
            several = done(cluster.fit(model, data, **told), "clusters")
            found = promises(data, model, one, several, most, radius, delta, seed)
            return done(found, "discrepancies")

        losses, fewer, promised = beside(
            [
                lambda: held_out(data, fit, folds, seed),
                lambda: held_out(data, alone, folds, seed, fewer=True) if curve else None,
                promise,
            ]
        )
    _warn_of_one_cluster(promised)
    _warn_of_guessing(losses, model, data)
    size = data.sizes("train")
    alone_there = len(np.unique(promised.cluster)) == 1  # to be clustered is to join
    barred = ("cluster",) if alone_there else ()
    decision = decide(losses, fewer, size, "global", barred)
    gain, deviation, weighed, lambda_ = _interpolated(decision, between)
    allowed = [name for name in CANDIDATES if name in weighed and name not in barred]
    return Advice(
        client=data.ids,
        seen=data.seen,
        size=size,
        advice=best(weighed, allowed),
        sharing=best(weighed, [name for name in allowed if name in SHARING]),
        gain=gain,
        deviation=deviation,
        held_out={n: v for n, v in decision.raw.items() if n != "global"},
        expected={n: v for n, v in decision.gain.items() if n != "global"},
        paid=decision.paid,
        lambda_=lambda_,
        cluster=promised.cluster,
        discrepancy=promised.discrepancy,
        bound=promised.bound,
        bounds_say=promised.say,
        bounds_lambda=promised.lambda_,
        vacuous=promised.vacuous,
        settings={
            **promised.settings, "folds": folds, "seed": seed, "trust": decision.trust,
            "barred": list(barred),
        },
    )  # fmt: skip


class _Counter:
    """Counts what is done, and says what."""

    def __init__(self, bar: Bar, total: int) -> None:
        self._bar, self._total, self._done = bar, total, 0
        self._lock = threading.Lock()

    def __call__(self, value: Any, note: str) -> Any:
        with self._lock:
            self._done += 1
            self._bar.update(self._done, note)
            if self._done % max(self._total // 6, 1) == 0:
                self._bar.line(f"advice: {self._done} of {self._total} parts of the experiment")
        return value


def _warn_of_one_cluster(promised: Promises) -> None:
    shares = np.bincount(promised.cluster) / len(promised.cluster)
    if shares.max() > 0.99:
        barred = " and is not advised" if shares.max() == 1 else ""
        warnings.warn(
            f"{shares.max():.0%} of the clients are in one cluster, so that to be clustered is to "
            f"join{barred}; try another start of the clusters "
            "(--set cluster.start=kmeans++ --set cluster.restarts=5), or a longer one "
            "(cluster.warm_rounds)",
            stacklevel=3,
        )


def _warn_of_guessing(losses: Losses, model: Model, data: ClientData) -> None:
    """Say which candidates lose far more than who knows nothing of an example."""
    guess, how = loss_of_a_guess(model, data)
    means = {name: float(values.mean()) for name, values in losses.loss.items()}
    worse = {name: value for name, value in means.items() if value > 3 * guess > 0}
    if worse:
        told = ", ".join(f"{name} {value:.4g}" for name, value in worse.items())
        warnings.warn(
            "on held-out examples some candidates lose more than 3 times what a guess does "
            f"({how}: {guess:.4g}): {told}; standardize features, or take smaller steps for them "
            "(--set local.learning_rate=0.01): advice is about candidates as they are",
            stacklevel=3,
        )


def _by_lambda(algorithm: Personal | None) -> dict[str, tuple[float, Any]]:
    """The algorithm with each λ of its cover, by name; one without is the client's alone, λ = 1."""
    if algorithm is None:
        return {}
    algorithm = dataclasses.replace(algorithm, guard=False)
    if not algorithm.cover:
        return {"λ = 1": (1.0, algorithm)}
    fixed: Callable[..., Any] = dataclasses.replace
    return {f"λ = {v:g}": (v, fixed(algorithm, cover=(v,))) for v in algorithm.cover}


def _interpolated(decision: Decision, between: dict[str, tuple[float, Any]]) -> tuple[Any, ...]:
    """Gains, deviations, gains to choose by; of interpolation at the λ that is chosen, and that."""
    everything = (decision.gain, decision.deviation, decision.weighed)
    found = tuple({name: values[name] for name in SHARING} for values in everything)
    clients = len(decision.paid)
    if not between:
        return (*found, np.full(clients, np.nan))
    which = np.argmax([decision.weighed[name] for name in between], axis=0)
    for mine, values in zip(found, everything, strict=True):
        table = np.stack([values[name] for name in between])
        mine["interpolation"] = table[which, np.arange(clients)]
    return (*found, np.array([lambda_ for lambda_, _ in between.values()])[which])


def _check_kinds(**given: tuple[Any, Any]) -> None:
    for name, (algorithm, kind) in given.items():
        if not isinstance(algorithm, kind):
            wanted = {"local": "Local()", "interpolation": "Dapper()"}.get(name, "FedAvg()")
            raise ConfigError(f"{name}: {algorithm!r} is no such algorithm; give one as {wanted}")


def _check(
    data: ClientData, model: Model, central: Central, cluster: Central,
    interpolation: Personal | None, most: float, radius: float | None, delta: float, folds: int,
) -> None:  # fmt: skip
    """Everything that can be wrong, before any work."""
    check_delta(delta)
    check_positive(bound=most, radius=1.0 if radius is None else radius)
    bounded_loss(model, most)
    if folds < 3:
        raise ConfigError(f"folds={folds}: at least 3, one to hold out and two to learn from")
    if not data.seen.any():
        raise DataError("no client is seen, so there is no global model to advise on")
    if data.seen.sum() < 2:
        raise DataError("only one client is seen, so there is nobody to share a model with")
    if hasattr(central, "q"):
        raise ConfigError(
            f"central: {type(central).__name__} makes several models, and the global one is one; "
            "give it as cluster, and FedAvg or Agnostic as central"
        )
    for algorithm in (central, cluster):
        algorithm.check(model, data)
    if interpolation is not None:
        interpolation.check(model, data)
