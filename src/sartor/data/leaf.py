"""LEAF's JSON: shards with `users`, `num_samples` and `user_data`, a folder for each part.

LEAF lists every writer's first image twice; the second time is left out here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.data.dataset import PARTS, ClientData
from sartor.data.federated import (
    Arrays,
    Columns,
    as_labels,
    check_columns,
    parts_bytes,
    read_parts,
    reading,
)
from sartor.errors import DataError, FileError
from sartor.progress import Bar

_ERRORS = OSError, ValueError, KeyError, TypeError, RecursionError
"""What damaged files raise."""

PIXELS = 28 * 28
"""Of an image; other inputs are kept as they are."""


def read_leaf(path: str | os.PathLike[str], store: Path | None = None) -> ClientData:
    """Client data from a shard, a directory of shards, or one with `train/` and `test/`."""
    return read_parts(leaf_parts(Path(path)), store)


def is_leaf(path: Path) -> bool:
    """Whether a path is a JSON file, or a directory that holds some, and not beside Parquet."""
    if path.is_dir():
        if any(path.glob("*.parquet")):
            return False  # the JSON tells of it, as on Hugging Face
        return any(True for _ in path.glob("*.json")) or any(
            True for part in PARTS for _ in (path / part).glob("*.json")
        )
    return path.suffix.lower() == ".json"


def leaf_bytes(path: Path) -> int:
    """The size of a dataset in memory, before pixels are turned to bytes."""
    return parts_bytes(leaf_parts(path))


def leaf_parts(path: Path) -> list[LeafPart]:
    """The parts of a dataset."""
    if not path.is_dir():
        return [LeafPart(path, [path], "train")]
    if any(path.glob("*.json")):
        return [LeafPart(path, sorted(path.glob("*.json")), "train")]
    found = [
        LeafPart(path / part, sorted((path / part).glob("*.json")), part)
        for part in PARTS
        if any((path / part).glob("*.json"))
    ]
    if found[0].part != "train":
        raise FileError(f"{path}: no folder train/ with .json files in it; LEAF's layout is needed")
    return found


class LeafPart:
    """The shards of one part."""

    def __init__(self, file: Path, shards: list[Path], part: str) -> None:
        self.file, self.part, self._shards = file, part, shards
        self.sizes: dict[str, int] = {}
        self.columns: Columns = {}
        for client, arrays in self._read():
            if client in self.sizes:
                raise DataError(f"{file}, client {client!r}: it is there twice; remove one")
            found = {name: (a.dtype, a.shape[1:]) for name, a in arrays.items()}
            check_columns(file, client, found, self.columns, next(iter(self.sizes), None))
            self.columns = self.columns or found
            self.sizes[client] = len(arrays["label"])

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        yield from self._read()

    def _read(self) -> Iterator[tuple[str, Arrays]]:
        for shard in self._progress():
            with reading(shard, None, *_ERRORS):
                content = json.loads(shard.read_text(encoding="utf-8"))
                users, data = content["users"], content["user_data"]
                told = dict(
                    zip(users, content.get("num_samples", [None] * len(users)), strict=True)
                )
            for client in users:
                with reading(shard, client, *_ERRORS):
                    arrays = _arrays(shard, client, data[client], told[client])
                yield str(client), arrays

    def _progress(self) -> Iterator[Path]:
        """The shards, with a bar: numbers in words take long to read."""
        with Bar(f"{self.part} of LEAF, shards", len(self._shards)) as bar:
            for n, shard in enumerate(self._shards):
                bar.update(n)
                yield shard


def is_doubled(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Whether the first example is there twice."""
    return len(y) > 1 and bool(y[0] == y[1]) and bool((x[0] == x[1]).all())


def _arrays(file: Path, client: str, found: Any, told: int | None) -> dict[str, npt.NDArray[Any]]:
    """A client's arrays: images and labels, without the image that LEAF has doubled."""
    x, y = np.asarray(found["x"]), np.asarray(found["y"])
    if not x.size and not y.size:
        raise DataError(f"{file}, client {client!r}: it is empty; remove it or add samples")
    if len(x) != len(y) or y.ndim != 1 or (told is not None and told != len(y)):
        raise ValueError(f"{len(x)} inputs and {len(y)} labels, where there should be {told}")
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biu":
        raise ValueError("numbers are needed, and whole ones as labels")
    y = as_labels(file, client, y)
    if x.shape[1:] != (PIXELS,):
        return {"label": y, "x": x.astype(np.float32) if x.dtype.kind == "f" else x}
    if is_doubled(x, y):
        x, y = x[1:], y[1:]
    return {"label": y, "pixels": x.astype(np.float32).reshape(-1, 28, 28)}
