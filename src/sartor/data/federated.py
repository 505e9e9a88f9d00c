"""What the formats of federated data share: clients one after the other, in parts.

A format lists the clients of a file and yields their arrays. This module turns them into columns,
in memory or in a native directory. Pixels become bytes where that loses nothing.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.data.dataset import PARTS, ClientData, Column, assemble
from sartor.data.store import column_file, through_store
from sartor.errors import DataError, FileError
from sartor.files import explaining

Arrays = Mapping[str, npt.NDArray[Any]]
Columns = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""The type of every column, and the shape of an example in it."""

LABELS = np.iinfo(np.int32)
"""The range of labels in formats that do not store their type."""

_COMPRESSION = 2000
"""How many times larger than its file data may be; zlib reaches 1032."""
_SMALL = 1 << 20
"""Bytes that any file may declare."""

_WRITER = re.compile(r"(?:[0-9a-f]{16}:)?f(\d{4})_\d{2}")


class Part(ABC):
    """One part of a data set, "train", "validation" or "test", in one format.

    Attributes:
        file: the file or folder, to be named in errors.
        part: which part.
        sizes: how many examples each client has.
        columns: the columns, the same for all clients.
    """

    def __init__(self, file: Path, part: str) -> None:
        self.file, self.part = file, part
        self.sizes: dict[str, int] = {}
        self.columns: Columns = {}

    @abstractmethod
    def clients(self) -> Iterator[tuple[str, Arrays]]:
        """All clients with their arrays, in the order of ``sizes``."""

    def add(self, client: str, size: int) -> None:
        """Note a client and the number of its examples."""
        if client in self.sizes:
            raise DataError(f"{self.file}, client {client!r}: it is there twice; remove one")
        self.sizes[client] = size

    def check_columns(self, client: str, found: Columns) -> None:
        """Refuse columns that differ from other clients' columns or are not numbers."""
        if self.columns and found != self.columns:
            raise DataError(
                f"{self.file}, client {client!r}: columns {in_words(found)} differ from "
                f"{in_words(self.columns)} of client {next(iter(self.sizes))!r}; make them the same"
            )
        for name, (kind, _) in found.items():
            if kind.kind not in "biuf":
                raise DataError(
                    f"{self.file}, column {name!r}: text and other non-numbers are not supported; "
                    "encode it as numbers (for text: an integer for each character) and use "
                    "sartor.data.from_dict"
                )
        self.columns = self.columns or found

    def check_sizes(self) -> None:
        """Refuse more examples than the file can hold, before memory is taken for them."""
        held = self.file.stat().st_size
        declared = 0
        for client, size in self.sizes.items():
            declared += size * (_row_bytes(self.columns) + 1)
            if size < 0 or declared > _COMPRESSION * (held + _SMALL):
                raise FileError(
                    f"{self.file}, client {client!r}: {size:,} examples are declared, which a file "
                    f"of {held:,} bytes cannot hold; it is damaged: copy or download it again"
                )


def reading(file: Path, client: str | None = None) -> AbstractContextManager[None]:
    """Turn a library's error into one that names the file, the client and the remedy."""
    where = f"{file}" if client is None else f"{file}, client {client!r}"
    remedy = "the file is damaged, cut short or of another format: copy or download it again"
    return explaining(f"{where}: cannot be read", remedy)


def part_files(path: Path, suffix: str) -> list[tuple[str, Path]]:
    """The parts of a data set with their files: one file, or a directory with `*_train` and so on.

    A single file is the training part.
    """
    if not path.is_dir():
        return [("train", path)]
    files = [(part, file) for part in PARTS for file in sorted(path.glob(f"*_{part}{suffix}"))]
    if len({part for part, _ in files}) < len(files):
        names = ", ".join(file.name for _, file in files)
        raise FileError(f"{path}: holds several datasets ({names}); keep one in a directory")
    if not files or files[0][0] != "train":
        raise FileError(f"{path}: no file *_train{suffix} in it; name a single file instead")
    return files


def read_parts(parts: Sequence[Part], store: Path | None = None) -> ClientData:
    """Client data from its parts, the training part first.

    The column `label` becomes "y", and `pixels`, where it is the only other one, "x". Pixels that
    are exactly k/255 are stored as the bytes k, a quarter of the memory and nothing lost. Writers
    of EMNIST get their domain, "high school" or "census". With `store`, the columns are written to
    that native directory and memory-mapped from there.
    """
    return through_store(store, lambda folder: _read(parts, folder))


