"""How often intervals hold, tests err and clients are wrongly said to have gained, in simulations.

`python tests/evaluation/simulations.py` prints the tables of docs/reliability.md. The tests beside
this file assert their bounds, with fewer trials in `make test` and with more in `make soak`.
"""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np

import sartor
from sartor.data import from_dict
from sartor.evaluation import Scores, gains, mean_interval, mean_test
from sartor.models import linear, logistic

# Scores of clients, with their true mean


def normal(rng, clients):
    return rng.normal(size=clients), 0.0


def uniform(rng, clients):
    return rng.random(clients), 0.5


def heavy(rng, clients):
    return rng.standard_t(3, size=clients), 0.0


def coins(rng, clients):
    return rng.choice([-1.0, 1.0], size=clients), 0.0


def exponential(rng, clients):
    return rng.exponential(size=clients), 1.0


def bad_accuracy(rng, clients):
    """Accuracy about 0.9, and 0.2 for every tenth client, on 20 test examples each."""
    right = np.where(rng.random(clients) < 0.1, 0.2, 0.9)
    return rng.binomial(20, right) / 20, 0.83


def bad_loss(rng, clients):
    """Loss about 0.3, and 3 for every tenth client."""
    mean = np.where(rng.random(clients) < 0.1, 3.0, 0.3)
    return mean * rng.gamma(4.0, 0.25, size=clients), 0.57


def rare_loss(rng, clients):
    """The same for every fiftieth client."""
    mean = np.where(rng.random(clients) < 0.02, 3.0, 0.3)
    return mean * rng.gamma(4.0, 0.25, size=clients), 0.354


def long_tail(rng, clients):
    """The exponential of a normal score with a standard deviation of 2."""
    return rng.lognormal(0.0, 2.0, size=clients), math.exp(2.0)


def sized(rng, clients):
    """Skewed scores of clients that count by their size, on which the score depends."""
    size = rng.integers(1, 10, size=clients)
    return (size + rng.exponential(size=clients) - 1, size), 285 / 45  # Σ w² / Σ w over 1..9


def coverage(draw, clients, trials, seed=0):
    """How often a 95% interval holds the true mean, of those that are given."""
    rng, hits, given = np.random.default_rng(seed), 0, 0
    for _ in range(trials):
        values, mean = draw(rng, clients)
        low, high, _ = mean_interval(*values) if draw is sized else mean_interval(values)
        hits += low <= mean <= high
        given += low <= high
    return hits / given if given else math.nan


def false_alarms(draw, clients, trials, seed=0):
    """How often a mean difference of zero is called one beyond chance, at 5%."""
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(trials):
        values, mean = draw(rng, clients)
        hits += mean_test(values - mean) <= 0.05
    return hits / trials


# Who gained and who was hurt: shares of false calls, and of what there is to find that is found


def binary_scores(rng, clients, examples, chance, own, central):
    """Labels with a known chance, and two models that are known: what `evaluate` would return."""
    y = rng.random((clients, examples)) < chance
    gain = np.log([(1 - own) / (1 - central), own / central])
    losses = [-np.log(np.where(y, p, 1 - p)).ravel() for p in (own, central)]
    facts = dict(
        size=np.full(clients, 9), test_size=np.full(clients, examples), seen=np.ones(clients, bool)
    )
    ranges = np.tile([gain.min(), gain.max()], (clients * examples, 1))
    truth = chance * gain[1] + (1 - chance) * gain[0]
    return losses, ranges, facts, np.full(clients, np.round(truth, 4))


NULL = (0.95, 0.9803, 0.90)
"""A label's chance and what two models say of it: their expected losses are equal."""

GAINED = (0.95, 0.95, 0.60)
HURT = (0.60, 0.95, 0.60)


def binary_calls(mixture, examples, trials, seed=0):
    """False discovery rate of a mixture {(chance, own, central): clients}, and power."""
    rng, rates, power = np.random.default_rng(seed), [], []
    for _ in range(trials):
        parts = [binary_scores(rng, n, examples, *case) for case, n in mixture.items()]
        own, central = (np.concatenate([p[0][i] for p in parts]) for i in (0, 1))
        facts = {k: np.concatenate([p[2][k] for p in parts]) for k in parts[0][2]}
        facts["client"] = tuple(map(str, range(len(facts["size"]))))
        base = Scores("central", **facts, example_loss=central)
        ranges = np.concatenate([p[1] for p in parts])
        scores = Scores("own", **facts, example_loss=own, baseline=base, example_range=ranges)
        found, truth = gains(scores, "loss"), np.concatenate([p[3] for p in parts])
        called = found.beyond_chance * found.sign
        rates.append(false_share(called, truth))
        power.append(np.sum(called * truth > 0) / max(1, np.sum(truth != 0)))
    return float(np.mean(rates)), float(np.mean(power))


