"""The benchmark `fedavg-gpu`: FedAvg on real writers with their uneven sizes, on one GPU.

The paper's EMNIST network, cohorts of 20 of the seen writers, batch 20, dropout on. The clock
covers whole fits as a user sees them, planning on the host included; the first fit compiles and is
not timed. Run it by itself: `python bench/fedavg_gpu.py DATA`, with TFF's HDF5 files in DATA.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time

import jax

import sartor

UNSEEN = 900 / 3400  # the paper's share of clients kept out of central training


def fit_seconds(data: sartor.ClientData, engine: sartor.Engine, rounds: int) -> list[float]:
    """Seconds of three fits after one that warms up, and the model's accuracy."""
    algorithm = sartor.FedAvg(rounds=rounds, cohort=20)
    model = sartor.models.cnn(smoothing=0.1)
    seconds = []
    for _ in range(4):
        began = time.perf_counter()
        algorithm.fit(model, data, seed=0, engine=engine)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory with fed_emnist_train.h5 and fed_emnist_test.h5")
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    data = sartor.data.open(options.data).split(unseen=UNSEEN, seed=0)
    print("| precision | ms per round: median | least | most |\n|---|---|---|---|")
    for precision in ("f32", "bf16"):
        engine = sartor.Engine(precision=precision)
        times = [1e3 * s / options.rounds for s in fit_seconds(data, engine, options.rounds)]
        median = statistics.median(times)
        print(f"| {precision} | {median:.2f} | {min(times):.2f} | {max(times):.2f} |", flush=True)
    kind = jax.devices()[0].device_kind
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"\n{kind}, jax {jax.__version__}, sartor {sartor.__version__}, {today}; {data}")


if __name__ == "__main__":
    main()
