"""The paper's claims about its synthetic experiment, tested on ours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sartor.evaluation.statistics import sign_flip
from sartor.experiments.common.claims import LEVEL
from sartor.experiments.synthetic.methods import METHODS, PAPERS
from sartor.experiments.synthetic.population import TABLE_SAMPLES, Floats, SyntheticSettings
from sartor.experiments.synthetic.work import MethodResult, ResultKey, Results, table_key
from sartor.report.page import Texts

TEXTS = Texts(Path(__file__).with_name("claims.md"))

ROUNDING = 0.05
"""Smaller changes do not show in the paper's one decimal."""


class TestedClaim(NamedTuple):
    """A claim, whether it holds, the p-value of the test, and the finding in words."""

    claim: str
    holds: bool | None
    p_value: float
    samples: int
    found: str


def claims(
    settings: SyntheticSettings, results: Results, limits: Mapping[int, float]
) -> list[dict[str, Any]]:
    """Test each claim.

    All tests compare exact losses, paired over the populations: the mean over a population's
    clients is one observation. p-values are from sign flips. ``holds`` is ``None`` if there are so
    few populations that no p-value can be below the level, or only one number of samples.
    """
    few, many = min(settings.samples), max(settings.samples)
    tested = [
        _best_with_few(results, few, limits[4]),
        _best_with_many(results, many),
        _followed_by(results, many),
        _alike(results, many),
        _falls(results),
        _stays(results),
    ]
    least = 2.0 ** (1 - settings.seeds)
    found = []
    for claim in tested:
        why = ""
        if least >= LEVEL:
            why = f" With {settings.seeds} populations p cannot be below {least:g}."
        elif few == many and claim.samples != TABLE_SAMPLES:
            why = " There is only one number of samples, neither small nor large."
        if why:
            claim = claim._replace(holds=None, found=claim.found + why)
        found.append(claim._asdict())
    return found


def _means(results: Results, samples: int) -> dict[str, float]:
    """The mean losses of the paper's methods, the best first."""
    found = {m.name: float(results[ResultKey(samples, m.name)].exact.mean()) for m in PAPERS}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _by_seed(result: MethodResult) -> Floats:
    return result.exact.mean(axis=1)


def _p_value(a: MethodResult, b: MethodResult) -> float:
    return sign_flip(_by_seed(a) - _by_seed(b))


def _leads(results: Results, samples: int, name: str) -> tuple[bool, float, str, dict[str, float]]:
    """Whether a method is the best beyond chance, against the best of the others."""
    means = _means(results, samples)
    other = next(method for method in means if method != name)
    p_value = _p_value(results[ResultKey(samples, name)], results[ResultKey(samples, other)])
    return means[name] < means[other] and p_value < LEVEL, p_value, other, means


def _best_with_few(results: Results, samples: int, limit: float) -> TestedClaim:
    claim = "HypCluster performs the best when the number of samples per client is very small"
    holds, p_value, other, means = _leads(results, samples, "HypCluster")
    found = f"HypCluster has {means['HypCluster']:.3f}, and {other} {means[other]:.3f}."
    if means[other] < limit:
        found += " " + TEXTS("few samples suffice", limit=limit)
        longer = float(results[ResultKey(samples, METHODS[-1].name)].exact.mean())
        if other == "Local" and longer > means["HypCluster"]:
            found += " " + TEXTS("unless trained for long", longer=longer)
    return TestedClaim(claim, holds, p_value, samples, found)


def _best_with_many(results: Results, samples: int) -> TestedClaim:
    claim = "Mapper performs the best when the number of samples per client is large"
    holds, p_value, other, means = _leads(results, samples, "Mapper")
    found = f"Mapper has {means['Mapper']:.4f}, and {other} {means[other]:.4f}."
    if other == "Local" and means["Local"] < min(means["Mapper"], means["Finetune"]):
        found += " " + TEXTS("uniform start", finetune=means["Finetune"])
    return TestedClaim(claim, holds, p_value, samples, found)


def _followed_by(results: Results, samples: int) -> TestedClaim:
    claim = "Mapper is followed closely by Finetune and Dapper, before all others"
    means = _means(results, samples)
    personal = {"Mapper", "Finetune", "Dapper"}
    last = max(personal, key=lambda name: means[name])
    other = next(method for method in means if method not in personal)
    p_value = _p_value(results[ResultKey(samples, last)], results[ResultKey(samples, other)])
    gap = means[last] - min(means[name] for name in personal)
    order = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())
    first = min(means.values()) == means["Mapper"]
    holds = first and means[last] < means[other] and p_value < LEVEL
    found = TEXTS("followed", order=order, gap=gap, last=last, other=other)
    return TestedClaim(claim, holds, p_value, samples, found)


def _alike(results: Results, samples: int) -> TestedClaim:
    claim = "The difference between Finetune and Dapper is statistically insignificant"
    finetune, dapper = (results[ResultKey(samples, name)] for name in ("Finetune", "Dapper"))
    p_value = _p_value(finetune, dapper)
    difference = float(finetune.exact.mean() - dapper.exact.mean())
    found = TEXTS(
        "alike", better="Dapper" if difference > 0 else "Finetune", difference=abs(difference),
        populations=len(finetune.exact), first=sign_flip(finetune.test[0] - dapper.test[0]),
    )  # fmt: skip
    return TestedClaim(claim, p_value >= LEVEL, p_value, samples, found)


def _falls(results: Results) -> TestedClaim:
    claim = "The test loss falls steadily until there are four clusters"
    pairs = list(itertools.pairwise(results[table_key(q)] for q in (1, 2, 3, 4)))
    steps = [float((_by_seed(a) - _by_seed(b)).mean()) for a, b in pairs]
    p_value = max(_p_value(a, b) for a, b in pairs)
    falls = ", ".join(f"{step:.3f}" for step in steps)
    found = f"From each q to the next it falls by {falls}. The p-value is the largest of the three."
    return TestedClaim(claim, min(steps) > 0 and p_value < LEVEL, p_value, TABLE_SAMPLES, found)


def _stays(results: Results) -> TestedClaim:
    """A claim of no change is tested against a change that would show."""
    claim = "From four clusters on, the test loss remains constant"
    fall = _by_seed(results[table_key(4)]) - _by_seed(results[table_key(5)])
    mean = float(fall.mean())
    p_value = max(sign_flip(fall - ROUNDING), sign_flip(fall + ROUNDING))
    holds = abs(mean) < ROUNDING and p_value < LEVEL
    way = "falls" if mean >= 0 else "rises"
    found = TEXTS("stays", way=way, change=abs(mean), rounding=ROUNDING)
    return TestedClaim(claim, holds, p_value, TABLE_SAMPLES, found)