def false_share(called, truth):
    """The share of the calls that are false; 0 if there are none."""
    return np.sum((called != 0) & (called * truth <= 0)) / max(1, np.sum(called != 0))


def finetuned(kind, examples, seed, clients=100, fresh=4000, epochs=20, rate=0.3, spread=1.5):
    """Calls about real Finetune models, and the truth on many fresh examples.

    Clients have 20 training examples of 8 features. Half of the clients differ from the rest. 3% of
    the labels are noise: another class, or for regression an error ten times as large.
    """
    rng = np.random.default_rng(seed)
    differs = rng.random((clients, 1)) < 0.5
    weights = 1.5 * rng.normal(size=8) + spread * differs * rng.normal(size=(clients, 8))

    def draw(k, n):
        x = rng.normal(size=(n, 8)).astype(np.float32)
        noisy = rng.random(n) < 0.03
        if kind == "classification":
            return x, (x @ weights[k] > 0) ^ noisy
        return x, (x @ weights[k] + rng.normal(size=n) * np.where(noisy, 10, 1)).astype(np.float32)

    def columns(k, n):
        x, y = draw(k, n)
        return {"x": x, "y": y.astype(np.int64) if kind == "classification" else y}

    ids = [f"client-{k:03d}" for k in range(clients)]
    data = from_dict({name: columns(k, 20 + examples) for k, name in enumerate(ids)})
    data = data.split(test=examples / (20 + examples), seed=seed)
    later = from_dict({name: columns(k, fresh + 1) for k, name in enumerate(ids)})
    later = later.split(test=fresh / (fresh + 1), seed=seed)
    model = logistic(features=8, classes=2) if kind == "classification" else linear(features=8)
    settings = dict(learning_rate=0.1) if kind == "classification" else dict(learning_rate=0.02)
    central = sartor.FedAvg(rounds=100, cohort=30, **settings).fit(model, data, progress=False)
    rate = rate if kind == "classification" else rate / 10
    own = sartor.Finetune(epochs=epochs, learning_rate=rate).fit(central, data, progress=False)
    found = gains(own.evaluate(data, mixture=0), "loss")
    truth = gains(own.evaluate(later, mixture=0), "loss").change
    return found.beyond_chance * found.sign, truth


# The tables


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(map(str, head))} |\n|{'---|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def main(trials=4000):
    sizes = (5, 8, 10, 20, 40, 100)
    draws = {
        "normal": normal, "exponential": exponential, "10% bad: accuracy 0.2 instead of 0.9":
        bad_accuracy, "10% bad: loss 3 instead of 0.3": bad_loss,
        "2% bad: loss 3 instead of 0.3": rare_loss, "lognormal, σ = 2": long_tail,
        "weighted by size, which they depend on": sized,
    }  # fmt: skip
    rows = [[name, *(coverage(d, n, trials) for n in sizes)] for name, d in draws.items()]
    rows = [[name, *("–" if math.isnan(v) else f"{v:.1%}" for v in found)] for name, *found in rows]
    table("Coverage of 95% intervals", ["clients", *sizes], rows)
    sizes = (6, 8, 11, 20, 40)
    draws = {
        "normal": normal, "uniform": uniform, "Student's t, 3 degrees of freedom": heavy,
        "±1": coins, "exponential": exponential, "10% bad: loss 3 instead of 0.3": bad_loss,
    }  # fmt: skip
    half = trials // 2
    rows = [[n, *(f"{false_alarms(d, k, half):.1%}" for k in sizes)] for n, d in draws.items()]
    table("False alarms of the test at 5%", ["clients", *sizes], rows)
    mixtures = {
        "500 unchanged": {NULL: 500},
        "300 unchanged, 200 gained": {NULL: 300, GAINED: 200},
        "300 unchanged, 100 gained, 100 hurt": {NULL: 300, GAINED: 100, HURT: 100},
    }
    rows = []
    for name, mixture in mixtures.items():
        found = [binary_calls(mixture, n, trials // 40) for n in (10, 20, 40, 100)]
        some = len(mixture) > 1
        rows += [[name, *(f"{f:.1%}" + f" ({p:.0%})" * some for f, p in found)]]
    table("False discovery rate (share of the changes that are found)",
          ["clients", *(f"{n} test examples" for n in (10, 20, 40, 100))], rows)  # fmt: skip
    rows = []
    for kind in ("classification", "regression"):
        for examples in (10, 20, 40, 100, 400):
            calls, false = 0, 0
            for seed in range(10):
                called, truth = finetuned(kind, examples, seed)
                calls += np.sum(called != 0)
                false += np.sum((called != 0) & (called * truth <= 0))
            rows.append([kind, examples, calls, false])
    head = ["models", "test examples", "calls about 1,000 clients", "false"]
    table("Real Finetune models", head, rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(int, sys.argv[1:]))
