"""The paper's claims about its synthetic experiment, tested on ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sartor.evaluation.means import mean_test
from sartor.experiments.common.statistics import LEVEL
from sartor.experiments.synthetic.methods import METHODS, PAPERS
from sartor.experiments.synthetic.population import TABLE_SAMPLES, SyntheticSettings
from sartor.experiments.synthetic.work import ResultKey, Results, table_key
from sartor.report.template import Template
from sartor.types import Floats

TEMPLATE = Template(Path(__file__).with_name("claims.md"))

ROUNDING = 0.05
"""Smaller changes do not show in the paper's one decimal."""


Verdict = tuple[bool, float, str]
"""Whether a claim holds, the p-value of its test, and the finding in words."""


def claims(
    settings: SyntheticSettings, results: Results, limits: Mapping[int, float]
) -> list[dict[str, Any]]:
    """Test each claim.

    All tests compare exact losses, paired over the populations: the mean over a population's
    clients is one observation. ``holds`` is ``None`` if there are so
    few populations that no p-value can be below the level, or only one number of samples.
    """
    few, many = min(settings.samples), max(settings.samples)
    best = "performs the best when the number of samples per client is"
    tested = (
        (f"HypCluster {best} very small", few, _best_with_few(results, few, limits[4])),
        (f"Mapper {best} large", many, _best_with_many(results, many)),
        (
            "Mapper is followed closely by Finetune and Dapper, before all others",
            many,
            _followed_by(results, many),
        ),
        (
            "The difference between Finetune and Dapper is statistically insignificant",
            many,
            _alike(results, many),
        ),
        (
            "The test loss falls steadily until there are four clusters",
            TABLE_SAMPLES,
            _falls(results),
        ),
        ("From four clusters on, the test loss remains constant", TABLE_SAMPLES, _stays(results)),
    )
    least = 2.0 ** (1 - settings.seeds)
    found = []
    for claim, samples, (holds, p_value, words) in tested:
        why = ""
        if least >= LEVEL:
            why = f" With {settings.seeds} populations p cannot be below {least:g}."
        elif few == many and samples != TABLE_SAMPLES:
            why = " There is only one number of samples, neither small nor large."
        found.append({
            "claim": claim, "holds": None if why else holds, "p_value": p_value,
            "samples": samples, "found": words + why,
        })  # fmt: skip
    return found


def _means(results: Results, samples: int) -> dict[str, float]:
    """The mean losses of the paper's methods, the best first."""
    found = {m.name: float(results[samples, m.name].exact.mean()) for m in PAPERS}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _fall(results: Results, a: ResultKey, b: ResultKey) -> Floats:
    """[populations] how much lower the mean loss is with b than with a."""
    return results[a].exact.mean(axis=1) - results[b].exact.mean(axis=1)


def _leads(results: Results, samples: int, name: str) -> tuple[bool, float, str, dict[str, float]]:
    """Whether a method is the best beyond chance, against the best of the others."""
    means = _means(results, samples)
    other = next(method for method in means if method != name)
    p_value = mean_test(_fall(results, (samples, name), (samples, other)))
    return means[name] < means[other] and p_value < LEVEL, p_value, other, means


def _best_with_few(results: Results, samples: int, limit: float) -> Verdict:
    holds, p_value, other, means = _leads(results, samples, "HypCluster")
    found = f"HypCluster has {means['HypCluster']:.3f}, and {other} {means[other]:.3f}."
    if means[other] < limit:
        found += " " + TEMPLATE.text("few samples suffice", limit=limit)
        longer = float(results[samples, METHODS[-1].name].exact.mean())
        if other == "Local" and longer > means["HypCluster"]:
            found += " " + TEMPLATE.text("unless trained for long", longer=longer)
    return holds, p_value, found


def _best_with_many(results: Results, samples: int) -> Verdict:
    holds, p_value, other, means = _leads(results, samples, "Mapper")
    found = f"Mapper has {means['Mapper']:.4f}, and {other} {means[other]:.4f}."
    if other == "Local" and means["Local"] < min(means["Mapper"], means["Finetune"]):
        found += " " + TEMPLATE.text("uniform start", finetune=means["Finetune"])
    return holds, p_value, found


def _followed_by(results: Results, samples: int) -> Verdict:
    means = _means(results, samples)
    personal = {"Mapper", "Finetune", "Dapper"}
    last = max(personal, key=lambda name: means[name])
    other = next(method for method in means if method not in personal)
    p_value = mean_test(_fall(results, (samples, last), (samples, other)))
    gap = means[last] - min(means[name] for name in personal)
    order = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())
    first = min(means.values()) == means["Mapper"]
    holds = first and means[last] < means[other] and p_value < LEVEL
    return holds, p_value, TEMPLATE.text("followed", order=order, gap=gap, last=last, other=other)


def _alike(results: Results, samples: int) -> Verdict:
    p_value = mean_test(_fall(results, (samples, "Finetune"), (samples, "Dapper")))
    finetune, dapper = results[samples, "Finetune"], results[samples, "Dapper"]
    difference = float(finetune.exact.mean() - dapper.exact.mean())
    found = TEMPLATE.text(
        "alike", better="Dapper" if difference > 0 else "Finetune", difference=abs(difference),
        populations=len(finetune.exact), first=mean_test(finetune.test[0] - dapper.test[0]),
    )  # fmt: skip
    return p_value >= LEVEL, p_value, found


def _falls(results: Results) -> Verdict:
    steps = [_fall(results, table_key(q), table_key(q + 1)) for q in (1, 2, 3)]
    means = [float(step.mean()) for step in steps]
    p_value = max(map(mean_test, steps))
    falls = ", ".join(f"{mean:.3f}" for mean in means)
    found = f"From each q to the next it falls by {falls}. The p-value is the largest of the three."
    return min(means) > 0 and p_value < LEVEL, p_value, found


def _stays(results: Results) -> Verdict:
    """A claim of no change is tested against a change that would show."""
    fall = _fall(results, table_key(4), table_key(5))
    mean = float(fall.mean())
    p_value = max(mean_test(fall - ROUNDING), mean_test(fall + ROUNDING))
    way = "falls" if mean >= 0 else "rises"
    found = TEMPLATE.text("stays", way=way, change=abs(mean), rounding=ROUNDING)
    return abs(mean) < ROUNDING and p_value < LEVEL, p_value, found
