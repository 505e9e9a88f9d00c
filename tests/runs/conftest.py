"""Puts the tests' helpers within reach, and makes one run that many tests look at."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_cases import blank_figures, config, sartor_command

from sartor.runs import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run; tests only look at it."""
    return run(config(), tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(autouse=True)
def quick_figures(request):
    """Leave figures blank: drawing takes nine tenths of the time of a small run.

    Tests with the fixture ``drawn`` draw them, and so do the runs that whole modules look at.
    """
    with contextlib.nullcontext() if "drawn" in request.fixturenames else blank_figures():
        yield


@pytest.fixture
def drawn():
    """For tests that look at figures."""


@pytest.fixture
def sartor(monkeypatch, capsys):
    """Call the command line in this process: returns exit code, stdout and stderr."""
    return lambda *words: sartor_command(monkeypatch, capsys, *words)
