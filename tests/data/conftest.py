"""Puts the tests' helpers within reach, and opens real data once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sartor

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def emnist(real_emnist):
    """Real federated EMNIST, opened once."""
    return sartor.data.open(real_emnist)
