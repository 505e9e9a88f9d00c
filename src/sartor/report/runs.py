"""The page about a run: who gains, who is hurt, what was chosen, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sartor.report.figures import Values, change_figure, clients_figure, training_figure
from sartor.report.numbers import (
    amount,
    duration,
    interval,
    number,
    p_value,
    share,
    signed,
    traffic,
)
from sartor.report.page import Row, Section, listed
from sartor.report.record import Record

FEW = 5
"""How many clients are named."""


def run_sections(record: Record) -> list[Section]:
    """The parts of the page about one run."""
    results = record.results
    metric = results["metric"]
    values = client_values(record, metric)
    return [
        _summary(results),
        _methods(results["methods"], metric),
        _clients(record, values, metric),
        *_choices(results.get("chosen", {})),
        _comparisons(results["comparisons"], metric),
        cost_section(
            results.get("cost", {}),
            "The cost of a personal method comes on top of its central model's.",
        ),
        _training(record),
        provenance(record, "sartor run config.toml --out DIRECTORY"),
    ]


def client_values(record: Record, metric: str) -> dict[str, Values]:
    """A metric of every client by method, always in the same order of clients."""
    table = record.clients()
    names, clients = (np.array(table[c].to_pylist()) for c in ("method", "client"))
    values = np.array(table[metric].to_pylist(), float)
    found = {}
    for name in record.results["methods"]:
        rows = np.flatnonzero(names == name)
        found[name] = values[rows[np.argsort(clients[rows], kind="stable")]]
    return found


def _summary(results: Row) -> Section:
    section = Section("Summary")
    section.lead([best_method(results), *_personal_methods(results)])
    section.warnings(results)
    section.note(results["data"]["summary"])
    return section


def best_method(results: Row) -> str:
    """Which method has the best mean, and which others cannot be distinguished from it."""
    metric, methods = results["metric"], results["methods"]
    means = {name: summary[metric]["mean"] for name, summary in methods.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    if not finite:
        return f"No method has a finite mean test {metric} over clients."
    better = max if metric == "accuracy" else min
    best = better(finite, key=lambda name: finite[name])
    ties = []
    for c in results["comparisons"]:
        p = c["p_value"]
        if best in (c["a"], c["b"]) and (p is None or p > 0.05):
            other = c["b"] if c["a"] == best else c["a"]
            ties.append(other if p is None else f"{other} (p = {p:.2f})")
    tied = f", not distinguishable from {', '.join(ties)}" if ties else ""
    scores = methods[best][metric]
    return (
        f"{best} has the best mean test {metric} over clients: {number(scores['mean'])} "
        f"({interval(scores['interval'])}){tied}."
    )


def _personal_methods(results: Row) -> list[str]:
    """Whether each personal method helps, and how many clients it helps and hurts."""
    metric, methods = results["metric"], results["methods"]
    central, *others = methods
    tested = {c["a"]: c for c in results["comparisons"] if c["b"] == central}
    return [
        f"{name} {_verdict(tested.get(name))} {central} on average: {share(change['gained'])} of "
        f"the clients gain and {share(change['hurt'])} are hurt. Their own test examples show it "
        f"beyond chance for {share(change.get('gained_beyond_chance'))} and "
        f"{share(change.get('hurt_beyond_chance'))}."
        for name in others
        if (change := methods[name].get(f"{metric}_change"))
    ]


def _verdict(test: Row | None) -> str:
    if test is None or test["p_value"] is None or test["p_value"] >= 0.05:
        return "is not distinguishable from"
    return "is better than" if test["difference"] > 0 else "is worse than"


def _methods(methods: Row, metric: str) -> Section:
    section = Section("Methods")
    section.table(
        [
            ("method", lambda item: item[0]),
            (f"mean {metric}", lambda item: number(item[1][metric]["mean"])),
            ("95% interval", lambda item: interval(item[1][metric]["interval"])),
            ("seen", lambda item: number(_dig(item[1], "groups", "seen", metric, "mean"))),
            ("unseen", lambda item: number(_dig(item[1], "groups", "unseen", metric, "mean"))),
            ("median", lambda item: number(_dig(item[1], metric, "percentiles", "50"))),
            ("worst 10%", lambda item: number(item[1][metric]["worst_decile"])),
            ("forgetting", lambda item: number(_dig(item[1], "forgetting", "mean"))),
        ],
        list(methods.items()),
        f"Test {metric}; every client counts once",
    )
    section.note(
        "Seen clients took part in central training, unseen clients did not. Forgetting: how much "
        "the loss on everybody's data rises. Intervals: bootstrap over clients."
    )
    return section


def _dig(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _clients(record: Record, values: Mapping[str, Values], metric: str) -> Section:
    section = Section("Clients")
    section.figure(
        clients_figure(values, metric),
        f"The share of clients whose test {metric} is at most the value on the axis.",
        record.figure("clients"),
    )
    central, *others = values
    if not others:
        return section
    sign = 1.0 if metric == "accuracy" else -1.0
    with np.errstate(invalid="ignore"):
        changes = {name: sign * (values[name] - values[central]) for name in others}
    section.heading("Who gains and who is hurt")
    section.figure(
        change_figure(changes, central, metric),
        f"Every client's gain in test {metric} over {central}: the share of clients whose gain is "
        "at most the value on the axis.",
        record.figure("gains"),
    )
    rows = []
    for name, summary in record.results["methods"].items():
        if change := summary.get(f"{metric}_change"):
            keys = ("gained", "hurt", "gained_beyond_chance", "hurt_beyond_chance")
            shares = [share(change.get(key)) for key in keys]
            rows.append(
                [name, signed(change["mean"]), interval(change["interval"], signed), *shares]
            )
    section.table(
        listed("method", "mean gain", "95% interval", "gained", "hurt", "gained*", "hurt*"), rows
    )
    _extremes(section, record, changes)
    section.note(
        "Gained and hurt: the shares of clients that are better or worse off than with the central "
        "model. With *: only clients whose own test examples show it beyond chance (5% false "
        "discovery rate)."
    )
    return section


def _extremes(section: Section, record: Record, changes: Mapping[str, Values]) -> None:
    """The clients that gain and lose the most, by name; the table of clients has all."""
    clients = np.unique(np.array(record.clients()["client"].to_pylist()))  # the order of changes

    def most(change: Values, sign: int) -> str:
        order = np.argsort(np.where(np.isnan(change), 0.0, -sign * change), kind="stable")
        some = [k for k in order[:FEW] if sign * change[k] > 0]
        return ", ".join(f"{clients[k]} {change[k]:+.3f}" for k in some) or "–"

    section.table(
        [
            ("method", lambda item: item[0]),
            ("gain the most", lambda item: most(item[1], 1)),
            ("lose the most", lambda item: most(item[1], -1)),
        ],
        list(changes.items()),
        f"Up to {FEW} clients of each; per_client.parquet has all",
        text=("gain the most", "lose the most"),
    )


def _choices(chosen: Mapping[str, Any]) -> list[Section]:
    """The λ and the clusters that clients chose, if there was a choice."""
    section = Section("Choices")
    for what, title, label in (
        ("lambda", "The clients' λ", "λ = {}"), ("cluster", "Clusters", "cluster {}")
    ):  # fmt: skip
        methods = {name: found[what] for name, found in chosen.items() if what in found}
        keys = sorted({key for counts in methods.values() for key in counts}, key=float)
        if not methods or (what == "cluster" and len(keys) == 1):
            continue
        rows = [
            [name, *(share(counts.get(key, 0) / sum(counts.values())) for key in keys)]
            for name, counts in methods.items()
        ]
        section.heading(title)
        columns = listed("method", *map(label.format, keys))
        section.table(columns, rows, "Share of the clients")
    return [section] if section.parts else []


def _comparisons(comparisons: Sequence[Row], metric: str) -> Section:
    section = Section("Methods against each other")
    if not comparisons:
        section.note("There is only one method.")
        return section
    section.table(
        [
            ("paired over clients", lambda c: f"{c['a']} against {c['b']}"),
            (f"difference in {metric}", lambda c: signed(c["difference"])),
            ("95% interval", lambda c: interval(c["interval"], signed)),
            ("p-value", lambda c: p_value(c["p_value"])),
        ],
        comparisons,
    )
    section.note("Positive: the first is better. p-values are from sign flips over clients.")
    return section


def cost_section(costs: Mapping[str, Mapping[str, float]], note: str) -> Section:
    """What each method costs all clients together."""
    section = Section("Cost")
    columns = {
        "down": ("received", traffic), "up": ("sent", traffic),
        "examples": ("examples touched", amount), "steps": ("gradient steps", amount),
    }  # fmt: skip
    for key in sorted({key for cost in costs.values() for key in cost if key not in columns}):
        columns[key] = key.replace("_", " "), traffic if key.endswith("bytes") else amount
    rows = [
        [name, *(show(cost[key]) if key in cost else "–" for key, (_, show) in columns.items())]
        for name, cost in costs.items()
    ]
    head = listed("method", *(title for title, _ in columns.values()))
    section.table(head, rows, "All clients together")
    section.note(
        "Clients receive and send these amounts. Examples touched: in gradients and in losses; an "
        f"example counts each time. {note}"
    )
    return section


def _training(record: Record) -> Section:
    section = Section("Training")
    section.figure(
        training_figure(record.results["training_loss"]),
        "Training loss of the cohort in every round of central training.",
        record.figure("training"),
    )
    return section


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
