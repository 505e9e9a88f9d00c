"""The report of a run: who gains, who is hurt, what was chosen, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sartor.report.figures import Values, change_figure, clients_figure, training_figure
from sartor.report.page import (
    Section,
    amount,
    duration,
    interval,
    number,
    p_value,
    share,
    traffic,
)
from sartor.report.record import Record

FEW = 5
"""Clients that are named."""


def run_sections(record: Record) -> list[Section]:
    """The parts of the page about one run."""
    results = record.results
    metric, methods = results["metric"], results["methods"]
    values = client_values(record, metric)
    return [
        _headline(results),
        _methods(methods, metric),
        _clients(record, values, metric),
        *_choices(results.get("chosen", {})),
        _comparisons(results["comparisons"], metric),
        cost_section(
            results.get("cost", {}),
            "A personal method's own cost comes on top of its central model's.",
        ),
        _training(record),
        provenance(record, "sartor run config.toml --out DIRECTORY"),
    ]


def client_values(record: Record, metric: str) -> dict[str, Values]:
    """A metric of every client, by method; in one order of clients."""
    table = record.clients()
    names, clients = (np.array(table[c].to_pylist()) for c in ("method", "client"))
    values = np.array(table[metric].to_pylist(), float)
    found = {}
    for name in record.results["methods"]:
        mine = np.flatnonzero(names == name)
        found[name] = values[mine[np.argsort(clients[mine], kind="stable")]]
    return found


def _headline(results: Mapping[str, Any]) -> Section:
    section = Section("Summary")
    section.lead([best_method(results), *_for_whom(results)])
    section.warned(results)
    section.text(results["data"]["summary"], "note")
    return section


def best_method(results: Mapping[str, Any]) -> str:
    """Which method has the best mean, and which others cannot be told from it."""
    metric, methods = results["metric"], results["methods"]
    means = {name: summary[metric]["mean"] for name, summary in methods.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    if not finite:
        return f"No method has a finite mean test {metric} over clients."
    better = max if metric == "accuracy" else min
    best = better(finite, key=lambda name: finite[name])
    # A tie is said to be one: the best mean alone says little.
    ties = [
        f"{({c['a'], c['b']} - {best}).pop()} (p = {c['p_value']:.2f})"
        if c["p_value"] is not None
        else f"{({c['a'], c['b']} - {best}).pop()}"
        for c in results["comparisons"]
        if best in (c["a"], c["b"]) and (c["p_value"] is None or c["p_value"] > 0.05)
    ]
    tied = f", not distinguishable from {', '.join(ties)}" if ties else ""
    spread = methods[best][metric]
    return (
        f"{best} has the best mean test {metric} over clients: {number(spread['mean'])} "
        f"({interval(spread['interval'])}){tied}."
    )


def _for_whom(results: Mapping[str, Any]) -> list[str]:
    """Whether each personal method pays, and how many clients it helps and hurts."""
    metric, methods = results["metric"], results["methods"]
    central, *others = methods
    tested = {c["a"]: c for c in results["comparisons"] if c["b"] == central}
    found = []
    for name in others:
        change = methods[name].get(f"{metric}_change")
        if change:
            found.append(
                f"{name} {_verdict(tested.get(name))} {central} on average: "
                f"{share(change['gained'])} of the clients gain and {share(change['hurt'])} are "
                f"hurt; beyond chance, each by its own test examples, "
                f"{share(_sure(change, 'gained'))} and {share(_sure(change, 'hurt'))}."
            )
    return found


def _verdict(test: Mapping[str, Any] | None) -> str:
    if test is None or test["p_value"] is None or test["p_value"] >= 0.05:
        return "cannot be told from"
    return "is better than" if test["difference"] > 0 else "is worse than"


def _sure(change: Mapping[str, Any], way: str) -> Any:
    return change.get(f"{way}_beyond_chance")


def _methods(methods: Mapping[str, Any], metric: str) -> Section:
    section = Section("Methods")
    head = [
        "method", f"mean {metric}", "95% interval", "seen", "unseen", "median", "worst 10%",
        "forgetting",
    ]  # fmt: skip
    rows = []
    for name, summary in methods.items():
        spread, groups = summary[metric], summary.get("groups") or {}
        rows.append([
            name,
            number(spread["mean"]),
            interval(spread["interval"]),
            *(number(_dig(groups, group, metric, "mean")) for group in ("seen", "unseen")),
            number(_dig(spread, "percentiles", "50")),
            number(spread["worst_decile"]),
            number(_dig(summary, "forgetting", "mean")),
        ])  # fmt: skip
    section.table(head, rows, f"Test {metric}; every client counts once")
    section.text(
        "Seen clients took part in central training, unseen ones did not. Forgetting: rise of the "
        "loss on everybody's data. Intervals: bootstrap of clients.",
        "note",
    )
    return section


def _clients(record: Record, values: Mapping[str, Values], metric: str) -> Section:
    section = Section("Clients")
    section.figure(
        clients_figure(values, metric),
        f"The share of clients whose test {metric} is at most the value on the axis.",
        record.directory / "figures" / "clients",
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
        record.directory / "figures" / "gains",
    )
    rows = []
    for name, summary in record.results["methods"].items():
        if change := summary.get(f"{metric}_change"):
            rows.append([
                name,
                number(change["mean"], "+"),
                interval(change["interval"], "+"),
                *(share(change[way]) for way in ("gained", "hurt")),
                *(share(_sure(change, way)) for way in ("gained", "hurt")),
            ])  # fmt: skip
    section.table(
        ["method", "mean gain", "95% interval", "gained", "hurt", "gained*", "hurt*"], rows
    )
    _extremes(section, record, changes)
    section.text(
        "Shares of clients better or worse off than with the central model; with *, only where "
        "the client's own test examples show it beyond chance (5% false discovery rate).",
        "note",
    )
    return section


def _extremes(section: Section, record: Record, changes: Mapping[str, Values]) -> None:
    """Who gains and loses the most, by name; all others are in the table of clients."""
    table = record.clients()
    clients = np.unique(np.array(table["client"].to_pylist()))  # in the order of values

    def named(change: Values, order: Any, sign: int) -> str:
        some = [k for k in order[:FEW] if sign * change[k] > 0]
        return ", ".join(f"{clients[k]} {change[k]:+.3f}" for k in some) or "–"

    rows = []
    for name, change in changes.items():
        order = np.argsort(np.where(np.isnan(change), 0.0, change), kind="stable")
        rows.append([name, named(change, order[::-1], 1), named(change, order, -1)])
    section.table(
        ["method", "gain the most", "lose the most"],
        rows,
        f"Up to {FEW} clients of each; per_client.parquet has all",
        words=(1, 2),
    )


def _choices(chosen: Mapping[str, Any]) -> list[Section]:
    """λ and clusters, where clients have chosen any."""
    section = Section("Choices")
    for what, title in (("lambda", "λ that clients have chosen"), ("cluster", "Clusters")):
        of = {name: found[what] for name, found in chosen.items() if what in found}
        if not of or (what == "cluster" and all(len(counts) == 1 for counts in of.values())):
            continue
        keys = sorted({key for counts in of.values() for key in counts}, key=float)
        rows = [
            [name, *(share(counts.get(key, 0) / sum(counts.values())) for key in keys)]
            for name, counts in of.items()
        ]
        names = [f"λ = {key}" if what == "lambda" else f"cluster {key}" for key in keys]
        section.heading(title)
        section.table(["method", *names], rows, "Share of the clients")
    return [section] if section.parts else []


def _comparisons(comparisons: Sequence[Mapping[str, Any]], metric: str) -> Section:
    section = Section("Methods against each other")
    if not comparisons:
        section.text("There is one method only.", "note")
        return section
    rows = [
        [
            f"{c['a']} against {c['b']}",
            number(c["difference"], "+"),
            interval(c["interval"], "+"),
            p_value(c["p_value"]),
        ]
        for c in comparisons
    ]
    head = ["paired over clients", f"difference in {metric}", "95% interval", "p-value"]
    section.table(head, rows)
    section.text("Positive: the first is better. p-values by sign flips over clients.", "note")
    return section


def cost_section(costs: Mapping[str, Mapping[str, float]], note: str) -> Section:
    """The cost ledger: what each method asked of all clients together."""
    section = Section("Cost")
    known = ("down", "up", "examples", "steps")
    left = sorted({key for cost in costs.values() for key in cost if key not in known})
    rows = []
    for name, cost in costs.items():
        shown = [traffic(cost[key]) for key in ("down", "up")]
        shown += [amount(cost[key]) for key in ("examples", "steps")]
        shown += [
            (traffic if key.endswith("bytes") else amount)(cost[key]) if key in cost else "–"
            for key in left
        ]
        rows.append([name, *shown])
    head = ["method", "received", "sent", "examples touched", "gradient steps"]
    section.table([*head, *(key.replace("_", " ") for key in left)], rows, "All clients together")
    section.text(
        "Received and sent by the clients; examples in gradients and in losses, as often as they "
        f"were touched. {note}",
        "note",
    )
    return section


def _training(record: Record) -> Section:
    section = Section("Training")
    section.figure(
        training_figure(record.results["training_loss"]),
        "Training loss of the cohort in every round of central training.",
        record.directory / "figures" / "training",
    )
    return section


def provenance(record: Record, command: str) -> Section:
    """Settings, versions, wall time, and how to do it again."""
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
    section.folded("Wall time in seconds, by part (some run at the same time)", parts)
    return section


def _dig(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
