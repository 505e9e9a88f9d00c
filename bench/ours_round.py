"""FedAvg rounds with Sartor, on the same workload as the peers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import jax
import numpy as np

import common
import sartor
from sartor.engine import Planner
from sartor.engine import run_rounds as run_chunks


@dataclass(frozen=True)
class Result:
    """What `run_rounds` hands back; the fields are the arguments of `common.report`."""

    seconds: list[float]
    parameters: int
    loss: tuple[float, float]
    moved: float


def run_rounds(
    images: np.ndarray, labels: np.ndarray, workload: common.Workload, engine: sartor.Engine
) -> Result:
    """Train the paper's EMNIST network for warm-up and timed rounds of FedAvg.

    Every client takes part in every round: one local epoch in fresh random order, SGD with
    `common.CLIENT_STEP_SIZE`, dropout on; updates weighted by the number of examples; server SGD
    with `common.SERVER_STEP_SIZE` and `common.SERVER_MOMENTUM`. The clock covers a whole round as
    a user sees it, host work included, and stops only when the new parameters are ready
    (`block_until_ready`). Arithmetic is float32, as the peers', unless another is asked for.

    Args:
        images: float32 [clients, examples, 28, 28].
        labels: int32 [clients, examples].
        workload: sizes and counts of the run.
        engine: the precision of the arithmetic.
    """
    clients = {
        f"client-{k}": {"x": x, "y": y} for k, (x, y) in enumerate(zip(images, labels, strict=True))
    }
    data, model = sartor.data.from_dict(clients), sartor.models.cnn()
    algorithm = sartor.FedAvg(
        rounds=workload.warmup + workload.rounds,
        cohort=workload.clients,
        batch=workload.batch,
        learning_rate=common.CLIENT_STEP_SIZE,
        server_learning_rate=common.SERVER_STEP_SIZE,
        server_momentum=common.SERVER_MOMENTUM,
    )
    start = algorithm.init(model, data, jax.random.key(0))
    chunks = list(run_chunks(Planner(algorithm, model, data, start, engine, seed=0), start))
    timed = [c for c in chunks if c.start >= workload.warmup]
    losses = [float(c.metrics["loss"].mean()) for c in chunks]
    end = chunks[-1].state.hypotheses
    squares = jax.tree.map(lambda a, b: float(((a - b) ** 2).sum()), end, start.hypotheses)
    return Result(
        seconds=[c.seconds / (c.stop - c.start) for c in timed for _ in range(c.stop - c.start)],
        parameters=sartor.models.count_parameters(end),
        loss=(losses[0], losses[-1]),
        moved=float(np.sqrt(sum(jax.tree.leaves(squares)))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_workload_arguments(parser)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    options = parser.parse_args()
    workload, engine = common.workload_of(options), sartor.Engine(precision=options.precision)
    common.limit_threads(workload.threads)
    result = run_rounds(*common.random_clients(workload), workload, engine)
    versions = {"sartor": sartor.__version__, "jax": jax.__version__}
    common.report(f"sartor, {options.precision}", versions, **vars(result))


if __name__ == "__main__":
    main()
