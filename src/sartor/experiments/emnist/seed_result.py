"""The result of one method in one seed, saved as soon as it is computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from sartor.evaluation import Scores
from sartor.experiments.common.saved import Part
from sartor.files import save_tree

ARRAYS = ("size", "test_size", "seen", "example_loss", "example_correct")


@dataclasses.dataclass(frozen=True)
class SeedResult(Part):
    """One method on the writers of one seed.

    Attributes:
        scores: its scores on every writer's test images.
        facts: its cost, what was chosen, how long it took, and the like.
    """

    scores: Scores
    facts: dict[str, Any]

    def save(self, path: Path, recipe: str) -> None:
        """Write it, completely or not at all."""
        scores = self.scores
        arrays = {name: np.asarray(getattr(scores, name)) for name in ARRAYS}
        arrays |= {f"extra {name}": np.asarray(v) for name, v in scores.extra.items()}
        about = {"clients": scores.client, "domain": scores.domain, "method": scores.method}
        metadata = {"about": json.dumps(about), "facts": json.dumps(self.facts), "recipe": recipe}
        save_tree(path, arrays, metadata)

    @classmethod
    def restored(cls, arrays: dict[str, Any], metadata: dict[str, str]) -> SeedResult:
        """The result that a file holds."""
        about, facts = (json.loads(metadata[key]) for key in ("about", "facts"))
        columns: dict[str, Any] = {name: arrays.pop(name) for name in ARRAYS}
        extra = {name.removeprefix("extra "): values for name, values in arrays.items()}
        scores = Scores(
            about["method"], about["clients"], domain=about["domain"], extra=extra, **columns
        )
        return cls(scores, dict(facts))
