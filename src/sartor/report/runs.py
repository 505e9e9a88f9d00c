"""The page about a run: who gains, who is hurt, what was chosen, and what it cost."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.evaluation import holm
from sartor.evaluation.means import ENOUGH
from sartor.report.figures import change_figure, clients_figure, training_figure
from sartor.report.numbers import amount, duration, traffic
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.template import Template
from sartor.types import Floats

TEMPLATE = Template(Path(__file__).with_name("runs.md"))

FEW = 5
"""How many clients are named."""

STARS = {
    "accuracy": "McNemar's exact test",
    "loss": "a test that bets on the examples, within the limits that any label would have kept",
}
"""How it is decided whose change is beyond chance."""


def run_sections(record: Record) -> list[Section]:
    """The parts of the page about one run."""
    results, metric, methods = record.results, record.results["metric"], record.results["methods"]
    values = client_values(record.clients(), metric, methods)
    central, *others = values
    sign = 1.0 if metric == "accuracy" else -1.0
    with np.errstate(invalid="ignore"):
        changes = {name: sign * (values[name] - values[central]) for name in others}
    adjusted = holm([c["p_value"] for c in results["comparisons"]])
    comparisons = [
        {**marked(c, c["clients"]), "p_adjusted": p}
        for c, p in zip(results["comparisons"], adjusted, strict=True)
    ]
    tested = {c["a"]: c for c in comparisons if c["b"] == central}
    shown = {
        **results,
        "comparisons": comparisons,
        "best": _best(results, comparisons),
        "summaries": {
            name: {
                **summary,
                "scores": marked(summary[metric], summary["clients"]),
                **{group: of.get(metric) for group, of in summary.get("groups", {}).items()},
            }
            for name, summary in methods.items()
        },
        "central": central,
        "clients": clients_figure(values, metric),
        "changed": [
            {
                "name": name,
                "verdict": _verdict(tested.get(name)),
                **marked(change, summary["clients"]),
                **_beyond_chance(change, metric),
            }
            for name, summary in methods.items()
            if (change := summary.get(f"{metric}_change"))
        ],
        "few": any(summary["clients"] < ENOUGH for summary in methods.values()),
        "star": STARS[metric],
        "gains": change_figure(changes, central, metric) if changes else None,
        "extremes": _extremes(record, changes),
        "choices": choices(results.get("chosen", {})),
        **cost_table(results.get("cost", {})),
        "training": training_figure(results["training_loss"]),
    }
    command = "sartor run config.toml --out DIRECTORY"
    return [*TEMPLATE.sections(shown, record), provenance(record, command)]


def marked(estimate: Row, clients: int) -> Row:
    """An estimate that says whether its interval is rough; older results do not."""
    return {"rough": clients < ENOUGH and estimate["interval"][0] is not None, **estimate}


def _beyond_chance(change: Row, metric: str) -> Row:
    """The shares of clients beyond chance; older results have too many of them by loss."""
    keys = ("gained_beyond_chance", "hurt_beyond_chance")
    if metric == "loss" and "rough" not in change:
        return {"tested": False, **dict.fromkeys(keys)}
    return {"tested": change[keys[0]] is not None, **{key: change[key] for key in keys}}


def client_values(table: pa.Table, metric: str, names: Iterable[str]) -> dict[str, Floats]:
    """A metric of every client by method, sorted by seed, if there are several, and client."""
    order = [column for column in ("seed", "client") if column in table.column_names]
    table = table.sort_by([(column, "ascending") for column in order])
    methods, values = table["method"].to_numpy(), table[metric].to_numpy().astype(float)
    found = {name: values[methods == name] for name in names}
    for name, of_clients in found.items():
        if not len(of_clients) or len(of_clients) != len(next(iter(found.values()))):
            raise ValueError(f"per_client.parquet lacks clients of {name}")
    return found


def best_method(results: Row) -> str | None:
    """The method with the best mean, if any is finite."""
    metric, methods = results["metric"], results["methods"]
    means = {name: summary[metric]["mean"] for name, summary in methods.items()}
    finite = [name for name, mean in means.items() if mean is not None]
    better = max if metric == "accuracy" else min
    return better(finite, key=lambda name: means[name], default=None)


def _best(results: Row, comparisons: Sequence[Row]) -> Row | None:
    """The best method, and which others cannot be distinguished from it."""
    best, ties = best_method(results), []
    if best is None:
        return None
    for c in comparisons:
        p = c["p_adjusted"]
        if best in (c["a"], c["b"]) and (p is None or p > 0.05):
            other = c["b"] if c["a"] == best else c["a"]
            ties.append(other if p is None else f"{other} (p = {p:.2f})")
    summary = results["methods"][best]
    scores = marked(summary[results["metric"]], summary["clients"])
    return {"name": best, "ties": ", ".join(ties), **scores}


def _verdict(test: Row | None) -> str:
    if test is None or test["p_adjusted"] is None or test["p_adjusted"] >= 0.05:
        return "is not distinguishable from"
    return "is better than" if test["difference"] > 0 else "is worse than"


def _extremes(record: Record, changes: Mapping[str, Floats]) -> dict[str, Row]:
    """The clients that gain and lose the most, by name; the table of clients has all."""
    clients = np.unique(np.array(record.clients()["client"].to_pylist()))  # the order of changes

    def most(change: Floats, sign: int) -> str:
        order = np.argsort(np.where(np.isnan(change), 0.0, -sign * change), kind="stable")
        some = [k for k in order[:FEW] if sign * change[k] > 0]
        return ", ".join(f"{clients[k]} {change[k]:+.3f}" for k in some) or "–"

    return {name: {"most": most(c, 1), "least": most(c, -1)} for name, c in changes.items()}


def choices(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The λ and the clusters that clients chose, and who kept the central model, if any did."""
    kept = {
        name: counts["kept"]["kept"] / sum(counts["kept"].values())
        for name, counts in chosen.items()
        if "kept" in counts
    }
    found: dict[str, Any] = {"kept": {name: {"share": part} for name, part in kept.items()}}
    for what in ("lambda", "cluster"):
        methods = {name: counts[what] for name, counts in chosen.items() if what in counts}
        keys = sorted_keys(methods.values())
        if what == "cluster" and len(keys) == 1:
            methods = {}  # one cluster is no choice
        found[f"{what}s"] = keys
        found[what] = {
            name: {"shares": {key: n / sum(counts.values()) for key, n in counts.items()}}
            for name, counts in methods.items()
        }
    return found if kept or found["lambda"] or found["cluster"] else {}


