"""The paper's bounds for each client: alone, with everybody, with its cluster, and with λ*."""

import math
from typing import Any

import jax
import numpy as np

from sartor.advice.advice import SHARING
from sartor.central import CentralModel
from sartor.data import ClientData
from sartor.models import Model
from sartor.theory import best_lambda, bounds, discrepancies, pseudo_dimension

SEARCH: dict[str, Any] = {"starts": 2, "steps": 30, "draw": 32}
"""How to search discrepancies that have no closed form: a few seconds for hundreds of clients."""


def client_bounds(
    data: ClientData, model: Model, global_model: CentralModel, cluster_models: CentralModel,
    largest_loss: float, radius: float | None, delta: float, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Equation 1 for the client alone, equation 2 for everybody and for its cluster; and λ*.

    Returns the fields of :class:`sartor.Advice` that come from the bounds, with their settings.

    The bounds treat the clusters as given, although they were chosen by the same data, and use the
    discrepancies of the samples.
    """
    search: dict[str, Any] = {"bound": largest_loss, "seed": seed}
    if (model.spec or {}).get("name") != "categorical":
        center = global_model.params
        radius = radius or _distance_from_start(model, center, seed)
        search |= {"radius": radius, "centre": center, **SEARCH}
    cluster = cluster_models.assign(data)
    data = data.scaled(global_model.scaling)
    size, dimension = data.sizes("train"), pseudo_dimension(model)
    total = int(size[data.seen].sum())
    cluster_sizes = np.bincount(cluster[data.seen], size[data.seen], minlength=cluster_models.q)
    # An unseen client may be in a cluster without seen clients: then there is no mixture.
    shared = cluster_sizes[cluster]
    mixture = np.where(shared > 0, cluster, cluster_sizes.argmax())
    everybody = np.minimum(discrepancies(model, data, **search), largest_loss)
    own_cluster = np.minimum(discrepancies(model, data, clusters=mixture, **search), largest_loss)
    own_cluster = np.where(shared > 0, own_cluster, largest_loss)
    constants: dict[str, Any] = {"bound": largest_loss, "delta": delta, "d": dimension}
    others = np.maximum(total - size * data.seen, 1)
    stars = [
        best_lambda(m_k=m_k, m_C=m_C, disc=disc, **constants)
        for m_k, m_C, disc in zip(size, others, everybody, strict=True)
    ]
    found = {
        "global": [bounds.global_(m=total, disc=disc, **constants) for disc in everybody],
        "cluster": [
            bounds.global_(m=max(m, 1), disc=disc, **constants)
            for m, disc in zip(shared, own_cluster, strict=True)
        ],
        "local": [bounds.local(m=m, **constants) for m in size],
        "interpolation": [star.bound for star in stars],
    }
    bound = {name: np.array(values, np.float64) for name, values in found.items()}
    return {
        "cluster": cluster,
        "discrepancy": {"global": everybody, "cluster": own_cluster},
        "bound": bound,
        "bounds_say": np.array(SHARING)[np.argmin([bound[name] for name in SHARING], axis=0)],
        "bounds_lambda": np.array([star.lambda_ for star in stars]),
        "vacuous": np.all([[b.vacuous for b in found[name]] for name in SHARING], axis=0),
        "settings": constants
        | {"d": float(dimension), "d_how": dimension.how, "radius": search.get("radius")},
    }


def default_largest_loss(model: Model, data: ClientData) -> float:
    """The largest loss that the bounds assume by default.

    For a log-loss, the loss of a tenth of the uniform probability. For a squared error, the loss
    of predicting -y for the largest label y.
    """
    if model.kind != "regression":
        return math.log(10 * (model.classes or 1))
    rows = [data.part(k) for k in range(len(data))]
    labels = np.asarray(data.columns["y"][np.concatenate(rows)], np.float64)
    squares = (labels.reshape(len(labels), -1) ** 2).sum(axis=1)
    return max(4 * float(squares.max(initial=0.0)), 1e-6)


def _distance_from_start(model: Model, params: Any, seed: int) -> float:
    """The distance of parameters from where training started."""
    start = model.init(jax.random.key(seed))
    squares = jax.tree.map(lambda a, b: float(((a - b) ** 2).sum()), params, start)
    return max(math.sqrt(sum(jax.tree.leaves(squares))), 1e-3)
