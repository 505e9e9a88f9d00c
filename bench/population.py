"""The benchmark `population`: what a round costs when there are many more clients to choose from.

The cohort stays the same size, so the time of a round should not depend on the population.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version

import jax
import numpy as np

import common
import sartor
from contest import Contestant, compete, table
from sartor.engine import Planner, run_rounds

POPULATIONS = (1_000, 100_000)


def measure(population: int, cohort: int, rounds: int, warmup: int) -> list[float]:
    """Seconds of each timed round of FedAvg with `cohort` clients drawn out of `population`.

    A round is all that a user waits for: drawing the cohort, packing, training, the server's
    step, until the new parameters are ready. Making the data beforehand is not part of it.
    """
    examples = 20
    draw = np.random.default_rng(0)
    x = draw.standard_normal((population * examples, 20), dtype=np.float32)
    y = draw.integers(0, 5, population * examples)
    data = sartor.data.from_arrays(x, y, np.repeat(np.arange(population), examples))
    model = sartor.models.logistic(features=20, classes=5)
    algorithm = sartor.FedAvg(rounds=warmup + rounds, cohort=cohort, learning_rate=0.05)
    start = algorithm.init(model, data, jax.random.key(0))
    planner = Planner(algorithm, model, data, start, sartor.Engine(), seed=0)
    chunks = list(run_rounds(planner, start))
    return [c.seconds / (c.stop - c.start) for c in chunks if c.start >= warmup]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sizes to compare, and the cohort."""
    parser.add_argument("--populations", type=common.positive, nargs="+", default=POPULATIONS)
    parser.add_argument("--cohort", type=common.positive, default=20)


def run(options: argparse.Namespace) -> tuple[str, bool]:
    """The table, and whether the smallest population, the reference, has run."""
    contestants = [
        Contestant(
            f"{population:,} clients",
            sys.executable,
            "population.py",
            ("--population", str(population), "--cohort", str(options.cohort)),
        )
        for population in sorted(options.populations)
    ]
    contest = compete(contestants, options.repetitions)
    return table(contest, f"population, cohort of {options.cohort}"), contest.complete


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=common.positive, required=True)
    parser.add_argument("--cohort", type=common.positive, default=20)
    parser.add_argument("--rounds", type=common.positive, default=2000)
    parser.add_argument("--warmup", type=common.positive, default=400)
    options = parser.parse_args()
    line = {
        "name": f"{options.population} clients",
        "seconds": measure(options.population, options.cohort, options.rounds, options.warmup),
        "versions": {name: version(name) for name in ("sartor", "jax")},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
