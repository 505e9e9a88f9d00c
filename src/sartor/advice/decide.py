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
        trust: how much of the difference between clients was believed.
    """

    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    raw: Mapping[str, Floats]
    choice: npt.NDArray[np.str_]
    trust: float


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
    trust = _trust(losses, fewer, size, reference)
    return _decided(losses, fewer, size, reference, trust)


TRUSTS = (0.0, 0.1, 0.3, 1.0)
"""How much of the difference between clients may be believed; 0 is one answer for each size."""


def _trust(
    losses: Losses, fewer: Losses | None, size: npt.NDArray[np.int64], reference: str
) -> float:
    """As much as pays: decide by a half of every client's examples, and look at the other half.

    Losses have long tails, and what clients seem to differ by may be a few unlucky examples. More
    than none is believed only if it is better by more than a standard error.
    """
    first = np.zeros(len(losses.owner), bool)
    begin = np.searchsorted(losses.owner, losses.owner)  # owners are in order
    first[(np.arange(len(first)) - begin) % 2 == 0] = True
    paid = np.zeros((len(TRUSTS), 2, len(size)))
    for half, mine in enumerate((first, ~first)):
        one, other = (_some(losses, where) for where in (mine, ~mine))
        some = None if fewer is None else _some(fewer, mine)
        means = {n: means_of(v, other.owner, len(size))[0] for n, v in other.loss.items()}
        for t, trust in enumerate(TRUSTS):
            choice = _decided(one, some, size, reference, trust).choice
            for name, mean in means.items():
                paid[t, half] = np.where(choice == name, mean, paid[t, half])
    loss = paid.mean(axis=1)
    loss = loss[:, np.isfinite(loss).all(axis=0)]  # of clients with examples in both halves
    if not loss.shape[1]:
        return TRUSTS[0]
    best = int(loss.mean(axis=1).argmin())
    less = loss[0] - loss[best]
    error = less.std(ddof=1) / np.sqrt(len(less)) if len(less) > 1 else np.inf
    return TRUSTS[best] if less.mean() > error else TRUSTS[0]


def _some(losses: Losses, where: npt.NDArray[np.bool_]) -> Losses:
    loss = {name: values[where] for name, values in losses.loss.items()}
    return losses._replace(owner=losses.owner[where], loss=loss)


def _decided(
    losses: Losses, fewer: Losses | None, size: npt.NDArray[np.int64], reference: str, trust: float
) -> Decision:
    clients = len(size)
    gain = {reference: np.zeros(clients)}
    deviation, raw = {reference: np.zeros(clients)}, {reference: np.zeros(clients)}
    for name in losses.loss:
        if name == reference:
            continue
        less = losses.loss[reference] - losses.loss[name]
        mean, variance = means_of(less, losses.owner, clients)
        found = shrink(mean, variance, size, trust)
        gain[name], deviation[name], raw[name] = found.mean, found.deviation, mean
        if fewer is not None and name in fewer.loss:
            more = _learning(losses, fewer, name, size)
            gain[name] = gain[name] + np.maximum(more.prior, 0.0)
    names = np.array(list(gain))
    choice = names[np.argmax(np.stack([gain[n] for n in names]), axis=0)]
    return Decision(gain, deviation, raw, choice, trust)


def _learning(
    losses: Losses, fewer: Losses, name: str, size: npt.NDArray[np.int64]
) -> Estimate:  # fmt: skip
    """What the examples that were held out would have brought."""
    some, most = fewer.share, losses.share
    ahead = (1 / most - 1) / (1 / some - 1 / most)
    mean, variance = means_of(fewer.loss[name] - losses.loss[name], losses.owner, len(size))
    return shrink(ahead * mean, ahead**2 * variance, size)
