"""The page about the synthetic experiment: Table 1, Figure 1, claims, clients, choices and cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.experiments.common.claims import VERDICT, count
from sartor.report import PageKind
from sartor.report.compare import compare_values
from sartor.report.figures import (
    INK,
    Values,
    change_figure,
    curve,
    drawing,
    legend,
    legend_outside,
    log_axis,
    look,
    shares_figure,
)
from sartor.report.numbers import amount, edge, interval, number, p_value, share, signed
from sartor.report.page import Row, Section, Texts, listed
from sartor.report.record import Record
from sartor.report.runs import cost_section, provenance

TEXTS = Texts(Path(__file__).with_name("page.md"))

ORDER = (
    "FedAvg", "HypCluster", "Local", "Finetune", "Dapper", "Mapper", "HypCluster + Dapper",
    "HypCluster + Mapper",
)  # fmt: skip
"""The order of the methods' colours."""

Sizes = Mapping[int, Mapping[str, Row]]
"""The rows of Figure 1 by number of samples, then by method."""


def synthetic_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, losses = record.results, _exact_losses(record)  # finds damage before any writing
    sizes = by_samples(results)
    return [
        _summary(results, sizes),
        _figure1(record, sizes),
        _table1(record),
        _claims(results["claims"]),
        _clients(record, sizes, losses),
        _choices(record, sizes),
        _tuning(results, sizes),
        _cost(results, sizes),
        _method(results["settings"]),
        provenance(record, command(results["settings"])),
    ]


def command(settings: Row) -> str:
    """The command line that runs it again."""
    quick = " --quick" if settings["quick"] else ""
    samples = "".join(f" --samples {n}" for n in settings["samples"])
    return (
        f"sartor reproduce synthetic{quick} --seed {settings['seed']} --seeds {settings['seeds']} "
        f"--layout {settings['layout']} --loss {settings['loss']}{samples} --out DIRECTORY"
    )


def by_samples(results: Row) -> Sizes:
    """The rows of Figure 1 by number of samples, then by method."""
    return {
        samples: {row["method"]: row for row in rows}
        for samples, rows in itertools.groupby(results["figure1"], lambda row: row["samples"])
    }


def _summary(results: Row, sizes: Sizes) -> Section:
    section = Section("Summary")
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
    found = [
        f"The best method is {', and '.join(words)}: {reached} nats, where "
        f"{results['limits']['bayes']:.3f} is the least possible."
    ]
    found += [
        f"With {m} samples per client, one model for all costs "
        f"{tuned[m]['FedAvg']['exact_loss']:.3f} and four models cost "
        f"{tuned[m]['HypCluster']['exact_loss']:.3f}; {_most_hurt(tuned[m])}."
        for m in sorted({few, many})
    ]
    claims = results["claims"]
    undecided = count(claims, None)
    found.append(
        f"Of the paper's {len(claims)} claims {count(claims)} hold here and "
        f"{count(claims, False)} do not"
        + (f"; {undecided} cannot be decided." if undecided else ".")
    )
    section.lead(found)
    return section


def _most_hurt(rows: Mapping[str, Row]) -> str:
    worst = max(rows.values(), key=lambda row: row["against_fedavg"]["hurt"])
    hurt = worst["against_fedavg"]["hurt"]
    if hurt == 0:
        return "no method makes anybody worse off than FedAvg"
    return f"of the tuned methods {worst['method']} hurts the most clients, {share(hurt)}"


