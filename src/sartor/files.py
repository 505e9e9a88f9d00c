"""Files written whole or not at all, and trees of arrays as safetensors (never pickle)."""

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
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors

from sartor.errors import FileError, SartorError
from sartor.trees import Tree, flatten, unflatten

UNFINISHED = re.compile(r"\..+-[0-9a-f]{8}\.(part|new|old)")
"""The names of unfinished files and directories, next to their final place."""


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
    try:
        with _naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def cache_root(cache: str | os.PathLike[str] | None = None) -> Path:
    """The directory of files that may be deleted at any time (default: ~/.cache/sartor).

    >>> str(cache_root("here"))
    'here'
    """
    return Path("~/.cache/sartor" if cache is None else cache).expanduser()


def sweep(directory: Path) -> None:
    """Remove what killed writes have left in a directory and below it.

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


def is_free(path: Path) -> bool:
    """Whether a directory can be made there: nothing is there but what killed writes have left."""
    return not path.exists() or (path.is_dir() and all(map(is_unfinished, path.iterdir())))


def is_unfinished(path: Path) -> bool:
    """Whether a path is something being written, or left by a killed write."""
    return UNFINISHED.fullmatch(path.name) is not None


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, in a form that diffs well."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is damaged."""
    with _reading(path, "not readable JSON"):
        return json.loads(path.read_text(encoding="utf-8"))


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
    wanted = {name: tuple(leaf.shape) for name, leaf in flatten(like).items()}
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        skipped = 0 if index is None else 1
        stored = {name: tuple(part.get_shape())[skipped:] for name, part in parts.items()}
        for name in sorted({*wanted, *stored}):
            if stored.get(name) != wanted.get(name):
                raise FileError(
                    f"{path} does not hold this model: {name!r} has shape {stored.get(name)} there "
                    f"and {wanted.get(name)} in the model; give the model that was saved"
                )
        if index is None:
            return unflatten(like, {name: file.get_tensor(name) for name in parts})
        return unflatten(like, {name: part[index : index + 1][0] for name, part in parts.items()})


def load_arrays(path: Path, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays whose names begin with a prefix, by the rest of their names."""
    with _opened(path) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A new directory to fill, which takes the place of ``path`` when the block ends well.

    An empty directory is replaced, and one for which ``ours`` is true; anything else is refused.
    """
    path = Path(path).expanduser().resolve()
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or ours(path))):
        raise FileError(
            f"{path} exists, and holds something that is not replaced; it is left untouched, "
            "choose another directory or remove it"
        )
    new, old = _beside(path, "new"), _beside(path, "old")
    try:
        with _naming(path):
            new.mkdir(parents=True)
            yield new
            for file in (*new.iterdir(), new):
                _flush(file)
            if path.exists():
                path.rename(old)
            new.rename(path)
            _flush(path.parent)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn an error of writing into one that names the file and the remedy."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
        remedy = "free some space or choose another directory, then go on"
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched; "
            + (remedy if full else "choose another directory")
        ) from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    wrong = "damaged or not a safetensors file"
    with _reading(path, wrong), safe_open(path, framework="numpy") as file:
        yield file


def _reading(path: Path, wrong: str) -> contextlib.AbstractContextManager[None]:
    if not path.exists():
        raise FileError(f"{path} does not exist")
    return explaining(f"{path} is {wrong}", "restore it from a copy or make it again")


@contextlib.contextmanager
def explaining(
    wrong: str, remedy: str, passed: tuple[type[Exception], ...] = (SartorError, MemoryError)
) -> Iterator[None]:
    """Turn an error of reading into one that says what is wrong, and what to do about it.

    Libraries raise nearly anything on damaged files: numpy reads headers as Python, and Pillow
    calls a damaged PNG a syntax error.

    Args:
        wrong: which file is wrong, and how.
        remedy: what to do.
        passed: errors that say so themselves.
    """
    try:
        yield
    except passed:
        raise
    except Exception as error:
        raise FileError(f"{wrong} ({error}); {remedy}") from error


def _beside(path: Path, end: str) -> Path:
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}.{end}")
