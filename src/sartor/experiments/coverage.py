"""Do the bounds hold? Each theorem's left side, computed exactly on a small class.

Four clients draw x from ten values. A client's label is 1 from its own threshold on, apart from
noise. Hypotheses are the eleven thresholds, with pseudo-dimension 1 and the 0-1 loss, so every true
loss, discrepancy and optimum is a sum over twenty pairs of x and y. Samples are drawn a thousand
times; a bound that holds with probability 1 − δ must cover that share of the draws.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.theory import Bound, bounds
from sartor.theory.choices import best_lambda
from sartor.types import Floats

VALUES = 10
"""How many values x has."""

THRESHOLDS = np.array([3, 3, 5, 7])
"""The thresholds of the clients' labels."""

NOISE = 0.42
"""The share of flipped labels: so many that the best on a sample is often not the best."""

SIZES = np.array([400, 600, 800, 600])
"""How many samples the clients have: enough for bounds that are not vacuous."""

TOTAL, CLIENTS = int(SIZES.sum()), len(SIZES)
WEIGHTS = SIZES / SIZES.sum()
"""Every sample counts the same."""

DELTA = 0.1
"""The probability with which a bound may fail."""


@dataclasses.dataclass(frozen=True)
class Coverage:
    """A bound, and what it bounds.

    Attributes:
        name: name of the bound.
        bound: the largest bound of all draws.
        left: what it bounds, in every draw; only the mean, if the bound is on the mean.
        right: the bound, in every draw.
    """

    name: str
    bound: Bound
    left: Floats
    right: Floats

    def covered(self, scale: float = 1.0) -> float:
        """The share of draws in which the bound holds, multiplied by a scale."""
        return float((self.left <= scale * self.right).mean())

    def holds(self, scale: float = 1.0) -> bool:
        """Whether it holds in a share 1 − δ of the draws."""
        return self.covered(scale) >= 1 - DELTA

    @property
    def found(self) -> float:
        """The value that the left side exceeds with probability δ."""
        return float(np.quantile(self.left, 1 - DELTA, method="higher"))

    @property
    def slack(self) -> float:
        """How many times too large it is: divided by more, it would not hold."""
        ratio = np.quantile(self.left / self.right, 1 - DELTA, method="higher")
        return float(1 / ratio) if ratio > 0 else np.inf


class Draws:
    """True losses, and losses on samples.

    Attributes:
        true: [clients, hypotheses].
        empirical: [draws, clients, hypotheses].
        seed: seed of the draws.
    """

    def __init__(self, draws: int, seed: int) -> None:
        x, y, t = np.ogrid[:VALUES, :2, : VALUES + 1]
        wrong = ((x >= t) != y).astype(np.float64).reshape(-1, VALUES + 1)  # [cells, hypotheses]
        label = np.arange(VALUES) >= THRESHOLDS[:, None]
        cells = np.stack([label == 0, label == 1], axis=-1) * (1 - 2 * NOISE) + NOISE
        cells = (cells / VALUES).reshape(len(THRESHOLDS), -1)
        self.true: Floats = cells @ wrong
        self.seed = seed
        generator = np.random.default_rng(seed)
        drawn = zip(SIZES, cells, strict=True)
        counts = [generator.multinomial(m, of, draws) / m for m, of in drawn]
        self.empirical: Floats = np.stack(counts, axis=1) @ wrong

    def mixed(self, weights: Floats) -> tuple[Floats, Floats]:
        """True and empirical losses of a mixture of clients."""
        return weights @ self.true, np.tensordot(self.empirical, weights, (1, 0))


Sides = tuple[str, Floats, list[Bound] | Bound]
"""The name of a bound, its left side in every draw, and the bound: one for all draws, or each."""


def coverage(
    draws: int = 1000, seed: int = 0, constants: bounds.Constants = "derived"
) -> list[Coverage]:
    """Compare every bound of the paper with its left side.

    Args:
        draws: how many times samples are drawn.
        seed: seed of the draws.
        constants: ``"paper"`` or ``"derived"``.
    """
    drawn, common = Draws(draws, seed), {"d": 1, "delta": DELTA, "constants": constants}
    known = (_local, _global, _agnostic, _cluster, _combined)
    found = []
    for sides in (*known, _blitzer, _for_client, _interpolation, _dapper):
        name, left, bound = sides(drawn, common)
        each = bound if isinstance(bound, list) else [bound] * len(left)
        right = np.array([float(b) for b in each])
        found.append(Coverage(name, max(each), left, right))
    return found


