"""Finished parts of an experiment, saved so that a resumed run need not compute them again."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sartor.errors import CheckpointError, FileError
from sartor.files import load_arrays, read_metadata, save_tree


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of an experiment. Arrays are saved as such, and other fields as JSON.

    Attributes:
        recipe_key: the name of the recipe in the file.
    """

    recipe_key: ClassVar[str] = "recipe"

    def save(self, path: Path, recipe: str) -> None:
        """Write it, completely or not at all.

        Args:
            path: the file.
            recipe: names all that the part depends on.
        """
        known = {name: value for name, value in vars(self).items() if value is not None}
        arrays = {name: value for name, value in known.items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in known.items() if name not in arrays}
        save_tree(path, arrays, {"facts": json.dumps(facts), self.recipe_key: recipe})

    @classmethod
    def load(cls, path: Path, recipe: str) -> Self:
        """Read it; a part with another recipe is refused."""
        try:
            metadata = read_metadata(path)
            check_recipe(path, metadata[cls.recipe_key], recipe)
            return cls.restored(load_arrays(path, ""), metadata)
        except (FileError, KeyError, TypeError, ValueError) as error:
            raise damaged(path) from error

    @classmethod
    def restored(cls, arrays: dict[str, Any], metadata: dict[str, str]) -> Self:
        """The part that a file holds."""
        return cls(**arrays, **json.loads(metadata.get("facts", "{}")))


def recipe_for(text: str) -> str:
    """A short name for all that a saved part depends on."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def check_recipe(path: Path, found: Any, expected: str) -> None:
    """Refuse a file that was made in another way."""
    if found != expected:
        raise CheckpointError(
            f"{path} was made from other data or settings, or by another version of Sartor or "
            f"JAX; choose another --out, or remove {path.parent} to compute everything again"
        )


def damaged(path: Path) -> FileError:
    """The error for a file that cannot be read."""
    return FileError(f"{path} is damaged; remove it, and it is computed again")


def slug(name: str) -> str:
    """A name as part of a file name.

    >>> slug("fedavg + dapper with λ = 0.5")
    'fedavg-dapper-with-0.5'
    """
    return re.sub("[^a-zA-Z0-9.]+", "-", name)
