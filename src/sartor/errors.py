"""What can go wrong, in one place: every error says what was wrong and what to do about it."""

import contextlib
import errno
import sys
import warnings
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from os import PathLike


def nearest(name: str, names: Iterable[str], otherwise: str = "there is") -> str:
    """The end of an error message: the name that was probably meant, or those that there are.

    >>> nearest("lable", ["x", "label"])
    "did you mean 'label'?"
    >>> nearest("colour", ["x", "label"])
    'there is label, x'
    """
    names = sorted(names)
    if near := get_close_matches(name, names, n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}?"
    return f"{otherwise} {', '.join(names[:30])}{', ...' if len(names) > 30 else ''}"


def warn(message: str) -> None:
    """Warn of something, at the line where the user's code calls Sartor, however deep this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "sartor":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


class SartorError(Exception):
    """Base of all errors that Sartor raises on purpose."""


class DataError(SartorError, ValueError):
    """The data cannot be used: names the client, the column and the value."""


class ConfigError(SartorError, ValueError):
    """A hyper-parameter or a configuration key is wrong."""


class FileError(SartorError, OSError):
    """A file is missing, damaged, foreign, or cannot be written."""


class CheckpointError(SartorError):
    """A checkpoint belongs to another configuration or to other data."""


class DivergedError(SartorError):
    """Training left the finite numbers.

    Attributes:
        round: the first round (or, for a personal algorithm, the block) that failed.
        clients: ids of the clients whose update was not finite.
    """

    def __init__(self, message: str, *, round: int, clients: tuple[str, ...]) -> None:
        super().__init__(message)
        self.round = round
        self.clients = clients


class InterruptedRun(SartorError):
    """The user stopped the run; everything finished so far is on disk."""


@contextlib.contextmanager
def explaining_writes(path: str | PathLike[str]) -> Iterator[None]:
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
