"""Files written whole or not at all, and trees of arrays as safetensors (never pickle).

Whatever is written here carries a digest of its content, and is compared with it when it is read.
Files of earlier versions have none, and are read as they are.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors

from sartor.documents import parse_json
from sartor.errors import FileError, SartorError, explaining_writes
from sartor.locks import LOCK, locked, locked_file
from sartor.trees import Tree, flatten, unflatten

UNFINISHED = re.compile(r"\.(.+)-[0-9a-f]{8}\.(part|new|old)")
"""The names of unfinished files and directories, next to their final place, and its name."""

SUMS = "SHA256SUMS"
"""The file with the checksums of a finished directory, as the command ``sha256sum`` has them."""

DAMAGED = "restore it from a copy, or delete it and run the same work again: what is sound is kept"
"""What to do about a file whose digest is wrong."""

_HEADER, _DATA = "sartor.header", "sartor.data"
"""Where a safetensors file keeps digests of its header and of its arrays."""

_sound: dict[str, set[tuple[int, ...]]] = {_HEADER: set(), _DATA: set()}
"""The files that this process has verified. One that is written anew is another file."""


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
        with explaining_writes(path):
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
    for path in list(directory.rglob(".*")):
        if UNFINISHED.fullmatch(path.name):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep_beside(path: Path) -> None:
    """Remove what killed writes of a file or directory have left beside it.

    A kill between the two renames of :func:`replacing` leaves neither directory in its place. The
    new one is complete then, and gets there now. The caller holds the lock of the path.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for left in ("models", "models-1"):
    ...     for end in ("new", "old"):
    ...         (folder / f".{left}-0123abcd.{end}").mkdir()
    >>> sweep_beside(folder / "models")
    >>> sorted(file.name for file in folder.iterdir())
    ['.models-1-0123abcd.new', '.models-1-0123abcd.old', 'models']
    """
    for left in _left_beside(path):
        new = left.with_suffix(".new")
        if left.suffix == ".old" and not path.exists():
            (new if new.exists() else left).rename(path)
        _remove(left)


def settled(path: Path) -> Path:
    """A directory to read; if a kill has left neither the old nor the new one there, the new one.

    A directory that is being replaced right now is left alone.
    """
    if not path.exists() and _left_beside(path):
        with contextlib.suppress(FileError), locked_file(path):
            sweep_beside(path)
    return path


def _left_beside(path: Path) -> list[Path]:
    """What killed writes have left beside a file or directory; old directories before new ones."""
    if not path.parent.is_dir():
        return []
    left = [p for p in path.parent.iterdir() if p.name != path.name and final_name(p) == path.name]
    return sorted(left, key=lambda p: p.suffix, reverse=True)


def final_name(path: Path) -> str:
    """The name of a file or directory, or the one that it gets when it is finished.

    >>> final_name(Path(".advice-0123abcd.new"))
    'advice'
    """
    unfinished = UNFINISHED.fullmatch(path.name)
    return unfinished[1] if unfinished else path.name


def is_free(path: Path) -> bool:
    """Whether a directory can be made there: nothing is there but what killed writes have left."""
    return not path.exists() or (path.is_dir() and all(map(is_unfinished, path.iterdir())))


def is_unfinished(path: Path) -> bool:
    """Whether a path is something being written, or left by a killed write."""
    return UNFINISHED.fullmatch(path.name) is not None or path.name.endswith(LOCK)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, in a form that diffs well."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, or say which file is damaged."""
    with _reading(path, "not readable JSON"):
        return parse_json(path.read_bytes())


def write_sums(directory: Path, names: Iterable[str]) -> None:
    """Write the checksums of some files of a directory; :func:`check_sum` compares with them."""
    lines = [f"{sha256_of(directory / name)}  {name}\n" for name in names]
    write_atomic(directory / SUMS, "".join(lines))


