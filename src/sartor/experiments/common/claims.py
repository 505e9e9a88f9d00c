"""Claims of the paper, and what the experiments find about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LEVEL = 0.05
"""A difference with a smaller p-value is beyond chance."""


def count(claims: Sequence[Mapping[str, Any]], holds: bool | None = True) -> int:
    """How many claims have this verdict.

    >>> count([{"holds": True}, {"holds": None}], holds=None)
    1
    """
    return sum(claim["holds"] is holds for claim in claims)
