"""What a few clients with a few test examples each can show, and what they cannot.

Pure functions of numbers: the worst decile, who gained and who was hurt beyond chance, and the
comparison of two methods on the same clients.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from sartor.checking import Numbers, Probability, checked, checks_arguments
from sartor.errors import DataError
from sartor.evaluation.means import mean_interval, mean_test, per_client
from sartor.types import Bools, Floats

if TYPE_CHECKING:
    from sartor.evaluation.scores import Scores

Metric = Literal["loss", "accuracy"]


def quantiles(values: npt.ArrayLike, at: Sequence[float]) -> Floats:
    """Quantiles with linear interpolation, where infinite losses are numbers like others.

    >>> quantiles([1.0, 2.0, np.inf, np.inf, np.inf], [0.0, 0.25, 0.9]).tolist()
    [1.0, 2.0, inf]
    """
    v = per_client(values)
    with np.errstate(invalid="ignore"):  # next to an infinity numpy meets inf − inf or 0 · inf
        found = np.quantile(v, at)
    return np.where(np.isnan(found), np.quantile(v, at, method="higher"), found)


@checks_arguments
def worst_decile(values: Numbers, higher_is_better: bool) -> float:
    """Mean over the worst tenth of the clients: ⌈p/10⌉ of them, so at least one.

    >>> worst_decile([0.9, 0.8, 0.1], higher_is_better=True)
    0.1
    >>> worst_decile(np.arange(20), higher_is_better=False)
    18.5
    """
    ordered = np.sort(per_client(values))
    worst = -(-len(ordered) // 10)
    return float(ordered[:worst].mean() if higher_is_better else ordered[-worst:].mean())


@checks_arguments
def benjamini_hochberg(p_values: Numbers, level: Probability = 0.05) -> Bools:
    """Which of many p-values to believe so that at most a share `level` of the believed is chance.

    With n values in rising order, believe the first j, for the largest j with p_(j) ≤ level · j/n.

    >>> benjamini_hochberg([0.04, 0.001, 0.9, 0.02], level=0.05).tolist()
    [False, True, False, True]
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise DataError("p_values must be a list of numbers in [0, 1]; NaN is none")
    ordered = np.sort(p)
    passing = np.flatnonzero(ordered <= level * np.arange(1, len(p) + 1) / len(p))
    limit = ordered[passing[-1]] if len(passing) else -1.0
    return np.asarray(p <= limit)


