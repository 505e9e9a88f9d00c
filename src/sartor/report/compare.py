"""Tables that compare several runs, or several runs of an experiment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sartor.evaluation.statistics import bootstrap_interval, jsonable, sign_flip
from sartor.report.numbers import amount, interval, number, p_value, share, signed
from sartor.report.page import Section
from sartor.report.record import Record


def compare_values(
    section: Section,
    title: str,
    records: Sequence[Record],
    found: Sequence[Mapping[str, str]],
    caption: str,
) -> None:
    """A table with a column for each record, and a row for each name that any of them has."""
    names = dict.fromkeys(name for each in found for name in each)
    rows = [[name, *(each.get(name, "–") for each in found)] for name in names]
    if rows:
        section.table([title, *(record.name for record in records)], rows, caption)


def compare_settings(section: Section, records: Sequence[Record], key: str) -> None:
    """The settings that differ between records."""
    flat = [{n: str(value) for n, value in _flat(record.results[key])} for record in records]

    def differs(name: str) -> bool:
        return len({settings.get(name, "None") for settings in flat}) > 1

    found = [{name: s[name] for name in s if differs(name)} for s in flat]
    compare_values(section, "setting", records, found, "Settings that differ")


def _flat(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables, each with the path of its keys."""
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, list) and any(isinstance(item, dict) for item in tree):
        items = enumerate(tree)
    else:
        yield name, tree
        return
    for key, value in items:
        yield from _flat(value, f"{name}.{key}" if name else str(key))


def compare_runs(section: Section, runs: Sequence[Record]) -> None:
    """All methods of all runs; and the best of each in paired tests, on the same clients."""
    rows = []
    for record in runs:
        metric = record.results["metric"]
        for name, summary in record.results["methods"].items():
            scores, change = summary[metric], summary.get(f"{metric}_change") or {}
            rows.append([
                record.name, name, metric, amount(summary["clients"]), number(scores["mean"]),
                interval(scores["interval"]), number(scores["worst_decile"]),
                share(change.get("hurt")),
            ])  # fmt: skip
    head = ["run", "method", "metric", "clients", "mean", "95% interval", "worst 10%", "hurt"]
    left = {"method": "left", "metric": "left"}
    section.table(head, rows, "Every method of every run", kinds=left)
    if len({(r.results["data"]["fingerprint"], r.results["metric"]) for r in runs}) > 1:
        section.note(
            "The runs have different data, splits or metrics, so their clients cannot be paired."
        )
    else:
        _paired(section, runs, runs[0].results["metric"])


def _paired(section: Section, runs: Sequence[Record], metric: str) -> None:
    """The best methods of each two runs, paired over the clients that both have."""
    sign = 1.0 if metric == "accuracy" else -1.0
    best = []
    for record in runs:
        means = {name: s[metric]["mean"] for name, s in record.results["methods"].items()}
        finite = [(sign * mean, name) for name, mean in means.items() if mean is not None]
        if finite:
            method = max(finite)[1]
            best.append((f"{record.name}: {method}", _by_client(record, method, metric)))
    rows = []
    for (first, a), (second, b) in itertools.combinations(best, 2):
        both = sorted(a.keys() & b.keys())
        gain = sign * np.array([a[client] - b[client] for client in both])
        if len(gain):
            bounds = jsonable(bootstrap_interval(gain))
            rows.append([
                first, second, amount(len(gain)), signed(float(gain.mean())),
                interval(bounds, signed), p_value(sign_flip(gain)),
            ])  # fmt: skip
    if rows:
        head = ["first", "second", "clients", "gain of the first", "95% interval", "p-value"]
        caption = "The best method of each run, paired over clients"
        section.table(head, rows, caption, kinds={"second": "left"})


def _by_client(record: Record, method: str, metric: str) -> dict[str, float]:
    table = record.clients()
    columns = zip(*(table[c].to_pylist() for c in ("method", "client", metric)), strict=True)
    return {client: value for name, client, value in columns if name == method}
