"""Threads that work until all is done, something fails, or somebody presses Ctrl-C."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from sartor.errors import InterruptedRun
from sartor.interrupts import Interrupts, stopped_by
from sartor.progress import Bar


class Workers:
    """Runs tasks on threads; see :func:`workers`.

    Attributes:
        bar: the progress bar.
        stopping: is set when all work should stop.
        finished: how many parts are finished; the tasks count them.
    """

    def __init__(self, pool: ThreadPoolExecutor, bar: Bar, interrupts: Interrupts, total: int):
        self.bar, self.stopping, self.finished = bar, threading.Event(), 0
        self._pool, self._interrupts, self._total = pool, interrupts, total
        self._lock, self._note = threading.Lock(), ""

    def say(self, note: str) -> None:
        """What the progress bar says about the work."""
        self._note = note

    def count(self, note: str = "") -> int:
        """Count a finished part, and return how many there are now."""
        self.say(note or self._note)
        with self._lock:
            self.finished += 1
            return self.finished

    def run(self, tasks: Iterable[Callable[[], Any]]) -> list[Any]:
        """Run tasks, in this order where there are more tasks than threads; return their results.

        An error in one of them stops all. So does Ctrl-C, unless it comes during the last one.
        """
        futures = [self._pool.submit(self._stoppable, task) for task in tasks]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                self.bar.update(self.finished, self._note)
                for future in done:
                    future.result()
                if self._interrupts.requested and waiting:
                    self._stop(waiting)
                    raise InterruptedRun(
                        f"stopped with {self.finished} of {self._total} cells done"
                    )
        except Exception:  # a second Ctrl-C does not wait
            self._stop(waiting)
            raise
        return [future.result() for future in futures]

    def _stoppable(self, task: Callable[[], Any]) -> Any:
        with stopped_by(self.stopping):
            return task()

    def _stop(self, waiting: set[Future[Any]]) -> None:
        self.stopping.set()
        wait([future for future in waiting if not future.cancel()])


@contextlib.contextmanager
def workers(title: str, total: int, threads: int, progress: bool | None) -> Iterator[Workers]:
    """Threads with a progress bar.

    Args:
        title: what is computed.
        total: how many parts there are.
        threads: how many tasks run at the same time.
        progress: whether to show the bar; by default only on a terminal.
    """
    pool = ThreadPoolExecutor(threads)
    with (
        warnings.catch_warnings(),
        Bar(title, total, progress) as bar,
        Interrupts() as interrupts,
    ):
        # Some starts of HypCluster leave clusters empty; advice and pages report the shares.
        warnings.filterwarnings("ignore", message="HypCluster: some")
        crew = Workers(pool, bar, interrupts, total)
        try:
            yield crew
        finally:
            crew.stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
