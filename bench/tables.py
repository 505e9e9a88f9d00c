"""Do the defaults and the advice hold on tables that people have?

`python bench/tables.py` goes through six tables, five of them real (`pip install
'sartor[examples]'`), in their own units and standardized, and asks:

- Does FedAvg end where a solver does?
- Is a personal algorithm worse than the model that it starts from?
- Does advice promise what fresh rows show, with rows split at random and by time?
- Does it say join if the clients' ids are shuffled?

Nothing is tuned: all settings are the defaults. The flights take about an hour on two cores, the
others about half an hour; `--parts` takes some of the questions.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import sartor
from sartor.advice.advise import INTERPOLATION

PERSONAL = (sartor.Finetune(), sartor.Local(), sartor.Dapper(), sartor.Mapper())
PARTS = ("solver", "personal", "random", "shuffled", "time")
"""What is asked: the last three are ways to give advice."""
TEST = 0.3
"""The share of fresh rows."""


class Table(NamedTuple):
    """A table with a client column.

    Attributes:
        x: the features, [rows, features], in their own units.
        y: integer classes, or float targets.
        client: the client of each row.
        time: when the row was seen; ``None`` if it is not known.
    """

    x: np.ndarray
    y: np.ndarray
    client: np.ndarray
    time: np.ndarray | None = None

    @property
    def classifies(self) -> bool:
        """Whether the labels are classes."""
        return self.y.dtype.kind == "i"

    def standardized(self) -> Table:
        """The features with mean 0 and standard deviation 1."""
        return self._replace(x=(self.x - self.x.mean(axis=0)) / self.x.std(axis=0))

    def shuffled(self, seed: int) -> Table:
        """The same rows with the clients' ids shuffled, so that no client differs."""
        return self._replace(client=np.random.default_rng(seed).permutation(self.client))

    def split(self, by: str, seed: int) -> sartor.ClientData:
        """The clients, with fresh rows in their test parts."""
        when = {"time": self.time} if by == "time" else {}
        data = sartor.data.from_arrays(self.x, self.y, self.client, **when)
        return data.split(test=TEST, seed=seed, **({"by": "time"} if by == "time" else {}))

    def model(self) -> sartor.Model:
        """The ready model with a solver's counterpart."""
        ready = sartor.models
        features = self.x.shape[1]
        return ready.logistic(features, 2) if self.classifies else ready.linear(features)


def flights() -> Table:
    """All flights from New York in 2013: late by more than 15 minutes? By destination.

    104 destinations with 1 to 17,283 rows; one value of ``precip`` is at 40 standard deviations.
    """
    sky = ["temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"]
    known = sartor.data.example("flights").frame()  # cancelled flights are late
    hour = pd.to_datetime(known.time_hour)
    known["weekday"] = hour.dt.dayofweek
    plain = ["month", "day", "hour", "minute", "sched_dep_time", "distance", "weekday", *sky]
    found = known[plain].apply(lambda column: column.fillna(column.median())).astype(float)
    for column, values in (("origin", 2), ("carrier", 9)):
        for value in known[column].value_counts().index[:values]:
            found[value] = (known[column] == value).astype(float)
    late = known.late.astype(np.int32)
    seconds = (hour - hour.min()).dt.total_seconds()
    return Table(found.to_numpy(), late.to_numpy(), known.dest.to_numpy(str), seconds.to_numpy())


def shops() -> Table:
    """Made up: 100 shops with 1 to 10,000 rows, each with weights of its own around common ones.

    Units differ by a factor of 1,000, and one row in 500 is at up to 40 standard deviations.
    """
    draw = np.random.default_rng(0)
    sizes = np.geomspace(1, 10_000, 100).astype(int)
    shop = np.repeat(np.arange(100), sizes)
    weights = draw.normal(size=6) / 2 + 0.5 * draw.normal(size=(100, 6))
    z = draw.normal(size=(len(shop), 6))
    far = draw.random(len(shop)) < 1 / 500
    z[far, 0] = 40 * draw.random(far.sum())
    score = (z * weights[shop]).sum(axis=1) + draw.normal(size=100)[shop]
    y = (draw.random(len(shop)) < 1 / (1 + np.exp(-score))).astype(np.int32)
    units = np.array([1, 1, 1, 1, 10, 0.01])
    return Table(z * units, y, shop.astype(str), draw.permutation(len(shop)))


