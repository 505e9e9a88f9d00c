"""Federated EMNIST as `flwrlabs/femnist` has it on Hugging Face: Parquet with images as PNG.

One row for each image: `image` (with `bytes`), `writer_id`, `hsf_id` and `character`, in one file
or in several shards.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sartor.data.dataset import ClientData
from sartor.data.federated import Arrays, Columns, as_labels, read_parts, reading
from sartor.data.tables import is_parquet
from sartor.errors import DataError

_ERRORS = OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, pa.ArrowException
"""What damaged files raise; Pillow calls a damaged PNG a syntax error."""

_COLUMNS = ("image", "writer_id", "character")
_SHAPE = (28, 28)


def read_femnist(path: str | os.PathLike[str], store: Path | None = None) -> ClientData:
    """Client data from one file, or from a directory of shards."""
    return read_parts([FemnistPart(Path(path))], store)


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


def femnist_bytes(path: Path) -> int:
    """The size of a dataset in memory."""
    rows = 0
    for file in _files(path):
        with reading(file, None, *_ERRORS):
            rows += pq.ParquetFile(file).metadata.num_rows
    return rows * (_SHAPE[0] * _SHAPE[1] + 4)


class FemnistPart:
    """All shards: it has no parts of its own, so everything is for training until it is split."""

    def __init__(self, path: Path) -> None:
        self.file, self.part = path, "train"
        self.columns: Columns = {
            "label": (np.dtype(np.int32), ()),
            "pixels": (np.dtype(np.uint8), _SHAPE),
        }
        tables = []
        for file in _files(path):
            with reading(file, None, *_ERRORS):
                tables.append(pq.read_table(file, columns=list(_COLUMNS)).select(_COLUMNS))
        with reading(path, None, *_ERRORS):
            self._table = pa.concat_tables(tables, promote_options="default")
            ids = self._table["writer_id"].to_pylist()
            if None in ids or self._table["character"].null_count:
                raise DataError(f"{path}: rows without a writer_id or a character; remove them")
            self._labels = self._table["character"].to_numpy()
            if self._labels.dtype.kind not in "iu":
                raise DataError(
                    f"{path}, column 'character': whole numbers are needed, got "
                    f"{self._table['character'].type}; number the characters from 0"
                )
            names, owner = np.unique([str(i) for i in ids], return_inverse=True)
        self._order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=len(names))
        self.sizes = {str(name): int(n) for name, n in zip(names, counts, strict=True)}

    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays."""
        at = 0
        for client, size in self.sizes.items():
            rows = self._order[at : at + size]
            at += size
            with reading(self.file, client, *_ERRORS):
                images = self._table["image"].take(pa.array(rows)).to_pylist()
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
