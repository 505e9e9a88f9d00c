"""What advice is worth: its regret on the paper's synthetic clients, whose losses are exact.

A client's regret is the expected loss of the model that it was advised to take, less that of the
best of Local, FedAvg and HypCluster for it. Beside advice: each of these for everybody, and what
the bounds alone would have it take.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sartor.advice import advise
from sartor.advice.advice import SHARING
from sartor.central import FedAvg, HypCluster
from sartor.errors import CheckpointError, ConfigError, InterruptedRun
from sartor.evaluation.statistics import bootstrap_interval, jsonable
from sartor.experiments import synthetic
from sartor.experiments.directory import Directory
from sartor.experiments.synthetic.methods import (
    BATCH,
    EVERYBODY,
    RATES,
    epochs_for,
    measure,
    rounds_for,
)
from sartor.experiments.synthetic.population import CLIENTS, TUNING, Floats, Population, draw
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.interrupts import Interrupts
from sartor.personal import Dapper, Local
from sartor.progress import Bar
from sartor.report.regret import TITLES, in_words
from sartor.runs.record import versions

LAMBDAS = (0.25, 0.5, 0.75, 1.0)
"""The λ that interpolation is tried with."""

LOCALS = {"trained for long": 10, "stopped early": 1}
"""Two ways to train a model of a client's own, by how often it takes the steps of the synthetic
experiment, with the step size that is best for the second. Stopped early, it is the best for nearly
everybody, and nothing is left to decide; trained on, it fits its samples too well, and which model
is the best depends on their number."""

TUNED = ("central", "cluster", "local", "interpolation")
"""What a step size is chosen for."""

CONSTANT = (*SHARING, *(f"λ = {value:g}" for value in LAMBDAS))
"""One answer for all clients."""

POLICIES = (*CONSTANT, "advice", "bounds", "interpolation")
"""Of every client: one answer for all, as advised, as the bounds say; and as advised if clients
may interpolate as well."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The size of the experiment.

    Attributes:
        samples: the numbers of samples per client m_k.
        seeds: how many populations are drawn.
        seed: of all randomness. How advice decides was settled on populations of seed 0.
    """

    samples: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 500, 1000)
    seeds: int = 10
    seed: int = 1

    def __post_init__(self) -> None:
        self.synthetic  # noqa: B018 - it is checked there

    @classmethod
    def small(cls, **changes: Any) -> Settings:
        """What ``--quick`` runs."""
        return cls(**{"samples": (5, 20, 100), "seeds": 2, **changes})

    @property
    def synthetic(self) -> synthetic.Settings:
        """The experiment that clients are taken from."""
        if min(self.samples, default=5) < 5:
            raise ConfigError(f"samples={self.samples}: advice deals them out into 5 folds")
        return synthetic.Settings(samples=self.samples, seeds=self.seeds, seed=self.seed)

    def to_table(self) -> dict[str, Any]:
        """Plain values, as they are written to files."""
        return {**dataclasses.asdict(self), "samples": list(self.samples)}


class Cell(NamedTuple):
    """A number of samples and a kind of Local, on one population.

    Attributes:
        exact: by candidate, the expected loss of every client.
        chosen: by policy that chooses, the candidate of every client, by its number.
        mixed: by λ, the expected loss of every client that interpolates with it.
        lambda_: the number of the λ that the client was advised; -1 if it was not to interpolate.
        vacuous: whether all bounds of the client are.
        rates: the step sizes of what is in ``TUNED``.
    """

    exact: Floats
    chosen: Floats
    mixed: Floats
    lambda_: Floats
    vacuous: Floats
    rates: Floats

    def paid(self) -> dict[str, Floats]:
        """The expected loss of every client under each policy."""
        clients = np.arange(self.exact.shape[1])
        advice, bounds = (self.exact[rows.astype(int), clients] for rows in self.chosen)
        found = dict(zip(CONSTANT, (*self.exact, *self.mixed), strict=True))
        mixed = self.mixed[self.lambda_.astype(int), clients]
        mixed = np.where(self.lambda_ < 0, advice, mixed)
        return {**found, "advice": advice, "bounds": bounds, "interpolation": mixed}

    def regret(self) -> dict[str, Floats]:
        """The same, less the best of all candidates for the client."""
        return {name: values - self.exact.min(axis=0) for name, values in self.paid().items()}


def reproduce(
    settings: Settings, out: str | Path, *, resume: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the experiment and write its report.

    Args:
        settings: its size.
        out: the directory; in its ``checkpoint/`` is every finished cell.
        resume: go on with the experiment in that directory; without it, ``out`` must be new.
        progress: whether to show a progress bar; on a terminal only, if not given.

    Returns:
        What is in ``results.json``.
    """
    directory = Directory(out, "regret", settings.to_table(), resume=resume)
    directory.begin()
    cells: dict[tuple[int, str, int], Cell] = {}
    seconds: dict[str, float] = {}
    total = len(settings.samples) * len(LOCALS) * settings.seeds
    with warnings.catch_warnings(), Bar("advice", total, progress) as bar, Interrupts() as stop:
        warnings.filterwarnings("ignore", message="HypCluster: some")
        for samples in settings.samples:
            began = time.perf_counter()
            for kind, number, cell in _cells(settings, samples, directory.cells):
                cells[samples, kind, number] = cell
                bar.update(len(cells), f"{samples} samples")
                if stop.requested and len(cells) < total:
                    raise InterruptedRun(f"stopped with {len(cells)} of {total} cells done")
            seconds[f"{samples} samples"] = round(time.perf_counter() - began, 1)
            directory.events.write(
                "samples", samples=samples, seconds=seconds[f"{samples} samples"]
            )
    return directory.finish(_summary(settings, cells), _clients(cells), seconds)


