"""Which candidate a client is advised to take, by what was held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sartor.advice.holdout import Losses
from sartor.advice.shrink import Estimate, means_of, shrink

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is expected of every candidate, for every client.

    Attributes:
        gain: by candidate, how much less it loses than the reference: [clients].
        deviation: the standard deviation of that.
        raw: the mean gain on the client's own held-out examples; NaN where it has none.
        choice: [clients] the candidate with the largest expected gain.
    """

    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    raw: Mapping[str, Floats]
    choice: npt.NDArray[np.str_]


def decide(
    losses: Losses, fewer: Losses | None, size: npt.NDArray[np.int64], reference: str
) -> Decision:
    """Weigh what each client's own examples say against what everybody's do.

    Candidates were fitted on a share of a client's examples, and would be better on all. Losses
    fall with the number n of examples about as a + b/n, so what another fold less has cost tells
    what all of them will bring.

    Args:
        losses: of every candidate, on held-out examples.
        fewer: of those that depend on the client's own number of examples, fitted on fewer.
        size: training examples of every client.
        reference: the candidate that others are compared with.
    """
    clients = len(size)
    gain = {reference: np.zeros(clients)}
    deviation, raw = {reference: np.zeros(clients)}, {reference: np.zeros(clients)}
    for name in losses.loss:
        if name == reference:
            continue
        less = losses.loss[reference] - losses.loss[name]
        mean, variance = means_of(less, losses.owner, clients)
        found = shrink(mean, variance, size)
        gain[name], deviation[name], raw[name] = found.mean, found.deviation, mean
        if fewer is not None and name in fewer.loss:
            more = _learning(losses, fewer, name, size)
            gain[name] = gain[name] + np.maximum(more.mean, 0.0)
            deviation[name] = np.hypot(deviation[name], more.deviation)
    names = np.array(list(gain))
    choice = names[np.argmax(np.stack([gain[n] for n in names]), axis=0)]
    return Decision(gain, deviation, raw, choice)


def _learning(
    losses: Losses, fewer: Losses, name: str, size: npt.NDArray[np.int64]
) -> Estimate:  # fmt: skip
    """What the examples that were held out would have brought."""
    some, most = fewer.share, losses.share
    ahead = (1 / most - 1) / (1 / some - 1 / most)
    mean, variance = means_of(fewer.loss[name] - losses.loss[name], losses.owner, len(size))
    return shrink(ahead * mean, ahead**2 * variance, size)