def exam() -> Table:
    """Exam results of 4,059 pupils of 65 schools in London, by an earlier test and their school."""
    t = sartor.data.example("exam").frame()
    kinds = (t.sex == "M", t.schgend == "boys", t.schgend == "girls")
    x = np.c_[t.standLRT, t.schavg, *kinds].astype(float)
    return Table(x, t.normexam.to_numpy(np.float32), t.school.astype(str).to_numpy())


def radon() -> Table:
    """Radon in 919 houses of 85 counties of Minnesota."""
    t = sartor.data.example("radon").frame()
    x = t[["basement", "uranium"]].to_numpy(float)
    return Table(x, t["log.radon"].to_numpy(np.float32), t.county.astype(str).to_numpy())


def sleep() -> Table:
    """Reaction times, in milliseconds, of 18 people on ten days without sleep."""
    t = sartor.data.example("sleepstudy").frame()
    days, reaction = t.Days.to_numpy(float), t.Reaction.to_numpy(np.float32)
    return Table(days[:, None], reaction, t.Subject.astype(str).to_numpy(), days)


def chicks() -> Table:
    """The weights, in grams, of 50 chicks on four diets, on up to twelve days."""
    t = sartor.data.example("chickweight").frame()
    x = np.c_[t.Time, *(t.Diet == diet for diet in (2, 3, 4))].astype(float)
    grams = t.weight.to_numpy(np.float32)
    return Table(x, grams, t.Chick.astype(str).to_numpy(), t.Time.to_numpy(float))


TABLES: dict[str, Callable[[], Table]] = {
    "shops": shops, "exam": exam, "radon": radon, "sleep": sleep, "chicks": chicks,
    "flights": flights,
}  # fmt: skip


def against_a_solver(table: Table, seed: int) -> float:
    """How much more FedAvg loses on fresh rows than a solver, in nats, or as a share of its MSE."""
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = table.split("random", seed)
    held = np.zeros(len(table.y), bool)
    start = data.bounds[:, 2]
    stop = data.bounds[:, 3]
    held[data.rows[np.concatenate([np.arange(a, b) for a, b in zip(start, stop, strict=True)])]] = (
        True
    )
    exact = LogisticRegression(C=1e6, max_iter=2000) if table.classifies else LinearRegression()
    solver = make_pipeline(StandardScaler(), exact).fit(table.x[~held], table.y[~held])
    central = sartor.FedAvg().fit(table.model(), data, seed=seed, progress=False)
    x, y = table.x[held], table.y[held]
    if table.classifies:
        losses = [
            -np.log(of.predict_proba(x)[np.arange(len(y)), y]).mean() for of in (central, solver)
        ]
        return float(losses[0] - losses[1])
    losses = [np.mean((of.predict(x) - y) ** 2) for of in (central, solver)]
    return float(losses[0] / losses[1] - 1)


def client_means(values: np.ndarray, scores: Any) -> np.ndarray:
    """The mean of each client's examples."""
    starts = np.cumsum(scores.test_size) - scores.test_size
    return np.add.reduceat(np.asarray(values, np.float64), starts) / scores.test_size


def unit(table: Table, base: Any) -> float:
    """Gains in log loss are in nats, others are shares of the central model's loss."""
    return 1.0 if table.classifies else float(client_means(base.example_loss, base).mean())


def personal_gains(table: Table, seed: int) -> dict[str, float]:
    """What each personal algorithm gains over its central model, mean over clients."""
    data, model = table.split("random", seed), table.model()
    central = sartor.FedAvg().fit(model, data, seed=seed, progress=False)
    base = central.evaluate(data)
    gains = {}
    for algorithm in PERSONAL:
        fitted = algorithm.fit(central, data, seed=seed, progress=False, keep=False)
        gain = base.example_loss - fitted.evaluate(data).example_loss
        gains[type(algorithm).__name__] = client_means(gain, base).mean() / unit(table, base)
    return gains