def as_text(results: Mapping[str, Any]) -> list[str]:
    """What there is to say on a terminal."""
    lines = []
    for kind, rows in results["regret"].items():
        lines += ["", f"Mean regret in nats, Local {kind}"]
        lines.append(f"{'samples':>8}" + "".join(f"{title:>14}" for title in TITLES.values()))
        for row in rows:
            mean = f"{row['samples'] or 'mean':>8}"
            lines.append(mean + "".join(f"{row[name]['mean']:14.4f}" for name in TITLES))
    return [*lines, "", *(in_words(kind, rows) for kind, rows in results["regret"].items())]


def _cells(settings: Settings, samples: int, folder: Path) -> Iterator[tuple[str, int, Cell]]:
    """The cells of a number of samples, read where they are there."""
    rates: dict[str, float] | None = None
    for kind, times in LOCALS.items():
        for number in range(settings.seeds):
            path = folder / f"{samples}-{times}-{number}.safetensors"
            if not path.exists():
                rates = rates or _rates(settings, samples)
                cell = _run(settings, samples, times, number, rates)
                arrays: dict[str, Any] = cell._asdict()
                save_tree(path, arrays, {"versions": str(versions())})
            elif read_metadata(path).get("versions") != str(versions()):
                raise CheckpointError(
                    f"{path} was made by another version; remove it, and it is made again"
                )
            else:
                cell = Cell(**load_arrays(path, ""))
            yield kind, number, cell


