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
from sartor.errors import CheckpointError, DataError, FileError
from sartor.evaluation import Scores
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.runs.record import versions

ARRAYS = ("size", "test_size", "seen", "example_loss", "example_correct")


OTHER = (
    "{0} was made from other data or settings, or by another version of Sartor or JAX; choose "
    "another --out, or remove the directory that it is in to make everything again"
)


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
            if metadata["recipe"] != recipe:
                raise CheckpointError(OTHER.format(path))
            about, facts = (json.loads(metadata[key]) for key in ("about", "facts"))
            extra = {
                name.removeprefix("extra "): values
                for name, values in arrays.items()
                if name.startswith("extra ")
            }
            columns: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
            scores = Scores(
                about["method"], about["clients"], domain=about["domain"], extra=extra, **columns
            )
            return cls(scores, dict(facts))
        except (FileError, DataError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is damaged; remove it, and it is made again") from error


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
