"""Run several jobs in threads: while one job compiles, the others compute."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from sartor.interrupts import Interrupts, stopped_by


def concurrently(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the jobs in threads, and return their results in order.

    When one job fails or somebody presses Ctrl-C, the other jobs are asked to stop. On a single
    core the jobs run one after another.
    """
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
            # Raise the failure itself; the other jobs only report that they were stopped.
            for future in sorted(futures, key=lambda f: type(f.exception()) is KeyboardInterrupt):
                future.result()
            return [future.result() for future in futures]
    finally:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)  # a second Ctrl-C does not wait
