"""Federated EMNIST as `flwrlabs/femnist` has it on Hugging Face: Parquet with images as PNG.

One row for each image: `image` (with `bytes`), `writer_id`, `hsf_id` and `character`, in one file
or in several shards.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sartor.data.federated import Arrays, Part, as_labels, reading
from sartor.data.tables import is_parquet
from sartor.errors import DataError

_COLUMNS = ("image", "writer_id", "character")
_SHAPE = (28, 28)


def is_femnist(path: Path) -> bool:
    """Whether a Parquet file, or one of a directory, has the columns."""
    files = _files(path)
    if not files or not is_parquet(files[0]):
        return False
    try:
        schema = pq.read_schema(files[0])
    except (OSError, ValueError, pa.ArrowException):  # also names that are no text
        return False
    return set(_COLUMNS) <= set(schema.names) and pa.types.is_struct(schema.field("image").type)


class FemnistPart(Part):
    """All shards. The format has no parts, so everything is for training until it is split."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "train")
        self.columns = {"label": (np.dtype(np.int32), ()), "pixels": (np.dtype(np.uint8), _SHAPE)}
        with reading(self.file):
            table = self._table("writer_id", "character")
            ids = table["writer_id"].to_pylist()
            if None in ids or table["character"].null_count:
                raise DataError(f"{path}: rows without a writer_id or a character; remove them")
            self._labels = table["character"].to_numpy()
            if self._labels.dtype.kind not in "iu":
                raise DataError(
                    f"{path}, column 'character': whole numbers are needed, got "
                    f"{table['character'].type}; number the characters from 0"
                )
            names, owner = np.unique([str(i) for i in ids], return_inverse=True)
        rows = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
        # Not strict: no rows split into one empty piece.
        self._rows = {str(name): mine for name, mine in zip(names, rows, strict=False)}
        self.sizes = {client: len(mine) for client, mine in self._rows.items()}

    def _table(self, *columns: str) -> pa.Table:
        """Some columns of all shards."""
        tables = []
        for file in _files(self.file):
            with reading(file):
                tables.append(pq.read_table(file, columns=list(columns)).select(columns))
        return pa.concat_tables(tables, promote_options="default")

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        with reading(self.file):
            encoded = self._table("image")["image"]
        for client, rows in self._rows.items():
            with reading(self.file, client):
                images = encoded.take(pa.array(rows)).to_pylist()
                pixels = np.stack([_decoded(image["bytes"]) for image in images])
                labels = as_labels(self.file, client, self._labels[rows])
            yield client, {"label": labels, "pixels": pixels}


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _decoded(png: Any) -> npt.NDArray[np.uint8]:
    with Image.open(io.BytesIO(png)) as image:
        if image.size != _SHAPE:
            raise ValueError(f"an image of {image.size} pixels, and not of {_SHAPE}")
        return np.asarray(image.convert("L"), np.uint8)
