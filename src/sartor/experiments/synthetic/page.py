"""The page about the synthetic experiment: what ``page.md`` shows."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from matplotlib.figure import Figure

from sartor.evaluation.means import ENOUGH
from sartor.experiments.common.statistics import tally
from sartor.experiments.synthetic.methods import METHODS
from sartor.report import PageKind
from sartor.report.compare import compare_values
from sartor.report.figures import INK, change_figure, curve, drawing, legend_outside, log_axis, look
from sartor.report.numbers import amount, edge, number
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import client_values, cost_table, provenance, sorted_keys
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("page.md"))

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
        **_lead(results, sizes),
        "sizes": list(sizes),
        "methods": _methods(sizes),
        "figure1": _loss_figure(sizes, results["limits"]),
        "figure1-excess": _loss_figure(sizes, results["limits"], excess=True),
        "table1": [
            {
                **r,
                "above": r["exact_loss"] - r["limit"],
                "exact": {"low": r["exact_low"], "high": r["exact_high"]},
            }
            for r in results["table1"]
        ],
        "few": settings["seeds"] < ENOUGH,
        "least": ", ".join(f"{v:.3f}" for v in results["limits"]["smoothed_shifted"].values()),
        "gained": [row for m in ends for name, row in sizes[m].items() if name != "FedAvg"],
        **_choices(results),
        **_tuning(results),
        "near": near,
        **cost_table({name: row["cost"] for name, row in sizes[near].items()}),
    }
    quick = " --quick" * settings["quick"]
    command = (
        f"sartor reproduce synthetic{quick} --seed {settings['seed']} --seeds {settings['seeds']} "
        f"--layout {settings['layout']} --loss {settings['loss']}"
        f"{''.join(f' --samples {n}' for n in settings['samples'])} --out DIRECTORY"
    )
    return [*TEMPLATE.sections(values, record), provenance(record, command)]


def _lead(results: Row, sizes: Sizes) -> dict[str, Any]:
    """The best methods, who is hurt, and how many claims hold."""
    # Methods that were not tuned explain others; they cannot be the best.
    tuned = {m: {n: row for n, row in rows.items() if row["tried"]} for m, rows in sizes.items()}
    few, many = min(tuned), max(tuned)
    best = {m: min(rows.values(), key=lambda row: row["exact_loss"]) for m, rows in tuned.items()}
    words = []
    for name, group in itertools.groupby(best, lambda m: best[m]["method"]):
        first, *others = group
        span = f"{first} to {others[-1]}" if others else f"{first}"
        words.append(f"{name} with {span} samples per client")
    ends = []
    for m in sorted({few, many}):
        worst = max(tuned[m].values(), key=lambda row: row["against_fedavg"]["hurt"])
        ends.append({
            "samples": m, "one": tuned[m]["FedAvg"], "four": tuned[m]["HypCluster"],
            "worst": worst, "hurt": worst["against_fedavg"]["hurt"],
        })  # fmt: skip
    return {
        "best": ", and ".join(words),
        "fewest": best[few] if few < many else None,
        "most": best[many],
        "ends": ends,
        "tally": tally(results["claims"]),
    }


def _methods(sizes: Sizes) -> Sequence[Row]:
    """Every method at all numbers of samples, and where it is the best."""
    least = {m: min(row["exact_loss"] for row in rows.values()) for m, rows in sizes.items()}
    found = []
    for name in next(iter(sizes.values())):
        rows = [of[name] for of in sizes.values()]
        best = [amount(r["samples"]) for r in rows if r["exact_loss"] == least[r["samples"]]]
        found.append({"name": name, "rows": rows, "best": best})
    return found


def _loss_figure(sizes: Sizes, limits: Row, excess: bool = False) -> Figure:
    """The exact loss of every method; or how far it is above the lowest possible loss."""
    names = [method.name for method in METHODS]
    with drawing(7.2, 4.0) as (figure, axes):
        for name in next(iter(sizes.values())):
            rows = [sizes[m][name] for m in sizes]
            colour = look(names.index(name.partition(",")[0]))[0]
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
    table, figures = record.clients(), []
    for m, rows in sizes.items():
        mine = table.filter(pc.equal(table["samples"], m))
        found = client_values(mine, "exact_loss", rows)
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
    plot, table = results["figure1"], results["table1"]
    mixing = [row for row in plot if "lambda" in row]
    order = list(dict.fromkeys(row["method"] for row in mixing))
    clustered = [{"q": 4, **row} for row in plot if row["method"] == "HypCluster"]
    samples = results["settings"]["table_samples"]
    clustered += [{"samples": samples, **row} for row in table if row["q"] != 4]
    known = [row for row in clustered if row.get("cluster_shares")]
    most = max((len(row["cluster_shares"]) for row in known), default=0)
    return {
        "lambdas": sorted_keys(row["lambda"] for row in mixing),
        "chosen": sorted(mixing, key=lambda row: order.index(row["method"])),
        "places": [f"{n + 1}." for n in range(most)],
        "clustered": known,
    }


def _tuning(results: Row) -> dict[str, Any]:
    """What validation could choose from, and whether it chose the ends."""
    tried = [row for row in results["figure1"] if row["tried"]]
    rates, smoothings = (sorted({t[n] for row in tried for t in row["tried"]}) for n in (0, 1))
    found = [edge(row["rate"], [t[0] for t in row["tried"]]) for row in tried]
    return {
        "candidates": len(tried[0]["tried"]),
        "rates": rates,
        "smoothings": smoothings,
        "edges": " and ".join(
            f"{found.count(end)} times the {end}" for end in ("largest", "smallest") if end in found
        ),
    }


def compare(section: Section, records: Sequence[Record]) -> None:
    """The exact losses of several runs of the experiment."""
    losses = [
        {
            f"HypCluster, q = {row['q']}": f"{number(row['exact_loss'])} "
            f"(least {number(row['limit'])})"
            for row in record.results["table1"]
        }
        | {
            f"{row['method']}, {amount(row['samples'])} samples": number(row["exact_loss"])
            for row in record.results["figure1"]
        }
        for record in records
    ]
    compare_values(section, "model", records, losses, "Exact loss")


PAGE = PageKind("The synthetic experiment", synthetic_sections, compare)