def parts_bytes(parts: Sequence[Part]) -> int:
    """The size of a data set in memory, before pixels are turned to bytes."""
    return sum(sum(part.sizes.values()) * _row_bytes(part.columns) for part in parts)


def native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in the byte order of this machine, which JAX needs."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def columns_of(arrays: Arrays) -> Columns:
    """The columns of a client's arrays."""
    return {name: (a.dtype, a.shape[1:]) for name, a in sorted(arrays.items())}


def as_labels(file: Path, client: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Labels as int32; refuse those that do not fit."""
    beyond = (values < LABELS.min) | (values > LABELS.max)
    if beyond.any():
        raise DataError(
            f"{file}, client {client!r}: the label {values[beyond.argmax()]} is beyond "
            f"{LABELS.max}, the largest that is read; number the labels from 0"
        )
    return values.astype(np.int32)


def in_words(columns: Columns) -> str:
    """Columns in the words of an error."""
    return ", ".join(f"{name} {kind}{list(shape)}" for name, (kind, shape) in columns.items())


def as_bytes(pixels: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Pixels as the numbers k where all of them are exactly k/255, or None."""
    k = np.rint(pixels * np.float32(255)).clip(0, 255)
    return k if (k / np.float32(255) == pixels).all() else None


def writer_domains(ids: Sequence[str]) -> dict[str, list[str]]:
    """High-school or census, where all clients are writers of NIST's Special Database 19."""
    writers = [_WRITER.fullmatch(client) for client in ids]
    if not ids or not all(writers):
        return {}
    numbers = [int(writer[1]) for writer in writers if writer]
    return {"domain": ["high school" if 2100 <= n <= 2599 else "census" for n in numbers]}


def _row_bytes(columns: Columns) -> int:
    return sum(kind.itemsize * math.prod(shape) for kind, shape in columns.values())


def _read(parts: Sequence[Part], folder: Path | None) -> ClientData:
    train = parts[0]
    number = {client: k for k, client in enumerate(train.sizes)}
    for part in parts[1:]:
        if part.sizes and part.columns != train.columns:
            raise DataError(
                f"{part.file}: columns {in_words(part.columns)} differ from "
                f"{in_words(train.columns)} of {train.file}; make them the same"
            )
        for client in part.sizes:
            if client not in number:
                raise DataError(
                    f"{part.file}, client {client!r}: it has no training rows in {train.file}; "
                    "remove it or add some"
                )
    entries = [
        (number[client], PARTS.index(part.part), size)
        for part in parts
        for client, size in part.sizes.items()
    ]
    owner, place, sizes = np.array(entries, np.int64).reshape(-1, 3).T
    image = set(train.columns) == {"label", "pixels"}
    names = {"label": "y"} | ({"pixels": "x"} if image else {})
    ordered = sorted(train.columns, key=lambda name: names.get(name, name))
    columns = _fill(parts, ordered, int(sizes.sum()), folder)
    try:
        return assemble(
            {names.get(name, name): columns[name] for name in ordered},
            np.repeat(owner, sizes),
            list(number),
            part=np.repeat(place, sizes),
            metadata=writer_domains(list(number)),
        )
    except DataError as error:
        several = ", ".join(dict.fromkeys(str(part.file) for part in parts))
        raise DataError(f"{several}: {error}") from None


def _fill(
    parts: Sequence[Part], names: Sequence[str], rows: int, folder: Path | None, narrow: bool = True
) -> dict[str, Column]:
    """The columns of all parts; if ``narrow``, with pixels as bytes unless that loses something."""
    columns: dict[str, Column] = {}
    for i, name in enumerate(names):
        kind, shape = parts[0].columns[name]
        if narrow and name == "pixels" and kind == np.float32:
            kind = np.dtype(np.uint8)
        if folder is None:
            columns[name] = np.empty((rows, *shape), kind)
        else:
            file = folder / column_file(i)
            columns[name] = np.lib.format.open_memmap(file, "w+", kind, (rows, *shape))
    start = 0
    for part in parts:
        for client, arrays in part.clients():
            stop = start + part.sizes[client]
            for name, column in columns.items():
                same = arrays[name].dtype == column.dtype
                block = arrays[name] if same else as_bytes(arrays[name])
                if block is None:
                    return _fill(parts, names, rows, folder, narrow=False)
                column[start:stop] = block
            start = stop
    return columns
