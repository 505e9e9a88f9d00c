"""Hashes of functions are the same in any process, whatever it writes to."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import jax.numpy as jnp

from sartor.trees import traced_hash

PROGRAM = """
import jax.numpy as jnp
from sartor.trees import traced_hash
print(traced_hash(lambda x: jnp.where(x > 0, jnp.sin(x), 2 * x), 1.0))
"""


def test_a_hash_on_a_terminal_is_that_of_a_log():
    """JAX writes programs in colour where there is a terminal; here there is none."""
    assert not sys.stdout.isatty()
    plain = traced_hash(lambda x: jnp.where(x > 0, jnp.sin(x), 2 * x), 1.0)
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", PROGRAM], stdout=theirs, check=True)
        assert os.read(ours, 4096).decode().strip() == plain
    finally:
        os.close(ours)
        os.close(theirs)
    assert traced_hash(lambda y: y + 1, 1.0) == traced_hash(lambda x: x + 1, 1.0)
