"""Whether advice holds: given by training examples, measured on test examples of real writers.

A logistic model, 548 writers on two cores in a few minutes: `python bench/advice.py DATA`, with
TFF's HDF5 files in DATA. Advice never sees the test images; here they are what it is judged by.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import time
import warnings

import jax
import numpy as np

import sartor
from sartor.evaluation import mean_interval

CENTRAL = sartor.FedAvg(learning_rate=0.01)
CLUSTER = sartor.HypCluster(learning_rate=0.01, warm_rounds=25)
LOCAL = sartor.Local(learning_rate=0.005, guard=False)
MIXED = sartor.Dapper(learning_rate=0.005, cover=(0.25, 0.5, 0.75, 1.0), guard=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="directory with fed_emnist_train.h5 and fed_emnist_test.h5")
    data = sartor.data.open(parser.parse_args().data)
    model = sartor.models.logistic(features=(28, 28), classes=62)
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    advice = sartor.advise(
        data, model, central=CENTRAL, cluster=CLUSTER, local=LOCAL, interpolation=MIXED
    )
    seconds = time.perf_counter() - began
    gains = on_test(data, model)
    everybody = np.arange(len(data))
    mixed = np.stack([gains[f"λ = {value:g}"] for value in MIXED.cover])
    best = np.searchsorted(MIXED.cover, advice.lambda_)
    taken = {**gains, "global": np.zeros(len(data)), "interpolation": mixed[best, everybody]}
    gains["as advised"] = np.select([advice.advice == n for n in taken], list(taken.values()))
    promised = advice.policies()
    print("| policy | expected | on held-out examples | on test examples | 95% interval |")
    print("|---|---|---|---|---|")
    for name, found in promised.items():
        low, high, _ = mean_interval(gains[name])
        print(
            f"| {name} | {found['gain']:+.3f} | {found['held_out']:+.3f} | "
            f"{gains[name].mean():+.3f} | {low:+.3f} to {high:+.3f} |"
        )
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"\nAdvice took {seconds:.0f} s; {os.cpu_count()} cores, jax {jax.__version__}, {today}")


def on_test(data: sartor.ClientData, model: sartor.Model) -> dict[str, np.ndarray]:
    """What every client gains over the global model on its test examples, by policy."""
    one = CENTRAL.fit(model, data, progress=False)
    base = one.evaluate(data).loss

    def gain(fitted: sartor.PersonalModels | sartor.CentralModel) -> np.ndarray:
        return np.asarray(base - fitted.evaluate(data).loss, np.float64)

    found = {
        "cluster": gain(CLUSTER.fit(model, data, progress=False)),
        "local": gain(LOCAL.fit(model, data, progress=False, keep=False)),
    }
    for value in MIXED.cover:
        fixed = dataclasses.replace(MIXED, cover=(value,))
        found[f"λ = {value:g}"] = gain(fixed.fit(one, data, progress=False, keep=False))
    return found


if __name__ == "__main__":
    main()
