"""Should a client join the global model, join a cluster, interpolate, or train alone?

Two methods answer: a quick experiment on held-out training examples, and the paper's bounds. The
advice is the experiment's answer. The table also shows where the bounds disagree.
"""

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from sartor.advice.advice import SHARING, Advice
from sartor.advice.client_bounds import client_bounds, default_largest_loss
from sartor.advice.decide import best, decide, is_clear
from sartor.advice.holdout import (
    HeldOutLosses,
    cross_validate,
    fold_count,
    held_folds,
    merge_validation,
)
from sartor.central import Central, FedAvg, HypCluster
from sartor.central.guessing import WORSE, Guess
from sartor.checking import Positive, Probability, Range, checked, checks_arguments
from sartor.data import ClientData
from sartor.engine import Engine, positions
from sartor.errors import ConfigError, DataError, InterruptedRun, warn
from sartor.evaluation import Scores
from sartor.models import Model, check
from sartor.personal import Dapper, Local, Personal
from sartor.personal.fitting import check_fit
from sartor.theory.ascent import bounded_loss
from sartor.types import Floats, Ints
from sartor.workers import workers

INTERPOLATION = Dapper(cover=(0.25, 0.5, 0.75, 1.0))
"""Data interpolation with a few λ; λ = 1 is Finetune, and λ = 0 is close to the global model."""


