"""The paper's three examples, run through the public classes.

Each is a small population of clients on which one approach must fail and another must not.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sartor.central import BregmanClusters, FedAvg, HypCluster
from sartor.data import ClientData, from_dict
from sartor.experiments.common import PAPER
from sartor.models import Model, Params, categorical, logistic
from sartor.personal import Local, Mapper, PersonalModels
from sartor.types import Ints


@dataclasses.dataclass(frozen=True)
class Finding:
    """One number of an example.

    Attributes:
        what: its name.
        value: the number.
        expected: the value by the paper's argument.
        holds: whether the number agrees.
    """

    what: str
    value: float
    expected: str
    holds: bool


def global_model(seed: int = 0) -> list[Finding]:
    """Appendix B.1: two clients with opposite labels, so any global model is half wrong.

    Both clients have the same x on the line. The first one's label is 1 where x > 0, the second
    one's where x < 0. Thresholds are one-dimensional logistic models.
    """
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, (2, 2000, 1)).astype(np.float32)
    y = np.stack([x[0, :, 0] > 0, x[1, :, 0] < 0]).astype(int)
    data = from_dict({f"client-{k + 1}": {"x": x[k], "y": y[k]} for k in range(2)})
    data = data.split(test=0.5, seed=seed)
    model = logistic(features=1, classes=2, scale=False)
    central = FedAvg(rounds=20, cohort=2, learning_rate=0.1).fit(model, data, seed=seed)
    local = Local(epochs=20, learning_rate=0.5, **PAPER).fit(model, data, seed=seed)
    errors = [1 - np.asarray(m.evaluate(data).accuracy) for m in (central, local)]
    shared, own = float(errors[0].mean()), float(errors[1].max())
    what, expected = "error of the global model, mean of both clients", "0.5, whatever the model"
    return [
        Finding(what, shared, expected, abs(shared - 0.5) < 0.03),
        Finding("error of the local models", own, "0", own < 0.02),
    ]


def point_mass(symbols: int) -> Model:
    """Distributions on a single symbol: the local class of the paper's Mapper example.

    It has no useful gradient, so it has an exact minimiser.

    >>> model = point_mass(3)
    >>> y = jnp.array([2, 2, 1])
    >>> uniform = jnp.full((3, 3), -jnp.log(3.0))
    >>> model.argmin(None, y, jnp.ones(3, bool), uniform, jnp.array(0.5))["mass"].tolist()
    [0.0, 0.0, 1.0]
    """

    def init(key: jax.Array) -> Params:
        return {"mass": jnp.zeros(symbols).at[0].set(1.0)}

    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        return jnp.log(params["mass"])

    def argmin(
        x: Any, y: jax.Array, mask: jax.Array, mixed_with: jax.Array, lambda_: jax.Array
    ) -> Params:
        mine = (y[:, None] == jnp.arange(symbols)) & mask[:, None]
        # The gain of an example from a mass on its own symbol; without another model, 1 for each.
        other = (1 - lambda_) * jnp.exp(jnp.take_along_axis(mixed_with, y[:, None], axis=1))
        gain = jnp.where(lambda_ < 1, jnp.log1p(lambda_ / jnp.maximum(other, 1e-30)), 1.0)
        best = jnp.where(mine, gain, 0).sum(axis=0).argmax()
        return {"mass": (jnp.arange(symbols) == best).astype(jnp.float32)}

    return Model(init, apply, kind="density", classes=symbols, input_shape=(), argmin=argmin)


def odd_and_even(
    clients: int = 200, samples: int = 10, symbols: int = 50, seed: int = 0
) -> ClientData:
    """Even clients always draw the first symbol, odd ones any: the paper's Mapper example."""
    draw, first = np.random.default_rng(seed), np.zeros(samples, int)
    return from_dict({
        f"client-{k:04d}": {"y": draw.integers(0, symbols, samples) if k % 2 else first}
        for k in range(clients)
    })  # fmt: skip


def odd_excess(personal: PersonalModels, symbols: int) -> float:
    """The odd clients' mean exact loss minus the lowest possible, log d."""
    odd = [client for client in personal.clients if int(client[-1]) % 2]
    logs = [np.log(personal.predict_proba(client, None)).mean() for client in odd]
    return float(-np.mean(logs) - np.log(symbols))


