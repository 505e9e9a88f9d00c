"""FedAvg rounds with Sartor, on the same workload as the peers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

import common


@dataclass(frozen=True)
class Result:
    """What `run_rounds` hands back; the fields are the arguments of `common.report`."""

    seconds: list[float]
    parameters: int
    loss: tuple[float, float]
    moved: float


def run_rounds(images: np.ndarray, labels: np.ndarray, workload: common.Workload) -> Result:
    """Train the paper's EMNIST network for warm-up and timed rounds of FedAvg.

    Every client takes part in every round: one local epoch in fresh random order, SGD with
    `common.CLIENT_STEP_SIZE`, dropout on; updates weighted by the number of examples; server SGD
    with `common.SERVER_STEP_SIZE` and `common.SERVER_MOMENTUM`. The clock covers a whole round as
    a user sees it, host work included, and stops only when the new parameters are ready
    (`block_until_ready`). Arithmetic is float32, as the peers'.

    Args:
        images: float32 [clients, examples, 28, 28].
        labels: int32 [clients, examples].
        workload: sizes and counts of the run.
    """
    raise NotImplementedError("TODO: fill in once the engine and FedAvg are there")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_workload_arguments(parser)
    workload = common.workload_of(parser.parse_args())
    common.limit_threads(workload.threads)
    result = run_rounds(*common.random_clients(workload), workload)
    common.report("sartor", {name: version(name) for name in ("sartor", "jax")}, **vars(result))


if __name__ == "__main__":
    main()
