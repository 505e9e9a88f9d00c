"""Finished parts of an experiment, saved so that a resumed run need not compute them again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from sartor.errors import CheckpointError, FileError
from sartor.files import load_arrays, read_metadata


def recipe(text: str) -> str:
    """A short name for all that a saved part depends on."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def slug(name: str, keep: str = ".") -> str:
    """A name as part of a file name.

    >>> slug("fedavg + dapper with λ = 0.5")
    'fedavg-dapper-with-0.5'
    """
    return re.sub(f"[^a-zA-Z0-9{keep}]+", "-", name)


def damaged(path: Path) -> FileError:
    """The error for a file that cannot be read."""
    return FileError(f"{path} is damaged; remove it, and it is computed again")


def check_recipe(path: Path, found: Any, expected: str) -> None:
    """Refuse a file that was made in another way."""
    if found != expected:
        raise CheckpointError(
            f"{path} was made from other data or settings, or by another version of Sartor or "
            f"JAX; choose another --out, or remove {path.parent} to compute everything again"
        )


def load_saved(
    path: Path, expected: str, key: str = "recipe"
) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays and the metadata of a saved part, after a check of its recipe.

    Args:
        path: the file.
        expected: the recipe.
        key: where the metadata has it.
    """
    try:
        metadata: dict[str, str] = dict(read_metadata(path))
        arrays: dict[str, Any] = dict(load_arrays(path, ""))
        found = metadata[key]
    except (FileError, KeyError) as error:
        raise damaged(path) from error
    check_recipe(path, found, expected)
    return arrays, metadata
