"""The benchmark `algorithms-gpu`: every algorithm of the paper on real writers, on one GPU.

The paper's EMNIST network. Central algorithms: a round against a round of FedAvg, in one run.
Personal ones: a pass over all writers with an eleven-point cover, choices and models included.
Whole fits as a user sees them; the first of each compiles and is not timed. Run it by itself:
`python bench/algorithms_gpu.py DATA`, with TFF's HDF5 files in DATA.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
import warnings

import jax

import sartor

UNSEEN = 900 / 3400  # the paper's share of clients kept out of central training


def seconds_of(fit, repetitions: int) -> list[float]:
    """Seconds of some fits after one that warms up."""
    seconds = []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        fit()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory with fed_emnist_train.h5 and fed_emnist_test.h5")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = sartor.data.open(options.data).split(unseen=UNSEEN, validation=0.15, seed=0)
    model, rounds = sartor.models.cnn(smoothing=0.1), options.rounds
    print("| precision | algorithm | ms per round: median | ratio to FedAvg |\n|---|---|---|---|")
    centrals = {}
    for precision in ("f32", "bf16"):
        engine = sartor.Engine(precision=precision)
        reference = None
        for algorithm in (
            sartor.FedAvg(rounds=rounds),
            sartor.HypCluster(rounds=rounds, q=2, warm_rounds=2),
            sartor.Agnostic(rounds=rounds),
        ):
            name = type(algorithm).__name__

            def fit(algorithm=algorithm, engine=engine, key=(precision, name)):
                # The rounds alone: what comes after the last one is another table's.
                clock = []
                centrals[key] = algorithm.fit(
                    model, data, engine=engine,
                    on_chunk=lambda c, clock=clock: clock.append((c.stop - c.start, c.seconds)),
                )  # fmt: skip
                fit.rounds = clock

            times = []
            fit()
            for _ in range(3):
                fit()
                times.append(1e3 * sum(s for _, s in fit.rounds) / rounds)
            median = statistics.median(times)
            reference = reference or median
            print(f"| {precision} | {name} | {median:.2f} | {median / reference:.2f} |", flush=True)
    print("\n| precision | algorithm | seconds for all writers |\n|---|---|---|")
    for precision in ("f32", "bf16"):
        engine = sartor.Engine(precision=precision)
        central = centrals[precision, "FedAvg"]
        for name, algorithm in {
            "Finetune": sartor.Finetune(),
            "Dapper, sampling": sartor.Dapper(),
            "Dapper, weighing": sartor.Dapper(step="weight"),
            "Mapper": sartor.Mapper(rounds=0),
        }.items():
            run = lambda a=algorithm, e=engine, c=central: a.fit(c, data, engine=e)  # noqa: E731
            print(f"| {precision} | {name} | {seconds_of(run, 1)[0]:.1f} |", flush=True)
        mapper = sartor.Mapper(rounds=20)
        began = time.perf_counter()
        mapper.fit(central, data, engine=engine)
        print(f"| {precision} | Mapper with 20 joint rounds, compilation included | "
              f"{time.perf_counter() - began:.1f} |", flush=True)  # fmt: skip
    kind = jax.devices()[0].device_kind
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"\n{kind}, jax {jax.__version__}, sartor {sartor.__version__}, seed 0, {today}; {data}")


if __name__ == "__main__":
    main()
