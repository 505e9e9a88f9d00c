"""Locks on what is written: one writer for a directory or a file at a time.

A lock is a small file that says who holds it: in the directory, or beside the file. It is removed
in the end. The system releases the lock when its process ends, however it ends; the file that is
left then holds nobody up. A writer that comes second is refused at once, and touches nothing.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from sartor.errors import FileError, explaining_writes, warn

LOCK = ".sartor.lock"
"""The lock of a directory, and the end of the names of other locks."""

GONE = 1000
"""How often the directory of a lock may be gone again before it is given up."""

_WITHOUT = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}
"""What file systems say that have no locks."""

_here = threading.local()


def locked(
    directory: str | os.PathLike[str], *, wait: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Be the only writer of a directory, which is made if it is not there.

    A directory that was made for this and is still empty in the end is removed. A thread may lock
    again what it has locked. Other threads are refused as other processes are.

    Args:
        directory: the directory.
        wait: wait for the other writer, instead of being refused.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "run"
    >>> with locked(place), locked(place):
    ...     place.is_dir()
    True
    >>> place.exists()
    False
    """
    place = Path(directory).resolve()
    if place.exists() and not place.is_dir():
        raise FileError(f"{directory} is a file, and a directory is needed; choose another place")
    return _locked(place, place / LOCK, wait)


def locked_file(
    path: str | os.PathLike[str], *, wait: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Be the only writer of a file, or the only one who replaces a directory as a whole.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with locked_file(folder / "checkpoint"):
    ...     [file.name for file in folder.iterdir()]
    ['.checkpoint.sartor.lock']
    >>> list(folder.iterdir())
    []
    """
    place = Path(path).resolve()
    return _locked(place, place.with_name(f".{place.name}{LOCK}"), wait)


@contextlib.contextmanager
def _locked(place: Path, lock: Path, wait: bool) -> Iterator[None]:
    held: set[Path] = vars(_here).setdefault("held", set())
    if lock in held:
        yield
        return
    made: list[Path] = []  # the innermost first
    with explaining_writes(place):
        handle = _acquire(place, lock, wait, made)
    held.add(lock)
    try:
        yield
    finally:
        held.discard(lock)
        try:
            for remove in (lock.unlink, *(path.rmdir for path in made)):
                with contextlib.suppress(OSError):
                    remove()
        finally:  # even if Ctrl-C comes now
            os.close(handle)


def _acquire(place: Path, lock: Path, wait: bool, made: list[Path]) -> int:
    """A descriptor that holds the lock; ``made`` are the directories that had to be made for it."""
    gone = 0
    while True:
        made += [path for path in lock.parents if not path.exists()]
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # the last writer has removed its directory
            gone += 1
            if gone == GONE:  # again and again: no file can be made there, as in /proc
                raise
            continue
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):
                raise
            raise FileError(f"{lock} is a link, and a lock must be a file; remove it") from error
        if os.fstat(handle).st_nlink > 1:  # it would be emptied under its other name, too
            os.close(handle)
            raise FileError(f"{lock} has another name, and a lock must be a file; remove it")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _WITHOUT:
                warn(
                    f"the file system of {place} has no locks: make sure that only one process "
                    "writes there"
                )
                return handle
            with open(handle, encoding="utf-8", errors="replace") as file:
                holder = file.read(200)
            if not isinstance(error, BlockingIOError):
                raise
            raise FileError(
                f"{place} is being written by {holder or 'another process'}; wait until it has "
                "ended, stop it, or choose another place"
            ) from None
        if _is_at(handle, lock):
            with contextlib.suppress(OSError):  # a full disk; the lock needs no note
                os.ftruncate(handle, 0)
                os.write(handle, _who().encode())
            return handle
        os.close(handle)  # of a lock that the last writer has removed


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _who() -> str:
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()} (since {now})"
