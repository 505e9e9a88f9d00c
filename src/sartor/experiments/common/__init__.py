"""What several experiments share: their directory, saved parts, workers and verdicts."""

from typing import Any

PAPER: dict[str, Any] = {"guard": False, "shrink": False}
"""The paper's personal algorithms: every client takes its own model, and chooses by itself."""