def _figure1(record: Record, sizes: Sizes) -> Section:
    section, results = Section("Figure 1"), record.results
    section.figure(
        _loss_figure(sizes, results["limits"]), TEXTS("figure1"), record.figure("figure1")
    )
    section.figure(
        _excess_figure(sizes, results["limits"]["bayes"]),
        "The same without the Bayes limit, on a logarithmic axis.",
        record.figure("figure1-excess"),
    )
    methods = list(next(iter(sizes.values())))
    best = {
        amount(m): min(rows.values(), key=lambda row: row["exact_loss"])["method"]
        for m, rows in sizes.items()
    }
    head = listed("samples per client", *best)
    section.table(
        head,
        [[name, *(number(sizes[m][name]["exact_loss"]) for m in sizes)] for name in methods],
        "Exact loss: mean over clients and populations",
        bold=lambda row, heading: best.get(heading) == row[0],
    )
    section.table(
        head,
        [
            [name, *(f"{number(r['test_loss'])} ({interval((r['low'], r['high']))})" for r in rows)]
            for name in methods
            if (rows := [sizes[m][name] for m in sizes])
        ],
        "The same on test samples, with 95% intervals over populations",
    )
    return section


def _curves(axes: Any, sizes: Sizes, less: float) -> None:
    """A curve for each method; dotted, if it was not tuned."""
    for name in next(iter(sizes.values())):
        rows = [sizes[m][name] for m in sizes]
        colour = look(ORDER.index(name.partition(",")[0]))[0]
        curve(
            axes, list(sizes), rows, name, colour, style="o-" if rows[0]["tried"] else "o:",
            less=less, keys=("exact_loss", "exact_low", "exact_high"),
        )  # fmt: skip
    log_axis(axes, list(sizes), "samples per client")
    axes.grid(axis="y", linewidth=0.6)


def _loss_figure(sizes: Sizes, limits: Row) -> Figure:
    with drawing(7.2, 4.2) as (figure, axes):
        _curves(axes, sizes, 0.0)
        axes.axhline(limits["bayes"], color=INK, linestyle="--", linewidth=1, label="Bayes limit")
        for q in ("1", "4"):
            axes.axhline(limits["clusters"][q], color=INK, linestyle=":", linewidth=0.8)
        axes.set_ylabel("exact loss (nats)")
        legend_outside(axes)
        return figure


def _excess_figure(sizes: Sizes, bayes: float) -> Figure:
    with drawing(7.2, 3.8) as (figure, axes):
        _curves(axes, sizes, bayes)
        axes.set_yscale("log")
        axes.set_ylabel("exact loss above the Bayes limit")
        legend_outside(axes)
        return figure


def _table1(record: Record) -> Section:
    section, rows = Section("Table 1"), record.results["table1"]
    lines = {
        "test loss": lambda row: number(row["test_loss"]),
        "its 95% interval": lambda row: interval((row["low"], row["high"])),
        "exact loss": lambda row: number(row["exact_loss"]),
        "the exact loss's interval": lambda row: interval((row["exact_low"], row["exact_high"])),
        "least possible": lambda row: number(row["limit"]),
        "above it": lambda row: number(row["exact_loss"] - row["limit"]),
        "the paper": lambda row: number(row["paper"], digits=1),
        "smoothed loss": lambda row: number(row["smoothed_loss"]),
        "least possible smoothed loss": lambda row: number(row["smoothed_limit"]),
        "starts": lambda row: amount(row["restarts"]),
    }
    section.table(
        listed("q", *(str(row["q"]) for row in rows)),
        [[name, *map(show, rows)] for name, show in lines.items()],
        f"Loss of HypCluster with q clusters, "
        f"{record.results['settings']['table_samples']} samples per client",
    )
    section.figure(
        _table_figure(rows),
        "HypCluster with q clusters, the least possible loss of q models, and the paper's numbers.",
        record.figure("table1"),
    )
    section.note(TEXTS("table1"))
    smoothed = record.results["limits"]["smoothed_shifted"].values()
    section.text(TEXTS("paper", least=", ".join(f"{v:.3f}" for v in smoothed)))
    return section


def _table_figure(rows: Sequence[Row]) -> Figure:
    with drawing(6.0, 3.2) as (figure, axes):
        q = [row["q"] for row in rows]
        paper, limit = ([row[k] for row in rows] for k in ("paper", "limit"))
        axes.plot(q, paper, "s--", color=look(0)[0], label="the paper", markersize=5)
        mean, low, high = (np.array([row[k] for row in rows]) for k in ("test_loss", "low", "high"))
        error = np.maximum([mean - low, high - mean], 0)
        axes.errorbar(q, mean, error, fmt="o-", color=look(1)[0], label="test loss", capsize=3)
        axes.plot(q, limit, "_", color=INK, label="least possible", markersize=14)
        axes.set_xticks(q)
        axes.set_xlabel("clusters q")
        axes.set_ylabel("loss (nats)")
        axes.grid(axis="y", linewidth=0.6)
        legend(axes, loc="upper right")
        return figure


