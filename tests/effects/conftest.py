"""Lets the tests of this folder share their cases."""

import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tests run side by side; small matrices are multiplied faster by one thread each."""
    with threadpool_limits(1, user_api="blas"):
        yield
