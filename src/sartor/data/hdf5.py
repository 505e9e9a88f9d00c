"""TensorFlow Federated's HDF5 files: `examples/<client>/<column>`, one file for each part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from sartor.data.dataset import PARTS, ClientData, Column, assemble
from sartor.data.store import column_file, open_store, replacing_store, write_store
from sartor.errors import DataError, FileError, SartorError

_WRITER = re.compile(r"(?:[0-9a-f]{16}:)?f(\d{4})_\d{2}")


def read_hdf5(path: str | os.PathLike[str], store: Path | None = None) -> ClientData:
    """Client data from one file, or from a directory with `*_train.h5` and `*_test.h5`.

    The column `label` becomes "y", and `pixels`, where it is the only other one, "x". Pixels that
    are exactly k/255 are stored as the bytes k, a quarter of the memory and nothing lost. Writers
    of EMNIST get their domain, "high school" or "census". With `store`, the columns are written to
    that native directory and memory-mapped from there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(folder + "/toy.h5", "w") as file:
    ...         file["examples/ann/label"] = np.array([0, 1], np.int32)
    ...         file["examples/ann/pixels"] = np.ones((2, 28, 28), np.float32)
    ...     read_hdf5(folder + "/toy.h5")
    ClientData(1 clients, 2 examples: x uint8[28, 28], y int32)
    """
    scans = [_scan(file, part) for part, file in hdf5_files(Path(path))]
    if store is None:
        return _read(scans, None)
    with replacing_store(store) as folder:
        write_store(_read(scans, folder), folder)
    return open_store(store)


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 files do."""
    with path.open("rb") as handle:
        return handle.read(8) == b"\x89HDF\r\n\x1a\n"


def hdf5_files(path: Path) -> list[tuple[str, Path]]:
    """The files of a dataset and the part each of them holds."""
    if not path.is_dir():
        return [("train", path)]
    files = []
    for part in PARTS:
        found = sorted(path.glob(f"*_{part}.h5"))
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise FileError(f"{path}: holds several datasets ({names}); keep one in a directory")
        files += [(part, file) for file in found]
    if not files or files[0][0] != "train":
        raise FileError(f"{path}: no file *_train.h5 in it; name a single .h5 file instead")
    return files


def hdf5_bytes(path: Path) -> int:
    """The size of a dataset in memory, before pixels are turned to bytes."""
    return sum(
        rows
        * sum(
            np.dtype(kind).itemsize * int(np.prod(shape)) for kind, shape in scan.columns.values()
        )
        for scan in (_scan(file, part) for part, file in hdf5_files(path))
        for rows in scan.sizes.values()
    )


@dataclass(frozen=True)
class _Scan:
    """What one file holds: the clients' sizes, and the type and shape of each column."""

    file: Path
    part: str
    sizes: dict[str, int]
    columns: dict[str, tuple[Any, tuple[int, ...]]]


@contextmanager
def _reading(file: Path, client: str | None = None) -> Iterator[None]:
    """Turn what h5py raises into an error that names the file, the client and the remedy."""
    try:
        yield
    except SartorError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, AttributeError) as error:
        where = f"{file}" if client is None else f"{file}, client {client!r}"
        raise FileError(
            f"{where}: cannot be read ({error}); the file is damaged, cut short or not HDF5: "
            "copy or download it again"
        ) from error


