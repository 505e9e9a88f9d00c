"""Choose a candidate for each client from its losses on held-out examples."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sartor.advice.advice import Words
from sartor.advice.holdout import HeldOutLosses
from sartor.evaluation.shrinkage import client_means, posterior
from sartor.types import Bools, Floats, Ints

REFERENCE = "global"
"""The candidate that gains are measured against."""

TRUSTS = (None, 0.0, 0.1, 0.3, 1.0)
"""The shares of the variance between clients that a decision may use. ``None`` is one answer for
all clients, and 0 one answer for each sample size. Expected gains always use all of it."""

CLEAR = 2.0
"""Advice is clear if it leads by more than this many standard deviations of the difference."""

OUTLIER = 4.0
"""Values further than this from the median, in robust standard deviations, are clipped."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """The gain of each candidate for each client; mappings from candidates to [clients] arrays.

    Attributes:
        gain: the expected gain over the reference: how much smaller the loss is.
        deviation: the standard deviation of the expected gain.
        observed: the mean gain on the client's own held-out examples, for all candidates but the
            reference; NaN if it has none.
        score: the gain to decide by. It lets clients differ only where that helped on held-out
            examples, and is -inf for candidates that may not be chosen.
        trust: the share of the variance between clients that the score uses; ``None`` if all
            clients get the same answer.
        paid: the gain of deciding by one half of the client's held-out examples, measured on the
            other half; NaN if the client does not have both.
        worth: the same, with what training on the held-out examples too will bring.
        loss: the mean loss of the reference on the client's held-out examples; NaN if it has none.
    """

    gain: Mapping[str, Floats]
    deviation: Mapping[str, Floats]
    observed: Mapping[str, Floats]
    score: Mapping[str, Floats]
    trust: float | None
    paid: Floats
    worth: Floats
    loss: Floats


class _Evidence(NamedTuple):
    """What held-out examples say about one candidate: arrays of shape [clients].

    Attributes:
        mean: the mean gain on the client's own examples; NaN if it has none.
        variance: the variance of this mean.
        growth: the further gain from training on the held-out examples too.
        growth_deviation: the standard deviation of the growth.
    """

    mean: Floats
    variance: Floats
    growth: Floats
    growth_deviation: Floats


class _Judged(NamedTuple):
    """Decisions by one half of the examples, judged by the other: [halves, trusts, clients] each.

    NaN for clients that do not have examples in both halves.

    Attributes:
        worth: the gains, with growth.
        paid: the gains on the examples.
        variance: the variance of these.
    """

    worth: Floats
    paid: Floats
    variance: Floats


def decide(
    losses: HeldOutLosses, fewer: HeldOutLosses | None, size: Ints, barred: Sequence[str] = ()
) -> Decision:
    """Weigh each client's own held-out examples against those of all clients.

    Candidates were trained on a part of a client's examples, and improve when trained on all of
    them. Losses fall with the number n of examples roughly as a + b/n, so the cost of leaving out
    one more fold tells what the held-out fold will bring. Clients that cannot spare a second fold
    take this from the others. Unless deciding by one half of the examples clearly pays on the
    other half, all clients get the reference.

    Args:
        losses: the losses of each candidate on held-out examples.
        fewer: the same for candidates that improve with the client's own examples, trained on
            fewer of them.
        size: each client's number of training examples.
        barred: candidates that may not be chosen.
    """
    evidence = _evidence(losses, fewer, size)
    gain, deviation = _expected(evidence, size, 1.0)
    judged = _decide_by_halves(losses, fewer, size, barred)
    level, pays = _best_trust(judged)
    score, trust = _expected(evidence, size, TRUSTS[level])[0], TRUSTS[level]
    worth, paid = (gains[:, level].mean(axis=0) for gains in (judged.worth, judged.paid))
    if not pays:
        barred, trust, paid, worth = list(evidence), None, 0.0 * paid, 0.0 * worth
    score |= {name: np.full(len(size), -np.inf) for name in barred}
    observed = {name: seen.mean for name, seen in evidence.items()}
    loss, _ = client_means(losses.loss[REFERENCE], losses.owner, len(size))
    return Decision(gain, deviation, observed, score, trust, paid, worth, loss)


def is_clear(
    losses: HeldOutLosses, fewer: HeldOutLosses | None, size: Ints, choice: Words,
    kinds: Mapping[str, str], barred: Sequence[str] = (),
) -> Bools:  # fmt: skip
    """Whether a client's choice leads every other kind of candidate by ``CLEAR`` deviations.

    Args:
        losses: see :func:`decide`.
        fewer: see there.
        size: see there.
        choice: the candidate that each client was given.
        kinds: the kind of each candidate; candidates of one kind are not compared.
        barred: candidates that cannot be chosen.
    """
    clear = np.ones(len(size), bool)
    for mine in np.unique(choice).tolist():
        evidence = _evidence(losses, fewer, size, mine)
        gain, deviation = _expected(evidence, size, 1.0, mine)
        for name, seen in evidence.items():
            if kinds[name] != kinds[mine] and name not in barred:
                own = seen.mean + seen.growth < -np.sqrt(seen.variance)
                clear &= (choice != mine) | (own & (gain[name] < -CLEAR * deviation[name]))
    return clear


def best(score: Mapping[str, Floats]) -> Words:
    """Each client's candidate with the largest score; the first one of equals.

    >>> best({"global": np.zeros(3), "local": np.array([-1.0, 0.0, 1.0])}).tolist()
    ['global', 'global', 'local']
    """
    return np.array(list(score))[np.argmax(list(score.values()), axis=0)]


def _evidence(
    losses: HeldOutLosses, fewer: HeldOutLosses | None, size: Ints, reference: str = REFERENCE
) -> dict[str, _Evidence]:
    growth = {name: _growth(losses, fewer, name, size) for name in losses.loss}
    base, error = growth[reference]
    return {
        name: _Evidence(
            *client_means(losses.loss[reference] - loss, losses.owner, len(size), losses.fold),
            growth[name][0] - base,
            np.hypot(growth[name][1], error),
        )
        for name, loss in losses.loss.items()
        if name != reference
    }


def _expected(
    evidence: Mapping[str, _Evidence], size: Ints, trust: float | None, reference: str = REFERENCE
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Each candidate's expected gain, and its standard deviation."""
    gain, deviation = ({reference: np.zeros(len(size))} for _ in range(2))
    for name, seen in evidence.items():
        found = posterior(seen.mean, seen.variance, size, trust or 0.0)
        mean = found.mean + seen.growth
        gain[name] = np.full(len(size), mean.mean()) if trust is None else mean
        deviation[name] = np.hypot(found.deviation, seen.growth_deviation)
    return gain, deviation


