"""Ctrl-C: the first asks, the second stops; and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from sartor.interrupts import Interrupts, terminable


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    signal.sigpending()  # a moment for Python to call the handler


class Stopped(Exception):
    """What work that acts on a request raises."""


def work(presses, acts=True, reached=None):
    """Work during which a signal comes some times, and which may act on it."""
    with Interrupts() as interrupts:
        for number in presses:
            press(number)
            assert interrupts.requested
            reached.append(number)
        if acts and interrupts.requested:
            raise Stopped


def test_the_system_may_interrupt_as_the_user_does():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        press(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(Stopped), terminable():  # work that can be stopped takes over
        work([signal.SIGTERM], reached=[])


def test_whoever_handles_or_ignores_termination_still_does():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable():
            press(signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        thread = threading.Thread(target=lambda: terminable().__enter__())
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_request_is_remembered(number):
    before, reached = signal.getsignal(number), []
    with pytest.raises(Stopped):
        work([number], reached=reached)
    assert reached == [number]
    assert signal.getsignal(number) is before


def test_the_second_request_stops_at_once():
    before, reached = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        work([signal.SIGINT, signal.SIGINT], reached=reached)
    assert reached == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_request_that_nobody_acts_on_is_not_lost():
    reached = []
    with pytest.raises(KeyboardInterrupt):
        work([signal.SIGINT], acts=False, reached=reached)
    assert reached == [signal.SIGINT]


def test_no_request_no_error():
    with Interrupts() as interrupts:
        pass
    assert not interrupts.requested


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            press()
            assert not interrupts.requested
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone():
    seen = []

    def work():
        with Interrupts() as interrupts:
            seen.append((interrupts.requested, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
