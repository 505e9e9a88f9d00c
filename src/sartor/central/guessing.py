"""What every trained model has to reach: a guess that ignores the features, and its own optimum."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from scipy import special

from sartor.central.model import CentralModel
from sartor.data import ClientData
from sartor.engine import Engine, positions, score_shared
from sartor.errors import warn
from sartor.models import Model
from sartor.models.layers import to_float
from sartor.randomness import mix
from sartor.types import Floats

ENOUGH = 10_000
"""Examples on which a trained model is compared with a guess."""

WORSE = 1.01
"""How much worse than a guess a model has to be to be worth a warning."""

SHORT = 0.003
"""How far above the lowest possible loss a logistic model has to end to be worth a warning."""

MOST_PARAMETERS = 512, 32
"""Parameters and classes up to which that is computed: it takes their Hessian."""


class Guess(NamedTuple):
    """What can be said of an example without looking at it.

    Attributes:
        value: the log-probability of each class, or the mean target.
        words: what it is.
        unit: the standard deviation of targets; 1 for classes.
    """

    value: Floats
    words: str
    unit: Floats | float = 1.0

    @classmethod
    def of(cls, model: Model, data: ClientData) -> Guess:
        """By the training parts of the seen clients.

        The shares of the classes, or the mean target. Of densities the shares are what a model
        should learn, so there all classes are as likely.
        """
        if model.kind == "density":
            classes = model.classes or 1
            return cls(np.full(classes, -math.log(classes)), "all classes alike")
        rows = data.rows[positions(data, np.flatnonzero(data.seen), "train")]
        y = np.asarray(data.columns["y"][rows])
        if model.classes is None:
            targets = np.asarray(y, np.float64).reshape(len(rows), -1)
            return cls(targets.mean(axis=0), "the mean of all targets", targets.std(axis=0))
        counts = np.bincount(y, minlength=model.classes) + 0.5 / model.classes
        return cls(np.log(counts / counts.sum()), "the shares of the classes")

    def losses(self, model: Model, y: npt.NDArray[Any]) -> Floats:
        """The plain loss of every example."""
        if model.classes is None:
            values = np.asarray(y, np.float64).reshape(len(y), -1)
            return np.asarray(((values - self.value) ** 2).sum(axis=1))
        return -self.value[np.asarray(y, np.int64)]


def guessed_loss(model: Model, data: ClientData) -> float:
    """The loss of a guess on the training parts of the seen clients."""
    rows = data.rows[positions(data, np.flatnonzero(data.seen), "train")]
    return float(Guess.of(model, data).losses(model, data.columns["y"][rows]).mean())


def warn_of_guessing(trained: CentralModel, data: ClientData, engine: Engine) -> None:
    """Warn where a trained model is worse than a guess on held-out examples of seen clients.

    Where nothing was held out, training examples say it, too: a model that fits them badly was not
    trained well. Some examples are enough.
    """
    model, seen = trained.model, np.flatnonzero(data.seen)
    held = data.sizes("validation")[seen].any()
    part, words = ("validation", "validation") if held else ("train", "training")
    shuffled = seen[np.argsort(mix("sample", data.hashes[seen]), kind="stable")]
    before = np.cumsum(data.sizes(part)[shuffled]) - data.sizes(part)[shuffled]
    some = np.sort(shuffled[before < ENOUGH])
    cluster = trained.assign(data.select([data.ids[k] for k in some]))
    rows = positions(data, some, part)
    losses = score_shared(model, data, rows, trained.hypotheses, engine).loss
    mine = losses[np.repeat(cluster, data.sizes(part)[some]), np.arange(len(rows))]
    guess = Guess.of(model, data)
    found = float(mine.mean(dtype=np.float64))
    usual = float(guess.losses(model, data.columns["y"][data.rows[rows]]).mean())
    if found > WORSE * usual:
        warn(
            f"{trained.algorithm['name']} ends with a loss of {found:.4g} on {words} examples, "
            f"which is worse than a guess ({guess.words}: {usual:.4g}). Do not build on this "
            "model: take a smaller learning_rate, train for more rounds, or look at the data"
        )


def warn_of_few_steps(trained: CentralModel, data: ClientData) -> None:
    """Warn where one logistic model ends above the lowest loss that it could have.

    Features with long tails need many more steps than others. Half of the squared Newton decrement
    says how far the loss on training examples could still fall. Some examples are enough. On fresh
    ones, a solver would lose about the number of parameters by that of examples again.
    """
    model, leaves = trained.model, jax.tree.leaves(trained.hypotheses)
    parameters = sum(leaf[0].size for leaf in leaves)
    plain = (model.spec or {}).get("name") == "logistic" and not model.smoothing
    most, classes = MOST_PARAMETERS
    if not plain or trained.q > 1 or parameters > most or (model.classes or 0) > classes:
        return
    rows = data.rows[positions(data, np.flatnonzero(data.seen), "train")]
    rows = np.sort(rows[np.argsort(mix("steps", rows), kind="stable")[:ENOUGH]])
    x = np.asarray(to_float(data.seen_by_models("x", rows)), np.float64).reshape(len(rows), -1)
    dense = trained.hypotheses["dense_1"]
    z = x @ np.asarray(dense["w"][0], np.float64) + np.asarray(dense["b"][0], np.float64)
    p = np.asarray(special.softmax(z, axis=1))
    inputs = np.column_stack([x, np.ones(len(x))])
    y = np.asarray(data.columns["y"][rows], np.int64)
    error = p - np.eye(p.shape[1])[y]
    gradient = (error.T @ inputs).ravel() / len(x)
    blocks = [
        [(inputs * (p[:, i] * ((i == j) - p[:, j]))[:, None]).T @ inputs / len(x)
         for j in range(p.shape[1])]
        for i in range(p.shape[1])
    ]  # fmt: skip
    # The least of many solutions: equal changes of all classes change nothing.
    short = float(gradient @ np.linalg.lstsq(np.block(blocks), gradient, rcond=1e-9)[0]) / 2
    logs = special.log_softmax(z, axis=1)
    short = min(short, -float(logs[np.arange(len(y)), y].mean()))
    if short - parameters / len(x) > SHORT:
        warn(
            f"{trained.algorithm['name']} ends about {short:.2g} above the lowest loss that a "
            "logistic model has on training examples. Train for more rounds, or give features with "
            "long tails another scale, such as their logarithms"
        )