def _decide_by_halves(
    losses: HeldOutLosses, fewer: HeldOutLosses | None, size: Ints, barred: Sequence[str]
) -> _Judged:
    """For each trust, decide by one half of the folds, and measure on the other half.

    The halves were scored by other models. Where examples have times or groups, they are of other
    times or groups.
    """
    masks = [losses.fold % 2 == half for half in range(2)]
    halves = [_evidence(losses.only(m), fewer and fewer.only(m), size) for m in masks]
    found = np.zeros((3, 2, len(TRUSTS), len(size)))
    for h, (chosen_by, measured_on) in enumerate((halves, halves[::-1])):
        for t, trust in enumerate(TRUSTS):
            gain, _ = _expected(chosen_by, size, trust)
            choice = best({name: gain[name] for name in losses.loss if name not in barred})
            for name, seen in measured_on.items():
                values = np.stack([seen.mean + seen.growth, seen.mean, seen.variance])
                found[:, h, t] = np.where(choice == name, values, found[:, h, t])
    counts = [np.bincount(losses.owner[m], minlength=len(size)) for m in masks]
    return _Judged(*np.where(np.min(counts, axis=0) > 0, found, np.nan))


def _best_trust(judged: _Judged) -> tuple[int, bool]:
    """The index of the best trust, and whether deciding with it beats the reference for all.

    Losses have long tails, so a few unlucky examples can make clients look different. One answer
    for all clients, and then one answer for each sample size, is replaced only by one that is
    better by more than two standard errors. So is the reference; where clients are told apart,
    which can be done in many ways, by three. Few clients that differ much scatter widely; there,
    three standard errors of the clients' examples do, too. And neither half may show a loss: what
    pays at one time only will hardly pay at a third.
    """
    known = np.isfinite(judged.worth).all(axis=(0, 1))
    halves = judged.worth[:, :, known]
    gained = halves.mean(axis=0)
    if gained.shape[1] < 2:
        return 0, False
    largest = 1 + int(gained[1:].mean(axis=1).argmax())
    taken = largest if _pays(gained[largest] - gained[1]) else 1
    level = next((n for n in (taken, largest) if _pays(gained[n] - gained[0])), 0)
    for n in dict.fromkeys((level, min(level, 1), 0)):
        error = np.sqrt(judged.variance[:, n, known].sum()) / (2 * known.sum())
        by_clients = _pays(gained[n], 3.0 if TRUSTS[n] else 2.0)
        if (by_clients or gained[n].mean() > 3 * error) and (halves[:, n].mean(axis=1) >= 0).all():
            return n, True
    return level, False


def _pays(more: Floats, errors: float = 2.0) -> bool:
    return bool(more.mean() > errors * more.std(ddof=1) / np.sqrt(len(more)))


def _growth(
    losses: HeldOutLosses, fewer: HeldOutLosses | None, name: str, size: Ints
) -> tuple[Floats, Floats]:
    """What training on the held-out examples too will bring each client, and its deviation.

    The growth depends only on the client's size, and is zero for candidates that do not depend on
    the client's own examples. A model of two or three examples can lose any amount, so outliers
    are clipped.
    """
    larger = np.zeros(0, bool) if fewer is None else fewer.trained < losses.trained
    if fewer is None or name not in fewer.loss or not larger.any():
        return np.zeros(len(size)), np.zeros(len(size))
    owner, most, few = losses.owner[larger], losses.trained[larger], fewer.trained[larger]
    ratio = (1 / most - 1 / size[owner]) / (1 / few - 1 / most)
    values = ratio * (fewer.loss[name] - losses.loss[name])[larger]
    mean, _ = client_means(values, owner, len(size))
    root = np.sqrt(np.maximum(size, 1))  # the means of larger samples have smaller errors
    middle = np.nanmedian(mean * root)
    width = OUTLIER * 1.4826 * np.nanmedian(np.abs(mean * root - middle)) or np.inf
    clipped = np.clip(mean * root, middle - width, middle + width) / root
    # Clipped clients do not add to the variance of examples.
    inside = np.where((clipped == mean)[owner], values, mean[owner])
    found = posterior(clipped, client_means(inside, owner, len(size))[1], size, 0.0)
    held_out = np.bincount(losses.owner, minlength=len(size)) > 0  # single examples are trained on
    return np.maximum(found.mean, 0.0) * held_out, found.deviation * held_out
