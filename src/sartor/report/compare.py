"""Tables that compare several runs, or several runs of an experiment."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sartor.evaluation import holm, mean_interval, mean_test
from sartor.evaluation.statistics import jsonable
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import best_method, marked
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("compare.md"))


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
    methods = []
    for record in runs:
        metric = record.results["metric"]
        methods += [
            {
                "run": record.name, "method": name, "metric": metric,
                "clients": summary["clients"],
                "scores": marked(summary[metric], summary["clients"]),
                "change": summary.get(f"{metric}_change"),
            }
            for name, summary in record.results["methods"].items()
        ]  # fmt: skip
    unlike = len({(r.results["data"]["fingerprint"], r.results["metric"]) for r in runs}) > 1
    pairs = [] if unlike else _paired(runs, metric)
    (found,) = TEMPLATE.sections({"methods": methods, "unlike": unlike, "pairs": pairs})
    section.parts += found.parts


def _paired(runs: Sequence[Record], metric: str) -> Sequence[Row]:
    """The best methods of each two runs, paired over the clients that both have."""
    sign = 1.0 if metric == "accuracy" else -1.0
    best = [
        (f"{record.name}: {method}", _by_client(record, method, metric))
        for record in runs
        if (method := best_method(record.results))
    ]
    pairs = []
    for (first, a), (second, b) in itertools.combinations(best, 2):
        both = sorted(a.keys() & b.keys())
        gain = sign * np.array([a[client] - b[client] for client in both])
        if len(gain):
            pairs.append({
                "first": first, "second": second, "clients": len(gain), "gain": float(gain.mean()),
                "estimate": jsonable(mean_interval(gain)._asdict()), "p_value": mean_test(gain),
            })  # fmt: skip
    adjusted = holm([pair["p_value"] for pair in pairs])
    return [{**pair, "p_adjusted": p} for pair, p in zip(pairs, adjusted, strict=True)]


def _by_client(record: Record, method: str, metric: str) -> dict[str, float]:
    table = record.clients()
    columns = zip(*(table[c].to_pylist() for c in ("method", "client", metric)), strict=True)
    return {client: value for name, client, value in columns if name == method}
