"""The page about the synthetic experiment: what ``page.md`` shows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.experiments.common.claims import count
from sartor.report import PageKind
from sartor.report.compare import compare_values
from sartor.report.figures import INK, change_figure, curve, drawing, legend_outside, log_axis, look
from sartor.report.numbers import amount, edge, number, share
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import cost_table, provenance
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("page.md"))

ORDER = (
    "FedAvg", "HypCluster", "Local", "Finetune", "Dapper", "Mapper", "HypCluster + Dapper",
    "HypCluster + Mapper",
)  # fmt: skip
"""The order of the methods' colours."""

Sizes = Mapping[int, Mapping[str, Row]]
"""The losses by number of samples, then by method."""


def synthetic_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, settings = record.results, record.results["settings"]
    sizes: Sizes = {
        samples: {row["method"]: row for row in rows}
        for samples, rows in itertools.groupby(results["figure1"], lambda row: row["samples"])
    }
    ends = sorted({min(sizes), max(sizes)})
    near = min(sizes, key=lambda m: abs(m - settings["table_samples"]))
    values = {
        **results,
        "gains": _gain_figures(record, {m: sizes[m] for m in ends}),  # reads all clients first
        "lead": _lead(results, sizes),
        "sizes": list(sizes),
        "methods": _methods(sizes),
        "figure1": _loss_figure(sizes, results["limits"]),
        "figure1-excess": _loss_figure(sizes, results["limits"], excess=True),
        "table1": [{**r, "above": r["exact_loss"] - r["limit"]} for r in results["table1"]],
        "least": ", ".join(f"{v:.3f}" for v in results["limits"]["smoothed_shifted"].values()),
        "gained": [row for m in ends for name, row in sizes[m].items() if name != "FedAvg"],
        **_choices(results),
        **_tuning(results),
        "near": near,
        **cost_table({name: row["cost"] for name, row in sizes[near].items()}),
        "own": "k % (d − 4)" if settings["layout"] == "literal" else "4 + k % (d − 4)",
        "plain": settings["loss"] == "plain",
        "smoothed": settings["loss"] == "smoothed",
    }
    quick = " --quick" * settings["quick"]
    command = (
        f"sartor reproduce synthetic{quick} --seed {settings['seed']} --seeds {settings['seeds']} "
        f"--layout {settings['layout']} --loss {settings['loss']}"
        f"{''.join(f' --samples {n}' for n in settings['samples'])} --out DIRECTORY"
    )
    return [*TEMPLATE.sections(values, record), provenance(record, command)]


def _lead(results: Row, sizes: Sizes) -> list[str]:
    """The best methods, who is hurt, and how many claims hold."""
    # Methods that were not tuned explain others; they cannot be the best.
    tuned = {m: {n: row for n, row in rows.items() if row["tried"]} for m, rows in sizes.items()}
    few, many = min(tuned), max(tuned)
    best = {m: min(rows.values(), key=lambda row: row["exact_loss"]) for m, rows in tuned.items()}
    words = []
    for name, group in itertools.groupby(best, lambda m: best[m]["method"]):
        ends = list(group)
        span = f"{ends[0]}" if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
        words.append(f"{name} with {span} samples per client")
    reached = f"{best[many]['exact_loss']:.3f}"
    if few < many:
        reached = f"from {best[few]['exact_loss']:.3f} down to {reached}"
    claims, undecided = results["claims"], count(results["claims"], None)
    return [
        f"The best method is {', and '.join(words)}: {reached} nats, where "
        f"{results['limits']['bayes']:.3f} is the least possible.",
        *(
            f"With {m} samples per client, one model for all costs "
            f"{tuned[m]['FedAvg']['exact_loss']:.3f} and four models cost "
            f"{tuned[m]['HypCluster']['exact_loss']:.3f}; {_most_hurt(tuned[m])}."
            for m in sorted({few, many})
        ),
        f"Of the paper's {len(claims)} claims {count(claims)} hold here and "
        f"{count(claims, False)} do not"
        + (f"; {undecided} cannot be decided." if undecided else "."),
    ]


def _most_hurt(rows: Mapping[str, Row]) -> str:
    worst = max(rows.values(), key=lambda row: row["against_fedavg"]["hurt"])
    hurt = worst["against_fedavg"]["hurt"]
    if hurt == 0:
        return "no method makes anybody worse off than FedAvg"
    return f"of the tuned methods {worst['method']} hurts the most clients, {share(hurt)}"


def _methods(sizes: Sizes) -> Sequence[Row]:
    """Every method at all numbers of samples: its losses, and what validation chose."""
    least = {m: min(row["exact_loss"] for row in rows.values()) for m, rows in sizes.items()}
    found = []
    for name in next(iter(sizes.values())):
        rows = [of[name] for of in sizes.values()]
        found.append({
            "name": name,
            "exact": [r["exact_loss"] for r in rows],
            "best": [amount(r["samples"]) for r in rows if r["exact_loss"] == least[r["samples"]]],
            "test": [
                f"{number(r['test_loss'])} ({number(r['low'])} to {number(r['high'])})"
                for r in rows
            ],
            "tuned": [
                f"{r['rate']:g}" + (f", {r['smoothing']:g}" if r["smoothing"] else "") for r in rows
            ],
        })  # fmt: skip
    return found


