"""A guess that ignores the features: what every trained model has to beat."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.central.model import CentralModel
from sartor.data import ClientData
from sartor.engine import Engine, positions, score_shared
from sartor.errors import warn
from sartor.models import Model
from sartor.randomness import mix
from sartor.types import Floats

ENOUGH = 10_000
"""Examples on which a trained model is compared with a guess."""

WORSE = 1.01
"""How much worse than a guess a model has to be to be worth a warning."""


class Guess(NamedTuple):
    """What can be said of an example without looking at it.

    Attributes:
        value: the log-probability of each class, or the mean target.
        words: what it is.
    """

    value: Floats
    words: str

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
            mean = np.asarray(y, np.float64).reshape(len(rows), -1).mean(axis=0)
            return cls(mean, "the mean of all targets")
        counts = np.bincount(y, minlength=model.classes) + 0.5 / model.classes
        return cls(np.log(counts / counts.sum()), "the shares of the classes")

    def losses(self, model: Model, y: npt.NDArray[Any]) -> Floats:
        """The plain loss of every example."""
        if model.classes is None:
            values = np.asarray(y, np.float64).reshape(len(y), -1)
            return np.asarray(((values - self.value) ** 2).sum(axis=1))
        return -self.value[np.asarray(y, np.int64)]


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