def check_sum(directory: Path, name: str) -> Path:
    """Refuse a file that has changed since the checksums of its directory were written.

    Returns:
        The file. It may be missing, and without checksums it is taken as it is.
    """
    path, sums = directory / name, directory / SUMS
    if path.exists() and sums.exists():
        with _reading(sums, "damaged"):
            lines = sums.read_text(encoding="utf-8").splitlines()
            known = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
            if name not in known:
                raise ValueError(f"{name} is not in it")
        with _reading(path, "not readable"):
            found = sha256_of(path)
        if known[name] != found:
            raise FileError(
                f"{path} has changed since it was written: its SHA-256 is not the one in {SUMS}; "
                "restore it from a copy or run it again; if you have changed it on purpose, delete "
                f"{SUMS}"
            )
    return path


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex, as the command ``sha256sum`` has it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_tree(path: Path, tree: Tree, metadata: Mapping[str, str]) -> None:
    """Write a tree of arrays and some text about it into one file, atomically."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in flatten(tree).items()}
    content = memoryview(to_safetensors(arrays, dict(metadata)))
    end = 8 + int.from_bytes(content[:8], "little")
    header, data = json.loads(bytes(content[8:end])), content[end:]
    about = header.setdefault("__metadata__", {})
    about[_DATA] = hashlib.sha256(data).hexdigest()
    about[_HEADER] = _header_digest(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # arrays are aligned
    with writing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(data)


def _header_digest(header: dict[str, Any]) -> str:
    """The digest of a header, with the digest of the arrays but without its own."""
    about = {key: text for key, text in header["__metadata__"].items() if key != _HEADER}
    plain = json.dumps({**header, "__metadata__": about}, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def tree_digest(path: Path) -> str | None:
    """The digest of all that :func:`save_tree` wrote; ``None`` for a file of an earlier version."""
    with _opened(path) as file:
        return (file.metadata() or {}).get(_HEADER)


def read_metadata(path: Path) -> dict[str, str]:
    """The text that :func:`save_tree` wrote."""
    with _opened(path) as file:
        metadata = dict(file.metadata() or {})
        return {key: text for key, text in metadata.items() if key not in _sound}


def load_tree(path: Path, like: Tree, index: int | None = None) -> Tree:
    """Read a tree of the structure of ``like``; with ``index``, one entry of stacked arrays."""
    wanted = {name: tuple(leaf.shape) for name, leaf in flatten(like).items()}
    with _opened(path, _DATA) as file:
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
    with _opened(path, _DATA) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A new directory to fill, which takes the place of ``path`` when the block ends well.

    An empty directory is replaced, and one for which ``ours`` is true; anything else is refused.
    """
    path = Path(path).expanduser().resolve()
    new = _beside(path, "new")
    old = new.with_suffix(".old")
    with locked_file(path), locked(path) if path.is_dir() else contextlib.nullcontext():
        sweep_beside(path)
        if not (is_free(path) or (path.is_dir() and ours(path))):
            raise FileError(
                f"{path} already exists and contains other files, so nothing was written; choose "
                "another directory, or remove it"
            )
        try:
            with explaining_writes(path):
                new.mkdir(parents=True)
                yield new
                for file in (*new.iterdir(), new):
                    flush(file)
                if path.exists():
                    path.rename(old)
                new.rename(path)
                flush(path.parent)
        finally:
            if old.exists() and not path.exists():
                old.rename(path)
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def verify_tree(path: Path) -> None:
    """Refuse a file of :func:`save_tree` that has changed since it was written."""
    with _opened(path, _DATA):
        pass


@contextlib.contextmanager
def _opened(path: Path, part: str = _HEADER) -> Iterator[Any]:
    """A safetensors file with a sound header; with ``_DATA``, the arrays are sound, too."""
    wrong = "damaged or not a safetensors file"
    with _reading(path, wrong), safe_open(path, framework="numpy") as file:
        stat = path.stat()
        seen = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        if seen not in _sound[part]:
            _verify(path, part)
            _sound[part].add(seen)
        yield file


def _verify(path: Path, part: str) -> None:
    with path.open("rb") as file:
        header = parse_json(file.read(int.from_bytes(file.read(8), "little")))
        known = {key: header.get("__metadata__", {}).get(key) for key in _sound}
        if not any(known.values()):
            return  # an earlier version wrote it
        sound = known[_HEADER] == _header_digest(header)
        if sound and part == _DATA:
            sound = known[_DATA] == hashlib.file_digest(file, "sha256").hexdigest()
        if not sound:
            raise FileError(f"{path} is damaged: its digest is not that of its content; {DAMAGED}")


def _reading(path: Path, wrong: str) -> contextlib.AbstractContextManager[None]:
    if not path.exists():
        raise FileError(f"{path} does not exist; restore it, or name another place")
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
        details = "" if str(error) in wrong else f" ({error})"  # some name the path and no more
        raise FileError(f"{wrong}{details}; {remedy}") from error


def _beside(path: Path, end: str) -> Path:
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}.{end}")
