"""What can go wrong, in one place: every error says what was wrong and what to do about it."""

from __future__ import annotations


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
