"""A cell: one method's scores on every writer's test images, kept as soon as it is done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from sartor.caching import made_once
from sartor.errors import CheckpointError, FileError
from sartor.evaluation import Scores
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.runs.record import versions

ARRAYS = ("size", "test_size", "seen", "example_loss", "example_correct")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method on the writers of one seed.

    Attributes:
        scores: its score table.
        facts: what else is to be known of it: its cost, what was chosen, how long it took.
    """

    scores: Scores
    facts: dict[str, Any]

    def save(self, path: Path, recipe: str) -> None:
        """Write it, whole or not at all."""
        scores = self.scores
        arrays = {name: np.asarray(getattr(scores, name)) for name in ARRAYS}
        arrays |= {f"extra {name}": np.asarray(v) for name, v in scores.extra.items()}
        about = {"clients": scores.client, "domain": scores.domain, "method": scores.method}
        metadata = {"about": json.dumps(about), "facts": json.dumps(self.facts), "recipe": recipe}
        save_tree(path, arrays, metadata)

    @classmethod
    def load(cls, path: Path, recipe: str) -> Cell:
        """Read it back; refuses one that was made otherwise."""
        try:
            metadata, arrays = read_metadata(path), load_arrays(path, "")
        except FileError as error:
            raise FileError(f"{path} is damaged; remove it, and it is made again") from error
        if metadata.get("recipe") != recipe:
            raise CheckpointError(
                f"{path} was made by other settings or another version of Sartor or JAX; remove "
                "it, and it is made again"
            )
        about = json.loads(metadata["about"])
        extra = {
            name.removeprefix("extra "): values
            for name, values in arrays.items()
            if name.startswith("extra ")
        }
        columns: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        scores = Scores(
            about["method"], about["clients"], domain=about["domain"], extra=extra, **columns
        )
        return cls(scores, json.loads(metadata["facts"]))


@made_once(maxsize=64)
def recipe_of(what: str, data: str) -> str:
    """What a cell depends on: how it is made, the data, and the versions."""
    parts = [what, data, versions()]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def slug(name: str) -> str:
    """A cell's name as a file's.

    >>> slug("fedavg + dapper with λ = 0.5")
    'fedavg-dapper-with-0.5'
    """
    return re.sub("[^a-zA-Z0-9.]+", "-", name)
