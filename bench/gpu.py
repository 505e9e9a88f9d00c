"""The benchmarks on one GPU: every algorithm of the paper on real writers with uneven sizes.

The paper's EMNIST network with dropout and label smoothing. Whole fits as a user sees them,
planning on the host included; the first of each compiles and is not timed. Run it by itself:
`python bench/gpu.py DATA`, with TFF's HDF5 files in DATA.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import pathlib
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np
from scipy import stats

import sartor
from sartor.experiments.common import PAPER

UNSEEN = 900 / 3400  # the paper's share of clients kept out of central training
MODEL = sartor.models.cnn(smoothing=0.1)
PRECISIONS = ("f32", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory with fed_emnist_train.h5 and fed_emnist_test.h5")
    parser.add_argument("--only", choices=["fits", "algorithms", "precision"], help="one of them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a clustering of few rounds may well be lopsided
    data = sartor.data.open(options.data).split(unseen=UNSEEN, seed=0)
    if options.only in (None, "fits"):
        whole_fits(data, rounds=500)
    if options.only in (None, "algorithms"):
        held_out = data.split(validation=0.15, seed=0)
        centrals = rounds_of_all(held_out, rounds=200)
        passes_of_all(held_out, centrals)
    if options.only in (None, "precision"):
        same_accuracy(data, seeds=6, rounds=(600, 700, 800, 900, 1000))
    kind = jax.devices()[0].device_kind
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"\n{kind}, jax {jax.__version__}, sartor {sartor.__version__}, seed 0, {today}; {data}")


def whole_fits(data: sartor.ClientData, rounds: int) -> None:
    """FedAvg from the call of `fit` to the model."""
    print("| precision | FedAvg, ms per round: median | least | most |\n|---|---|---|---|")
    for precision in PRECISIONS:
        engine = sartor.Engine(precision=precision)
        algorithm = sartor.FedAvg(rounds=rounds, learning_rate=0.05)
        times = timed(lambda e=engine, a=algorithm: a.fit(MODEL, data, engine=e), 3)
        times = [1e3 * s / rounds for s in times]
        median = statistics.median(times)
        print(f"| {precision} | {median:.2f} | {min(times):.2f} | {max(times):.2f} |", flush=True)


def rounds_of_all(data: sartor.ClientData, rounds: int) -> dict[str, sartor.CentralModel]:
    """The rounds of every central algorithm, without what comes after the last one."""
    print("\n| precision | algorithm | ms per round: median | ratio to FedAvg |\n|---|---|---|---|")
    centrals = {}
    for precision in PRECISIONS:
        reference = 0.0
        for algorithm in (
            sartor.FedAvg(rounds=rounds, learning_rate=0.05),
            sartor.HypCluster(rounds=rounds, q=2, warm_rounds=2, learning_rate=0.03),
            sartor.Agnostic(rounds=rounds, learning_rate=0.05),
        ):
            times = []
            for _ in range(4):
                clock: list[float] = []
                central = algorithm.fit(
                    MODEL, data, engine=sartor.Engine(precision=precision),
                    on_chunk=lambda chunk, clock=clock: clock.append(chunk.seconds),
                )  # fmt: skip
                times.append(1e3 * sum(clock) / rounds)
            median = statistics.median(times[1:])
            reference = reference or median
            name = type(algorithm).__name__
            centrals.setdefault(precision, central)
            print(f"| {precision} | {name} | {median:.2f} | {median / reference:.2f} |", flush=True)
    return centrals


def passes_of_all(data: sartor.ClientData, centrals: dict[str, sartor.CentralModel]) -> None:
    """A model for every writer: trials of eleven λ, choices and final models."""
    print("\n| precision | algorithm | seconds for all writers |\n|---|---|---|")
    for precision in PRECISIONS:
        for name, algorithm in {
            "Finetune": sartor.Finetune(learning_rate=0.01, **PAPER),
            "Dapper, sampling": sartor.Dapper(learning_rate=0.04, **PAPER),
            "Dapper, weighing": sartor.Dapper(step="weight", learning_rate=0.04, **PAPER),
            "Mapper": sartor.Mapper(rounds=0, learning_rate=0.03, **PAPER),
            "Mapper with 20 joint rounds": sartor.Mapper(
                rounds=20, learning_rate=0.03, central_learning_rate=0.05, **PAPER
            ),
        }.items():
            [seconds] = timed(lambda a=algorithm, c=centrals[precision]: a.fit(c, data), 1)
            print(f"| {precision} | {name} | {seconds:.1f} |", flush=True)


def same_accuracy(data: sartor.ClientData, seeds: int, rounds: tuple[int, ...]) -> None:
    """Whether bf16 costs accuracy: the same seeds in both precisions, scored at several rounds.

    Two runs of one seed drift apart by rounding alone, as far as two seeds do, so a difference
    shows only in the mean over seeds and rounds.
    """
    print("\n| algorithm | test accuracy in f32 | bf16 less f32, points | 95% interval |")
    print("|---|---|---|---|", flush=True)
    for kind in (sartor.FedAvg, sartor.HypCluster):
        found = np.zeros((2, seeds, len(rounds)))
        for seed, (row, precision) in itertools.product(range(seeds), enumerate(PRECISIONS)):
            with tempfile.TemporaryDirectory() as folder:
                for place, count in enumerate(rounds):
                    more = {"warm_rounds": 250} if kind is sartor.HypCluster else {}
                    central = kind(rounds=count, **more).fit(
                        MODEL, data, seed=seed, engine=sartor.Engine(precision=precision),
                        checkpoint=pathlib.Path(folder, "run"),
                    )  # fmt: skip
                    found[row, seed, place] = central.evaluate(data).accuracy.mean()
        by_seed = 100 * (found[1] - found[0]).mean(axis=1)
        error = stats.t.ppf(0.975, seeds - 1) * by_seed.std(ddof=1) / np.sqrt(seeds)
        print(
            f"| {kind.__name__} | {found[0].mean():.2%} | {by_seed.mean():+.3f} | "
            f"{by_seed.mean() - error:+.3f} to {by_seed.mean() + error:+.3f} |",
            flush=True,
        )


def timed(work: Callable[[], object], repetitions: int) -> list[float]:
    """Seconds of some runs after one that warms up."""
    seconds = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


if __name__ == "__main__":
    main()
