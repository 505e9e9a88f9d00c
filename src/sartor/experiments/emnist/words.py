"""The names and the wording of the EMNIST experiment, on its page and on a terminal."""

import re
from collections.abc import Mapping
from typing import Any

from sartor.experiments.emnist.settings import GROUPS
from sartor.report.numbers import amount
from sartor.report.page import Row

TABLES = dict(zip(("table2", "table3"), GROUPS, strict=True))
"""Which writers a table is about."""

NAMES = {
    "fedavg": "FedAvg", "agnostic": "Agnostic", "hypcluster": "HypCluster",
    "finetune": "Finetune", "dapper": "Dapper", "mapper": "Mapper", "local": "Local",
    "adam": "Adam", "adagrad": "Adagrad", "kmeans": "k-means",
}  # fmt: skip

PARTS = {
    "local": "models of single writers",
    "controls": "controls",
    "lambda": "one λ for all",
    "starts": "HypCluster's other starts",
    "clusters": "other numbers of clusters",
    "order": "other orders of writers",
    "optimizers": "adaptive servers",
}
"""The parts beyond the tables."""


def titled(name: str) -> str:
    """A method's name as it is written.

    >>> titled("fedavg with adam + finetune")
    'FedAvg with Adam + Finetune'
    """
    return re.sub("[a-z]+", lambda word: NAMES.get(word[0], word[0]), name)


def method_name(row: str, column: str) -> str:
    """The method in a row and a column of the tables.

    >>> method_name("fedavg", "initial"), method_name("fedavg", "dapper")
    ('fedavg', 'fedavg + dapper')
    """
    return row if column == "initial" else f"{row} + {column}"


def table_methods(results: Row) -> dict[str, tuple[str, str]]:
    """The rows and columns of the tables, by method."""
    return {
        method_name(row, column): (row, column)
        for row, cells in results["table2"].items()
        for column in cells
    }


def as_claimed(claim: Row) -> Row:
    """A claim with differences above 0 where it holds: how many fewer writers are hurt.

    >>> found = {"kind": "averse", "mean": 1.0, "low": 0.5, "high": 2.0, "by_seed": [1.0]}
    >>> as_claimed(found)["low"]
    -2.0
    """
    if claim["kind"] != "averse":
        return claim

    # The interval of a single writer has no ends.
    low, high = (None if claim[end] is None else -claim[end] for end in ("high", "low"))
    by_seed = [-value for value in claim["by_seed"]]
    return {**claim, "mean": -claim["mean"], "low": low, "high": high, "by_seed": by_seed}


def verdict(claim: Row) -> str:
    """What was found about a claim, in two words."""
    if claim["holds"] is None:
        return "one seed"
    if claim["kind"] == "alike":
        return "none shown" if claim["holds"] else "they differ"
    if claim["holds"]:
        return "holds"
    return "the opposite" if claim["beyond_chance"] else "not shown"


def quick_version(results: Mapping[str, Any]) -> str:
    """What the quick version does not do."""
    settings = results["settings"]
    missing = [what for part, what in PARTS.items() if part not in settings["parts"]]
    left_out = f"Left out are {', '.join(missing)}. " if missing else ""
    full = {"rounds": (1000, "round"), "joint": (1000, "joint round"), "seeds": (3, "seed")}
    fewer = [
        f"{settings[key]} {word}{'s' * (settings[key] > 1)}{' of Mapper' * (key == 'joint')} "
        f"instead of {many}"
        for key, (many, word) in full.items()
        if settings[key] < many
    ]
    changes = [
        "a small network instead of the paper's CNN", f"{amount(results['data']['writers'])} "
        "writers", *fewer, f"{len(settings['cover'])} candidates λ instead of 11",
    ]  # fmt: skip
    return (
        f"This is the quick version: {', '.join(changes)}. {left_out}Its accuracies are not the "
        "paper's."
    )


def warm_rounds(algorithm: Row) -> int | None:
    """The rounds of HypCluster's warm start: a setting of its start, and before that its own."""
    start = algorithm.get("start")
    rounds = start.get("rounds") if isinstance(start, dict) else None
    return algorithm.get("warm_rounds", rounds)
