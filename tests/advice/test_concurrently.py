"""Jobs in threads: results in order, and a failure stops the other jobs."""

from __future__ import annotations

import threading
import time

import pytest

from sartor.advice.concurrently import concurrently
from sartor.errors import DataError
from sartor.interrupts import asked_to_stop


def test_results_are_in_order(monkeypatch):
    jobs = [lambda: (time.sleep(0.05), 1)[1], lambda: 2, lambda: 3]
    assert concurrently(jobs) == [1, 2, 3]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert concurrently(jobs) == [1, 2, 3]


def test_they_run_at_the_same_time(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meet = threading.Barrier(3, timeout=10)
    assert sorted(concurrently([meet.wait] * 3)) == [0, 1, 2]


def test_what_fails_stops_the_others_and_is_said(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    stopped = []

    def patient():
        for _ in range(500):
            if asked_to_stop():
                stopped.append(True)
                raise KeyboardInterrupt
            time.sleep(0.01)

    def wrong():
        raise DataError("this client is broken")

    with pytest.raises(DataError, match="broken"):
        concurrently([patient, wrong])
    assert stopped == [True]
