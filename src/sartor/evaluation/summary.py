"""A method's results in a few numbers that do not hide anybody: means with intervals, the spread
over clients, the worst decile, who gained and who was hurt; for seen and unseen and each domain.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.errors import DataError
from sartor.evaluation.means import ENOUGH, mean_interval
from sartor.evaluation.statistics import Gains, Metric, gains, jsonable, quantiles, worst_decile
from sartor.types import Bools, Floats

if TYPE_CHECKING:
    from sartor.evaluation.scores import Scores

PERCENTILES = (5, 25, 50, 75, 95)
_METRICS: tuple[Metric, ...] = ("loss", "accuracy")


@dataclass(frozen=True)
class Estimate:
    """A mean over clients, each counting the same.

    Attributes:
        mean: the mean.
        interval: its 95% interval over clients; NaN where there is none (see `mean_interval`).
        rough: whether the interval is rough, for there are few clients.
    """

    mean: float
    interval: tuple[float, float]
    rough: bool


@dataclass(frozen=True)
class Spread(Estimate):
    """How a metric is distributed over clients.

    Attributes:
        weighted_mean: each client counting by its test examples; the mean over all examples.
        percentiles: 5, 25, 50, 75 and 95, over clients.
        worst_decile: mean over the worst tenth of the clients.
    """

    weighted_mean: float
    percentiles: Mapping[int, float]
    worst_decile: float


@dataclass(frozen=True)
class Change(Estimate):
    """How clients fare against the central model; a positive mean is better, whatever the metric.

    Attributes:
        gained, hurt, unchanged: shares of the clients by the raw sign of their change.
        gained_beyond_chance, hurt_beyond_chance: shares of the clients for which the change is
            more than their few test examples show by chance (see `gains`; decided over all
            clients together, in groups too); None where that cannot be known.
    """

    gained: float
    hurt: float
    unchanged: float
    gained_beyond_chance: float | None
    hurt_beyond_chance: float | None


@dataclass(frozen=True)
class Summary:
    """What `Scores.summary()` returns; prints as a table.

    Attributes:
        method, clients, examples: whose results, and over how many clients and test examples.
        loss, accuracy: the spread over clients; accuracy is None where it has no meaning.
        loss_change, accuracy_change: against the central model; None without a baseline.
        mixture_loss: of the clients' models on everybody's data, if it was measured.
        forgetting: mixture loss minus that of the central model; positive means forgotten.
        trained_rows: test examples that the models were trained on, if that was allowed.
        groups: the same for "seen", "unseen" and each "domain=...", as far as there are any.

    >>> from sartor.evaluation import Scores
    >>> scores = Scores("Local", ("a", "b"), [9, 9], [2, 1], [True, False], [1.0, 3.0, 5.0])
    >>> summary = scores.summary()
    >>> summary.loss.mean, summary.loss.weighted_mean, summary.groups["unseen"].loss.mean
    (3.5, 3.0, 5.0)
    """

    method: str
    clients: int
    examples: int
    loss: Spread
    accuracy: Spread | None = None
    loss_change: Change | None = None
    accuracy_change: Change | None = None
    mixture_loss: Estimate | None = None
    forgetting: Estimate | None = None
    trained_rows: int = 0
    groups: Mapping[str, Summary] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; None where a number is not finite or has no meaning."""
        return jsonable(dataclasses.asdict(self))

    def __str__(self) -> str:
        # A group that holds everybody says nothing new.
        groups = {"all": self} | {g: s for g, s in self.groups.items() if s.clients < self.clients}

        def rows(*names: str) -> list[list[str]]:
            return [
                [f"{name.replace('_', ' ')}, {group}", f"{summary.clients:,}", *_cells(found)]
                for name in names
                for group, summary in groups.items()
                if (found := getattr(summary, name)) is not None
            ]

        head = ["", "clients", "mean", "95% interval"]
        spread = ["by example", *(f"{q}%" for q in PERCENTILES), "worst 10%"]
        shares = ["gained", "hurt", "unchanged", "gained*", "hurt*"]
        lines = [f"{self.method}: {self.clients:,} clients, {self.examples:,} test examples"]
        if self.trained_rows:
            lines += [f"TOO GOOD: {self.trained_rows:,} of these examples were trained on"]
        lines += _aligned([*head, *spread], rows("loss", "accuracy"))
        if changes := rows("loss_change", "accuracy_change"):
            lines += ["", "against the central model (positive is better; *: beyond chance)"]
            lines += _aligned([*head, *shares], changes)
        if mixtures := rows("mixture_loss", "forgetting"):
            lines += ["", "on everybody's data", *_aligned(head, mixtures)]
        if any("rough" in line for line in lines[1:]):
            lines += ["", f"rough: fewer than {ENOUGH} clients, so unusual ones may be missing"]
        return "\n".join(lines)