def as_text(found: list[Coverage]) -> list[str]:
    """A table, as lines for a terminal."""
    head = f"{'':<34}{'bound':>10}{'found':>10}{'slack':>8}{'covered':>9}"
    return [head] + [
        f"{c.name:<34}{float(c.bound):10.4g}{c.found:10.3g}{c.slack:8.1f}{c.covered():9.1%}"
        f"{'' if c.holds() else '  DOES NOT HOLD'}{'  vacuous' if c.bound.vacuous else ''}"
        for c in found
    ]


def _excess(true: Floats, chosen: npt.NDArray[np.intp]) -> Floats:
    return true[chosen] - true.min()


def _local(drawn: Draws, common: dict[str, Any]) -> Sides:
    left = _excess(drawn.true[0], drawn.empirical[:, 0].argmin(axis=1))
    return "local (equation 1)", left, bounds.local(m=SIZES[0], **common)


def _global(drawn: Draws, common: dict[str, Any]) -> Sides:
    true, empirical = drawn.mixed(WEIGHTS)
    left = _excess(drawn.true[0], empirical.argmin(axis=1))
    disc = float(np.abs(drawn.true[0] - true).max())
    return "global (equation 2)", left, bounds.global_(m=TOTAL, disc=disc, **common)


def _agnostic(drawn: Draws, common: dict[str, Any]) -> Sides:
    mixtures = [*np.eye(CLIENTS), WEIGHTS]
    true, losses = (np.stack(each) for each in zip(*map(drawn.mixed, mixtures), strict=True))
    chosen = losses.max(axis=0).argmin(axis=1)
    # The worst mixture for the trained model, or for the client's best model.
    best = np.full(len(chosen), drawn.true[0].argmin())
    judged = chosen if common["constants"] == "paper" else best
    disc = np.abs(drawn.true[0] - true).max(axis=1)[true[:, judged].argmax(axis=0)]
    skewness = max(bounds.skewness(w.tolist(), SIZES.tolist()) for w in mixtures)
    right = [
        bounds.agnostic(
            m=TOTAL, cover=len(mixtures), epsilon=0, skewness=skewness, disc=float(d), **common
        )
        for d in disc
    ]
    return "agnostic", _excess(drawn.true[0], chosen), right


def _clusterings(drawn: Draws, q: int) -> tuple[list[tuple[int, ...]], Floats, Floats]:
    """All choices of q hypotheses, and their clustered losses, true and empirical."""
    choices = list(itertools.combinations_with_replacement(range(VALUES + 1), q))
    true = np.stack([WEIGHTS @ drawn.true[:, c].min(axis=1) for c in choices])
    empirical = np.stack([drawn.empirical[:, :, c].min(axis=2) @ WEIGHTS for c in choices], axis=1)
    return choices, true, empirical


def _cluster(drawn: Draws, common: dict[str, Any]) -> Sides:
    _, true, empirical = _clusterings(drawn, 2)
    left = np.abs(true - empirical).max(axis=1)
    right = bounds.cluster(m=TOTAL, p=CLIENTS, q=2, **common)
    return "clustering, theorem and corollary", left, right


def _combined(drawn: Draws, common: dict[str, Any]) -> Sides:
    choices, _, empirical = _clusterings(drawn, 2)
    everybody = np.arange(CLIENTS)
    left, right = np.zeros(len(empirical)), []
    for n, chosen in enumerate(empirical.argmin(axis=1)):
        pair = np.array(choices[chosen])
        f = drawn.empirical[n][:, pair].argmin(axis=1)
        left[n] = WEIGHTS @ (drawn.true[everybody, pair[f]] - drawn.true.min(axis=1))
        clusters = np.stack([np.average(drawn.true[f == i], axis=0, weights=SIZES[f == i])
                             if (f == i).any() else drawn.true[0] for i in range(2)])  # fmt: skip
        disc = float(WEIGHTS @ np.abs(drawn.true - clusters[f]).max(axis=1))
        right.append(bounds.cluster(m=TOTAL, p=CLIENTS, q=2, disc=disc, **common))
    return "clustering, with discrepancy", left, right


