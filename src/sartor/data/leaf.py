"""LEAF's JSON: shards with `users`, `num_samples` and `user_data`, a folder for each part.

LEAF lists every writer's first image twice; the copy is left out here.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from sartor.data.dataset import PARTS
from sartor.data.federated import Arrays, Part, as_labels, columns_of, reading
from sartor.documents import check_schema
from sartor.errors import DataError, FileError
from sartor.progress import Bar

PIXELS = 28 * 28
"""The number of pixels of an image; other inputs keep their shape."""


class Shard(TypedDict):
    """What a shard holds: inputs ``x`` and labels ``y`` of every user."""

    users: list[str]
    user_data: dict[str, dict[str, Any]]
    num_samples: NotRequired[list[int]]


def is_leaf(path: Path) -> bool:
    """Whether a directory holds JSON files, itself or in the folder of a part.

    JSON beside Parquet describes the Parquet files, as on Hugging Face.
    """
    return not any(path.glob("*.parquet")) and bool(_shards(path))


def leaf_parts(path: Path) -> list[Part]:
    """The parts in a shard, a directory of shards, or one with `train/` and `test/`."""
    shards = _shards(path)
    if "train" not in shards:
        raise FileError(f"{path}: no folder train/ with .json files in it; LEAF's layout is needed")
    return [LeafPart(part, files) for part, files in shards.items()]


def _shards(path: Path) -> dict[str, list[Path]]:
    """The JSON files of each part; a file and a directory of files are the training part."""
    if files := sorted(path.glob("*.json")) if path.is_dir() else [path]:
        return {"train": files}
    return {part: files for part in PARTS if (files := sorted((path / part).glob("*.json")))}


class LeafPart(Part):
    """The shards of one part."""

    def __init__(self, part: str, shards: Sequence[Path]) -> None:
        super().__init__(shards[0] if len(shards) == 1 else shards[0].parent, part)
        self._shards = shards
        for client, arrays in self.clients():
            self.check_columns(client, columns_of(arrays))
            self.add(client, len(arrays["label"]))

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays. A bar shows the progress, since parsing JSON is slow."""
        with Bar(f"{self.part} of LEAF, shards", len(self._shards)) as bar:
            for n, shard in enumerate(self._shards):
                bar.update(n)
                with reading(shard):
                    content = json.loads(shard.read_bytes())
                    check_schema(content, Shard)
                    users, data = content["users"], content["user_data"]
                    sizes = content.get("num_samples", [None] * len(users))
                    declared = list(zip(users, sizes, strict=True))
                for client, size in declared:
                    with reading(shard, client):
                        arrays = _arrays(shard, client, data[client], size)
                    yield str(client), arrays


def is_doubled(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Whether the first example is there twice."""
    return len(y) > 1 and bool(y[0] == y[1]) and bool((x[0] == x[1]).all())


def _arrays(file: Path, client: str, found: Any, size: int | None) -> Arrays:
    """A client's arrays: images and labels, without the image that LEAF has doubled."""
    x, y = np.asarray(found["x"]), np.asarray(found["y"])
    if not x.size and not y.size:
        raise DataError(f"{file}, client {client!r}: it is empty; remove it or add samples")
    if len(x) != len(y) or y.ndim != 1 or size not in (None, len(y)):
        raise ValueError(f"{len(x)} inputs and {len(y)} labels, where there should be {size}")
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biu":
        raise ValueError("numbers are needed, and whole ones as labels")
    y = as_labels(file, client, y)
    if x.shape[1:] != (PIXELS,):
        return {"label": y, "x": x.astype(np.float32) if x.dtype.kind == "f" else x}
    if is_doubled(x, y):
        x, y = x[1:], y[1:]
    return {"label": y, "pixels": x.astype(np.float32).reshape(-1, 28, 28)}