def _claims(claims: Sequence[Row]) -> Section:
    section = Section("The paper's claims")
    numbered = list(enumerate(claims, start=1))
    section.table(
        [
            ("", lambda item: f"{item[0]}."),
            ("claim", lambda item: item[1]["claim"]),
            ("tested with", lambda item: f"{item[1]['samples']} samples"),
            ("holds", lambda item: VERDICT[item[1]["holds"]]),
            ("p-value", lambda item: p_value(item[1]["p_value"])),
        ],
        numbered,
        text=("claim",),
    )
    for n, claim in numbered:
        section.text(f"{n}. {claim['found']}")
    section.note(TEXTS("claims"))
    return section


def _exact_losses(record: Record) -> dict[tuple[int, str], Values]:
    """The exact loss of every client of every population, by samples and method."""
    table = record.clients()
    samples, method = table["samples"].to_numpy(), np.array(table["method"].to_pylist())
    loss = table["exact_loss"].to_numpy()
    keys = [(row["samples"], row["method"]) for row in record.results["figure1"]]
    return {key: loss[(samples == key[0]) & (method == key[1])] for key in keys}


def _clients(record: Record, sizes: Sizes, losses: Mapping[tuple[int, str], Values]) -> Section:
    section = Section("Who gains and who is hurt")
    shown = sorted({min(sizes), max(sizes)})
    figures = []
    for samples in shown:
        central = losses[samples, "FedAvg"]
        changes = {
            name: central - losses[samples, name]
            for name, row in sizes[samples].items()
            if name != "FedAvg" and row["tried"]
        }
        figure = change_figure(changes, "FedAvg", "exact loss", (5.0, 3.6))
        caption = f"{samples} samples per client: every client of every population."
        figures.append((figure, caption, record.figure(f"gains-{samples}")))
    section.figures(figures)

    def show(value: float | None) -> str:
        return signed(value, 3)

    gain = "against_fedavg"
    section.table(
        [
            ("method", lambda row: row["method"]),
            ("samples", lambda row: amount(row["samples"])),
            ("mean gain", lambda row: show(row[gain]["mean_gain"])),
            ("95% interval", lambda row: interval(row[gain]["mean_gain_interval"], show)),
            ("5th percentile", lambda row: show(row[gain]["percentiles"]["5"])),
            ("95th", lambda row: show(row[gain]["percentiles"]["95"])),
            ("hurt", lambda row: share(row[gain]["hurt"])),
            ("95% interval", lambda row: interval(row[gain]["hurt_interval"], share)),
            ("mean if hurt", lambda row: show(row[gain]["mean_if_hurt"])),
        ],
        [row for m in shown for name, row in sizes[m].items() if name != "FedAvg"],
        "Gain in exact loss over FedAvg, per client",
    )
    section.note(TEXTS("clients"))
    return section