def sorted_keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All keys of some rows, in the order of their numbers."""
    return sorted({key for row in rows for key in row}, key=float)


def cost_table(costs: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """What each method costs all clients together, for the table of a template."""
    columns = {
        "down": ("received", traffic), "up": ("sent", traffic),
        "examples": ("examples touched", amount), "steps": ("gradient steps", amount),
    }  # fmt: skip
    for key in sorted({key for cost in costs.values() for key in cost if key not in columns}):
        columns[key] = key.replace("_", " "), traffic if key.endswith("bytes") else amount
    return {
        "cost_headings": [title for title, _ in columns.values()],
        "costs": {
            name: {"cells": [show(c[k]) if k in c else "–" for k, (_, show) in columns.items()]}
            for name, c in costs.items()
        },
    }


def provenance(record: Record, command: str) -> Section:
    """Settings, versions, wall time, and how to run it again."""
    section, results = Section("How to reproduce it"), record.results
    seconds = results["wall_seconds"]
    total = seconds["total"] if "total" in seconds else sum(seconds.values())
    device, versions = results["device"], results["versions"]
    section.text(
        f"It took {duration(total)} on {results['date']} with {device.get('cores')} cores, "
        f"device {device.get('kind')}, seed {results['seed']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    )
    if "config.toml" in command:
        section.text("With the settings below saved as config.toml:")
    section.code(command)
    if record.config:
        section.folded("Settings", record.config, opened=True)  # closed, it would not be printed
    parts = json.dumps(seconds, indent=1, ensure_ascii=False)
    section.folded("Wall time in seconds, by part (some parts run at the same time)", parts)
    return section
