"""What the paper says about its synthetic experiment, tested on ours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from sartor.evaluation.statistics import sign_flip
from sartor.experiments.synthetic.cells import Cell, Place, table_place
from sartor.experiments.synthetic.methods import METHODS, PAPERS
from sartor.experiments.synthetic.population import TABLE_SAMPLES, Floats, Settings

LEVEL = 0.05
"""Below it a difference is beyond chance."""

ROUNDING = 0.05
"""Changes below it do not show in the paper's one decimal."""

Cells = Mapping[Place, Cell]


def claims(settings: Settings, cells: Cells, limits: Mapping[int, float]) -> list[dict[str, Any]]:
    """Each claim, whether it holds, the p-value of the test behind that, and what was found.

    All tests compare exact losses, paired over the populations: the mean over a population's
    clients is one observation. p-values are by sign flips; with so few populations that none can
    be below the level, or with one number of samples only, ``holds`` is ``None``.
    """
    few, many = min(settings.samples), max(settings.samples)
    found = [
        _best_with_few(cells, few, limits[4]),
        _best_with_many(cells, many),
        _followed_by(cells, many),
        _alike(cells, many),
        _falls(cells),
        _stays(cells),
    ]
    least = 2.0 ** (1 - settings.seeds)
    for claim in found:
        if least >= LEVEL:
            claim["holds"] = None
            claim["found"] += f" With {settings.seeds} populations p cannot be below {least:g}."
        elif few == many and claim["samples"] != TABLE_SAMPLES:
            claim["holds"] = None
            claim["found"] += " There is only one number of samples, neither small nor large."
    return found


def _means(cells: Cells, samples: int) -> dict[str, float]:
    """The mean loss of the paper's methods, the best first."""
    found = {m.name: float(cells[Place(samples, m.name)].exact.mean()) for m in PAPERS}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _seeds(cell: Cell) -> Floats:
    return cell.exact.mean(axis=1)


def _p_value(a: Cell, b: Cell) -> float:
    return sign_flip(_seeds(a) - _seeds(b))


def _leads(cells: Cells, samples: int, name: str) -> tuple[bool, float, str, dict[str, float]]:
    """Whether a method is the best beyond chance, against the best of the others."""
    means = _means(cells, samples)
    other = next(method for method in means if method != name)
    p_value = _p_value(cells[Place(samples, name)], cells[Place(samples, other)])
    return means[name] < means[other] and p_value < LEVEL, p_value, other, means


def _best_with_few(cells: Cells, samples: int, limit: float) -> dict[str, Any]:
    holds, p_value, other, means = _leads(cells, samples, "HypCluster")
    found = f"HypCluster has {means['HypCluster']:.3f}, and {other} {means[other]:.3f}."
    if means[other] < limit:
        found += (
            f" That is less than {limit:.3f}, the least that any four models can cost these "
            "clients: of a client's samples half show its cluster's symbol and a quarter its own, "
            "so that a few of them tell more about the client than its cluster does."
        )
        unstopped = float(cells[Place(samples, METHODS[-1].name)].exact.mean())
        if other == "Local" and unstopped > means["HypCluster"]:
            found += (
                " It takes a model that is kept from excluding what it has not seen: with ten "
                "times as many steps, and no label smoothing where it was chosen, Local has "
                f"{unstopped:.3f}, more than HypCluster."
            )
    return {
        "claim": "HypCluster performs the best when the number of samples per client is very small",
        "holds": holds,
        "p_value": p_value,
        "samples": samples,
        "found": found,
    }


def _best_with_many(cells: Cells, samples: int) -> dict[str, Any]:
    holds, p_value, other, means = _leads(cells, samples, "Mapper")
    found = f"Mapper has {means['Mapper']:.4f}, and {other} {means[other]:.4f}."
    if other == "Local" and means["Local"] < min(means["Mapper"], means["Finetune"]):
        found += (
            " Local starts from the uniform distribution, which is a part of every client's own. "
            "Finetune is the same but for its start, the central model, and has "
            f"{means['Finetune']:.4f}: other clients' symbols have to be unlearned first."
        )
    return {
        "claim": "Mapper performs the best when the number of samples per client is large",
        "holds": holds,
        "p_value": p_value,
        "samples": samples,
        "found": found,
    }


def _followed_by(cells: Cells, samples: int) -> dict[str, Any]:
    means = _means(cells, samples)
    personal = {"Mapper", "Finetune", "Dapper"}
    last = max(personal, key=lambda name: means[name])
    other = next(method for method in means if method not in personal)
    p_value = _p_value(cells[Place(samples, last)], cells[Place(samples, other)])
    spread = means[last] - min(means[name] for name in personal)
    order = ", ".join(f"{name} {mean:.4f}" for name, mean in means.items())
    return {
        "claim": "Mapper is followed closely by Finetune and Dapper, before all others",
        "holds": min(means.values()) == means["Mapper"]
        and means[last] < means[other]
        and p_value < LEVEL,
        "p_value": p_value,
        "samples": samples,
        "found": f"The order is {order}; between the three lie {spread:.4f}. The p-value is that "
        f"of {last}, the last of them, against {other}, the best of the others.",
    }


def _alike(cells: Cells, samples: int) -> dict[str, Any]:
    finetune, dapper = cells[Place(samples, "Finetune")], cells[Place(samples, "Dapper")]
    p_value = _p_value(finetune, dapper)
    difference = float(finetune.exact.mean() - dapper.exact.mean())
    better = "Dapper" if difference > 0 else "Finetune"
    once = sign_flip(finetune.test[0] - dapper.test[0])
    return {
        "claim": "The difference between Finetune and Dapper is statistically insignificant",
        "holds": p_value >= LEVEL,
        "p_value": p_value,
        "samples": samples,
        "found": f"{better} is better by {abs(difference):.4f}, paired over {len(finetune.exact)} "
        "populations and measured exactly; the test samples of the first one alone, paired over "
        f"clients, give p = {once:.2g}.",
    }


def _falls(cells: Cells) -> dict[str, Any]:
    row = [cells[table_place(q)] for q in (1, 2, 3, 4)]
    steps = [float((_seeds(a) - _seeds(b)).mean()) for a, b in itertools.pairwise(row)]
    p_value = max(_p_value(a, b) for a, b in itertools.pairwise(row))
    falls = ", ".join(f"{step:.3f}" for step in steps)
    return {
        "claim": "The test loss falls steadily until there are four clusters",
        "holds": min(steps) > 0 and p_value < LEVEL,
        "p_value": p_value,
        "samples": TABLE_SAMPLES,
        "found": f"From each q to the next it falls by {falls}. The p-value is the largest of the "
        "three.",
    }


def _stays(cells: Cells) -> dict[str, Any]:
    """A claim that nothing changes is tested against a change that would show."""
    fall = _seeds(cells[table_place(4)]) - _seeds(cells[table_place(5)])
    mean = float(fall.mean())
    p_value = max(sign_flip(fall - ROUNDING), sign_flip(fall + ROUNDING))
    way = "falls" if mean >= 0 else "rises"
    return {
        "claim": "From four clusters on, the test loss remains constant",
        "holds": abs(mean) < ROUNDING and p_value < LEVEL,
        "p_value": p_value,
        "samples": TABLE_SAMPLES,
        "found": f"With a fifth cluster it {way} by {abs(mean):.3f}. The p-value is that of a "
        f"change of {ROUNDING} or more, which the paper's one decimal would show.",
    }
