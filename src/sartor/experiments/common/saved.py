"""Finished parts of an experiment, saved so that a resumed run need not compute them again."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Self

import numpy as np

from sartor.documents import check_schema, parse_json
from sartor.errors import CheckpointError, FileError
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.runs.record import versions


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of an experiment. Arrays are saved as such, and other fields as JSON."""

    def fields(self) -> dict[str, Any]:
        """What is saved, by name."""
        return vars(self)

    @classmethod
    def restored(cls, fields: dict[str, Any]) -> Self:
        """The part that has these fields."""
        return cls(**fields)

    def save(self, path: Path, recipe: str) -> None:
        """Write it, completely or not at all.

        Args:
            path: the file.
            recipe: names all that the part depends on.
        """
        known = {name: value for name, value in self.fields().items() if value is not None}
        arrays = {name: value for name, value in known.items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in known.items() if name not in arrays}
        save_tree(path, arrays, {"facts": json.dumps(facts), "recipe": recipe})

    @classmethod
    def load(cls, path: Path, recipe: str) -> Self:
        """Read it; a part with another recipe is refused."""
        try:
            metadata = read_metadata(path)
            if metadata["recipe"] != recipe:
                raise CheckpointError(
                    f"{path} was made from other data or settings, or by another version of Sartor "
                    f"or JAX; choose another --out, or remove {path.parent} to compute everything "
                    "again"
                )
            facts = parse_json(metadata["facts"])
            check_schema(facts, dict[str, Any])
            return cls.restored({**load_arrays(path, ""), **facts})
        except (FileError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} is damaged; remove it, and it is computed again") from error


def recipe_for(*facts: Any) -> str:
    """A short name for all that a saved part depends on: these facts, and the versions."""
    return hashlib.blake2b(repr([*facts, versions()]).encode(), digest_size=16).hexdigest()


def slug(name: str) -> str:
    """A name as part of a file name.

    >>> slug("fedavg + dapper with λ = 0.5")
    'fedavg-dapper-with-0.5'
    """
    return re.sub("[^a-zA-Z0-9.]+", "-", name)
