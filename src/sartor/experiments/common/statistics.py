"""Small statistics that several experiments report."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 0.05
"""A difference with a smaller p-value is beyond chance."""


def tally(claims: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims there are, and how many have each verdict.

    >>> tally([{"holds": True}, {"holds": None}])
    {'total': 2, 'hold': 1, 'fail': 0, 'undecided': 1}
    """
    verdicts = [claim["holds"] for claim in claims]
    found = {"hold": True, "fail": False, "undecided": None}
    return {"total": len(verdicts), **{name: verdicts.count(v) for name, v in found.items()}}


def shares(chosen: npt.NDArray[Any]) -> dict[str, float]:
    """The share of each value.

    >>> shares(np.array([0.5, 1.0, 0.5, 0.0]))
    {'0': 0.25, '0.5': 0.5, '1': 0.25}
    """
    values, counts = np.unique(chosen, return_counts=True)
    return {f"{v:g}": float(n / chosen.size) for v, n in zip(values, counts, strict=True)}


def mean_cost(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each kind of cost.

    >>> mean_cost([{"up": 1, "down": 2}, {"up": 3, "down": 2}])
    {'up': 2.0, 'down': 2.0}
    """
    return {kind: float(np.mean([cost[kind] for cost in costs])) for kind in costs[0]}