def _scan(file: Path, part: str) -> _Scan:
    sizes: dict[str, int] = {}
    columns: dict[str, tuple[Any, tuple[int, ...]]] = {}
    with _reading(file), h5py.File(file) as h5:
        examples = h5.get("examples")
        if not isinstance(examples, h5py.Group):
            raise DataError(
                f"{file}: no group 'examples' but {sorted(h5)}; the layout of TensorFlow Federated "
                "is needed, examples/<client>/<column>"
            )
        for client in examples:
            with _reading(file, client):
                group = examples[client]
                if not isinstance(group, h5py.Group) or not group:
                    raise DataError(f"{file}, client {client!r}: a group of columns is needed")
                facts = {name: (column.dtype, column.shape) for name, column in group.items()}
            lengths = {name: shape[0] if shape else None for name, (_, shape) in facts.items()}
            if len(set(lengths.values())) > 1 or None in lengths.values():
                raise DataError(f"{file}, client {client!r}: columns of unequal lengths {lengths}")
            found = {name: (kind, shape[1:]) for name, (kind, shape) in facts.items()}
            columns = columns or found
            if found != columns:
                raise DataError(
                    f"{file}, client {client!r}: columns {_words(found)} differ from "
                    f"{_words(columns)} of client {next(iter(sizes))!r}"
                )
            sizes[client] = int(next(iter(facts.values()))[1][0])
    for name, (kind, _) in columns.items():
        if kind.kind not in "biuf":
            raise DataError(
                f"{file}, column {name!r}: text and other non-numbers are not supported; encode it "
                "as numbers (for text: an integer for each character) and use sartor.data.from_dict"
            )
    return _Scan(file, part, sizes, columns)


def _words(columns: dict[str, tuple[Any, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {kind}{list(shape)}" for name, (kind, shape) in columns.items())


def _read(scans: Sequence[_Scan], folder: Path | None) -> ClientData:
    train = scans[0]
    number = {client: k for k, client in enumerate(train.sizes)}
    for scan in scans[1:]:
        if scan.sizes and scan.columns != train.columns:
            raise DataError(
                f"{scan.file}: columns {_words(scan.columns)} differ from {_words(train.columns)} "
                f"of {train.file}"
            )
        for client in scan.sizes:
            if client not in number:
                raise DataError(
                    f"{scan.file}, client {client!r}: it has no training rows in {train.file}; "
                    "remove it or add some"
                )
    sizes = np.array([m for scan in scans for m in scan.sizes.values()], dtype=np.int64)
    owner = np.array([number[client] for scan in scans for client in scan.sizes], dtype=np.int64)
    part = np.array([PARTS.index(scan.part) for scan in scans for _ in scan.sizes], dtype=np.int64)
    image = set(train.columns) == {"label", "pixels"}
    names = {"label": "y"} | ({"pixels": "x"} if image else {})
    ordered = sorted(train.columns, key=lambda name: names.get(name, name))
    columns = {
        names.get(name, name): _fill(
            scans, name, int(sizes.sum()), folder and folder / column_file(i)
        )
        for i, name in enumerate(ordered)
    }
    return assemble(
        columns,
        np.repeat(owner, sizes),
        list(number),
        part=np.repeat(part, sizes),
        metadata=_domains(list(number)),
    )


def _fill(scans: Sequence[_Scan], name: str, rows: int, file: Path | None) -> Column:
    """One column of all files, with pixels as bytes where that loses nothing."""
    kind, shape = scans[0].columns[name]
    shape = (rows, *shape)
    if name == "pixels" and kind == np.float32:
        column = _empty(shape, np.dtype(np.uint8), file)
        if _copy(scans, name, column):
            return column
    column = _empty(shape, kind, file)
    _copy(scans, name, column)
    return column


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], file: Path | None) -> Column:
    if file is None:
        return np.empty(shape, dtype)
    return np.asanyarray(np.lib.format.open_memmap(file, "w+", dtype, shape))


def _copy(scans: Sequence[_Scan], name: str, column: Column) -> bool:
    """Fill a column; False as soon as floats meet a column of bytes that cannot hold them."""
    start = 0
    for scan in scans:
        with _reading(scan.file), h5py.File(scan.file) as h5:
            for client, size in scan.sizes.items():
                with _reading(scan.file, client):
                    block = h5["examples"][client][name][()]
                if block.dtype != column.dtype:
                    pixels = block
                    block = np.rint(pixels * np.float32(255)).clip(0, 255)
                    if not (block / np.float32(255) == pixels).all():
                        return False
                column[start : start + size] = block
                start += size
    return True


def _domains(ids: Sequence[str]) -> dict[str, list[str]]:
    """High-school or census, where all clients are writers of NIST's Special Database 19."""
    writers = [_WRITER.fullmatch(client) for client in ids]
    if not ids or not all(writers):
        return {}
    numbers = [int(writer[1]) for writer in writers if writer]
    return {"domain": ["high school" if 2100 <= n <= 2599 else "census" for n in numbers]}