def _algorithms(samples: int, times: int, rates: Mapping[str, float]) -> dict[str, Any]:
    """Those of the synthetic experiment."""
    return {
        "central": FedAvg(rounds=rounds_for(samples), learning_rate=rates["central"], **EVERYBODY),
        "cluster": HypCluster(
            q=4, start="kmeans++", restarts=5, rounds=rounds_for(samples),
            learning_rate=rates["cluster"], **EVERYBODY,
        ),
        "local": Local(
            epochs=times * epochs_for(samples), batch=BATCH, learning_rate=rates["local"]
        ),
        "interpolation": Dapper(
            epochs=max(1, epochs_for(samples) // 5), batch=BATCH, cover=LAMBDAS,
            learning_rate=rates["interpolation"],
        ),
    }  # fmt: skip


def _rates(settings: Settings, samples: int) -> dict[str, float]:
    """The step size of each, chosen on populations that are not reported."""
    whole = settings.synthetic
    tuning = [
        draw(whole, settings.seeds + n, samples, tuning=True) for n in range(TUNING)
    ]  # fmt: skip
    losses = {
        kind: np.zeros(len(RATES)) for kind in ("central", "cluster", "local", "interpolation")
    }
    for place, rate in enumerate(RATES):
        some = _algorithms(samples, 1, dict.fromkeys(losses, rate))
        some["interpolation"] = dataclasses.replace(some["interpolation"], cover=(0.5,))
        for population in tuning:
            start = some["central"].fit(
                whole.model(), population.whole, seed=population.seed, progress=False
            )
            for kind, algorithm in some.items():
                begin = start if kind == "interpolation" else whole.model()
                fitted = algorithm.fit(
                    begin, population.whole, seed=population.seed, progress=False
                )
                losses[kind][place] += measure(whole, population, fitted).test.mean()
    return {kind: RATES[int(np.argmin(found))] for kind, found in losses.items()}


def _run(
    settings: Settings, samples: int, times: int, number: int, rates: Mapping[str, float]
) -> Cell:
    """Advise the clients of a population, and see what each candidate would really have lost."""
    whole = settings.synthetic
    population: Population = draw(whole, number, samples)
    some = _algorithms(samples, times, rates)
    told: dict[str, Any] = {"seed": population.seed, "progress": False}
    model, data = whole.model(), population.whole
    advice = advise(data, model, **some, **told)
    one = some["central"].fit(model, data, **told)
    fitted = {
        "local": some["local"].fit(model, data, **told),
        "global": one,
        "cluster": some["cluster"].fit(model, data, **told),
    }
    exact = np.stack([measure(whole, population, fitted[name]).exact for name in SHARING])
    mixed = []
    for value in LAMBDAS:
        fixed = dataclasses.replace(some["interpolation"], cover=(value,))
        mixed.append(measure(whole, population, fixed.fit(one, data, **told)).exact)
    numbers = {name: float(n) for n, name in enumerate(SHARING)}
    chosen = [[numbers[str(n)] for n in said] for said in (advice.sharing, advice.bounds_say)]
    lambda_ = np.where(
        advice.advice == "interpolation", np.searchsorted(LAMBDAS, advice.lambda_), -1
    )
    return Cell(
        exact, np.array(chosen), np.stack(mixed), lambda_.astype(float),
        advice.vacuous.astype(float), np.array([rates[name] for name in TUNED]),
    )  # fmt: skip


def _summary(settings: Settings, cells: Mapping[tuple[int, str, int], Cell]) -> dict[str, Any]:
    """Regret by number of samples and in the mean over them; and what holds of it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in LOCALS:
        # [policies, samples, seeds]: the mean over clients of each population
        table = np.array([
            [[cells[m, kind, n].regret()[name].mean() for n in range(settings.seeds)]
             for m in settings.samples]
            for name in POLICIES
        ])  # fmt: skip
        rows = []
        for place, m in enumerate(settings.samples):
            some = [cells[m, kind, n] for n in range(settings.seeds)]
            advised = np.stack([cell.chosen[0] for cell in some])  # [seeds, clients]
            lambdas = np.stack([cell.lambda_ for cell in some])
            mixed = np.where(lambdas < 0, advised, len(SHARING) + lambdas)
            rows.append({
                "samples": m,
                "advised": {
                    name: float((advised == n).mean()) for n, name in enumerate(SHARING)
                },
                "alike": _alike(advised),
                "alike_with_lambda": _alike(mixed),
                "interpolate": float(np.mean([cell.lambda_ >= 0 for cell in some])),
                "vacuous": float(np.mean([cell.vacuous for cell in some])),
                "rates": dict(zip(TUNED, some[0].rates.tolist(), strict=True)),
                **_estimates(table[:, place]),
            })  # fmt: skip
        found[kind] = [*rows, {"samples": None, **_estimates(table.mean(axis=1))}]
    return dict(jsonable({
        "experiment": "regret", "seed": settings.seed, "settings": settings.to_table(),
        "rates": list(RATES), "regret": found,
    }))  # fmt: skip


def _alike(advised: Floats) -> float:
    """In how many populations all clients were told the same: [populations, clients]."""
    return float((advised == advised[:, :1]).all(axis=1).mean())


def _estimates(table: Floats) -> dict[str, Any]:
    """Means and intervals over populations, by policy; and advice less the best constant one."""
    found: dict[str, Any] = dict(zip(POLICIES, map(_estimate, table), strict=True))
    for policy, known, key in (("advice", SHARING, ""), ("interpolation", CONSTANT, "_of_all")):
        best = int(table[: len(known)].mean(axis=1).argmin())
        less = table[POLICIES.index(policy)] - table[best]
        found |= {f"best{key}": known[best], f"less{key}": _estimate(less)}
    return found


def _estimate(values: Floats) -> dict[str, float]:
    low, high = bootstrap_interval(values)
    return {"mean": float(values.mean()), "low": low, "high": high}


def _clients(cells: Mapping[tuple[int, str, int], Cell]) -> pa.Table:
    """A row for every client of every cell."""
    columns: dict[str, list[Any]] = {}
    for (samples, kind, number), cell in cells.items():
        paid = cell.paid()
        rows: dict[str, Any] = {
            "samples": [samples] * CLIENTS, "local": [kind] * CLIENTS,
            "population": [number] * CLIENTS, "client": list(range(CLIENTS)),
            "advice": [SHARING[int(n)] for n in cell.chosen[0]],
            "bounds_say": [SHARING[int(n)] for n in cell.chosen[1]],
            "lambda": [LAMBDAS[int(n)] if n >= 0 else None for n in cell.lambda_],
            **{f"loss_{name}": values.tolist() for name, values in paid.items()},
        }  # fmt: skip
        for name, values in rows.items():
            columns.setdefault(name, []).extend(values)
    return pa.table(columns)
