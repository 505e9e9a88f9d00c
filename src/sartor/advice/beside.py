"""Work side by side: while one part compiles or waits for another's numbers, others compute."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from sartor.interrupts import Interrupts, stopped_by


def beside(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each job returns; one after the other where there is one core only."""
    if (os.cpu_count() or 1) < 2:
        return [job() for job in jobs]
    stopping = threading.Event()

    def work(job: Callable[[], Any]) -> Any:
        with stopped_by(stopping):
            return job()

    pool = ThreadPoolExecutor(len(jobs))
    try:
        with Interrupts() as interrupts:
            futures = [pool.submit(work, job) for job in jobs]
            while not all(future.done() for future in futures):
                wait(futures, timeout=0.2)
                if interrupts.requested or any(f.done() and f.exception() for f in futures):
                    stopping.set()
            if interrupts.requested:
                raise KeyboardInterrupt
            # What failed first is what is wrong; others were only asked to stop.
            errors = [error for f in futures if (error := f.exception()) is not None]
            for error in sorted(errors, key=lambda e: isinstance(e, KeyboardInterrupt)):
                raise error
            return [future.result() for future in futures]
    finally:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)  # asked twice, nobody waits
