"""Which candidate a client is advised to take, by what was held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sartor.advice.holdout import Losses
from sartor.advice.shrink import means_of, shrink

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Decision:
    """What is expected of every candidate, for every client.

    Attributes:
        gain: by candidate, how much less it is expected to lose than the reference: [clients].
        deviation: the standard deviation of that.
        raw: the mean gain on the client's own held-out examples; NaN where it has none.
        weighed: the gain that is chosen by, with as much difference between clients as pays.
        trust: how much that is, as a share; ``None`` if all clients have one answer.
        allowed: the candidates that may be chosen.
        paid: what such a choice gained when it was made by one half of a client's held-out
            examples, on the other half; NaN where it has none in one of them.
    """

    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    raw: Mapping[str, Floats]
    weighed: Mapping[str, Floats]
    trust: float | None
    allowed: tuple[str, ...]
    paid: Floats

    @property
    def choice(self) -> npt.NDArray[np.str_]:
        """The candidate of every client: [clients]."""
        return best(self.weighed, self.allowed)


def decide(
    losses: Losses,
    fewer: Losses | None,
    size: npt.NDArray[np.int64],
    reference: str,
    barred: Sequence[str] = (),
) -> Decision:
    """Weigh what each client's own examples say against what everybody's do.

    Candidates were fitted on a part of a client's examples, and would be better on all. Losses
    fall with the number n of examples about as a + b/n, so what another fold less has cost tells
    what all of them will bring; a client of whom no fold could be left out has it from others.

    Args:
        losses: of every candidate, on held-out examples.
        fewer: of those that depend on the client's own number of examples, fitted on fewer.
        size: training examples of every client.
        reference: the candidate that others are compared with.
        barred: candidates that are not to be chosen.
    """
    allowed = tuple(name for name in losses.loss if name not in barred)
    halves = _halves(losses, fewer, size, reference, allowed)
    trust, paid = _trust(halves)
    gain, deviation, raw = _weighed(losses, fewer, size, reference, 1.0)
    weighed, _, _ = _weighed(losses, fewer, size, reference, trust)
    return Decision(gain, deviation, raw, weighed, trust, allowed, paid)


TRUSTS = (None, 0.0, 0.1, 0.3, 1.0)
"""How much of the difference between clients a choice may follow: ``None`` is one answer for all,
and 0 one for each size. What is expected of a client follows all of it."""


def _halves(
    losses: Losses,
    fewer: Losses | None,
    size: npt.NDArray[np.int64],
    reference: str,
    allowed: Sequence[str],
) -> Floats:
    """Decide by a half of every client's examples, and look at the other half.

    What was gained with every trust: [trusts, clients], NaN for clients without examples in both.
    """
    first = np.zeros(len(losses.owner), bool)
    begin = np.searchsorted(losses.owner, losses.owner)  # owners are in order
    first[(np.arange(len(first)) - begin) % 2 == 0] = True
    gained = np.zeros((len(TRUSTS), 2, len(size)))
    for half, mine in enumerate((first, ~first)):
        one, other = losses.only(mine), losses.only(~mine)
        some = None if fewer is None else fewer.only(mine)
        means = {n: means_of(v, other.owner, len(size))[0] for n, v in other.loss.items()}
        for t, trust in enumerate(TRUSTS):
            choice = best(_weighed(one, some, size, reference, trust)[0], allowed)
            for name, mean in means.items():
                less = means[reference] - mean
                gained[t, half] = np.where(choice == name, less, gained[t, half])
    return gained.mean(axis=1)


def _trust(halves: Floats) -> tuple[float | None, Floats]:
    """As much as pays, and what it paid.

    Losses have long tails, and what clients seem to differ by may be a few unlucky examples. More
    than what sizes say is followed only if it is better by more than two standard errors; and so
    it is with more than one answer for all.
    """
    known = np.isfinite(halves).all(axis=0)
    if known.sum() < 2:
        return TRUSTS[0], halves[0]
    gained = halves[:, known]
    most = 1 + int(gained[1:].mean(axis=1).argmax())
    taken = most if _pays(gained[most] - gained[1]) else 1
    taken = taken if _pays(gained[taken] - gained[0]) else 0
    return TRUSTS[taken], halves[taken]


def _pays(more: Floats) -> bool:
    return bool(more.mean() > 2 * more.std(ddof=1) / np.sqrt(len(more)))


def best(gain: Mapping[str, Floats], names: Sequence[str]) -> npt.NDArray[np.str_]:
    """Every client's candidate with the largest gain, of those named; the first of equals."""
    return np.array(names)[np.argmax([gain[name] for name in names], axis=0)]


def _weighed(
    losses: Losses,
    fewer: Losses | None,
    size: npt.NDArray[np.int64],
    reference: str,
    trust: float | None,
) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]:
    """Expected gains, their deviations and the raw ones, by candidate."""
    nothing = np.zeros(len(size))
    gain, deviation, raw = ({reference: nothing} for _ in range(3))
    for name in losses.loss:
        if name == reference:
            continue
        less = losses.loss[reference] - losses.loss[name]
        mean, variance = means_of(less, losses.owner, len(size))
        found = shrink(mean, variance, size, trust or 0.0)
        gain[name], deviation[name], raw[name] = found.mean, found.deviation, mean
        if fewer is not None and name in fewer.loss:
            more, error = _learning(losses, fewer, name, size)
            gain[name] = gain[name] + np.maximum(more, 0.0)
            deviation[name] = np.hypot(deviation[name], error)
        if trust is None:
            gain[name] = np.full(len(size), gain[name].mean())
    return gain, deviation, raw


OUTLIERS = 4.0
"""Standard deviations, by the median of absolute ones, beyond which a value is cut off."""


def _learning(
    losses: Losses, fewer: Losses, name: str, size: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """What the examples that were held out would have brought every client, and its deviation.

    By the client's size alone. A model of two or three examples may lose anything, so what is far
    from all others, for its size, does not count by how far it is.
    """
    some, most, every = fewer.trained, losses.trained, size[losses.owner]
    tells = some < most
    if not tells.any():
        return np.zeros(len(size)), np.zeros(len(size))
    rise = (1 / most - 1 / every)[tells] / (1 / some - 1 / most)[tells]
    values = rise * (fewer.loss[name] - losses.loss[name])[tells]
    mean, variance = means_of(values, losses.owner[tells], len(size))
    scaled = mean * size  # by the curve, b for all sizes but for a factor
    middle = np.nanmedian(scaled)
    wide = OUTLIERS * 1.4826 * np.nanmedian(np.abs(scaled - middle))
    found = shrink(np.clip(scaled, middle - wide, middle + wide) / size, variance, size, 0.0)
    held = np.bincount(losses.owner, minlength=len(size)) > 0  # who has one example trained on it
    return found.mean * held, found.deviation * held
