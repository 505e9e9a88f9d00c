"""One self-contained page about runs, built from their directories alone."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sartor.errors import FileError
from sartor.files import read_json, write_atomic
from sartor.report.figures import clients_figure, to_png, to_svg, training_figure

CSS = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); }
th, td { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; }
svg { max-width: 100%; height: auto; }
figcaption, .note { opacity: .75; font-size: .9em; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); border-radius: .4rem; }
@media print { body { margin: 0; max-width: none; } }
"""


def write_report(runs: Sequence[Path], target: Path) -> None:
    """Write the page about one run, or about several."""
    runs = [Path(run).resolve() for run in runs]
    sections = "".join(_section(run, several=len(runs) > 1) for run in runs)
    title = "Sartor report" if len(runs) > 1 else f"Sartor report: {html.escape(runs[0].name)}"
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{CSS}</style></head><body><h1>{title}</h1>{sections}</body></html>\n"
    )
    write_atomic(target, page)


def _section(run: Path, several: bool) -> str:
    if not (run / "results.json").exists() and (run / "config.toml").exists():
        raise FileError(f"the run in {run} is not finished; go on with it: sartor run ... --resume")
    results = read_json(run / "results.json")
    try:
        table = pq.read_table(run / "per_client.parquet")
    except (OSError, pa.ArrowException) as error:
        raise FileError(
            f"{run / 'per_client.parquet'} is missing or damaged ({error}); resume the run"
        ) from error
    try:
        return _render(run, results, table, several)
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise FileError(
            f"{run / 'results.json'} is not the result of a run of this version ({error!r}); "
            "run it again"
        ) from error


def _render(run: Path, results: dict[str, Any], table: pa.Table, several: bool) -> str:
    metric, methods = results["metric"], results["methods"]
    names = np.array(table["method"].to_pylist())
    values = np.array(table[metric].to_pylist(), float)
    clients = clients_figure({name: values[names == name] for name in methods}, metric)
    write_atomic(run / "figures" / "clients.png", to_png(clients))
    heading = f"<h2>{html.escape(run.name)}</h2>" if several else ""
    parts = [
        heading,
        f"<p><strong>{html.escape(_headline(results))}</strong></p>",
        f"<p class='note'>{html.escape(results['data']['summary'])}</p>",
        _methods_table(methods, metric),
        f"<figure>{to_svg(clients)}<figcaption>Every client counts once: the share of clients "
        f"whose test {metric} is at most the value on the axis.</figcaption></figure>",
        _comparisons(results["comparisons"], metric),
        f"<figure>{to_svg(training_figure(results['training_loss']))}</figure>",
        _provenance(run, results),
    ]
    return "".join(parts)


def _headline(results: dict[str, Any]) -> str:
    metric, methods = results["metric"], results["methods"]
    means = {name: summary[metric]["mean"] for name, summary in methods.items()}
    finite = {name: mean for name, mean in means.items() if mean is not None}
    if not finite:
        return f"No method has a finite mean test {metric} over clients."
    better = max if metric == "accuracy" else min
    best = better(finite, key=lambda name: finite[name])
    low, high = methods[best][metric]["interval"]
    # A tie is said to be one: the best mean alone says little.
    ties = [
        f"{({c['a'], c['b']} - {best}).pop()} (p = {c['p_value']:.2f})"
        for c in results["comparisons"]
        if best in (c["a"], c["b"]) and (c["p_value"] is None or c["p_value"] > 0.05)
    ]
    tied = f", not distinguishable from {', '.join(ties)}" if ties else ""
    return (
        f"{best} has the best mean test {metric} over clients: "
        f"{_number(methods[best][metric]['mean'])} ({_number(low)} to {_number(high)}){tied}."
    )


def _methods_table(methods: dict[str, Any], metric: str) -> str:
    head = [
        "method", f"mean {metric}", "95% interval", "seen", "unseen", "median", "worst 10%",
        "gained", "hurt", "gained*", "hurt*", "forgetting",
    ]  # fmt: skip
    rows = []
    for name, summary in methods.items():
        spread, change = summary[metric], summary.get(f"{metric}_change") or {}
        groups = summary.get("groups") or {}
        low, high = spread["interval"]
        rows.append([
            name,
            _number(spread["mean"]),
            f"{_number(low)} to {_number(high)}",
            *(_number(_dig(groups, group, metric, "mean")) for group in ("seen", "unseen")),
            _number(_dig(spread, "percentiles", "50")),
            _number(spread["worst_decile"]),
            *(_share(change.get(key)) for key in ("gained", "hurt")),
            *(_share(change.get(f"{key}_beyond_chance")) for key in ("gained", "hurt")),
            _number(_dig(summary, "forgetting", "mean")),
        ])  # fmt: skip
    note = (
        "Gained and hurt: share of clients better or worse off than with the central model; with "
        "*, only where the client's own test examples show it beyond chance (5% false discovery "
        "rate). Forgetting: rise of the loss on everybody's data. Intervals: bootstrap of clients."
    )
    return _table(head, rows) + f"<p class='note'>{note}</p>"


def _comparisons(comparisons: Sequence[dict[str, Any]], metric: str) -> str:
    if not comparisons:
        return ""
    head = ["paired over clients", f"difference in {metric}", "95% interval", "p-value"]
    rows = [
        [
            f"{c['a']} against {c['b']}",
            _number(c["difference"], "+"),
            f"{_number(c['interval'][0])} to {_number(c['interval'][1])}",
            _number(c["p_value"]),
        ]
        for c in comparisons
    ]
    note = "Positive: the first is better. p-values by sign flips over clients."
    table = _table(head, rows)
    return f"<h3>Methods against each other</h3>{table}<p class='note'>{note}</p>"


def _provenance(run: Path, results: dict[str, Any]) -> str:
    facts = {key: results[key] for key in ("seed", "versions", "device", "date", "wall_seconds")}
    path = run / "config.toml"
    config = path.read_text(encoding="utf-8") if path.exists() else ""
    return (
        "<h3>How to reproduce it</h3><p>Save the settings below as <code>config.toml</code> and "
        "call <code>sartor run config.toml --out DIRECTORY</code>.</p>"
        f"<pre>{html.escape(config)}</pre><pre>{html.escape(json.dumps(facts, indent=1))}</pre>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _dig(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.4f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
