"""Threads that work on an experiment until it is done, fails, or is stopped by Ctrl-C."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

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

    def count(self, note: str = "") -> None:
        """Count a finished part."""
        with self._lock:
            self.finished += 1
        self.say(note or self._note)

    def run(self, tasks: Iterable[Callable[[], None]]) -> None:
        """Run tasks, in this order where there are more tasks than threads.

        An error in one of them stops all. So does Ctrl-C, unless it comes during the last one.
        """
        waiting = {self._pool.submit(self._stoppable, task) for task in tasks}
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
        except BaseException:
            self._stop(waiting)
            raise

    def _stoppable(self, task: Callable[[], None]) -> None:
        with stopped_by(self.stopping):
            task()

    def _stop(self, waiting: set[Future[None]]) -> None:
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
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(threads) as pool,
        Bar(title, total, progress) as bar,
        Interrupts() as interrupts,
    ):
        # Some starts of HypCluster leave clusters empty; the page reports the clusters' shares.
        warnings.filterwarnings("ignore", message="HypCluster: some")
        yield Workers(pool, bar, interrupts, total)
