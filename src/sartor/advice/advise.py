"""Should a client join the global model, be clustered, or stay alone, and what would it gain?

Two answers stand beside each other: what the paper's bounds say, and what a quick experiment on
held-out training examples says. The advice is the experiment's; where the bounds disagree, the
table tells.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from sartor.advice.decide import Decision, decide
from sartor.advice.holdout import held_out
from sartor.central import Central, CentralModel, FedAvg, HypCluster
from sartor.data import ClientData
from sartor.engine import Engine, check
from sartor.errors import ConfigError, DataError
from sartor.evaluation import Scores
from sartor.models import Model
from sartor.personal import Local, Personal
from sartor.theory import best_lambda, bounds, discrepancies, pseudo_dimension
from sartor.theory.bound import check_delta, check_positive

Floats = npt.NDArray[np.float64]

CANDIDATES = ("local", "global", "cluster")
"""What a client can be advised to take."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """What every client is advised, and why.

    Attributes:
        client: ids.
        size: training examples m_k.
        advice: what is advised: ``"local"``, ``"global"`` or ``"cluster"``.
        gain: by candidate, how much less than the global model it is expected to lose.
        deviation: the standard deviation of that.
        cluster: the cluster of each client.
        discrepancy: to everybody, and to the client's cluster.
        bound: by candidate, the paper's bound of its excess loss.
        bounds_say: the candidate with the least bound.
        lambda_: the λ* of data interpolation that has the least bound.
        vacuous: whether none of a client's bounds promises anything.
        settings: what was given or chosen.
    """

    client: tuple[str, ...]
    size: npt.NDArray[np.int64]
    advice: npt.NDArray[np.str_]
    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    cluster: npt.NDArray[np.int64]
    discrepancy: Mapping[str, Floats]
    bound: Mapping[str, Floats]
    bounds_say: npt.NDArray[np.str_]
    lambda_: Floats
    vacuous: npt.NDArray[np.bool_]
    settings: Mapping[str, Any]

    @property
    def agree(self) -> npt.NDArray[np.bool_]:
        """Whether bounds and experiment say the same."""
        found: npt.NDArray[np.bool_] = self.advice == self.bounds_say
        return found

    def shares(self) -> dict[str, float]:
        """The share of clients that each candidate is advised to."""
        return {name: float((self.advice == name).mean()) for name in CANDIDATES}

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        return (
            f"Advice({len(self.client)} clients: {told}; bounds agree for {self.agree.mean():.0%})"
        )


def advise(
    data: ClientData,
    model: Model,
    *,
    central: Central | None = None,
    cluster: Central | None = None,
    local: Personal | None = None,
    bound: float | None = None,
    radius: float | None = None,
    delta: float = 0.05,
    folds: int = 5,
    seed: int = 0,
    engine: Engine | None = None,
) -> Advice:
    """Advise every client: join the global model, be clustered, or stay local.

    Only training and validation parts are used.

    Args:
        data: the clients.
        model: the hypothesis class.
        central: how the global model is trained; ``FedAvg()`` if not given.
        cluster: how the clusters' models are; ``HypCluster()`` if not given.
        local: how a model of a client's own is; ``Local()`` if not given.
        bound: the largest loss that bounds and discrepancies reckon with; for a log-loss that of
            a tenth of the uniform probability, if not given.
        radius: of the ball of parameters around the global model that a discrepancy is searched in;
            as far as that is from where its training began, if not given.
        delta: δ of the bounds.
        folds: of the experiment.
        seed: of all randomness.
        engine: how it is run.
    """
    _check(data, model, delta, folds)
    most = _largest(model) if bound is None else bound
    check_positive(bound=most, radius=1.0 if radius is None else radius)
    how = engine or Engine()
    central, cluster, local = central or FedAvg(), cluster or HypCluster(), local or Local()
    told: dict[str, Any] = {"seed": seed, "engine": how, "progress": False}

    def fit(part: ClientData) -> dict[str, Scores]:
        return {
            "global": central.fit(model, part, **told).evaluate(part),
            "cluster": cluster.fit(model, part, **told).evaluate(part),
            "local": local.fit(model, part, **told).evaluate(part),
        }

    def alone(part: ClientData) -> dict[str, Scores]:
        return {"local": local.fit(model, part, **told).evaluate(part)}

    losses = held_out(data, fit, folds, seed)
    fewer = held_out(data, alone, folds, seed, fewer=True)
    size = data.bounds[:, 2] - data.bounds[:, 0]
    decision = decide(losses, fewer, size, "global")
    one, several = central.fit(model, data, **told), cluster.fit(model, data, **told)
    return _with_bounds(data, model, decision, one, several, most, radius, delta, seed, folds)


def _with_bounds(
    data: ClientData, model: Model, decision: Decision, one: CentralModel, several: CentralModel,
    most: float, radius: float | None, delta: float, seed: int, folds: int,
) -> Advice:  # fmt: skip
    """The experiment's advice beside what the bounds say."""
    centre = jax.tree.map(lambda a: a[0], one.hypotheses)
    where: dict[str, Any] = {"bound": most, "seed": seed}
    if (model.spec or {}).get("name") != "categorical":
        where |= {"radius": radius or _distance(model, centre, seed), "centre": centre}
    clusters = several.assign(data)
    size, d = data.sizes("train"), pseudo_dimension(model)
    total = int(size[data.seen].sum())
    in_each = np.bincount(clusters[data.seen], size[data.seen], minlength=several.q)
    # An unseen client may like a model best that no seen one has trained: there is no mixture.
    of_cluster, mixed = in_each[clusters], np.where(in_each > 0, np.arange(several.q), -1)[clusters]
    mixed = np.where(mixed < 0, in_each.argmax(), mixed)
    disc = {
        "global": np.minimum(discrepancies(model, data, **where), most),
        "cluster": np.minimum(discrepancies(model, data, clusters=mixed, **where), most),
    }
    disc["cluster"] = np.where(of_cluster > 0, disc["cluster"], most)
    reckon: dict[str, Any] = {"d": d, "delta": delta, "bound": most}
    rows = range(len(data))
    found = {
        "local": [bounds.local(m=size[k], **reckon) for k in rows],
        "global": [bounds.global_(m=total, disc=disc["global"][k], **reckon) for k in rows],
        "cluster": [
            bounds.global_(m=max(of_cluster[k], 1), disc=disc["cluster"][k], **reckon) for k in rows
        ],
    }
    stars = [
        best_lambda(
            m_k=size[k], m_C=max(total - size[k] * data.seen[k], 1), disc=disc["global"][k],
            **reckon,
        ).lambda_
        for k in rows
    ]  # fmt: skip
    table = np.array([[float(b) for b in found[name]] for name in CANDIDATES])
    return Advice(
        client=data.ids,
        size=size,
        advice=decision.choice,
        gain=decision.gain,
        deviation=decision.deviation,
        cluster=clusters,
        discrepancy=disc,
        bound=dict(zip(CANDIDATES, table, strict=True)),
        bounds_say=np.array(CANDIDATES)[table.argmin(axis=0)],
        lambda_=np.array(stars),
        vacuous=np.array([all(found[name][k].vacuous for name in CANDIDATES) for k in rows]),
        settings={
            "bound": most, "delta": delta, "folds": folds, "seed": seed, "d": float(d),
            "d_how": d.how, "radius": where.get("radius"), "trust": decision.trust,
        },
    )  # fmt: skip


def _check(data: ClientData, model: Model, delta: float, folds: int) -> None:
    """Everything that can be wrong, before any work."""
    check(model, data)
    check_delta(delta)
    if folds < 3:
        raise ConfigError(f"folds={folds}: at least 3, one to hold out and two to learn from")
    if not data.seen.any():
        raise DataError("no client is seen, so there is no global model to advise on")


def _largest(model: Model) -> float:
    """The loss that is taken for the largest: of a tenth of the uniform probability."""
    if model.kind == "regression":
        raise DataError("bound: a squared error has no largest value; give bound=, say of 4·|y|²")
    return math.log(10 * (model.classes or 1))


def _distance(model: Model, params: Any, seed: int) -> float:
    """How far parameters are from where training began."""
    began = model.init(jax.random.key(seed))
    gaps = jax.tree.map(lambda a, b: float(((a - b) ** 2).sum()), params, began)
    return max(math.sqrt(sum(jax.tree.leaves(gaps))), 1e-3)
