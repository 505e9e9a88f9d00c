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
            found += [_better(pooled, "hypcluster", row, group, margin) for row in clustered]
        for row in rows:
            names = [method_name(row, column) for column in COLUMNS[1:]]
            found += [_better(pooled, name, row, group) for name in names]
        for row in rows:
            found += [_alike(pooled, row, a, b, group) for a, b in PAIRS]
            found += [_averse(pooled, row, personal, group) for personal in ("dapper", "mapper")]
    for kind in ("better", "alike", "averse"):
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
    """Whether a claim holds, given whether there is a difference; ``wanted`` is its sign."""
    wanted, differs = claim.pop("wanted"), claim["beyond_chance"]
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
        {"a": a, "b": b, "group": group, **pooled.difference(a, b, group)}
        for a, b in COMPARED
        if {a, b} <= set(names)
        for group in GROUPS
    ]
    decide_differences(found)
    return found


def _better(pooled: PooledSeeds, a: str, b: str, group: str, margin: float = 0.0) -> dict[str, Any]:
    """Higher accuracy, by a margin."""
    claim = f"{titled(a)} is better than {titled(b)}"
    claim += f" by at least {100 * margin:g} points" if margin else ""
    found = pooled.tested(pooled.values(a, group) - pooled.values(b, group), margin)
    return {
        "claim": claim, "kind": "better", "a": a, "b": b, "group": group, "wanted": 1,
        "margin": margin, **found,
    }  # fmt: skip


def _alike(pooled: PooledSeeds, row: str, a: str, b: str, group: str) -> dict[str, Any]:
    """No difference in accuracy."""
    a, b = method_name(row, a), method_name(row, b)
    return {
        "claim": f"{titled(a)} and {titled(b)} do not differ", "kind": "alike", "a": a, "b": b,
        "group": group, "wanted": 0, "margin": 0.0, **pooled.difference(a, b, group),
    }  # fmt: skip


def _averse(pooled: PooledSeeds, row: str, personal: str, group: str) -> dict[str, Any]:
    """More risk averse: fewer writers are worse off than with the central model."""
    a, b = method_name(row, personal), method_name(row, "finetune")
    gains = [pooled.values(name, group) - pooled.values(row, group) for name in (a, b)]
    hurt = [np.where(np.isnan(gain), np.nan, gain < 0) for gain in gains]
    return {
        "claim": f"{titled(a)} hurts fewer writers than {titled(b)}", "kind": "averse", "a": a,
        "b": b, "group": group, "wanted": -1, "margin": 0.0, **pooled.tested(hurt[0] - hurt[1]),
    }  # fmt: skip