def _loss_figure(sizes: Sizes, limits: Row, excess: bool = False) -> Figure:
    """The exact loss of every method; or how far it is above the least possible loss."""
    with drawing(7.2, 4.0) as (figure, axes):
        for name in next(iter(sizes.values())):
            rows = [sizes[m][name] for m in sizes]
            colour = look(ORDER.index(name.partition(",")[0]))[0]
            curve(
                axes, list(sizes), rows, name, colour, style="o-" if rows[0]["tried"] else "o:",
                less=limits["bayes"] if excess else 0.0,
                keys=("exact_loss", "exact_low", "exact_high"),
            )  # fmt: skip
        log_axis(axes, list(sizes), "samples per client")
        axes.grid(axis="y", linewidth=0.6)
        if excess:
            axes.set_yscale("log")
        else:
            axes.axhline(limits["bayes"], color=INK, linestyle="--", lw=1, label="Bayes limit")
            for q in ("1", "4"):
                axes.axhline(limits["clusters"][q], color=INK, linestyle=":", linewidth=0.8)
        axes.set_ylabel("exact loss above the Bayes limit" if excess else "exact loss (nats)")
        legend_outside(axes)
        return figure


def _gain_figures(record: Record, sizes: Sizes) -> list[tuple[Figure, str, Path]]:
    """The gains of all clients, for some numbers of samples."""
    table = record.clients()
    samples, method = table["samples"].to_numpy(), np.array(table["method"].to_pylist())
    loss, figures = table["exact_loss"].to_numpy(), []
    for m, rows in sizes.items():
        found = {name: loss[(samples == m) & (method == name)] for name in rows}
        changes = {
            name: found["FedAvg"] - losses
            for name, losses in found.items()
            if name != "FedAvg" and rows[name]["tried"]
        }
        figure = change_figure(changes, "FedAvg", "exact loss", (5.0, 3.6))
        caption = f"{m} samples per client: every client of every population."
        figures.append((figure, caption, record.figure(f"gains-{m}")))
    return figures


def _choices(results: Row) -> dict[str, Any]:
    """The clients' λ, and the sizes of HypCluster's clusters."""
    mixing = [row for row in results["figure1"] if "lambda" in row]
    keys = sorted({key for row in mixing for key in row["lambda"]}, key=float)
    order = list(dict.fromkeys(row["method"] for row in mixing))
    clustered = [(4, r) for r in results["figure1"] if r["method"] == "HypCluster"]
    at = results["settings"]["table_samples"]
    clustered += [(r["q"], {"samples": at, **r}) for r in results["table1"] if r["q"] != 4]
    known = [(q, row) for q, row in clustered if row.get("cluster_shares")]
    most = max((len(row["cluster_shares"]) for _, row in known), default=0)
    return {
        "lambdas": [f"λ = {key}" for key in keys],
        "chosen": [
            {**row, "shares": [row["lambda"].get(key, 0) for key in keys]}
            for row in sorted(mixing, key=lambda row: order.index(row["method"]))
        ],
        "places": [f"{n + 1}." for n in range(most)],
        "clustered": [
            {
                "name": f"{row['samples']} samples, q = {q}",
                "shares": [*map(share, row["cluster_shares"]), *[""] * most][:most],
            }
            for q, row in known
        ],
    }


def _tuning(results: Row) -> dict[str, Any]:
    """What validation could choose from, and whether it chose the ends."""
    tried = [row for row in results["figure1"] if row["tried"]]
    rates, smoothings = (sorted({t[n] for row in tried for t in row["tried"]}) for n in (0, 1))
    found = [edge(row["rate"], [t[0] for t in row["tried"]]) for row in tried]
    ends = " and ".join(
        f"{found.count(end)} times the {end}" for end in ("largest", "smallest") if end in found
    )
    quick = " (in the quick version for Local and Finetune, instead of the least step size)"
    return {
        "candidates": len(tried[0]["tried"]),
        "rates": rates,
        "smoothings": smoothings,
        "quick": quick * results["settings"]["quick"],
        "ends": f" The chosen step size is {ends} candidate." if ends else "",
    }


def compare(section: Section, records: Sequence[Record]) -> None:
    """The exact losses of several runs of the experiment."""

    def losses(record: Record) -> dict[str, str]:
        return {
            f"HypCluster, q = {row['q']}": f"{number(row['exact_loss'])} "
            f"(least {number(row['limit'])})"
            for row in record.results["table1"]
        } | {
            f"{row['method']}, {amount(row['samples'])} samples": number(row["exact_loss"])
            for row in record.results["figure1"]
        }

    compare_values(section, "model", records, losses, "Exact loss")


PAGE = PageKind("The synthetic experiment", synthetic_sections, compare)
