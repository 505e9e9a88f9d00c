"""Makes the environments that the peers run in: pinned versions, apart from ours and each other."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from contest import last_line

HOME = Path(__file__).resolve().parent / ".envs"


class PeerUnavailableError(Exception):
    """The peer cannot be installed or run here; says why."""


@dataclass(frozen=True)
class Environment:
    """How to get a peer's interpreter.

    Attributes:
        name: the folder under `bench/.envs`.
        variable: an environment variable that may name an interpreter to use instead.
        installs: arguments of `pip install`, one call after another.
    """

    name: str
    variable: str
    installs: tuple[tuple[str, ...], ...]


PFL = Environment(
    "pfl",
    "SARTOR_BENCH_PFL",
    (
        # PyTorch's own index has the build without CUDA, which is a tenth of the size.
        ("torch==2.13.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu"),
        ("pfl==0.6.0",),
    ),
)
FEDJAX = Environment(
    "fedjax",
    "SARTOR_BENCH_FEDJAX",
    (
        (
            "fedjax==0.0.17",
            "jax==0.4.25",
            "jaxlib==0.4.25",
            "numpy<2",
            "scipy<1.13",
            "dm-haiku==0.0.12",
        ),
    ),
)


def interpreter(environment: Environment) -> str:
    """The Python to run the peer with; the environment is made on first use."""
    named = os.environ.get(environment.variable)
    if named:
        if not Path(named).is_file():
            raise PeerUnavailableError(f"{environment.variable}={named} is not a file")
        return named
    home = HOME / environment.name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / "installed"
    pins = "\n".join(" ".join(words) for words in environment.installs)
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == pins):
        print(f"installing {environment.name} into {home} ...", file=sys.stderr)
        _call(sys.executable, "-m", "venv", "--clear", str(home))
        for words in environment.installs:
            _call(str(python), "-m", "pip", "install", "--quiet", "--retries", "1", *words)
        stamp.write_text(pins, encoding="utf-8")
    return str(python)


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = last_line(done.stderr) or last_line(done.stdout) or f"exit {done.returncode}"
        raise PeerUnavailableError(f"cannot be installed: {reason}")
