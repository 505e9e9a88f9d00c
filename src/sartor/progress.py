"""Progress of long work: a bar with time left on a terminal, silence elsewhere."""

import sys
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A progress bar to use in a ``with`` statement.

    Args:
        title: the name of the work.
        total: the number of units of work; None if unknown.
        show: whether to show the bar (default: only on a terminal).

    >>> with Bar("rounds", total=3, show=False) as bar:
    ...     bar.update(3, "loss 0.1")
    """

    def __init__(self, title: str, total: int | None, show: bool | None = None) -> None:
        visible = sys.stderr.isatty() if show is None else show
        self._logs = show is None and not visible
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not visible,
        )
        self._task = self._progress.add_task(title, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        """Set how much is done, and a short note on it."""
        self._progress.update(self._task, completed=done, note=note)

    def line(self, text: str) -> None:
        """Write a line for the log if there is no terminal for a bar."""
        if self._logs:
            sys.stderr.write(f"{text}\n")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
