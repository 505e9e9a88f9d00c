"""What a few clients with a few test examples each can show, and what they cannot.

Pure functions of numbers: intervals over clients, the worst decile, who gained and who was hurt
beyond chance, and the comparison of two methods on the same clients. The client, not the example,
is the unit that is drawn: clients differ, and the next client is a new one.
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

from sartor.errors import ConfigError, DataError
from sartor.randomness import mix
from sartor.types import Bools, Floats

if TYPE_CHECKING:
    from sartor.evaluation.scores import Scores

Metric = Literal["loss", "accuracy"]

_CHUNK = 2**20  # random numbers alive at once
_MOST_DRAWN = 10_000  # clients in one bootstrap draw
_EXACT = 12  # up to so many clients, all 2^12 sign flips are enumerated


def _generator(seed: int, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(int(mix(seed, purpose))))


def _per_client(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise DataError(f"values must hold one number for each client (got shape {array.shape})")
    return array


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level must lie strictly between 0 and 1, as 0.95 does (got {level})")


def bootstrap_interval(
    values: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval over clients of the mean Σ w_k v_k / Σ w_k.

    p clients are drawn from the p given, with replacement, `draws` times. The plain quantiles α/2
    and 1 − α/2 of these means are too narrow for few clients (about 90% instead of 95% for ten),
    so they are taken at α′/2 = Φ(−√(p/(p−1)) · t_{p−1, 1−α/2}), which tends to α/2 as p grows
    (Hesterberg, 2015). Of more than 10,000 clients, m = 10,000 are drawn and the deviations
    multiplied by √(m/p). The order of the clients makes no difference.

    What a nominal 95% is worth, simulated: normal values 94% for 10 clients and 95% for 60;
    skewed ones (exponential, as losses can be) 91% for 10, 94% for 60 and 95% for 200, and the
    misses lie on the long tail's side. For a few dozen clients read it as a little less than 95%.

    One client says nothing about other clients, and an infinite mean has no neighbourhood: both
    give (nan, nan).

    >>> low, high = bootstrap_interval(np.arange(100) / 100)
    >>> low < 0.495 < high, round(high - low, 2)
    (True, 0.12)
    """
    v = _per_client(values)
    w = np.ones(len(v)) if weights is None else np.asarray(weights, np.float64)
    _check_level(level)
    if draws < 1:
        raise ConfigError(f"draws must be at least 1 (got {draws})")
    if w.shape != v.shape or not (w > 0).all():
        raise DataError(
            f"weights must be {len(v)} positive numbers, one for each value (got shape {w.shape}, "
            f"least {w.min(initial=np.inf)}): leave out clients of weight zero"
        )
    if len(v) == 1 or not np.isfinite(v).all():
        return math.nan, math.nan
    order = np.lexsort((w, v))  # so that no client's luck depends on its place
    w = w[order]
    wv = w * v[order]
    p, m = len(v), min(len(v), _MOST_DRAWN)
    mean, means = wv.sum() / w.sum(), np.empty(draws)
    rng = _generator(seed, "bootstrap")
    step = max(1, _CHUNK // m)
    for start in range(0, draws, step):
        drawn = rng.integers(p, size=(min(step, draws - start), m))
        below = m if weights is None else w[drawn].sum(axis=1)
        means[start : start + step] = wv[drawn].sum(axis=1) / below
    t = special.stdtrit(p - 1, 0.5 + level / 2)
    tail = float(special.ndtr(-math.sqrt(p / (p - 1)) * t))
    low, high = mean + math.sqrt(m / p) * (np.quantile(means, [tail, 1 - tail]) - mean)
    return float(low), float(high)


def quantiles(values: npt.ArrayLike, at: Sequence[float]) -> Floats:
    """Quantiles with linear interpolation, where infinite losses are numbers like others.

    >>> quantiles([1.0, 2.0, np.inf, np.inf, np.inf], [0.0, 0.25, 0.9]).tolist()
    [1.0, 2.0, inf]
    """
    v = _per_client(values)
    with np.errstate(invalid="ignore"):  # next to an infinity numpy meets inf − inf or 0 · inf
        found = np.quantile(v, at)
    return np.where(np.isnan(found), np.quantile(v, at, method="higher"), found)


def worst_decile(values: npt.ArrayLike, higher_is_better: bool) -> float:
    """Mean over the worst tenth of the clients: ⌈p/10⌉ of them, so at least one.

    >>> worst_decile([0.9, 0.8, 0.1], higher_is_better=True)
    0.1
    >>> worst_decile(np.arange(20), higher_is_better=False)
    18.5
    """
    ordered = np.sort(_per_client(values))
    worst = -(-len(ordered) // 10)
    return float(ordered[:worst].mean() if higher_is_better else ordered[-worst:].mean())


def benjamini_hochberg(p_values: npt.ArrayLike, level: float = 0.05) -> Bools:
    """Which of many p-values to believe so that at most a share `level` of the believed is chance.

    With n values in rising order, believe the first j, for the largest j with p_(j) ≤ level · j/n.

    >>> benjamini_hochberg([0.04, 0.001, 0.9, 0.02], level=0.05).tolist()
    [False, True, False, True]
    """
    p = np.asarray(p_values, np.float64)
    _check_level(level)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise DataError("p_values must be a list of numbers in [0, 1]; NaN is none")
    ordered = np.sort(p)
    passing = np.flatnonzero(ordered <= level * np.arange(1, len(p) + 1) / len(p))
    limit = ordered[passing[-1]] if len(passing) else -1.0
    return np.asarray(p <= limit)


def mcnemar(wins: npt.ArrayLike, losses: npt.ArrayLike) -> Floats:
    """Exact two-sided McNemar p-values, one for each client.

    Of the examples that only one of the two models gets right, each is a win or a loss with
    probability 1/2 if the models are equally good: p = min(1, 2 · P[Bin(b+c, 1/2) ≤ min(b, c)]).

    >>> mcnemar([0, 5, 6], [0, 5, 0]).tolist()
    [1.0, 1.0, 0.03125]
    """
    b, c = np.asarray(wins), np.asarray(losses)
    # bdtr wants k as a float and n as an integer
    tail = special.bdtr(np.minimum(b, c).astype(np.float64), (b + c).astype(np.int64), 0.5)
    return np.asarray(np.minimum(1.0, 2 * tail), np.float64)


def paired_t(differences: npt.ArrayLike, sizes: npt.ArrayLike) -> Floats:
    """Two-sided paired t-test p-values, one for each client; differences lie client after client.

    t = d̄ / (s/√n) with n − 1 degrees of freedom, and p never below 2^(1−n), the least that the
    signs of n differences can show. The floor matters where a client's few test examples are
    alike: equal differences have no variance, t is infinite, and two of them would pass for
    proof. So: one example gives p = 1; differences that are all zero give p = 1; differences that
    are all equal give 2^(1−n). Infinite differences have no variance to compare with: p = 1.

    >>> paired_t([0.0, 0.0, 0.3, 0.3, 0.7, 1.0, 2.0, 3.0, 4.0], [2, 2, 1, 4]).round(4).tolist()
    [1.0, 0.5, 1.0, 0.125]
    """
    d, n = np.asarray(differences, np.float64), np.asarray(sizes, np.int64)
    starts = np.cumsum(n) - n
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(d, starts) / n
        variance = np.add.reduceat((d - np.repeat(mean, n)) ** 2, starts) / (n - 1)
        t = np.abs(mean) / np.sqrt(variance / n)
        p = 2 * special.stdtr(n - 1, -t)
    p = np.where(np.isfinite(mean) & ~np.isnan(p) & (n > 1), p, 1.0)  # 0/0 and inf − inf are NaN
    return np.asarray(np.maximum(p, 2.0 ** (1 - n)))


def sign_flip(differences: npt.ArrayLike, draws: int = 9_999, seed: int = 0) -> float:
    """Two-sided p-value that the mean of paired differences is zero, by flipping their signs.

    If neither method is better, each client's difference d_k could as well have been −d_k. p is
    the share of sign patterns s with |Σ s_k d_k| ≥ |Σ d_k|: over all patterns for up to 12 clients
    that differ, else over `draws` random ones as (hits + 1)/(draws + 1). Infinite differences
    give nan.

    >>> sign_flip([1.0, 2.0, 3.0, 0.0])
    0.25
    """
    d = np.asarray(differences, np.float64)
    if not np.isfinite(d).all():
        return math.nan
    d = np.sort(d[d != 0])  # zeros have no sign; sorted, the order of clients makes no difference
    n, total = len(d), d.sum()
    least = abs(total) - 1e-12 * np.abs(d).sum()  # equal sums may differ in their last bits
    if n <= _EXACT:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float(np.mean(np.abs(total - 2 * (flips @ d)) >= least))
    rng = _generator(seed, "sign flip")
    hits, step = 0, max(1, _CHUNK // n)
    for start in range(0, draws, step):
        size = min(step, draws - start), -(-n // 8)
        coins = np.unpackbits(rng.integers(256, size=size, dtype=np.uint8), axis=1, count=n)
        hits += int(np.sum(np.abs(total - 2 * (coins.astype(np.float64) @ d)) >= least))
    return (hits + 1) / (draws + 1)


def _better_by(a: Floats, b: Floats, metric: Metric) -> Floats:
    """How much better a is than b: accuracy should rise, loss should fall; ∞ equals ∞."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b if metric == "accuracy" else b - a)


@dataclass(frozen=True, eq=False)
class Gains:
    """What each client gained over the central model; positive means better, whatever the metric.

    Attributes:
        change: difference of the client's two means.
        p_value: probability of a difference as large if both models were equally good for it.
        beyond_chance: whether the difference is believed, over all clients together.
    """

    change: Floats
    p_value: Floats
    beyond_chance: Bools

    @property
    def sign(self) -> npt.NDArray[np.int8]:
        """+1 gained, −1 hurt, 0 unchanged: the raw sign of the change."""
        return np.asarray(np.sign(self.change), np.int8)

    def select(self, mask: Bools) -> Gains:
        """The same verdicts for some of the clients."""
        return Gains(self.change[mask], self.p_value[mask], self.beyond_chance[mask])


def gains(scores: Scores, metric: Metric = "accuracy", level: float = 0.05) -> Gains:
    """Which clients gained over the central model (`scores.baseline`) and which were hurt.

    Both models saw the same test examples, so each client is tested on its pairs: accuracy by the
    exact McNemar test (fractional correctness like loss), loss by the paired t-test. A test at
    5% for each client would not do: of 500 clients for whom nothing changed, 25 would look gained
    or hurt by chance alone. Benjamini–Hochberg over all clients keeps the share of false alarms
    among those called gained or hurt at 5%.

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
        p_value = paired_t(difference, scores.test_size)
    return Gains(change / scores.test_size, p_value, benjamini_hochberg(p_value, level))


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same clients; a positive difference means that a is better than b.

    Attributes:
        difference: mean over clients, each counting the same.
        interval: its 95% bootstrap interval over clients.
        p_value: paired sign-flip permutation test that the mean difference is zero.
        wilcoxon: p-value of Wilcoxon's signed-rank test.
        better, worse, equal: shares of the clients for which a is better than b, and so on.
    """

    a: str
    b: str
    metric: Metric
    clients: int
    difference: float
    interval: tuple[float, float]
    p_value: float
    wilcoxon: float
    better: float
    worse: float
    equal: float

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values; None where one is not finite."""
        return jsonable(dataclasses.asdict(self))

    def __str__(self) -> str:
        verdict = "cannot be told from"
        if self.p_value < 0.05:
            verdict = "is better than" if self.difference > 0 else "is worse than"
        return (
            f"{self.a} {verdict} {self.b} in {self.metric} on {self.clients:,} clients: "
            f"{self.difference:+.4f} (positive is better; 95% interval {self.interval[0]:+.4f} to "
            f"{self.interval[1]:+.4f}; sign-flip p = {self.p_value:.2g}, Wilcoxon p = "
            f"{self.wilcoxon:.2g}), better for {self.better:.0%} of the clients, worse for "
            f"{self.worse:.0%}, equal for {self.equal:.0%}."
        )


def compare(a: Scores, b: Scores, metric: Metric = "accuracy", seed: int = 0) -> Comparison:
    """Compare two methods client by client; positive means a is better, whatever the metric.

    >>> from sartor.evaluation import Scores
    >>> facts = dict(client=("k1", "k2"), size=[5, 5], test_size=[1, 1], seen=[True, True])
    >>> local = Scores("Local", **facts, example_loss=[1.0, 2.0])
    >>> tuned = Scores("Finetune", **facts, example_loss=[0.5, 1.0])
    >>> compare(tuned, local, "loss").difference
    0.75
    """
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
    from scipy import stats  # here, because it takes a second to load and nothing else needs it

    with np.errstate(invalid="ignore"):
        mean = float(d.mean())
    return Comparison(
        a=a.method,
        b=b.method,
        metric=metric,
        clients=len(d),
        difference=mean,
        interval=bootstrap_interval(d, seed=seed),
        p_value=sign_flip(d, seed=seed),
        wilcoxon=float(stats.wilcoxon(d[d != 0]).pvalue) if d.any() else 1.0,
        better=float(np.mean(d > 0)),
        worse=float(np.mean(d < 0)),
        equal=float(np.mean(d == 0)),
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
