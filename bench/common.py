"""What all benchmarks share: the workload, the thread limit, the clock's output and the machine.

Only numpy and the standard library are imported, because the peers' environments have little
else in common with ours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLASSES = 62
PARAMETERS = 1_206_590  # of the paper's EMNIST network; every script checks its own against it
CLIENT_STEP_SIZE = 0.05
SERVER_STEP_SIZE = 1.0
SERVER_MOMENTUM = 0.9


@dataclass(frozen=True)
class Workload:
    """One FedAvg round: every client makes one local epoch, then the server averages.

    Attributes:
        clients: clients in the cohort; the same ones in every round.
        examples: training examples of each client.
        batch: examples in one local SGD step.
        rounds: rounds that are timed.
        warmup: rounds before them that are not timed (compilation, caches, first allocations).
        threads: processor cores that the process may use.
    """

    clients: int
    examples: int
    batch: int
    rounds: int
    warmup: int
    threads: int

    def arguments(self) -> list[str]:
        """The command line that makes another script run the same workload."""
        return [word for name, value in vars(self).items() for word in (f"--{name}", str(value))]


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a workload; the defaults are the published benchmark."""
    parser.add_argument("--clients", type=positive, default=20, help="clients in the cohort")
    parser.add_argument("--examples", type=positive, default=200, help="examples of each client")
    parser.add_argument("--batch", type=positive, default=20, help="examples in a local step")
    parser.add_argument("--rounds", type=positive, default=5, help="timed rounds")
    parser.add_argument("--warmup", type=positive, default=2, help="untimed rounds before them")
    parser.add_argument("--threads", type=positive, default=2, help="processor cores to use")


def workload_of(options: argparse.Namespace) -> Workload:
    """The workload that the parsed options describe."""
    return Workload(**{name: getattr(options, name) for name in Workload.__annotations__})


def positive(text: str) -> int:
    """An integer of at least one, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def random_clients(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Images [clients, examples, 28, 28] in [0, 1) and labels [clients, examples], from seed 0."""
    rng = np.random.default_rng(0)
    shape = (workload.clients, workload.examples)
    images = rng.random((*shape, 28, 28), dtype=np.float32)
    labels = rng.integers(0, CLASSES, shape, dtype=np.int32)
    return images, labels


def limit_threads(threads: int, skip: int = 0) -> None:
    """Keep this process, and the threads it will start, on that many cores after the first few.

    Call it before the first computation: XLA sizes its pool, when it starts, from the cores that
    the process may run on, and has no dependable option for it. Where the system cannot bind a
    process to cores (macOS), nothing happens.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if threads + skip > len(cores):
            raise SystemExit(
                f"--threads {threads + skip} asks for more than the {len(cores)} cores of this "
                "machine; name fewer"
            )
        os.sched_setaffinity(0, cores[skip : skip + threads])


def report(
    name: str,
    versions: dict[str, str],
    seconds: list[float],
    *,
    parameters: int,
    loss: tuple[float, float],
    moved: float,
) -> None:
    """Print one line of JSON, after checking that the timed program did train the network.

    Args:
        name: who ran.
        versions: versions of the libraries that matter for speed.
        seconds: wall time of each timed round.
        parameters: number of parameters of the network.
        loss: mean loss on the training examples before the first and after the last round.
        moved: Euclidean distance between the first and the last parameters.
    """
    if parameters != PARAMETERS:
        raise SystemExit(f"{name}: the network has {parameters} parameters, not {PARAMETERS}")
    if not (math.isfinite(moved) and moved > 0 and all(map(math.isfinite, loss))):
        raise SystemExit(f"{name}: nothing was learnt (loss {loss}, parameters moved {moved})")
    line = {"name": name, "versions": versions, "seconds": seconds, "loss": loss, "moved": moved}
    print(json.dumps(line), flush=True)


def median(values: list[float]) -> float:
    """The median; a name of its own so that every table is made in the same way."""
    return statistics.median(values)


def machine() -> dict[str, str]:
    """The processor, its cores that we may use, and the system, for the head of a table."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": str(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
