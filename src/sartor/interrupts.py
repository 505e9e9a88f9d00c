"""Ctrl-C: the first finishes the current step, the second stops at once."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

_here = threading.local()


@contextlib.contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """Let the event stop work on this thread, as Ctrl-C does on the main thread."""
    _here.event = event
    try:
        yield
    finally:
        _here.event = None


def asked_to_stop() -> bool:
    """Whether the event that stops this thread is set."""
    event: threading.Event | None = getattr(_here, "event", None)
    return event is not None and event.is_set()


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that a job's end is as clean; on the main thread."""
    main = threading.current_thread() is threading.main_thread()
    takes = main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if takes:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if takes:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Interrupts:
    """Remembers a request to stop, while used in a ``with`` statement on the main thread.

    A request that nobody has acted on becomes a ``KeyboardInterrupt`` when the statement ends.
    Signals that the process was told to ignore (``nohup``, jobs in the background) stay ignored.

    >>> with Interrupts() as interrupts:
    ...     interrupts.requested
    False
    """

    def __init__(self) -> None:
        self._noted = False
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._noted or asked_to_stop()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True
        sys.stderr.write("\nFinishing the current step; press Ctrl-C again to stop now\n")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.requested and kind is None:
            raise KeyboardInterrupt