def _others(drawn: Draws) -> tuple[Floats, Floats]:
    """Everybody but the first client."""
    weights = np.where(np.arange(CLIENTS) == 0, 0, SIZES)
    return drawn.mixed(weights / weights.sum())


def _blitzer(drawn: Draws, common: dict[str, Any]) -> Sides:
    true, empirical = _others(drawn)
    mix = 0.5 * drawn.true[0] + 0.5 * true
    left = _excess(mix, (0.5 * drawn.empirical[:, 0] + 0.5 * empirical).argmin(axis=1))
    right = bounds.blitzer(lambda_=0.5, m_k=SIZES[0], m_C=SIZES[1:].sum(), **common)
    return "data interpolation, Blitzer", left, right


def _for_client(drawn: Draws, common: dict[str, Any]) -> Sides:
    true, empirical = _others(drawn)
    disc = float(np.abs(drawn.true[0] - true).max())
    best = best_lambda(m_k=SIZES[0], m_C=SIZES[1:].sum(), disc=disc, **common)
    mix = best.lambda_ * drawn.empirical[:, 0] + (1 - best.lambda_) * empirical
    left = _excess(drawn.true[0], mix.argmin(axis=1))
    return "data interpolation, best λ", left, best.bound


def _interpolation(drawn: Draws, common: dict[str, Any]) -> Sides:
    """Thresholds as central models and the constants 0 and 1 as local ones.

    With |y − h(x)|, linear in h, the best λ is 0 or 1: clients take h_c, or a constant.
    """
    constant = np.array([0, VALUES])  # a threshold before all values, and one behind them

    def best(losses: Floats) -> Floats:  # of each h_c
        return np.minimum(losses, losses[..., constant].min(axis=-1, keepdims=True))

    optimum = float(np.min(WEIGHTS @ best(drawn.true)))
    central = np.einsum("k,nkh->nh", WEIGHTS, best(drawn.empirical)).argmin(axis=1)[:, None]
    clients, row = np.arange(CLIENTS), np.arange(len(central))[:, None]
    own = constant[drawn.empirical[..., constant].argmin(axis=2)]  # [draws, clients]
    joins = drawn.empirical[row, clients, central] <= drawn.empirical[row, clients, own]
    paid = np.where(joins, drawn.true[clients, central], drawn.true[clients, own])
    settled = {key: common[key] for key in ("delta", "constants")}
    right = bounds.interpolation(m=TOTAL, p=CLIENTS, d_c=1, d_l=1, **settled)
    return "model interpolation", paid @ WEIGHTS - optimum, right


def _dapper(drawn: Draws, common: dict[str, Any]) -> Sides:
    """With ½(h − y)² on labels alone: 1-strongly convex, gradients up to 1, h between 0 and 1."""
    constants = common["constants"]
    generator, m_k, lambda_ = np.random.default_rng(drawn.seed), 20, 0.3
    steps = m_k * bounds.dapper_r(mu=1, G=1, R=1, constants=constants)
    rate = bounds.dapper_step_size(lambda_=lambda_, steps=steps, mu=1, G=1, R=1)
    runs = len(drawn.empirical)
    own, others = generator.binomial(m_k, 0.3, runs) / m_k, np.full(runs, 0.7)
    h = others.copy()  # the central model, best for everybody's samples
    mean = np.zeros(runs)
    for _ in range(steps):
        mean += h / steps
        source = np.where(generator.random(runs) < lambda_, own, others)
        h = np.clip(h - rate * (h - (generator.random(runs) < source)), 0, 1)
    left = 0.5 * (mean - (lambda_ * own + (1 - lambda_) * others)) ** 2  # g(h) − g(h_λ̂)
    right = bounds.dapper(lambda_=lambda_, m_k=m_k, mu=1, G=1, R=1, constants=constants)
    return "Dapper's SGD, on the mean", left.mean(keepdims=True), right
