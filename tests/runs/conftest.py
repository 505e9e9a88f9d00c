"""Puts the tests' helpers within reach, and makes one run that many tests look at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_cases import config, sartor_command

from sartor.runs import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run; tests only look at it."""
    return run(config(), tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture
def sartor(monkeypatch, capsys):
    """Call the command line in this process: returns exit code, stdout and stderr."""
    return lambda *words: sartor_command(monkeypatch, capsys, *words)