def _choices(record: Record, sizes: Sizes) -> Section:
    section = Section("What clients choose")
    methods = [name for name, row in next(iter(sizes.values())).items() if "lambda" in row]
    keys = sorted(
        {k for rows in sizes.values() for row in rows.values() for k in row.get("lambda", {})},
        key=float,
    )
    chosen = {
        name: {amount(m): rows[name]["lambda"] for m, rows in sizes.items()} for name in methods
    }
    section.figures([
        (
            shares_figure(shares, keys, "clients", (4.6, 2.9)),
            f"λ chosen by the clients of {name}, by samples per client.",
            record.figure(f"lambda-{name.replace(' + ', '-')}"),
        )
        for name, shares in chosen.items()
    ])  # fmt: skip
    section.table(
        listed("method", "samples", *(f"λ = {key}" for key in keys)),
        [
            [name, samples, *(share(found.get(key, 0)) for key in keys)]
            for name, shares in chosen.items()
            for samples, found in shares.items()
        ],
        "Share of the clients; λ = 1 is the client's own data or model alone",
    )
    settings = record.results["settings"]
    clustered = [
        (f"{m} samples, q = 4", rows["HypCluster"].get("cluster_shares"))
        for m, rows in sizes.items()
    ]
    clustered += [
        (f"{settings['table_samples']} samples, q = {row['q']}", row.get("cluster_shares"))
        for row in record.results["table1"]
        if row["q"] != 4
    ]
    rows = [(name, shares) for name, shares in clustered if shares]
    most = max((len(shares) for _, shares in rows), default=0)
    section.table(
        listed("HypCluster", *(f"{n + 1}." for n in range(most))),
        [[name, *map(share, shares), *[""] * (most - len(shares))] for name, shares in rows],
        "Share of the clients in each cluster, the largest first; mean over populations",
    )
    return section


def _tuning(results: Row, sizes: Sizes) -> Section:
    section, settings = Section("What validation chooses"), results["settings"]
    methods = next(iter(sizes.values()))

    def chosen(row: Row) -> str:
        return f"{row['rate']:g}" + (f", {row['smoothing']:g}" if row["smoothing"] else "")

    section.table(
        listed("samples per client", *map(amount, sizes)),
        [[name, *(chosen(rows[name]) for rows in sizes.values())] for name in methods],
        "Step size and, where there is any, label smoothing",
    )
    if any(not row["tried"] for row in methods.values()):
        section.note(TEXTS("longer"))
    tried = [row for row in results["figure1"] if row["tried"]]
    rates, smoothings = (
        ", ".join(f"{v:g}" for v in sorted({t[n] for row in tried for t in row["tried"]}))
        for n in (0, 1)
    )
    found = [edge(row["rate"], [t[0] for t in row["tried"]]) for row in tried]
    ends = " and ".join(
        f"{found.count(end)} times the {end}" for end in ("largest", "smallest") if end in found
    )
    quick = " (in the quick version for Local and Finetune, instead of the least step size)"
    section.note(
        TEXTS(
            "tuning", candidates=len(tried[0]["tried"]), rates=rates, smoothings=smoothings,
            quick=quick if settings["quick"] else "", populations=settings["tuning_populations"],
            ends=f" The chosen step size is {ends} candidate." if ends else "",
        )
    )  # fmt: skip
    return section


def _cost(results: Row, sizes: Sizes) -> Section:
    samples = min(sizes, key=lambda m: abs(m - results["settings"]["table_samples"]))
    return cost_section(
        {name: row["cost"] for name, row in sizes[samples].items()},
        f"With {samples} samples per client; includes the training of the central model.",
    )


def _method(settings: Row) -> Section:
    section = Section("How it was done")
    own = "k % (d − 4)" if settings["layout"] == "literal" else "4 + k % (d − 4)"
    section.text(TEXTS("population", own=own, **settings))
    for name in ("methods", settings["loss"], "samples"):
        section.text(TEXTS(name))
    if settings["quick"]:
        section.note(TEXTS("quick"))
    return section


def compare(section: Section, records: Sequence[Record]) -> None:
    """The losses of several runs of the experiment."""

    def table1(record: Record) -> dict[str, str]:
        return {
            f"q = {row['q']}": f"{number(row['exact_loss'])} (least {number(row['limit'])})"
            for row in record.results["table1"]
        }

    def figure1(record: Record) -> dict[str, str]:
        return {
            f"{row['method']}, {amount(row['samples'])} samples": number(row["exact_loss"])
            for row in record.results["figure1"]
        }

    compare_values(section, "Table 1", records, table1, "Exact loss")
    compare_values(section, "Figure 1", records, figure1, "Exact loss")


PAGE = PageKind("The synthetic experiment", synthetic_sections, compare)
