"""Files written whole or not at all, and trees of arrays as safetensors (never pickle)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from sartor.errors import FileError
from sartor.trees import Tree, flatten, unflatten

UNFINISHED = re.compile(r"\..+-[0-9a-f]{8}\.(part|new|old)")
"""Names of what is being written, next to where it will be."""


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that at any moment either the old or the whole new one is there.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a" / "b.txt"
    >>> write_atomic(target, "whole")
    >>> target.read_text()
    'whole'
    """
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A new file to fill, which takes the place of ``path`` when the block ends well."""
    part = _beside(path, "part")
    size = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
            finally:
                size = file.tell()
        os.replace(part, path)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error.strerror or error} ({size:,} bytes); what was there "
            f"before is untouched; {remedy(error)}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def cache_root(cache: str | os.PathLike[str] | None = None) -> Path:
    """Where to keep what can be had again, and deleted at any time: ~/.cache/sartor if not told.

    >>> str(cache_root("here"))
    'here'
    """
    return Path("~/.cache/sartor" if cache is None else cache).expanduser()


def sweep(directory: Path) -> None:
    """Remove what writes that a kill cut short have left in a directory and below it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / ".model.json-0123abcd.part").touch()
    >>> sweep(folder)
    >>> list(folder.iterdir())
    []
    """
    for path in filter(is_unfinished, list(directory.rglob(".*"))):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remedy(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None):
        return "free some space or choose another directory, then go on"
    return "choose another directory"


def is_free(path: Path) -> bool:
    """Whether a directory can be made there: nothing is, or nothing but what a kill has left."""
    return not path.exists() or (path.is_dir() and all(map(is_unfinished, path.iterdir())))


def is_unfinished(path: Path) -> bool:
    """Whether a name is that of something being written, or left by a kill."""
    return UNFINISHED.fullmatch(path.name) is not None


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, in a form that diffs well."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is not readable JSON ({error}); it may be damaged") from error


def save_tree(path: Path, tree: Tree, metadata: Mapping[str, str]) -> None:
    """Write a tree of arrays and some text about it into one file, atomically."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in flatten(tree).items()}
    write_atomic(path, to_safetensors(arrays, dict(metadata)))


def read_metadata(path: Path) -> dict[str, str]:
    """The text that :func:`save_tree` wrote."""
    with _opened(path) as file:
        return dict(file.metadata() or {})


def load_tree(path: Path, like: Tree, index: int | None = None) -> Tree:
    """Read a tree of the structure of ``like``; with ``index``, one entry of stacked arrays."""
    shapes = flatten(like)
    leaves: dict[str, npt.NDArray[Any]] = {}
    with _opened(path) as file:
        names = set(file.keys())
        if names != set(shapes):
            odd = sorted(names ^ set(shapes))
            raise FileError(
                f"{path} does not hold this model: {odd[0]!r} is on one side only; "
                "give the model that was saved"
            )
        for name, leaf in shapes.items():
            part = file.get_slice(name)
            stored = tuple(part.get_shape())[0 if index is None else 1 :]
            if stored != tuple(leaf.shape):
                raise FileError(
                    f"{path} does not hold this model: {name!r} has shape {stored}, "
                    f"but the model's is {tuple(leaf.shape)}; give the model that was saved"
                )
            leaves[name] = file.get_tensor(name) if index is None else part[index : index + 1][0]
    return unflatten(like, leaves)


def load_arrays(path: Path, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays whose names begin with a prefix, by the rest of their names."""
    with _opened(path) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A new directory to fill, which takes the place of ``path`` when the block ends well.

    What is there before must be an empty directory, or one that ``ours`` says may go.
    """
    path = Path(path).expanduser().resolve()
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or ours(path))):
        raise FileError(
            f"{path} exists, and holds something that is not replaced; it is left untouched, "
            "choose another directory or remove it"
        )
    new, old = _beside(path, "new"), _beside(path, "old")
    try:
        new.mkdir(parents=True)
        yield new
        for file in (*new.iterdir(), new):
            _flush(file)
        if path.exists():
            path.rename(old)
        new.rename(path)
        _flush(path.parent)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; {remedy(error)}"
        ) from error
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist") from error
    except (OSError, SafetensorError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{path} is damaged or not a safetensors file ({error}); "
            "restore it from a copy or make it again"
        ) from error


def _beside(path: Path, end: str) -> Path:
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}.{end}")