def summarise(scores: Scores) -> Summary:
    """Summarise scores over all clients and over each group of them; see `Summary`."""
    if len(scores) == 0:
        raise DataError(f"{scores.method!r} has no clients to summarise: select at least one")
    measured = [metric for metric in _METRICS if getattr(scores, metric) is not None]
    verdicts = {m: gains(scores, m) for m in measured if scores.baseline is not None}
    everybody = np.ones(len(scores), np.bool_)
    masks = {"all": everybody, "seen": scores.seen, "unseen": ~scores.seen}
    if scores.domain is not None:
        domain = np.asarray(scores.domain)
        masks |= {f"domain={name}": domain == name for name in sorted(set(scores.domain))}
    groups = {name: _over(scores, mask, verdicts) for name, mask in masks.items() if mask.any()}
    return dataclasses.replace(groups.pop("all"), groups=groups)


def _over(scores: Scores, mask: Bools, verdicts: Mapping[Metric, Gains]) -> Summary:
    weights = scores.test_size[mask]
    found: dict[str, Any] = {}
    for metric in _METRICS:
        values = getattr(scores, metric)
        if values is not None:
            found[metric] = _spread(values[mask], weights, metric == "accuracy")
        if metric in verdicts:
            found[f"{metric}_change"] = _change(verdicts[metric].select(mask))
    if "trained_rows" in scores.extra:
        found["trained_rows"] = int(scores.extra["trained_rows"][mask].sum())
    mixture = scores.extra.get("mixture_loss")
    central = scores.extra.get("central_mixture_loss")
    if mixture is not None:
        found["mixture_loss"] = Estimate(*_estimate(mixture[mask]))
        if central is not None:
            with np.errstate(invalid="ignore"):  # two infinite losses have no difference
                forgetting = (mixture - central)[mask]
            found["forgetting"] = Estimate(*_estimate(forgetting))
    return Summary(scores.method, int(mask.sum()), int(weights.sum()), **found)


def _estimate(
    values: Floats, least: float = -math.inf, most: float = math.inf
) -> tuple[float, tuple[float, float], bool]:
    low, high, rough = mean_interval(values)
    if not math.isnan(low):
        low, high = max(low, least), min(high, most)
    with np.errstate(invalid="ignore"):
        return float(values.mean()), (low, high), rough


def _spread(values: Floats, weights: Any, higher_is_better: bool) -> Spread:
    found = quantiles(values, [q / 100 for q in PERCENTILES]).tolist()
    return Spread(
        *_estimate(values, 0.0, 1.0 if higher_is_better else math.inf),
        weighted_mean=float(np.average(values, weights=weights)),
        percentiles=dict(zip(PERCENTILES, found, strict=True)),
        worst_decile=worst_decile(values, higher_is_better),
    )


def _change(found: Gains) -> Change:
    sure = found.beyond_chance
    return Change(
        *_estimate(found.change),
        gained=float(np.mean(found.sign > 0)),
        hurt=float(np.mean(found.sign < 0)),
        unchanged=float(np.mean(found.sign == 0)),
        gained_beyond_chance=None if sure is None else float(np.mean(sure & (found.sign > 0))),
        hurt_beyond_chance=None if sure is None else float(np.mean(sure & (found.sign < 0))),
    )


def _cells(found: Estimate) -> list[str]:
    sign = "+" if isinstance(found, Change) else ""
    low, high = found.interval
    interval = f"{low:{sign}.4f} to {high:{sign}.4f}{' rough' * found.rough}"
    cells = [f"{found.mean:{sign}.4f}", "–" if math.isnan(low) else interval]
    if isinstance(found, Spread):
        rest = (found.weighted_mean, *found.percentiles.values(), found.worst_decile)
        cells += [f"{value:.4f}" for value in rest]
    elif isinstance(found, Change):
        shares = dataclasses.astuple(found)[3:]
        cells += ["–" if share is None else f"{share:.1%}" for share in shares]
    return cells


def _aligned(head: list[str], rows: list[list[str]]) -> list[str]:
    first, *others = (max(map(len, column)) for column in zip(head, *rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in [head, *rows]
    ]
