"""What the paper says about its EMNIST experiment, tested on ours."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np

from sartor.evaluation import benjamini_hochberg
from sartor.experiments.emnist.pool import GROUPS, Pool, cell_name

TITLES = {
    "fedavg": "FedAvg", "agnostic": "Agnostic", "hypcluster": "HypCluster",
    "finetune": "Finetune", "dapper": "Dapper", "mapper": "Mapper",
}  # fmt: skip
PERSONAL = ("finetune", "dapper", "mapper")
COMPARED = (
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
)
"""What controls are compared with."""
PAIRS = (("dapper", "finetune"), ("mapper", "finetune"), ("dapper", "mapper"))
LEVEL = 0.05
"""The share of false ones among the differences that are believed."""


def claims(pool: Pool) -> list[dict[str, Any]]:
    """Each claim for seen and unseen writers: the difference, a paired test, and whether it holds.

    A claim of a difference holds if it is beyond chance over writers, all tests together (at most
    5% false ones among those believed, by Benjamini and Hochberg), and has the same sign in every
    seed. A claim of no difference holds if that is not so. p-values are of paired sign-flip tests
    over writers.
    """
    rows = pool.settings.rows
    found: list[dict[str, Any]] = []
    for group in GROUPS:
        others = [row for row in ("fedavg", "agnostic") if row in rows and "hypcluster" in rows]
        found += [_better(pool, "hypcluster", other, group) for other in others]
        pairs = itertools.product(rows, PERSONAL)
        found += [_better(pool, cell_name(row, personal), row, group) for row, personal in pairs]
        for row in rows:
            found += [_alike(pool, row, a, b, group) for a, b in PAIRS]
            found += [_averse(pool, row, personal, group) for personal in ("dapper", "mapper")]
    believed = benjamini_hochberg([claim["p_value"] for claim in found], LEVEL)
    for claim, beyond in zip(found, believed, strict=True):
        signs = np.sign(claim["by_seed"])
        differs = claim["beyond_chance"] = bool(beyond and (signs == signs[0]).all())
        wanted = claim.pop("wanted")
        claim["holds"] = differs and bool(signs[0] == wanted) if wanted else not differs
    return found


def comparisons(pool: Pool, names: Collection[str]) -> list[dict[str, Any]]:
    """Differences that say where others come from, as far as their cells are there."""
    return [
        {"a": a, "b": b, "group": group, **pool.difference(a, b, group)}
        for a, b in COMPARED
        if {a, b} <= set(names)
        for group in GROUPS
    ]


def _title(name: str) -> str:
    row, _, personal = name.partition(" + ")
    return TITLES[row] + (f" + {TITLES[personal]}" if personal else "")


def _better(pool: Pool, a: str, b: str, group: str) -> dict[str, Any]:
    """Higher accuracy."""
    claim = f"{_title(a)} is better than {_title(b)}"
    return _claim(claim, "better", a, b, group, 1, pool.difference(a, b, group))


def _alike(pool: Pool, row: str, a: str, b: str, group: str) -> dict[str, Any]:
    """No difference in accuracy."""
    names = cell_name(row, a), cell_name(row, b)
    claim = f"{_title(names[0])} and {_title(names[1])} do not differ"
    return _claim(claim, "alike", *names, group, 0, pool.difference(*names, group))


def _averse(pool: Pool, row: str, personal: str, group: str) -> dict[str, Any]:
    """More risk averse: fewer writers are worse off than with the central model."""
    names = cell_name(row, personal), cell_name(row, "finetune")
    hurt = [pool.values(name, group) - pool.values(row, group) for name in names]
    shares = [np.where(np.isnan(gain), np.nan, gain < 0) for gain in hurt]
    claim = f"{_title(names[0])} hurts fewer writers than {_title(names[1])}"
    return _claim(claim, "averse", *names, group, -1, pool.tested(shares[0] - shares[1]))


def _claim(
    claim: str, kind: str, a: str, b: str, group: str, wanted: int, found: dict[str, Any]
) -> dict[str, Any]:
    return {"claim": claim, "kind": kind, "a": a, "b": b, "group": group, "wanted": wanted, **found}
