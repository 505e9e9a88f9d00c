"""The page about a table's models: which clients to personalize, and what that brings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.evaluation.means import ENOUGH
from sartor.report.figures import COLOURS, INK, drawing, legend
from sartor.report.numbers import amount, number, share, signed
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import provenance
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("tables.md"))

SHOWN = 200
"""How many clients the page lists; per_client.parquet has all."""

FAILED = 20
"""How many of those it lists whose own model could not be fitted."""

UNITS = {
    "classification": "Gains are in % of the global model's log loss for the client. For clients "
    "with few rows, that loss leans towards the mean over clients.",
    "regression": "Gains are drops of the root mean squared error, in the label's units.",
}
"""What gains are, by the kind of labels."""


def table_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    columns = record.clients().to_pydict()
    fresh = results["fresh"]
    values = {
        **results,
        "read": read_words(results),
        "gained": results["expected"] and any(c["name"] != "global" for c in results["chosen"]),
        "chosen_words": chosen_words(results),
        "expected_words": expected_words(results),
        "headline": _headline(fresh),
        "folds_words": "rows that were held out in turn",
        "about": _about(results),
        "gains": gain_figure(columns, results),
        "caption": _caption(columns, results),
        "units": UNITS[results["kind"]] + _cautions(results),
        **_every(columns, results),
        "kept_rows": [{"why": why, "clients": n} for why, n in results["kept"].items()],
        "measures": [] if fresh is None else fresh["measures"],
        "changes": _changes(fresh),
        "few_fresh": fresh is not None and fresh["clients"] < ENOUGH,
        "tried_rows": [
            {**row, "share": share(row["share"])} for row in results["tried"] if not row["skipped"]
        ],
        "skipped": ", ".join(f"“{r['name']}”" for r in results["tried"] if r["skipped"]),
        "columns": results["columns"] if results["prepared"] else [],
        "effects": [
            {**row, **{f"{end}_words": _ends(row[end]) for end in ("largest", "smallest")}}
            for row in results["effects"]
        ],
        "effects_file": (record.directory / "effects.parquet").exists(),
    }  # fmt: skip
    sections = TEMPLATE.sections(values, record)
    if "versions" in results:
        sections.append(provenance(record, results["command"]))
    return sections


def compare_tables(section: Section, runs: Sequence[Record]) -> None:
    """The losses of several runs on fresh rows."""
    rows = []
    for record in runs:
        found = _headline(record.results["fresh"])
        losses = [number(found["everybody"]), number(found["own"]), signed(found["gain"])]
        rows.append([record.name, *losses, share(found["gained"]), share(found["hurt"])])
    headings = ["run", "global", "personal", "gain", "gained", "hurt"]
    words = "Log loss, or RMSE for numbers, on fresh rows; mean over clients"
    section.table(headings, rows, words, kinds={"run": "left"})


def read_words(results: Row) -> str:
    """What the models are of."""
    of = f"{amount(results['rows'])} rows of {amount(results['clients'])} clients"
    if results["clients"]:
        of += f" ({amount(results['smallest'])} to {amount(results['largest'])} rows each)"
    if results["kind"] == "classification":
        classes = results["classes"]
        named = ", ".join(classes[:5]) + (", …" if len(classes) > 5 else "")
        return f"Fitted to {of}; {len(classes)} classes ({named})."
    return f"Fitted to {of}; the label is a number."


def chosen_words(results: Row) -> str:
    """What was chosen, and for how many clients."""
    total = sum(row["clients"] for row in results["chosen"])
    personal = sum(row["clients"] for row in results["chosen"] if row["name"] != "global")
    if not personal:
        why = next(iter(results["kept"]), "")
        return f"All clients keep the global model ({results['estimator']}): {why}."
    found = [
        f"{row['name']} for {amount(row['clients'])} ({row['words']})"
        for row in results["chosen"]
        if row["name"] != "global"
    ]
    kept = total - personal
    rest = f"; {amount(kept)} {'keeps' if kept == 1 else 'keep'} the global model" * bool(kept)
    asked = ", as asked: nothing else was tried" * (results["approach"] != "auto")
    return f"{amount(personal)} of {amount(total)} clients get a model of their own: " + (
        "; ".join(found) + rest + asked + "."
    )


def expected_words(results: Row) -> str:
    """The expected gain, with its interval; empty if there is none."""
    found = results["expected"]
    if not found:
        return ""
    shown = found["shown"]
    return gain_words(shown["mean"], results["kind"]) + interval_words(shown, results["kind"])


def gain_words(value: float | None, kind: str) -> str:
    """A gain with its unit.

    >>> gain_words(3.14, "classification"), gain_words(-0.1234, "regression"), gain_words(None, "")
    ('+3.1%', '-0.123', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    value += 0.0  # -0.0 becomes 0.0
    if kind == "classification":
        return f"{value:+.1f}%"
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.3g}"


def interval_words(found: Mapping[str, Any], kind: str) -> str:
    """The interval of a gain, in brackets; empty if there is none."""
    if found["low"] is None or math.isnan(found["low"]):
        return ""
    rough = ", rough" if found.get("rough") else ""
    low, high = (gain_words(found[end], kind) for end in ("low", "high"))
    return f" (95% interval {low} to {high}{rough})"


