"""Settings for all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest

# Compilation makes the first example slow, which says nothing about the code.
hypothesis.settings.register_profile("sartor", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("sartor")


@pytest.fixture(autouse=True, scope="session")
def ctrl_c() -> None:
    """Programs in the background ignore Ctrl-C, and so would the programs that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_emnist() -> Path:
    """Real federated EMNIST in TFF's layout, where it lies beside the repository."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data" / "fed_emnist"
    if not path.is_dir():
        pytest.skip("needs federated EMNIST in ../shared/data/fed_emnist")
    return path
