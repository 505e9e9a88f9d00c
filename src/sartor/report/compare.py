"""Several runs on one page: side by side first, then each by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sartor.evaluation.statistics import bootstrap_interval, sign_flip
from sartor.report.emnist_words import TABLES, cell_names, percent, titled
from sartor.report.page import Section, amount, interval, number, p_value, share
from sartor.report.record import Record


def comparison(records: Sequence[Record]) -> Section:
    """What the runs have in common, side by side."""
    section = Section("Summary")
    runs = [record for record in records if record.kind == "run"]
    if runs:
        _methods(section, runs)
        _differences(section, runs, "config")
    experiments = [record for record in records if record.kind == "synthetic"]
    if experiments:
        _synthetic(section, experiments)
        _differences(section, experiments, "settings")
    handwriting = [record for record in records if record.kind == "emnist"]
    if handwriting:
        _emnist(section, handwriting)
        _differences(section, handwriting, "settings")
    return section


def _differences(section: Section, records: Sequence[Record], key: str) -> None:
    """The settings in which the runs differ."""
    flat = [dict(_flat(record.results[key])) for record in records]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [
        [name, *(str(settings.get(name, "–")) for settings in flat)]
        for name in names
        if len({str(settings.get(name)) for settings in flat}) > 1
    ]
    if rows:
        head = ["setting", *(record.directory.name for record in records)]
        section.table(head, rows, "Settings in which they differ")


def _flat(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, list) and any(isinstance(item, dict) for item in tree):
        items = enumerate(tree)
    else:
        yield name, tree
        return
    for key, value in items:
        yield from _flat(value, f"{name}.{key}" if name else str(key))


def _methods(section: Section, runs: Sequence[Record]) -> None:
    """All methods of all runs; and paired tests where the clients and their tests are the same."""
    rows = []
    for record in runs:
        metric = record.results["metric"]
        for name, summary in record.results["methods"].items():
            spread, change = summary[metric], summary.get(f"{metric}_change") or {}
            rows.append([
                record.directory.name, name, metric, amount(summary["clients"]),
                number(spread["mean"]), interval(spread["interval"]),
                number(spread["worst_decile"]), share(change.get("hurt")),
            ])  # fmt: skip
    head = ["run", "method", "metric", "clients", "mean", "95% interval", "worst 10%", "hurt"]
    section.table(head, rows, "Every method of every run", left=(1, 2))
    prints = {record.results["data"]["fingerprint"] for record in runs}
    metrics = {record.results["metric"] for record in runs}
    if len(prints) > 1 or len(metrics) > 1:
        section.text(
            "The runs have different data, splits or metrics, so their clients cannot be paired.",
            "note",
        )
        return
    metric = metrics.pop()
    sign = 1.0 if metric == "accuracy" else -1.0
    best = []
    for record in runs:
        means = {n: m[metric]["mean"] for n, m in record.results["methods"].items()}
        finite = [(sign * mean, name) for name, mean in means.items() if mean is not None]
        if finite:
            best.append((record, max(finite)[1]))
    rows = []
    for (a, of_a), (b, of_b) in itertools.combinations(best, 2):
        ours, theirs = (_by_client(r, m, metric) for r, m in ((a, of_a), (b, of_b)))
        both = sorted(ours.keys() & theirs.keys())
        gain = sign * np.array([ours[c] - theirs[c] for c in both])
        if len(gain):
            rows.append([
                f"{a.directory.name}: {of_a}", f"{b.directory.name}: {of_b}", amount(len(gain)),
                number(float(gain.mean()), "+"), interval(_finite(bootstrap_interval(gain)), "+"),
                p_value(sign_flip(gain)),
            ])  # fmt: skip
    if rows:
        head = ["first", "second", "clients", "gain of the first", "95% interval", "p-value"]
        section.table(head, rows, "The best method of each run, paired over clients", left=(1,))


def _by_client(record: Record, method: str, metric: str) -> dict[str, float]:
    table = record.clients()
    columns = zip(*(table[c].to_pylist() for c in ("method", "client", metric)), strict=True)
    return {client: value for name, client, value in columns if name == method}


def _finite(bounds: tuple[float, float]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in bounds]


def _synthetic(section: Section, experiments: Sequence[Record]) -> None:
    names = [record.directory.name for record in experiments]
    rows: dict[Any, list[str]] = {}
    for place, record in enumerate(experiments):
        for row in record.results["table1"]:
            key = f"q = {row['q']}"
            rows.setdefault(key, ["–"] * len(names))[place] = (
                f"{number(row['exact_loss'])} (least {number(row['limit'])})"
            )
    section.table(["Table 1", *names], [[key, *cells] for key, cells in rows.items()], "Exact loss")
    losses: dict[Any, list[str]] = {}
    for place, record in enumerate(experiments):
        for row in record.results["figure1"]:
            at = row["samples"], row["method"]
            losses.setdefault(at, ["–"] * len(names))[place] = number(row["exact_loss"])
    section.table(
        ["Figure 1", "samples", *names],
        [[method, amount(samples), *cells] for (samples, method), cells in losses.items()],
        "Exact loss",
    )


def _emnist(section: Section, experiments: Sequence[Record]) -> None:
    names = [record.directory.name for record in experiments]
    for table, group in TABLES.items():
        rows: dict[str, list[str]] = {}
        for place, record in enumerate(experiments):
            for name, (row, column) in cell_names(record.results).items():
                cell = record.results[table][row][column]
                rows.setdefault(titled(name), ["–"] * len(names))[place] = percent(cell["mean"])
        generated = [r.directory.name for r in experiments if r.results["data"]["generated"]]
        note = f"; generated handwriting: {', '.join(generated)}" if generated else ""
        section.table(
            [f"Table {table[-1]}, {group}", *names],
            [[name, *cells] for name, cells in rows.items()],
            f"Test accuracy in %{note}",
        )
