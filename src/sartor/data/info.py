"""What is in the data: a description, and whether the order of clients carries a shift.

The paper had to shuffle clients "as the original client ordering results in disjoint model
performance": cutting an ordered list into seen and unseen clients measures the order.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sartor.checking import Count, check_memory, checks_arguments
from sartor.data.dataset import PARTS, ClientData, Column, shape_of
from sartor.errors import DataError
from sartor.randomness import mix, shuffles
from sartor.types import Floats, Ints

DECADE = 10 * 365 * 86400
"""Seconds."""

PERCENTILES = {"least": 0, "10%": 10, "median": 50, "90%": 90, "most": 100}
"""Sizes of clients that are shown, by name."""


@dataclass(frozen=True)
class Description:
    """A dataset in numbers; `rows()` gives them as pairs of texts to print.

    Attributes:
        clients: the number of clients, p.
        seen: how many of them take part in central training.
        unseen: how many do not.
        examples: the number of examples of all clients.
        parts: the number of examples in each part.
        sizes: percentiles of the number of examples of a client.
        columns: type and shape of one example, by column.
        classes: the number of different labels; 0 for regression.
        labels: the ten most frequent labels with their counts; empty for regression.
        label_range: the least and the greatest label.
        domains: the number of clients in each domain.
        times: the first and the last time of a row, if rows have times.
        groups: the number of groups of rows; 0 if rows have none.
    """

    clients: int
    seen: int
    unseen: int
    examples: int
    parts: dict[str, int]
    sizes: dict[str, float]
    columns: dict[str, str]
    classes: int
    labels: dict[str, int]
    label_range: tuple[float, float]
    domains: dict[str, int]
    times: tuple[float, float] | None = None
    groups: int = 0

    def rows(self) -> list[tuple[str, str]]:
        """Pairs (what, value) to print, one for each line."""
        rows = [
            ("clients", f"{self.clients:,} ({self.seen:,} seen, {self.unseen:,} unseen)"),
            ("examples", f"{self.examples:,} ({_counts(self.parts)})"),
            ("examples of a client", ", ".join(f"{n} {v:,.10g}" for n, v in self.sizes.items())),
        ]
        rows += [(f"column {name}", shape) for name, shape in self.columns.items()]
        low, high = self.label_range
        if self.labels:
            more = ", ..." if self.classes > len(self.labels) else ""
            rows.append(("labels", f"{self.classes:,} different: {_counts(self.labels)}{more}"))
        else:
            rows.append(("labels", f"numbers from {low:.6g} to {high:.6g}"))
        if self.domains:
            rows.append(("domains (clients)", _counts(self.domains)))
        if self.times is not None:
            rows.append(("times", span(*self.times)))
        if self.groups:
            rows.append(("groups", f"{self.groups:,}"))
        return rows


@dataclass(frozen=True)
class OrderShift:
    """Whether the order of clients carries a shift.

    Attributes:
        statistic: the greatest standardised difference between earlier and later clients.
        p_value: the share of random orders with at least this statistic.
        split: the position of the first client after the change.
        strength: the distance between the means of the two sides, in standard deviations of
            clients (root mean square over the summaries).
        message: a warning for the user, or None if the order looks random.
    """

    statistic: float
    p_value: float
    split: int
    strength: float
    message: str | None


@checks_arguments
def describe(data: ClientData) -> Description:
    """Describe a dataset.

    >>> from sartor.data import from_dict
    >>> data = from_dict({"ann": {"y": ["cat", "dog"]}, "bob": {"y": ["cat"]}})
    >>> for row in describe(data).rows():
    ...     print(*row, sep=": ")
    clients: 2 (2 seen, 0 unseen)
    examples: 3 (train 3)
    examples of a client: least 1, 10% 1.1, median 1.5, 90% 1.9, most 2
    column y: int32
    labels: 2 different: cat 2, dog 1
    """
    y = data.columns["y"][data.rows]
    labels: dict[str, int] = {}
    classes = 0
    if y.dtype.kind != "f":
        values, counts = np.unique(y, return_counts=True)
        classes = len(values)
        top = np.argsort(-counts, kind="stable")[:10]
        names = data.label_names
        labels = {names[values[i]] if names else str(values[i]): int(counts[i]) for i in top}
    domains = Counter(np.asarray(data.metadata.get("domain", ())).tolist())
    sizes = data.bounds[:, 3] - data.bounds[:, 0]
    parts = {part: int(data.sizes(part).sum()) for part in PARTS}
    return Description(
        clients=len(data),
        seen=int(data.seen.sum()),
        unseen=int((~data.seen).sum()),
        examples=len(data.rows),
        parts={part: size for part, size in parts.items() if size},
        sizes={name: float(np.percentile(sizes, q)) for name, q in PERCENTILES.items()},
        columns={name: shape_of(column) for name, column in data.columns.items()},
        classes=classes,
        labels=labels,
        label_range=(float(y.min()), float(y.max())),
        domains={str(domain): clients for domain, clients in sorted(domains.items())},
        times=None
        if data.time is None
        else (float(data.time[data.rows].min()), float(data.time[data.rows].max())),
        groups=0 if data.groups is None else len(np.unique(data.groups[data.rows])),
    )


@checks_arguments
def order_shift(data: ClientData, permutations: Count = 499, seed: int = 0) -> OrderShift:
    """Test whether earlier clients differ from later ones more than in a random order.

    Each client is summarised by its label distribution and its feature means, from at most 200
    training rows. More than 32 features are reduced to 32 random projections. Means of few rows are
    noisy, so they are scaled by the spread of clients with the same number of rows. The test
    statistic is CUSUM's max_k ||S_k|| sqrt(p / (k (p - k))), where S_k is the sum of the first k
    summaries. The outermost twentieth of positions is left out, because single odd clients would
    decide there. The p-value comes from permutations of the clients. At most 2,000 clients, spread
    evenly over the order, are used.

    >>> from sartor.data import from_dict
    >>> data = from_dict({f"{k:02d}": {"y": [k // 10] * 5} for k in range(20)})
    >>> result = order_shift(data)
    >>> result.split, result.p_value
    (10, 0.002)
    """
    if len(data) < 8:
        raise DataError(f"order_shift needs at least 8 clients, got {len(data)}")
    chosen = np.unique(np.linspace(0, len(data) - 1, min(len(data), 2000)).round().astype(np.int64))
    summaries = _summaries(data, chosen)
    p = len(chosen)
    check_memory(f"{permutations:,} permutations", 16.0 * permutations * p, "choose fewer")
    curve = _cusum(summaries)
    k = int(curve.argmax()) + _margin(p)
    statistic = float(curve.max())
    keys = mix(seed, "order shift", np.arange(permutations))
    orders = shuffles(keys, np.full(permutations, p)).reshape(permutations, p)
    as_large = sum(float(_cusum(summaries[order]).max()) >= statistic - 1e-9 for order in orders)
    p_value = (1 + as_large) / (1 + permutations)
    gap = summaries[:k].mean(axis=0) - summaries[k:].mean(axis=0)
    strength = float(np.sqrt(np.square(gap).mean())) if gap.size else 0.0
    split = int(chosen[k])
    message = None
    if p_value <= 0.01:
        message = (
            f"the order of clients carries a shift: those from {data.ids[split]!r} (position "
            f"{split:,}) on differ from those before by {strength:.2f} standard deviations "
            f"(p = {p_value:.3g}); choose unseen clients by data.split(unseen=...), which ignores "
            "the order, not by cutting the list"
        )
    return OrderShift(statistic, p_value, split, strength, message)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def span(first: float, last: float) -> str:
    """Two times; as dates, too, if they can be seconds since 1970, which dates have become.

    >>> span(1, 9.5), span(1794960000, 1795000000)
    ('1 to 9.5', '1794960000 to 1795000000 (as seconds: 2026-11-18 00:00 to 2026-11-18 11:06 UTC)')
    """
    text = f"{first:.12g} to {last:.12g}"
    if not all(DECADE < time < 500 * DECADE for time in (first, last)):
        return text
    days = (np.datetime64(int(time), "s").astype("datetime64[m]") for time in (first, last))
    return f"{text} (as seconds: {' to '.join(str(day).replace('T', ' ') for day in days)} UTC)"


def _margin(p: int) -> int:
    return max(1, p // 20)


def _cusum(summaries: Floats) -> Floats:
    """||S_k|| sqrt(p / (k (p - k))) for all k between the margins; summaries have mean 0."""
    p = len(summaries)
    k = np.arange(_margin(p), p - _margin(p) + 1)
    sums = np.cumsum(summaries, axis=0)[k - 1]
    return np.asarray(np.sqrt(np.square(sums).sum(axis=1) * p / (k * (p - k))))


def _summaries(data: ClientData, clients: Ints) -> Floats:
    """One standardised vector for each client: label distribution and feature means."""
    m = data.sizes("train")[clients]
    taken = np.minimum(m, 200)
    owner = np.repeat(np.arange(len(clients)), taken)
    draw = np.arange(len(owner)) - (np.cumsum(taken) - taken)[owner]
    rows = data.rows[data.bounds[clients, 0][owner] + draw * m[owner] // taken[owner]]
    features = {name: column for name, column in data.columns.items() if name != "y"}
    labels = data.columns["y"][rows]
    parts = [_labels(labels.reshape(len(labels), -1), owner, taken)]
    if features:
        parts.append(_features(features, rows, owner, taken))
    summaries = np.concatenate(parts, axis=1)
    return np.asarray(summaries - summaries.mean(axis=0))


def _labels(y: Column, owner: Ints, taken: Ints) -> Floats:
    """Shares of the 64 most frequent classes, or the mean of a regression target."""
    if y.dtype.kind == "f":
        values = y.astype(np.float64)
        values -= values[:1]  # a large common value would cost precision
        return _scaled(_means(values, owner, taken), _means(values**2, owner, taken), taken)
    values, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(values))
    code = np.minimum(rank[codes.ravel()], 64)
    table = np.bincount(np.repeat(owner, y.shape[1]) * 65 + code, minlength=65 * len(taken))
    shares = table.reshape(-1, 65)[:, :64] / (taken * y.shape[1])[:, None]
    # On one scale: a rare class by itself is either absent or far too frequent.
    return _scaled(shares, shares, taken * y.shape[1], together=True)


def _scaled(means: Floats, squares: Floats, taken: Ints, together: bool = False) -> Floats:
    """The clients' means, centred and divided by their standard deviations.

    The variance of a client's mean is that between clients, plus that of its rows divided by their
    number.

    Args:
        means: the mean of each client's rows, [clients, columns].
        squares: the mean of their squares.
        taken: the number of rows of each client.
        together: use one standard deviation for all columns.
    """
    size, clients = taken[:, None].astype(np.float64), len(taken)
    magnitude = np.sqrt(squares.max(axis=0))
    varies = means.std(axis=0) > 1e-6 * (1e-30 + magnitude)
    means, squares = means[:, varies], squares[:, varies]
    rest = means - np.average(means, axis=0, weights=taken)
    away = (size * np.square(rest)).sum(axis=0)
    free = float((taken - 1).sum())
    within = (size * (squares - np.square(means))).sum(axis=0) / max(free, 1.0)
    within = np.maximum(within if free else away / max(clients - 1, 1), 0.0)
    between = np.maximum(away - (clients - 1) * within, 0.0) / taken.sum()
    variance = between + within / size
    if together:
        variance = variance.sum(axis=1, keepdims=True) / max(variance.shape[1], 1)
    return np.asarray(rest / np.sqrt(np.maximum(variance, 1e-30)))


def _features(features: dict[str, Column], rows: Ints, owner: Ints, taken: Ints) -> Floats:
    """Means of the features scaled to unit variance, or of 32 fixed ±1 projections of them."""
    origin = _flat(features, rows[:1])
    sample = rows[:: max(1, len(rows) // 1000)]
    spread = (_flat(features, sample) - origin).std(axis=0)
    width = len(spread)
    scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0)
    if width <= 32:
        projection = np.diag(scale)
    else:
        bits = mix("projection", np.arange(width)[:, None], np.arange(32))
        projection = np.where(bits & np.uint64(1), scale[:, None], -scale[:, None])
    means, squares = np.zeros((2, len(taken), projection.shape[1]))
    step = max(1, (1 << 22) // width)  # few enough rows that a memmap is never loaded whole
    for i in range(0, len(rows), step):
        projected = (_flat(features, rows[i : i + step]) - origin) @ projection
        means += _means(projected, owner[i : i + step], taken)
        squares += _means(projected**2, owner[i : i + step], taken)
    return _scaled(means, squares, taken)


def _flat(features: dict[str, Column], rows: Ints) -> Floats:
    blocks = [column[rows].reshape(len(rows), -1) for column in features.values()]
    return np.concatenate(blocks, axis=1).astype(np.float64)


def _means(values: Floats, owner: Ints, taken: Ints) -> Floats:
    """Sums over each client's rows, divided by how many rows it has in all."""
    sums = np.zeros((len(taken), values.shape[1]))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    sums[owner[first]] = np.add.reduceat(values, first, axis=0)
    return sums / taken[:, None]
