"""The result of one method in one seed, saved as soon as it is computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from sartor.caching import made_once
from sartor.errors import DataError
from sartor.evaluation import Scores
from sartor.experiments.common.saved import damaged, load_saved, recipe
from sartor.files import save_tree
from sartor.runs.record import versions

ARRAYS = ("size", "test_size", "seen", "example_loss", "example_correct")


@dataclasses.dataclass(frozen=True)
class SeedResult:
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
    def load(cls, path: Path, recipe: str) -> SeedResult:
        """Read it; one with another recipe is refused."""
        arrays, metadata = load_saved(path, recipe)
        try:
            about, facts = (json.loads(metadata[key]) for key in ("about", "facts"))
            columns: dict[str, Any] = {name: arrays.pop(name) for name in ARRAYS}
            extra = {name.removeprefix("extra "): values for name, values in arrays.items()}
            scores = Scores(
                about["method"], about["clients"], domain=about["domain"], extra=extra, **columns
            )
            return cls(scores, dict(facts))
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise damaged(path) from error


@made_once(maxsize=64)
def recipe_of(what: str, data: str) -> str:
    """What a result depends on: how it is computed, the data, and the versions."""
    return recipe(json.dumps([what, data, versions()]))