@checks_arguments
def advise(
    data: ClientData,
    model: Model,
    *,
    central: Central | None = None,
    cluster: Central | None = None,
    local: Local | None = None,
    interpolation: Personal | None = INTERPOLATION,
    bound: Positive | None = None,
    radius: Positive | None = None,
    delta: Probability = 0.05,
    folds: Annotated[int, Range(3, 1000)] = 5,
    seed: int = 0,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> Advice:
    """Advise each client: join the global model, join a cluster, interpolate, or train alone.

    Advice uses only training and validation parts, and trains on both.

    Args:
        data: the clients.
        model: the hypothesis class.
        central: trains the global model (default: ``FedAvg()``).
        cluster: trains the cluster models (default: ``HypCluster()``).
        local: trains a model of the client alone (default: ``Local()``). Its guard is switched off,
            because whether it beats the global model is the question.
        interpolation: trains models between the local and the global one, one for each λ of its
            ``cover``, without a guard. ``None`` tries none.
        bound: the largest loss that bounds and discrepancies assume (default: log(10 · classes);
            4 · max y² for squared error).
        radius: radius of the ball of parameters around the global model in which discrepancies are
            searched (default: the distance that its training covered).
        delta: δ of the bounds.
        folds: number of folds of the experiment; fewer if no client has that many examples.
        seed: seed of all randomness.
        engine: how to run the clients.
        progress: whether to show a progress bar (default: only on a terminal).

    Returns:
        The advice for each client, and the reasons; ``print(advice.summary())`` gives an overview.
    """
    check(model, data)
    data = merge_validation(data)
    central, cluster, local = central or FedAvg(), cluster or HypCluster(), local or Local()
    largest_loss = default_largest_loss(model, data) if bound is None else bound
    checked("bound", largest_loss, Positive)
    _check_algorithms(data, model, central, cluster, local, interpolation)
    bounded_loss(model, largest_loss)
    local = dataclasses.replace(local, guard=False)
    folds = fold_count(data, folds)
    options: dict[str, Any] = {"seed": seed, "engine": engine or Engine(), "progress": False}
    mixtures = _mixtures(interpolation)
    # With a second fold left out, the losses show what more examples bring. By time, more examples
    # are also older or newer ones, which is another matter.
    has_curve = folds > 2 and data.time is None
    work = len(held_folds(data, folds)) * (len(SHARING) + len(mixtures) + has_curve) + 3
    threads = 3 if (os.cpu_count() or 1) > 1 else 1  # while one task compiles, others compute
    guessed: list[Floats] = []
    with workers("advice", work, threads, progress) as crew:
        # Some clients have no examples in a fold.
        warnings.filterwarnings("ignore", message=".*left out of the scores")

        def done(value: Any, note: str) -> Any:
            count = crew.count(note)
            if count % max(work // 6, 1) == 0:
                crew.bar.line(f"advice: {count} of {work} parts of the experiment")
            return value

        def fit_local(part: ClientData) -> dict[str, Scores]:
            models = local.fit(model, part, keep=False, **options)
            return {"local": done(models.evaluate(part, mixture=0), "local models")}

        def fit(part: ClientData) -> dict[str, Scores]:
            guessed.append(_guess_losses(model, part))
            global_model = central.fit(model, part, **options)
            found = {"global": done(global_model.evaluate(part), "global model")}
            found["cluster"] = done(cluster.fit(model, part, **options).evaluate(part), "clusters")
            for name, (_, algorithm) in mixtures.items():
                models = algorithm.fit(global_model, part, keep=False, **options)
                found[name] = done(models.evaluate(part, mixture=0), name)
            return found | fit_local(part)

        def compute_bounds() -> dict[str, Any]:
            global_model = done(central.fit(model, data, **options), "global model")
            cluster_models = done(cluster.fit(model, data, **options), "clusters")
            given = (largest_loss, radius, delta, seed)
            found = client_bounds(data, model, global_model, cluster_models, *given)
            return done(found, "discrepancies")

        tasks = [
            lambda: cross_validate(data, fit, folds, seed),
            lambda: cross_validate(data, fit_local, folds, seed, fewer=True) if has_curve else None,
            compute_bounds,
        ]
        try:
            losses, fewer, bounds = crew.run(tasks)
        except InterruptedRun as stopped:  # nothing of it is on disk
            raise KeyboardInterrupt from stopped
    _warn_of_one_cluster(bounds["cluster"])
    worse = _worse_than_a_guess(losses, Guess.of(model, data).words, np.concatenate(guessed))
    lambdas = {name: value for name, (value, _) in mixtures.items()}
    bounds["settings"] |= {"folds": folds, "seed": seed}
    return assemble(data, losses, fewer, lambdas, bounds, worse)


def assemble(
    data: ClientData, losses: HeldOutLosses, fewer: HeldOutLosses | None,
    lambdas: Mapping[str, float], bounds: Mapping[str, Any], worse: Sequence[str] = (),
) -> Advice:  # fmt: skip
    """Decide by the losses, and put the decision and the bounds together.

    Args:
        data: the clients.
        losses: see :func:`sartor.advice.decide.decide`.
        fewer: see there.
        lambdas: the λ of each candidate that interpolates, by name.
        bounds: the result of :func:`sartor.advice.client_bounds.client_bounds`.
        worse: candidates that are worse than a guess, and so are not advised.
    """
    size = data.sizes("train")
    barred = list(worse)
    if not np.ptp(bounds["cluster"]):  # one cluster is the global model
        barred.append("cluster")
    decision = decide(losses, fewer, size, barred)
    if np.isfinite(decision.paid).sum() < 2:
        warn(
            "fewer than two clients have examples in both halves of the folds, so nothing can be "
            "tried out, and all clients are advised to join; advice needs more clients with more "
            "examples, or, by time, clients that are there in both of the last two periods"
        )
    # Interpolation is one candidate: the λ with the best score.
    chosen = np.argmax([decision.score[name] for name in lambdas or SHARING[:1]], axis=0)

    def by_candidate(values: Mapping[str, Floats]) -> dict[str, Floats]:
        found = {name: values[name] for name in SHARING}
        if lambdas:
            table = np.stack([values[name] for name in lambdas])
            found["interpolation"] = table[chosen, np.arange(len(data))]
        return found

    score = by_candidate(decision.score)
    advice = best(score)
    names = np.array([*lambdas])[chosen] if lambdas else advice
    kinds = dict.fromkeys(losses.loss, "interpolation") | {name: name for name in SHARING}
    taken = np.where(advice == "interpolation", names, advice)
    settings = bounds["settings"] | {"trust": decision.trust, "barred": barred}
    return Advice(
        client=data.ids,
        seen=data.seen,
        size=size,
        advice=advice,
        sharing=best({name: score[name] for name in SHARING}),
        gain=by_candidate(decision.gain),
        deviation=by_candidate(decision.deviation),
        held_out=decision.observed,
        expected={name: decision.gain[name] for name in decision.observed},
        paid=decision.paid,
        worth=decision.worth,
        loss=decision.loss,
        clear=is_clear(losses, fewer, size, taken, kinds, barred),
        lambda_=np.array([*lambdas.values()] or [np.nan])[chosen],
        **{**bounds, "settings": settings},
    )


def _warn_of_one_cluster(cluster: Ints) -> None:
    share = (np.bincount(cluster) / len(cluster)).max()
    if share > 0.99:
        barred = " and is not advised" if share == 1 else ""
        warn(
            f"{share:.0%} of the clients are in one cluster, so clustering is the same as the "
            f"global model{barred}; try another start of the clusters "
            "(--set cluster.start=kmeans++ --set cluster.restarts=5), or a longer one "
            "(cluster.warm_rounds)"
        )


def _guess_losses(model: Model, part: ClientData) -> Floats:
    """The losses on test parts of a guess by training parts, which ignores the features."""
    rows = part.rows[positions(part, np.arange(len(part)), "test")]
    return Guess.of(model, part).losses(model, part.columns["y"][rows])


def _worse_than_a_guess(losses: HeldOutLosses, words: str, guessed: Floats) -> list[str]:
    """The candidates that lose more on held-out examples than a guess.

    Gains over a global model that failed would mean nothing, so that is an error.
    """
    usual = float(guessed.mean())
    means = {name: float(values.mean()) for name, values in losses.loss.items()}
    worse = {name: mean for name, mean in means.items() if mean > WORSE * usual > 0}
    if "global" in worse:
        raise DataError(
            f"the global model loses {means['global']:.4g} on held-out examples, more than a guess "
            f"({words}: {usual:.4g}), so gains over it mean nothing; train it better (more rounds, "
            "central=FedAvg(rounds=500) or --set central.rounds=500), or look at the data"
        )
    if worse:
        named = ", ".join(f"{name} {mean:.4g}" for name, mean in worse.items())
        warn(
            f"some candidates lose more on held-out examples than a guess ({words}: "
            f"{usual:.4g}), and are not advised: {named}"
        )
    return list(worse)


def _mixtures(algorithm: Personal | None) -> dict[str, tuple[float, Any]]:
    """The algorithm with each λ of its cover, by name; one without a cover has λ = 1."""
    if algorithm is None:
        return {}
    fixed: Any = dataclasses.replace(algorithm, guard=False)
    cover = algorithm.choices().cover
    if not cover:
        return {"λ = 1": (1.0, fixed)}
    return {f"λ = {v:g}": (v, dataclasses.replace(fixed, cover=(v,))) for v in cover}


def _check_algorithms(
    data: ClientData, model: Model, central: Central, cluster: Central, local: Local,
    interpolation: Personal | None,
) -> None:  # fmt: skip
    """Refuse algorithms of the wrong kind, or with settings that do not fit the data."""
    for name, algorithm, kind, example in (
        ("central", central, Central, "FedAvg()"), ("cluster", cluster, Central, "HypCluster()"),
        ("local", local, Local, "Local()"),
        ("interpolation", interpolation, Personal | None, "Dapper()"),
    ):  # fmt: skip
        if not isinstance(algorithm, kind):
            raise ConfigError(f"{name}: {algorithm!r} is no such algorithm; give one as {example}")
    if data.seen.sum() < 2:
        raise DataError(f"seen clients: {data.seen.sum()}; a global model needs at least two")
    if hasattr(central, "q"):
        raise ConfigError(
            f"central: {type(central).__name__} makes several models, and the global model is one; "
            "give it as cluster, and FedAvg or Agnostic as central"
        )
    central.check(model, data)
    cluster.check(model, data)
    if interpolation is not None:
        check_fit(interpolation, model, data)