@checks_arguments
def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for their number, by Holm's rule; None and NaN stay out and are None.

    If no difference is real, the least of them falls below α with probability at most α, however
    the tests depend on each other.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = [k for k, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for place, k in enumerate(sorted(known, key=lambda k: p_values[k] or 0.0)):
        least = max(least, min(1.0, (len(known) - place) * (p_values[k] or 0.0)))
        adjusted[k] = least
    return adjusted


@checks_arguments
def mcnemar(wins: Numbers, losses: Numbers) -> Floats:
    """Exact two-sided McNemar p-values, one for each client.

    Of the examples that only one of the two models gets right, each is a win or a loss with
    probability 1/2 if the models are equally good: p = min(1, 2 · P[Bin(b+c, 1/2) ≤ min(b, c)]).

    >>> mcnemar([0, 5, 6], [0, 5, 0]).tolist()
    [1.0, 1.0, 0.03125]
    """
    b, c = np.asarray(wins), np.asarray(losses)
    if b.shape != c.shape:
        raise DataError(f"wins and losses must be as many (got shapes {b.shape} and {c.shape})")
    # bdtr wants k as a float and n as an integer
    tail = special.bdtr(np.minimum(b, c).astype(np.float64), (b + c).astype(np.int64), 0.5)
    return np.asarray(np.minimum(1.0, 2 * tail), np.float64)


BETS = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""The stakes that `betting` tries, as shares of the largest that cannot lead to debts."""

LEAP = 8.0
"""By how many times a stake one example can raise it at most, in `betting`."""


@checks_arguments
def betting(differences: Numbers, ranges: Numbers, sizes: Numbers) -> Floats:
    """Two-sided p-values that a mean difference is zero, one for each client, by betting.

    The mean of skewed differences cannot be tested without knowing how large they can be: a model
    that is too sure of itself wins a little on nearly every example, and loses much on rare ones,
    which a small test part may not contain. `ranges` is that knowledge: whatever its label,
    difference i cannot be below ``ranges[i, 0]`` or above ``ranges[i, 1]``. Differences and ranges
    lie client after client.

    The test of "no gain" starts with 1 and multiplies it by 1 + c d_i/B for every example, where −B
    is the least of the client's lower ends, so that the product cannot become negative. If the
    client's expected differences are zero or less on average, the expected product is at most 1,
    so it exceeds 1/α with probability at most α. The best c is unknown, so the products of several
    are averaged. The test of "no loss" does the same with −d_i. p is twice the reciprocal of the
    larger result, and at most 1. A product exceeds 1 only if the sum of d_i is positive, so the
    sign of the mean says which way it went. B is also at least 1/8 of the largest possible gain,
    so that one example alone decides nothing.

    It assumes that a client's labels are independent given their inputs and that the ranges hold.
    It assumes nothing about the distribution of the differences. The mean is that over the inputs
    that were tested.

    >>> won = np.full(40, 0.2)
    >>> betting(won, np.tile([-0.2, 0.2], (40, 1)), [40]).round(4).tolist()
    [0.0]
    >>> betting(won, np.tile([-3.0, 0.2], (40, 1)), [40]).round(2).tolist()  # 3 might be lost
    [0.39]
    """
    d, n = np.asarray(differences, np.float64), np.asarray(sizes)
    limits = np.asarray(ranges, np.float64)
    if n.dtype.kind not in "iu" or n.ndim != 1 or not n.size or n.min() < 1:
        raise DataError(f"sizes must be whole numbers of at least 1, one for each client (got {n})")
    if d.shape != (n.sum(),) or limits.shape != (n.sum(), 2):
        raise DataError(
            f"differences and ranges must have {n.sum()} rows, the sum of sizes (got shapes "
            f"{d.shape} and {limits.shape})"
        )
    starts = np.cumsum(n) - n
    low, high = limits.T
    least = np.minimum.reduceat(np.minimum(low, d), starts)  # differences may be off by rounding
    most = np.maximum.reduceat(np.maximum(high, d), starts)
    with np.errstate(divide="ignore"):
        wealth = np.maximum(_wealth(d, -least, most, n), _wealth(-d, most, -least, n))
        return np.asarray(np.minimum(1.0, 2 / wealth))


def _wealth(d: Floats, loss: Floats, gain: Floats, sizes: Any) -> Floats:
    """What bets on positive differences end with, given the most a client can lose and gain."""
    starts = np.cumsum(sizes) - sizes
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        unit = d / np.repeat(np.maximum(loss, gain / LEAP), sizes)
        unit = np.where(np.isnan(unit), 0.0, unit)  # 0/0: no difference; ∞/∞ proves nothing
        logs = np.stack([np.add.reduceat(np.log1p(c * unit), starts) for c in BETS])
        return np.asarray(np.exp(logs).mean(axis=0))


def _check_scores(**scores: Any) -> None:
    from sartor.evaluation.scores import Scores  # which imports this module

    for name, value in scores.items():
        checked(name, value, Scores)


def _better_by(a: Floats, b: Floats, metric: Metric) -> Floats:
    """How much better a is than b: accuracy should rise, loss should fall; ∞ equals ∞."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b if metric == "accuracy" else b - a)


@dataclass(frozen=True, eq=False)
class Gains:
    """What each client gained over the central model; positive means better, whatever the metric.

    Attributes:
        change: difference of the client's two means.
        p_value: probability of a difference as large if both models were equally good for it;
            None where that cannot be known.
        beyond_chance: whether the difference is believed, over all clients together; None where
            there are no p-values.
    """

    change: Floats
    p_value: Floats | None
    beyond_chance: Bools | None

    @property
    def sign(self) -> npt.NDArray[np.int8]:
        """+1 gained, −1 hurt, 0 unchanged: the raw sign of the change."""
        return np.asarray(np.sign(self.change), np.int8)

    def select(self, mask: Bools) -> Gains:
        """The same verdicts for some of the clients."""
        if self.p_value is None or self.beyond_chance is None:
            return Gains(self.change[mask], None, None)
        return Gains(self.change[mask], self.p_value[mask], self.beyond_chance[mask])


@checks_arguments
def gains(scores: Scores, metric: Metric = "accuracy", level: Probability = 0.05) -> Gains:
    """Which clients gained over the central model (`scores.baseline`) and which were hurt.

    Both models saw the same test examples, so each client is tested on its pairs: accuracy by the
    exact McNemar test, loss and fractional correctness by `betting`. For loss this takes
    `scores.example_range`, which `evaluate` sets; without it nothing can be said, and there are no
    p-values. A test at 5% for each client would not do: of 500 clients for whom nothing changed,
    25 would look gained or hurt by chance alone. Benjamini–Hochberg over all clients keeps the
    share of false alarms among those called gained or hurt at 5%.

    >>> from sartor.evaluation import Scores
    >>> facts = dict(client=("a", "b"), size=[5, 5], test_size=[9, 1], seen=[True, True])
    >>> zeros = np.zeros(10)
    >>> central = Scores("FedAvg", **facts, example_loss=zeros, example_correct=zeros)
    >>> local = Scores("Local", **facts, example_loss=zeros, example_correct=zeros + 1,
    ...                baseline=central)
    >>> found = gains(local, "accuracy")
    >>> found.sign.tolist(), found.p_value.round(4).tolist(), found.beyond_chance.tolist()
    ([1, 1], [0.0039, 1.0], [True, False])
    """
    _check_scores(scores=scores)
    if scores.baseline is None:
        raise DataError(
            f"the scores of {scores.method!r} have no baseline to gain over: "
            "pass the central model's Scores as baseline"
        )
    a, b = scores.examples(metric), scores.baseline.examples(metric)
    difference = _better_by(a.astype(np.float64), b.astype(np.float64), metric)
    change = _better_by(scores.totals(metric), scores.baseline.totals(metric), metric)
    if metric == "accuracy" and np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all():
        p_value = mcnemar(
            scores.sum_by_client(difference > 0), scores.sum_by_client(difference < 0)
        )
    else:
        ranges = scores.example_range
        if metric == "accuracy":
            ranges = np.tile([-1.0, 1.0], (len(difference), 1))
        if ranges is None:
            return Gains(change / scores.test_size, None, None)
        p_value = betting(difference, ranges, scores.test_size)
    return Gains(change / scores.test_size, p_value, benjamini_hochberg(p_value, level))


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same clients; a positive difference means that a is better than b.

    Attributes:
        difference: mean over clients, each counting the same.
        interval: its 95% interval over clients; NaN where there is none (see `mean_interval`).
        rough: whether the interval is rough, for there are few clients.
        p_value: paired test that the mean difference is zero, which assumes that clients are drawn
            independently (see `mean_test`).
        better, worse, equal: shares of the clients for which a is better than b, and so on.
        trained_rows: test examples that a method was trained on, if that was allowed.
    """

    a: str
    b: str
    metric: Metric
    clients: int
    difference: float
    interval: tuple[float, float]
    rough: bool
    p_value: float
    better: float
    worse: float
    equal: float
    trained_rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values; None where one is not finite."""
        return jsonable(dataclasses.asdict(self))

    def __str__(self) -> str:
        verdict, marked = "cannot be told from", self.trained_rows > 0
        if self.p_value < 0.05:
            verdict = "is better than" if self.difference > 0 else "is worse than"
        low, high = self.interval
        interval = f"{'rough ' * self.rough}95% interval {low:+.4f} to {high:+.4f}"
        return (
            f"{self.a} {verdict} {self.b} in {self.metric} on {self.clients:,} clients: "
            f"{self.difference:+.4f} (positive is better; "
            f"{'no interval' if math.isnan(low) else interval}; p = {self.p_value:.2g}), better "
            f"for {self.better:.0%} of the clients, worse for {self.worse:.0%}, equal for "
            f"{self.equal:.0%}."
            + f" TOO GOOD: {self.trained_rows:,} test examples were trained on."
            * marked
        )


@checks_arguments
def compare(a: Scores, b: Scores, metric: Metric | None = None, seed: int = 0) -> Comparison:
    """Compare two methods client by client; positive means a is better, whatever the metric.

    The metric is accuracy where both have it, and loss elsewhere.

    >>> from sartor.evaluation import Scores
    >>> facts = dict(client=("k1", "k2"), size=[5, 5], test_size=[1, 1], seen=[True, True])
    >>> local = Scores("Local", **facts, example_loss=[1.0, 2.0])
    >>> tuned = Scores("Finetune", **facts, example_loss=[0.5, 1.0])
    >>> compare(tuned, local, "loss").difference
    0.75
    """
    _check_scores(a=a, b=b)
    if metric is None:
        both = a.example_correct is not None and b.example_correct is not None
        metric = "accuracy" if both else "loss"
    if set(a.client) != set(b.client):
        only = sorted(set(a.client) ^ set(b.client))
        raise DataError(
            f"{a.method!r} and {b.method!r} were scored on different clients: {len(only)} are in "
            f"one only, as {only[0]!r} is; select the clients they share first"
        )
    if len(a) == 0:
        raise DataError(f"no clients to compare {a.method!r} and {b.method!r} on")
    place = {client: k for k, client in enumerate(b.client)}
    order = np.array([place[client] for client in a.client])
    for k in np.flatnonzero(a.test_size != b.test_size[order])[:1]:
        raise DataError(
            f"client {a.client[k]!r} has {a.test_size[k]} test examples with {a.method!r} and "
            f"{b.test_size[order[k]]} with {b.method!r}: score both on the same examples"
        )
    if a.rows is not None and b.rows is not None:
        for k in np.flatnonzero(a.rows != b.rows[order])[:1]:
            raise DataError(
                f"client {a.client[k]!r} was scored on other test rows with {a.method!r} than with "
                f"{b.method!r}: score both on the same split"
            )
    d = _better_by(a.totals(metric), b.totals(metric)[order], metric) / a.test_size
    with np.errstate(invalid="ignore"):
        mean = float(d.mean())
    low, high, rough = mean_interval(d)
    zero = np.zeros(1, np.int64)
    return Comparison(
        a=a.method,
        b=b.method,
        metric=metric,
        clients=len(d),
        difference=mean,
        interval=(low, high),
        rough=rough,
        p_value=mean_test(d, seed=seed),
        better=float(np.mean(d > 0)),
        worse=float(np.mean(d < 0)),
        equal=float(np.mean(d == 0)),
        trained_rows=sum(int(of.extra.get("trained_rows", zero).sum()) for of in (a, b)),
    )


def jsonable(value: Any) -> Any:
    """Nested results as strict JSON knows them: string keys, lists, None for NaN and infinity.

    >>> jsonable({5: (1.0, float("nan"))})
    {'5': [1.0, None]}
    """
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
