"""The lines about a table that a terminal shows; the rest is in the report."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sartor.report.tables import chosen_words, expected_words, gain_words

HEADLINES = {"binary": "AUC", "classes": "accuracy", "regression": "RMSE"}
"""The measure that people ask for first, by the kind of labels."""

MOST_NAMED = 3
"""How many clients are named that gain most."""

WIDTH = 100


def lines_about(results: Mapping[str, Any], out: Path) -> list[str]:
    """What was read, chosen and found, in about ten lines."""
    data, fresh = results["data"], results["fresh"]
    count, total = results["clients"], data["rows"]
    found = [
        _line("Read", f"{data['file']}: {total:,} rows, {count:,} clients ({data['client']})"
              f"{_gaps(data)}; {_label(results)}"),
        _line("Columns", _columns(results)),
    ]  # fmt: skip
    if data["held_out"]:
        found.append(_line("Held out", f"{data['held_out']:,} rows: {data['how']}"))
    found.append(_line("Chosen", chosen_words(results)))
    own = any(row["name"] != "global" for row in results["chosen"])
    if own and (expected := expected_words(results)):
        found.append(_line("Expected", f"{expected} {_unit(results)}, on held-out rows"))
    if fresh is not None:
        found += ["", *_measured(results), ""]
    else:
        found += _most(results, out)
    if (out / "models").is_dir():
        found.append(_line("Models", str(out / "models")))
    if fresh is None:
        found.append(_line("Table", str(out / "per_client.parquet")))
    found.append(_line("Report", str(out / "report.html")))
    return found


def _line(title: str, words: str) -> str:
    wrapped = textwrap.wrap(words, WIDTH - 10, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(wrapped), " " * 10).replace(" " * 10, f"{title + ':':<10}", 1)


def _gaps(data: Mapping[str, Any]) -> str:
    several = (
        ("without_client", "without a client"),
        ("without_label", "without a label left out"),
    )
    found = [f"{data[key]:,} rows {words}" for key, words in several if data[key]]
    return f", {', '.join(found)}" if found else ""


def _label(results: Mapping[str, Any]) -> str:
    name = results["data"]["label"]
    if results["kind"] == "regression":
        return f"{name} is a number"
    classes = results["classes"]
    return f"{name} is one of {', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}"


def _columns(results: Mapping[str, Any]) -> str:
    """How many columns there are, and all that need attention."""
    columns = results["columns"]
    attention = [f"{one['name']} ({one['attention']})" for one in columns if one["attention"]]
    named = "; ".join(attention) if attention else "none needs attention"
    return f"{len(columns)} to learn from; {named}" + (" need attention" if attention else "")


def _unit(results: Mapping[str, Any]) -> str:
    return "of the loss" if results["kind"] == "classification" else "RMSE, in the label's units"


def _measured(results: Mapping[str, Any]) -> list[str]:
    """The loss and the measure of people, of the global and of the personal models."""
    fresh = results["fresh"]
    kind = "regression" if results["kind"] == "regression" else (
        "binary" if len(results["classes"]) == 2 else "classes"
    )  # fmt: skip
    names = ("MSE" if kind == "regression" else "log loss", HEADLINES[kind])
    rows: list[Sequence[str]] = [
        (
            f"{fresh['rows']:,} fresh rows", "global", "personal", "by client: global", "personal",
            "gain (95% interval)", "gained", "hurt",
        )
    ]  # fmt: skip
    for measure in fresh["measures"]:
        if measure["measure"] in names:
            losses = ("all rows, global", "all rows", "clients, global", "clients")
            gain = _number(measure["gain"], "+") + _interval(measure)
            rows.append((
                measure["measure"], *(_number(measure[key]) for key in losses), gain,
                _share(measure["gained"]), _share(measure["hurt"]),
            ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]


def _number(value: float | None, sign: str = "") -> str:
    if value is None:
        return "–"
    return f"{value:{sign}.4f}" if abs(value) < 100 else f"{value:{sign},.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _interval(found: Mapping[str, Any]) -> str:
    if found["low"] is None:
        return ""
    rough = ", rough" if found["rough"] else ""
    return f" ({_number(found['low'], '+')} to {_number(found['high'], '+')}{rough})"


def _most(results: Mapping[str, Any], out: Path) -> list[str]:
    """The clients whose expected gain is largest."""
    columns = pq.read_table(out / "per_client.parquet").to_pydict()
    if "expected" not in columns:
        return []
    kind = results["kind"]
    own = [k for k, name in enumerate(columns["approach"]) if name != "global"]
    best = sorted(own, key=lambda k: -columns["expected"][k])[:MOST_NAMED]
    if not best:
        return []
    named = [
        f"{columns['client'][k]} {gain_words(columns['expected'][k], kind)} "
        f"({gain_words(columns['low'][k], kind)} to {gain_words(columns['high'][k], kind)})"
        for k in best
    ]
    return [_line("Most", "; ".join(named))]
