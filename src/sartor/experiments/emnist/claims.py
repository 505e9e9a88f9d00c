"""The paper's claims about its EMNIST experiment, tested on ours."""

from collections.abc import Collection
from typing import Any

import numpy as np

from sartor.evaluation import benjamini_hochberg
from sartor.experiments.common.statistics import LEVEL
from sartor.experiments.emnist.pooled import PooledSeeds
from sartor.experiments.emnist.settings import COLUMNS, GROUPS
from sartor.experiments.emnist.words import method_name, titled

COMPARED = (
    ("hypcluster", "hypcluster q=1"),
    ("hypcluster q=3", "hypcluster"),
    ("hypcluster q=4", "hypcluster"),
    ("fedavg with more rounds", "fedavg"),
    ("fedavg on all images", "fedavg"),
    ("fedavg with more rounds + finetune", "fedavg + mapper"),
    ("fedavg on all images + finetune", "fedavg + finetune"),
    ("fedavg + finetune with Dapper's steps", "fedavg + finetune"),
    ("fedavg + dapper with Finetune's steps", "fedavg + finetune"),
    ("fedavg + dapper with Finetune's steps", "fedavg + dapper"),
    ("fedavg + dapper", "fedavg + dapper with λ = 1"),
    ("fedavg + mapper", "fedavg + mapper without joint rounds"),
    ("fedavg + mapper without joint rounds, with Finetune's steps", "fedavg + finetune"),
    ("fedavg with adam", "fedavg"),
    ("fedavg with adagrad", "fedavg"),
    ("hypcluster with adam", "hypcluster"),
)
"""Controls, and the methods that they are compared with."""

PAIRS = (("dapper", "finetune"), ("mapper", "finetune"), ("dapper", "mapper"))

KINDS = {
    "better": ("{} is better than {}", 1),
    "alike": ("{} and {} do not differ", 0),
    "averse": ("{} hurts fewer writers than {}", -1),
}
"""The kinds of claims: their words, and the sign of the difference in accuracy, or in how many
writers are hurt."""

AT_LEAST = 0.043
"""By how much HypCluster is better than one model in the paper, at least."""


def claims(pooled: PooledSeeds) -> list[dict[str, Any]]:
    """Test each claim for seen and unseen writers.

    A difference counts if it is beyond chance over writers, among all claims of its kind (at most
    5% of those that count are expected to be false, by Benjamini and Hochberg), and has the same
    sign in every seed. Two methods with different central models, which are trained again in every
    seed, must also differ beyond chance over seeds; with one seed that cannot be decided, and
    ``holds`` is ``None``. A claim of no difference holds if none counts, which does not prove that
    there is none.
    """
    rows = pooled.settings.rows
    found: list[dict[str, Any]] = []
    for group in GROUPS:
        clustered = [row for row in ("fedavg", "agnostic") if row in rows and "hypcluster" in rows]
        for margin in (0.0, AT_LEAST):
            found += [
                _claim(pooled, "better", "hypcluster", row, group, margin) for row in clustered
            ]
        for row in rows:
            names = [method_name(row, column) for column in COLUMNS[1:]]
            found += [_claim(pooled, "better", name, row, group) for name in names]
        for row in rows:
            for kind, pairs in (("alike", PAIRS), ("averse", PAIRS[:2])):
                methods = [(method_name(row, a), method_name(row, b)) for a, b in pairs]
                found += [_claim(pooled, kind, a, b, group) for a, b in methods]
    for kind in KINDS:
        mine = [claim for claim in found if claim["kind"] == kind]
        decide_differences(mine)
        for claim in mine:
            _decide_claim(claim)
    return found


def decide_differences(differences: list[dict[str, Any]]) -> None:
    """Set which differences are beyond chance; ``None`` where one seed cannot decide it."""
    over_writers = benjamini_hochberg([each["p_value"] for each in differences], LEVEL)
    for each, beyond in zip(differences, over_writers, strict=True):
        signs = np.sign(np.array(each["by_seed"]) - each.get("margin", 0.0))
        differs: bool | None = bool(beyond and (signs == signs[0]).all())
        if _central(each["a"]) != _central(each["b"]):
            over_seeds = each["p_seeds"]
            differs = None if over_seeds is None else differs and over_seeds < LEVEL
        each["beyond_chance"] = differs


def _decide_claim(claim: dict[str, Any]) -> None:
    """Whether a claim holds, given whether there is a difference."""
    (_, wanted), differs = KINDS[claim["kind"]], claim["beyond_chance"]
    sign = np.sign(claim["by_seed"][0] - claim["margin"])
    claim["beyond_chance"] = bool(differs)
    if differs is None:
        claim["holds"] = None
    else:
        claim["holds"] = bool(differs and sign == wanted) if wanted else not differs


def _central(name: str) -> tuple[str, bool]:
    """The central model of a method; Mapper's joint rounds train it further."""
    row, _, personal = name.partition(" + ")
    return row, personal.startswith("mapper") and "without joint rounds" not in personal


def comparisons(pooled: PooledSeeds, names: Collection[str]) -> list[dict[str, Any]]:
    """The differences between controls and other methods, where both have results."""
    found = [
        {"a": a, "b": b, "group": group, **pooled.tested(pooled.gain(a, b, group))}
        for a, b in COMPARED
        if {a, b} <= set(names)
        for group in GROUPS
    ]
    decide_differences(found)
    return found


def _claim(
    pooled: PooledSeeds, kind: str, a: str, b: str, group: str, margin: float = 0.0
) -> dict[str, Any]:
    """The difference that a claim is about, and its test."""
    words = KINDS[kind][0].format(titled(a), titled(b))
    words += f" by at least {100 * margin:g} points" if margin else ""
    values = pooled.gain(a, b, group)
    if kind == "averse":  # who is worse off than with the central model
        gains = [pooled.gain(name, _central(name)[0], group) for name in (a, b)]
        first, second = (np.where(np.isnan(gain), np.nan, gain < 0) for gain in gains)
        values = first - second
    return {
        "claim": words, "kind": kind, "a": a, "b": b, "group": group, "margin": margin,
        **pooled.tested(values, margin),
    }  # fmt: skip