class Kept(NamedTuple):
    """What advice promised, and what fresh rows showed: means over clients with standard errors.

    Promises are shares of the loss on held-out rows, and what was shown is one of fresh rows.
    """

    shares: dict[str, float]
    clear: float
    promised: tuple[float, float]
    shown: tuple[float, float]

    @property
    def apart(self) -> float:
        """The difference in standard errors."""
        error = np.hypot(self.promised[1], self.shown[1])
        return (self.promised[0] - self.shown[0]) / error if error else 0.0


def advice_against_fresh_rows(table: Table, by: str, seed: int) -> Kept:
    """Follow the advice that training parts give, and measure on fresh rows."""
    data, model = table.split(by, seed), table.model()
    options: dict[str, Any] = {"seed": seed, "progress": False}
    advice = sartor.advise(data, model, **options)
    central = sartor.FedAvg().fit(model, data, **options)
    base = central.evaluate(data)
    owner = np.repeat([data.position(client) for client in base.client], base.test_size)
    advised, mixing = advice.advice[owner], advice.lambda_[owner]
    gained = np.zeros(len(owner))

    def follow(where: np.ndarray, fitted: Callable[[], Any]) -> None:
        if where.any():
            gain = base.example_loss - fitted().evaluate(data).example_loss
            gained[where] = gain[where]

    bare = dict(options, keep=False)
    own = dataclasses.replace(sartor.Local(), guard=False)
    follow(advised == "cluster", lambda: sartor.HypCluster().fit(model, data, **options))
    follow(advised == "local", lambda: own.fit(model, data, **bare))
    for value in INTERPOLATION.cover:
        mixed = dataclasses.replace(INTERPOLATION, cover=(value,), guard=False)
        where = (advised == "interpolation") & (mixing == value)
        follow(where, lambda mixed=mixed: mixed.fit(central, data, **bare))
    known = np.isfinite(advice.worth)
    held_out = 1.0 if table.classifies else advice.loss[known].mean()
    return Kept(
        {name: share for name, share in advice.shares().items() if share},
        float(advice.clear.mean()),
        _mean(advice.worth[known] / held_out),
        _mean(client_means(gained, base) / unit(table, base)),
    )


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"tables, of: {', '.join(TABLES)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    for name in options.names or TABLES:
        table = TABLES[name]()
        both = {"raw": table, "standardized": table.standardized()}
        for seed in range(options.seeds):
            if "solver" in options.parts:
                gaps = ", ".join(f"{k} {against_a_solver(t, seed):+.5f}" for k, t in both.items())
                print(f"{name} seed {seed} solver: {gaps}", flush=True)
            for kind, of in both.items() if "personal" in options.parts else ():
                gains = ", ".join(
                    f"{k} {gain:+.4f}" for k, gain in personal_gains(of, seed).items()
                )
                print(f"{name} seed {seed} personal, {kind}: {gains}", flush=True)
            for way in (part for part in PARTS[2:] if part in options.parts):
                if way == "time" and table.time is None:
                    continue
                of = table.shuffled(seed) if way == "shuffled" else table
                try:
                    kept = advice_against_fresh_rows(of, way, seed)
                except sartor.SartorError as error:
                    print(f"{name} seed {seed} advice, {way}: refused: {error}", flush=True)
                    continue
                shares = ", ".join(f"{key} {share:.0%}" for key, share in kept.shares.items())
                print(
                    f"{name} seed {seed} advice, {way}: {shares}; clear {kept.clear:.0%}; promised "
                    f"{kept.promised[0]:+.4f} ± {kept.promised[1]:.4f}, fresh rows "
                    f"{kept.shown[0]:+.4f} ± {kept.shown[1]:.4f}; difference {kept.apart:+.1f} "
                    "standard errors",
                    flush=True,
                )
    today = datetime.datetime.now(datetime.UTC).date()
    minutes = (time.perf_counter() - began) / 60
    print(f"{minutes:.0f} minutes; {os.cpu_count()} cores, jax {jax.__version__}, {today}")


if __name__ == "__main__":
    main()
