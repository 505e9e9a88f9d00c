"""What the paper's bounds promise every client."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sartor.advice.advice import SHARING, Floats, Words
from sartor.central import CentralModel
from sartor.data import ClientData
from sartor.models import Model
from sartor.theory import best_lambda, bounds, discrepancies, pseudo_dimension

SEARCH: dict[str, Any] = {"starts": 2, "steps": 30, "draw": 32}
"""How discrepancies without a closed form are searched: a few seconds for hundreds of clients."""


class Promises(NamedTuple):
    """Of every client; see :class:`sartor.Advice`."""

    cluster: npt.NDArray[np.int64]
    discrepancy: dict[str, Floats]
    bound: dict[str, Floats]
    say: Words
    lambda_: Floats
    vacuous: npt.NDArray[np.bool_]
    settings: dict[str, Any]


def promises(
    data: ClientData, model: Model, one: CentralModel, several: CentralModel, most: float,
    radius: float | None, delta: float, seed: int,
) -> Promises:  # fmt: skip
    """Equation 1 against equation 2, with everybody and with the client's cluster; and λ*.

    Clusters are taken as if they had been given, though data has chosen them; and discrepancies
    are those of the samples.
    """
    centre = jax.tree.map(lambda a: a[0], one.hypotheses)
    where: dict[str, Any] = {"bound": most, "seed": seed}
    if (model.spec or {}).get("name") != "categorical":
        where |= {"radius": radius or _distance(model, centre, seed), "centre": centre, **SEARCH}
    clusters = several.assign(data)
    size, d = data.sizes("train"), pseudo_dimension(model)
    total = int(size[data.seen].sum())
    in_each = np.bincount(clusters[data.seen], size[data.seen], minlength=several.q)
    # An unseen client may like a model best that no seen one has trained: there is no mixture.
    of_cluster = in_each[clusters]
    mixed = np.where(of_cluster > 0, clusters, in_each.argmax())
    disc = {"global": np.minimum(discrepancies(model, data, **where), most)}
    disc["cluster"] = np.where(
        of_cluster > 0, np.minimum(discrepancies(model, data, clusters=mixed, **where), most), most
    )
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
        )
        for k in rows
    ]  # fmt: skip
    table = np.array([[float(b) for b in found[name]] for name in SHARING])
    return Promises(
        cluster=clusters,
        discrepancy=disc,
        bound={
            **dict(zip(SHARING, table, strict=True)),
            "interpolation": np.array([float(star.bound) for star in stars]),
        },
        say=np.array(SHARING)[table.argmin(axis=0)],
        lambda_=np.array([star.lambda_ for star in stars]),
        vacuous=np.array([all(found[name][k].vacuous for name in SHARING) for k in rows]),
        settings={
            "bound": most, "delta": delta, "d": float(d), "d_how": d.how,
            "radius": where.get("radius"),
        },
    )  # fmt: skip


def largest(model: Model, data: ClientData) -> float:
    """The loss that is taken for the largest, if nothing else is said.

    Of a log-loss that of a tenth of the uniform probability; of a squared error that of a
    prediction as far from 0 as any label, on the other side.
    """
    if model.kind != "regression":
        return math.log(10 * (model.classes or 1))
    rows = [data.part(k) for k in range(len(data))]
    labels = np.asarray(data.columns["y"][np.concatenate(rows)], np.float64)
    squares = (labels.reshape(len(labels), -1) ** 2).sum(axis=1)
    return max(4 * float(squares.max(initial=0.0)), 1e-6)


def _distance(model: Model, params: Any, seed: int) -> float:
    """How far parameters are from where training began."""
    began = model.init(jax.random.key(seed))
    gaps = jax.tree.map(lambda a, b: float(((a - b) ** 2).sum()), params, began)
    return max(math.sqrt(sum(jax.tree.leaves(gaps))), 1e-3)
