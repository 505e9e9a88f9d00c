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
"""What controls are compared with."""
PAIRS = (("dapper", "finetune"), ("mapper", "finetune"), ("dapper", "mapper"))
AT_LEAST = 0.043
"""By how much the paper has HypCluster better than one model."""
LEVEL = 0.05
"""The share of false ones among the differences that are believed."""


def claims(pool: Pool) -> list[dict[str, Any]]:
    """Each claim for seen and unseen writers: the difference, a paired test, and whether it holds.

    A difference is believed if it is beyond chance over writers, among all claims of its kind (at
    most 5% false ones among those believed, by Benjamini and Hochberg), and has the same sign in
    every seed. Where the two have different central models, trained anew in every seed, it must be
    beyond chance over seeds as well: central models of two seeds differ, too, and with one seed
    nothing can be said of that (``holds`` is ``None``). A claim of no difference holds if none is
    believed, which does not prove that there is none.
    """
    rows = pool.settings.rows
    found: list[dict[str, Any]] = []
    for group in GROUPS:
        others = [row for row in ("fedavg", "agnostic") if row in rows and "hypcluster" in rows]
        found += [_better(pool, "hypcluster", other, group) for other in others]
        found += [_better(pool, "hypcluster", other, group, AT_LEAST) for other in others]
        pairs = itertools.product(rows, PERSONAL)
        found += [_better(pool, cell_name(row, personal), row, group) for row, personal in pairs]
        for row in rows:
            found += [_alike(pool, row, a, b, group) for a, b in PAIRS]
            found += [_averse(pool, row, personal, group) for personal in ("dapper", "mapper")]
    for kind in ("better", "alike", "averse"):
        mine = [claim for claim in found if claim["kind"] == kind]
        believe(mine)
        for claim in mine:
            _decide(claim)
    return found


def believe(differences: list[dict[str, Any]]) -> None:
    """Set which of some differences are believed; ``None`` where one seed cannot say."""
    believed = benjamini_hochberg([each["p_value"] for each in differences], LEVEL)
    for each, beyond in zip(differences, believed, strict=True):
        signs = np.sign(np.array(each["by_seed"]) - each.get("margin", 0.0))
        differs: bool | None = bool(beyond and (signs == signs[0]).all())
        if _central(each["a"]) != _central(each["b"]):
            over_seeds = each["p_seeds"]
            differs = None if over_seeds is None else differs and over_seeds < LEVEL
        each["beyond_chance"] = differs


def _decide(claim: dict[str, Any]) -> None:
    """Whether a claim holds, given whether there is a difference."""
    wanted, differs = claim.pop("wanted"), claim["beyond_chance"]
    sign = np.sign(claim["by_seed"][0] - claim["margin"])
    claim["beyond_chance"] = bool(differs)
    if differs is None:
        claim["holds"] = None
    else:
        claim["holds"] = bool(differs and sign == wanted) if wanted else not differs


def _central(name: str) -> tuple[str, bool]:
    """The central model behind a method; Mapper's joint rounds train it further."""
    row, _, personal = name.partition(" + ")
    return row, personal.startswith("mapper") and "without joint rounds" not in personal


def comparisons(pool: Pool, names: Collection[str]) -> list[dict[str, Any]]:
    """Differences that say where others come from, as far as their cells are there."""
    found = [
        {"a": a, "b": b, "group": group, **pool.difference(a, b, group)}
        for a, b in COMPARED
        if {a, b} <= set(names)
        for group in GROUPS
    ]
    believe(found)
    return found


def _title(name: str) -> str:
    row, _, personal = name.partition(" + ")
    return TITLES[row] + (f" + {TITLES[personal]}" if personal else "")


def _better(pool: Pool, a: str, b: str, group: str, by: float = 0.0) -> dict[str, Any]:
    """Higher accuracy, by some points at least."""
    claim = f"{_title(a)} is better than {_title(b)}"
    claim += f" by at least {100 * by:g} points" if by else ""
    values = pool.values(a, group) - pool.values(b, group)
    return _claim(claim, "better", a, b, group, 1, pool.tested(values, by), by)


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
    claim: str, kind: str, a: str, b: str, group: str, wanted: int, found: dict[str, Any],
    margin: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    return {
        "claim": claim, "kind": kind, "a": a, "b": b, "group": group, "wanted": wanted,
        "margin": margin, **found,
    }  # fmt: skip