def gain_figure(columns: Mapping[str, Sequence[Any]], results: Row) -> Figure:
    """Every client by its rows and its gain: what is expected, and what fresh rows show."""
    size = np.array(columns["rows"], float)
    series = {
        "gain on fresh rows": ("seen", COLOURS[0], "o", 14),
        "expected gain": ("expected", COLOURS[1], "D", 20),
    }
    with drawing(6.8, 3.6) as (figure, axes):
        axes.axhline(0, color=INK, linewidth=0.8)
        ends = [0.0]
        for label, (name, colour, marker, area) in series.items():
            if name not in columns:
                continue
            gain = np.array(columns[name], float)
            known = np.isfinite(gain) & (size > 0)
            if known.any():
                axes.scatter(
                    size[known], gain[known], s=area, c=colour, marker=marker, alpha=0.7,
                    linewidths=0, label=label,
                )  # fmt: skip
                ends += np.quantile(gain[known], [0.02, 0.98]).tolist()
        margin = 0.15 * (max(ends) - min(ends)) or 1.0
        axes.set_ylim(min(ends) - margin, max(ends) + margin)
        if size.max(initial=0) > 3 * size[size > 0].min(initial=np.inf):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        unit = "% of the loss" if results["kind"] == "classification" else "units of the label"
        axes.set(xlabel="training rows of the client", ylabel=f"gain ({unit})")
        axes.grid(linewidth=0.6)
        if len(ends) > 1:
            legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        return figure


def _headline(fresh: Row | None) -> Row:
    """The loss on fresh rows, of personal and global models: log loss, or RMSE."""
    if fresh is None:
        return {}
    (found,) = (one for one in fresh["measures"] if one["measure"] in ("log loss", "RMSE"))
    own, everybody = found["clients"], found["clients, global"]
    way = "lower" if own < everybody else "higher"
    if own == everybody:
        said = f"{number(own)}, as it is with the global model"
    else:
        said = f"{way}: {number(own)} instead of {number(everybody)}, mean over clients"
    return {**found, "own": own, "everybody": everybody, "said": said}


def _changes(fresh: Row | None) -> list[Row]:
    if fresh is None:
        return []
    named = (("loss", "loss_change"), ("accuracy", "accuracy_change"))
    summary = fresh["summary"]
    return [{"name": name, **summary[key]} for name, key in named if summary.get(key)]


def _about(results: Row) -> str:
    """The data, in small print."""
    found = [results["data"]["summary"]] if "data" in results else []
    return " ".join(
        [*found, f"Central model: {results['estimator']}. Approach: {results['approach']}."]
    )


def _cautions(results: Row) -> str:
    words = " Expected: from held-out rows of the client, pooled with those of all others."
    if results["fresh"] is not None:
        words += " Fresh rows of one client are few, so single gains on them scatter widely."
    return words


def _caption(columns: Mapping[str, Any], results: Row) -> str:
    if results["fresh"] is None:
        return "Every client by its training rows and its expected gain."
    both = "its expected gain, and its gain on fresh rows" if "expected" in columns else (
        "its gain on fresh rows"
    )  # fmt: skip
    return f"Every client by its training rows and {both}. Far-off values are cut off."


def _every(columns: Mapping[str, Sequence[Any]], results: Row) -> dict[str, Any]:
    """The clients that gain most, first by what is expected."""
    kind, total = results["kind"], len(columns["client"])
    by = next((name for name in ("expected", "seen") if name in columns), None)
    key = np.zeros(total) if by is None else np.array(columns[by], float)
    order = np.argsort(np.where(np.isnan(key), np.inf, -key), kind="stable")
    nothing: list[Any] = [None] * total
    rows = []
    for k in order[:SHOWN].tolist():
        one = {name: values[k] for name, values in columns.items()}
        low, high = one.get("low"), one.get("high")
        known = low is not None and not math.isnan(low) and one["approach"] != "global"
        rows.append({
            "client": one["client"], "rows": one["rows"], "approach": one["approach"],
            "expected": gain_words(one.get("expected"), kind),
            "interval": f"{gain_words(low, kind)} to {gain_words(high, kind)}" if known else "–",
            "test_rows": amount(one["test_rows"]) if "test_rows" in one else "–",
            "seen": gain_words(one.get("seen"), kind),
        })  # fmt: skip
    failed = [
        {"client": client, "why": why}
        for client, why, name in zip(
            columns["client"], columns["why"], columns.get("approach", nothing), strict=True
        )
        if why and name != "global"
    ]
    cut = f"; {SHOWN} of {amount(total)} clients, all are in per_client.parquet" * (total > SHOWN)
    return {
        "every": rows,
        "failed": failed[:FAILED],
        "clients_caption": f"The largest {'expected ' * (by == 'expected')}gains first{cut}",
    }


def _ends(clients: Sequence[Row]) -> str:
    """Clients with their effects."""
    return ", ".join(
        f"{one['client']} {number(one['effect'], '+', 3)} ± {number(one['deviation'], '', 3)}"
        for one in clients
    )