def separate_excess(symbols: int) -> float:
    """What odd clients lose with a central model that serves even clients as well.

    That model is half a point mass on the first symbol and half uniform.
    """
    mixture = np.full(symbols, 0.5 / symbols)
    mixture[0] += 0.5
    return float(-np.log(mixture).mean() - np.log(symbols))


def separate_and_joint(seed: int = 0) -> list[Finding]:
    """Section 6: local and central models trained apart are a constant worse than jointly.

    Even clients should use their local models, and odd clients the central one. But a central model
    that is trained apart serves both, which costs odd clients whatever their λ.
    """
    symbols, folds = 50, 5
    data, model = odd_and_even(symbols=symbols, seed=seed), categorical(symbols=symbols)
    central = FedAvg(
        rounds=200, cohort=len(data), batch=10, learning_rate=4.0, server_momentum=0.0
    ).fit(model, data, seed=seed)
    common: dict[str, Any] = {
        "local": point_mass(symbols), "select": "kfold", "folds": folds, "cohort": len(data),
        "central_epochs": 0, "central_learning_rate": 15.0, **PAPER,
    }  # fmt: skip
    apart = Mapper(joint=False, **common).fit(central, data, seed=seed)
    joint = Mapper(rounds=50, **common).fit(central, data, seed=seed)
    separately, jointly = odd_excess(apart, symbols), odd_excess(joint, symbols)
    as_predicted = abs(separately - separate_excess(symbols)) < 0.06
    what = "excess of odd clients, trained"
    return [
        Finding(f"{what} separately", separately, "about 0.61", as_predicted),
        Finding(f"{what} jointly", jointly, "near 0", jointly < 0.1),
    ]


def faces(
    clients: int = 40, samples: int = 60, nuisance: int = 10, seed: int = 0
) -> tuple[ClientData, Ints, Ints]:
    """Clients with two tasks and two backgrounds; and which task and background each has.

    The background shifts many features by a lot, and is independent of the label. The task decides
    how the label depends on the other features.
    """
    draw = np.random.default_rng(seed)
    task, background = np.arange(clients) % 2, np.arange(clients) // 2 % 2
    x = draw.standard_normal((clients, samples, 2 + nuisance)).astype(np.float32)
    y = (x[..., 0] > 0).astype(int) ^ task[:, None]
    x[..., 2:] += 3 * background[:, None, None]
    rows = {f"client-{k:03d}": {"x": x[k], "y": y[k]} for k in range(clients)}
    return from_dict(rows), task, background


def clustering(seed: int = 0) -> list[Finding]:
    """Section 4: Bregman clustering splits on the background, HypCluster on the task."""
    data, task, background = faces(seed=seed)
    data = data.split(test=0.3, seed=seed)
    model = logistic(features=12, classes=2, scale=False)
    settings: dict[str, Any] = {"q": 2, "rounds": 100, "cohort": 20, "learning_rate": 0.1}

    def split(algorithm: Any) -> tuple[float, float, float]:
        """How far clusters are the backgrounds, and the tasks; and the accuracy."""
        central = algorithm.fit(model, data, seed=seed)
        cluster, accuracy = central.assign(data), np.asarray(central.evaluate(data).accuracy)
        return _agreement(cluster, background), _agreement(cluster, task), float(accuracy.mean())

    by_background, by_task, accuracy = split(BregmanClusters(**settings))
    alone = by_background == 1.0 and by_task < 0.7
    name, what = "Bregman clustering", "clients that are split by the"
    found = [
        Finding(f"{name}: {what} background", by_background, "1", alone),
        Finding(f"{name}: accuracy", accuracy, "near 0.5", accuracy < 0.65),
    ]
    by_background, by_task, accuracy = split(HypCluster(start="kmeans++", restarts=4, **settings))
    alone = by_task == 1.0 and by_background < 0.7
    return [
        *found,
        Finding(f"HypCluster: {what} task", by_task, "1", alone),
        Finding("HypCluster: accuracy", accuracy, "near 1", accuracy > 0.9),
    ]


def _agreement(cluster: Ints, truth: Ints) -> float:
    """The share of clients on which two clusterings agree, up to the names of the clusters."""
    same = float(np.mean(cluster == truth))
    return max(same, 1 - same)


EXAMPLES: dict[str, Callable[[int], list[Finding]]] = {
    "one global model for contradicting clients (appendix B)": global_model,
    "separate against joint model interpolation (section 6)": separate_and_joint,
    "clustering on the background or on the task (section 4)": clustering,
}
"""The examples by what they show."""
