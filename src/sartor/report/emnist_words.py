"""How the EMNIST report writes names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sartor.report.page import interval, number

Row = Mapping[str, Any]

TABLES = {"table2": "seen", "table3": "unseen"}
"""Which writers a table is about."""

GROUPS = tuple(TABLES.values())

TURNED = {"mean": "mean", "low": "high", "high": "low"}
"""What an estimate becomes if its sign is turned."""

NAMES = {
    "fedavg": "FedAvg", "agnostic": "Agnostic", "hypcluster": "HypCluster",
    "finetune": "Finetune", "dapper": "Dapper", "mapper": "Mapper", "local": "Local",
    "adam": "Adam", "adagrad": "Adagrad", "kmeans": "k-means",
}  # fmt: skip


def titled(name: str) -> str:
    """A method as it is called.

    >>> titled("fedavg with adam + finetune")
    'FedAvg with Adam + Finetune'
    """
    return re.sub("[a-z]+", lambda word: NAMES.get(word[0], word[0]), name)


def cell_names(results: Row) -> dict[str, tuple[str, str]]:
    """The cells of the tables, by name: their rows and columns."""
    return {
        row if column == "initial" else f"{row} + {column}": (row, column)
        for row, cells in results["table2"].items()
        for column in cells
    }


def percent(value: float | None, digits: int = 2) -> str:
    """A share in per cent, without the sign; a dash where there is none."""
    return number(_hundred(value), digits=digits)


def points(value: float | None) -> str:
    """A difference of shares in percentage points."""
    return number(_hundred(value), "+", 2)


def percents(estimate: Row) -> str:
    """The interval of a share in per cent."""
    return interval([_hundred(estimate["low"]), _hundred(estimate["high"])], digits=2)


def all_points(estimate: Row) -> str:
    """The interval of a difference in percentage points."""
    return interval([_hundred(estimate["low"]), _hundred(estimate["high"])], "+", 2)


def as_claimed(claim: Row) -> Row:
    """A claim with differences above 0 where it holds: how many fewer are hurt, not how many more.

    >>> found = {"kind": "averse", "mean": 1.0, "low": 0.5, "high": 2.0, "by_seed": [1.0]}
    >>> as_claimed(found)["low"]
    -2.0
    """
    if claim["kind"] != "averse":
        return claim
    turned = {new: _less(claim[old]) for new, old in TURNED.items()}
    return {**claim, **turned, "by_seed": [_less(value) for value in claim["by_seed"]]}


def _less(value: float | None) -> float | None:
    return None if value is None else -value


def seeds_apart(estimate: Row) -> str:
    """The standard deviation between seeds, in percentage points."""
    return percent(estimate["seed_deviation"])


def each_seed(values: Sequence[float | None]) -> str:
    """The differences that seeds have found."""
    return ", ".join(points(value) for value in values)


def on_what(results: Row, paper: bool = False) -> str:
    """A reminder for captions where the handwriting is not real."""
    if not results["data"]["generated"]:
        return ""
    theirs = " The paper's numbers are of real EMNIST."
    return f" Generated handwriting, not real EMNIST.{theirs * paper}"


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value
