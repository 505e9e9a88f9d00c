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
    Where what is chosen by one half of the examples does not pay on the other, all have the
    reference.

    Args:
        losses: of every candidate, on held-out examples.
        fewer: of those that depend on the client's own number of examples, fitted on fewer.
        size: training examples of every client.
        reference: the candidate that others are compared with.
        barred: candidates that are not to be chosen.
    """
    allowed = tuple(name for name in losses.loss if name not in barred)
    gain, deviation, raw = _weighed(losses, fewer, size, reference, 1.0)
    judged, halves = _halves(losses, fewer, size, reference, allowed)
    level, pays = _level(judged)
    if not pays:
        nobody = {name: np.full(len(size), -np.inf) for name in gain}
        all_the_same = {**nobody, reference: np.zeros(len(size))}
        return Decision(gain, deviation, raw, all_the_same, None, allowed, 0.0 * halves[level])
    weighed, _, _ = _weighed(losses, fewer, size, reference, TRUSTS[level])
    return Decision(gain, deviation, raw, weighed, TRUSTS[level], allowed, halves[level])


TRUSTS = (None, 0.0, 0.1, 0.3, 1.0)
"""How much of the difference between clients a choice may follow: ``None`` is one answer for all,
and 0 one for each size. What is expected of a client follows all of it."""


def _halves(
    losses: Losses,
    fewer: Losses | None,
    size: npt.NDArray[np.int64],
    reference: str,
    allowed: Sequence[str],
) -> tuple[Floats, Floats]:
    """Decide by a half of every client's examples, and look at the other half.

    With every trust, [trusts, clients]: what was gained there, with and without what more examples
    will bring by that half; NaN for clients without examples in both.
    """
    first = np.zeros(len(losses.owner), bool)
    begin = np.searchsorted(losses.owner, losses.owner)  # owners are in order
    first[(np.arange(len(first)) - begin) % 2 == 0] = True
    sides = [
        (losses.only(mine), None if fewer is None else fewer.only(mine)) for mine in (first, ~first)
    ]
    gained = np.zeros((2, len(TRUSTS), 2, len(size)))
    for half, (one, other) in enumerate((sides, sides[::-1])):
        raw = _weighed(*other, size, reference, 0.0)[2]
        more = {name: _more(*other, name, size)[0] for name in raw}
        for t, trust in enumerate(TRUSTS):
            choice = best(_weighed(*one, size, reference, trust)[0], allowed)
            for name, less in raw.items():
                mine = choice == name
                gained[0, t, half] = np.where(mine, less + more[name], gained[0, t, half])
                gained[1, t, half] = np.where(mine, less, gained[1, t, half])
    known = np.bincount(losses.owner, minlength=len(size)) > 1  # some in both halves
    judged, paid = np.where(known, gained.mean(axis=2), np.nan)
    return judged, paid


def _level(judged: Floats) -> tuple[int, bool]:
    """Which trust pays; and whether it does, or what all are compared with is the best for them.

    Losses have long tails, and what clients seem to differ by may be a few unlucky examples. More
    than what sizes say is followed only if it is better by more than two standard errors; and so
    it is with more than one answer for all.
    """
    gained = judged[:, np.isfinite(judged).all(axis=0)]
    if gained.shape[1] < 2:
        return 0, True
    most = 1 + int(gained[1:].mean(axis=1).argmax())
    taken = most if _pays(gained[most] - gained[1]) else 1
    level = next((n for n in (taken, most) if _pays(gained[n] - gained[0])), 0)
    return level, bool(gained[level].mean() >= 0)


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
        more, error = _more(losses, fewer, name, size)
        gain[name] = gain[name] + more
        deviation[name] = np.hypot(deviation[name], error)
        if trust is None:
            gain[name] = np.full(len(size), gain[name].mean())
    return gain, deviation, raw


OUTLIERS = 4.0
"""Standard deviations, by the median of absolute ones, beyond which a value is cut off."""


def _more(
    losses: Losses, fewer: Losses | None, name: str, size: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """What the examples that were held out will bring every client, and its deviation.

    By the client's size alone, and nothing where the candidate does not depend on them. A model of
    two or three examples may lose anything, so what is far from all others does not count by how
    far it is.
    """
    nothing = np.zeros(len(size))
    if fewer is None or name not in fewer.loss:
        return nothing, nothing
    some, most, every = fewer.trained, losses.trained, size[losses.owner]
    tells = some < most
    if not tells.any():
        return nothing, nothing
    owner = losses.owner[tells]
    rise = (1 / most - 1 / every)[tells] / (1 / some - 1 / most)[tells]
    values = rise * (fewer.loss[name] - losses.loss[name])[tells]
    mean, _ = means_of(values, owner, len(size))
    root = np.sqrt(np.maximum(size, 1))  # means of many examples are the more certain
    middle = np.nanmedian(mean * root)
    wide = OUTLIERS * 1.4826 * np.nanmedian(np.abs(mean * root - middle)) or np.inf
    cut = np.clip(mean * root, middle - wide, middle + wide) / root
    inside = np.where((cut == mean)[owner], values, mean[owner])  # of the others none tell chance
    found = shrink(cut, means_of(inside, owner, len(size))[1], size, 0.0)
    held = np.bincount(losses.owner, minlength=len(size)) > 0  # who has one example trained on it
    return np.maximum(found.mean, 0.0) * held, found.deviation * held
