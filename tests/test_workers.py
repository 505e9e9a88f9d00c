"""Threads that work until all is done, something fails, or somebody presses Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sartor.errors import DataError, InterruptedRun
from sartor.interrupts import asked_to_stop
from sartor.workers import workers


def test_workers_run_everything_and_count_it():
    done = []
    with workers("trial", 5, 2, False) as crew:

        def work(n):
            done.append(n)
            crew.count(f"part {n}")
            return 10 * n

        assert crew.run([lambda n=n: work(n) for n in range(3)]) == [0, 10, 20]
        assert crew.run([lambda n=n: work(n) for n in range(3, 5)]) == [30, 40]
        assert crew.finished == 5
    assert sorted(done) == list(range(5))


crews = []
"""All workers of these tests, to look at after an error."""


def run(total, threads, make):
    """Run the tasks that ``make`` makes for the workers."""
    with workers("trial", total, threads, False) as crew:
        crews.append(crew)
        crew.run(make(crew))


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_stops_all_work(threads):
    done, stopped = [], []

    def fail():
        raise DataError("no more ink")

    def wait():
        while not asked_to_stop():
            time.sleep(0.01)
        stopped.append(True)

    tasks = [fail, wait][:threads] + [lambda n=n: done.append(n) for n in range(20)]
    with pytest.raises(DataError, match="no more ink"):
        run(9, threads, lambda crew: tasks)
    assert len(done) < 20 and stopped == [True] * (threads - 1)


def test_ctrl_c_stops_after_the_current_part():
    done = []

    def work(crew, n):
        if n == 0:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C
            done.append(n)
            crew.count()
        else:
            assert crew.stopping.wait(10)

    with pytest.raises(InterruptedRun, match="stopped with 1 of 3 cells done"):
        run(3, 1, lambda crew: [lambda n=n: work(crew, n) for n in range(3)])
    assert done == [0]


def test_ctrl_c_during_the_last_part_loses_nothing():
    def work(crew):
        signal.raise_signal(signal.SIGINT)
        crew.count()

    with pytest.raises(KeyboardInterrupt):
        run(1, 1, lambda crew: [lambda: work(crew)])
    assert crews[-1].finished == 1


def test_tasks_run_at_the_same_time():
    meet = threading.Barrier(3, timeout=10)
    with workers("trial", 3, 3, False) as crew:
        assert sorted(crew.run([meet.wait] * 3)) == [0, 1, 2]


def test_a_second_ctrl_c_does_not_wait():
    release = threading.Event()

    def work(crew):
        os.kill(os.getpid(), signal.SIGINT)  # to the main thread, as Ctrl-C
        assert crew.stopping.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        assert release.wait(10)

    with pytest.raises(KeyboardInterrupt):
        run(1, 1, lambda crew: [lambda: work(crew), print])
    release.set()
