"""The report of the regret of advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.report.figures import drawing, legend, look
from sartor.report.page import Section, edge, interval, number, share
from sartor.report.record import Record
from sartor.report.runs import provenance

Row = Mapping[str, Any]

TITLES = {
    "local": "Local",
    "global": "FedAvg",
    "cluster": "HypCluster",
    "bounds": "bounds alone",
    "advice": "advice",
    "interpolation": "advice with λ",
}
"""Policies as they are called."""

SHARED = ("local", "global", "cluster")
"""What clients share a model with, in the order of the tables."""


def regret_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    lead = Section("Summary")
    lead.lead([in_words(kind, rows) for kind, rows in results["regret"].items()])
    lead.text(
        "A client's regret: the expected loss of the model that it is advised to take, less that "
        "of the best of Local, FedAvg and HypCluster for it, known exactly for the paper's "
        "synthetic clients. Advice sees their training samples only.",
        "note",
    )
    return [
        lead,
        *(_kind(record, kind, n) for n, kind in enumerate(results["regret"])),
        _method(results),
        provenance(record, "sartor reproduce advice --out DIRECTORY"),
    ]


def in_words(kind: str, rows: list[Row]) -> str:
    """How advice compares with one answer for all, at each size and in the mean over them."""
    *sizes, mean = rows
    many = [row["less"]["mean"] for row in sizes if row["samples"] >= 20]
    few = [row["less"]["mean"] for row in sizes if row["samples"] < 20]
    told = [f"from 20 samples on at most {max(many):+.4f}"] if many else []
    told += [f"with fewer at most {max(few):+.4f}"] if few else []
    return (
        f"With Local {kind}, the mean regret of advice is {mean['advice']['mean']:.4f} nats over "
        f"all sizes; that of the best single answer for all sizes, {TITLES[mean['best']]}, is "
        f"{mean[mean['best']]['mean']:.4f}, and of the bounds alone {mean['bounds']['mean']:.4f}. "
        f"Less the best single answer at each size, it is {' and '.join(told)}."
    )


def _kind(record: Record, kind: str, place: int) -> Section:
    section, rows = Section(f"Local {kind}"), record.results["regret"][kind]
    head = ["samples", *TITLES.values(), "vacuous bounds"]
    best = [
        (r, 1 + n)
        for r, row in enumerate(rows)
        for n, name in enumerate(TITLES)
        if row[name]["mean"] == min(row[other]["mean"] for other in TITLES)
    ]
    section.table(
        head,
        [
            [
                str(row["samples"] or "mean"),
                *(number(row[name]["mean"]) for name in TITLES),
                share(row.get("vacuous")),
            ]
            for row in rows
        ],
        "Mean regret in nats over clients and populations; the least is bold",
        best=best,
    )
    section.figure(
        regret_figure(rows[:-1]),
        "Mean regret by samples per client, with 95% intervals over populations.",
        record.directory / "figures" / f"regret-{place}",
    )
    section.table(
        ["samples", *(f"advised: {TITLES[name]}" for name in SHARED), "to all the same",
         "with λ: interpolate", "with λ: to all the same"],
        [
            [
                str(row["samples"]), *(share(row["advised"][name]) for name in SHARED),
                share(row["alike"]), share(row["interpolate"]), share(row["alike_with_lambda"]),
            ]
            for row in rows[:-1]
        ],
        "What is advised, by share of clients; and in how many populations all of them were told "
        "the same",
    )  # fmt: skip
    _against(section, rows, "", "Advice", "one answer for all clients of a size")
    _against(section, rows, "_of_all", "Advice with λ", "one answer for all, one λ included")
    section.table(
        ["samples", *TITLES.values()],
        [
            [
                str(row["samples"] or "mean"),
                *(interval([row[n]["low"], row[n]["high"]]) for n in TITLES),
            ]
            for row in rows
        ],
        "95% intervals over populations",
    )
    return section


def _against(section: Section, rows: list[Row], key: str, who: str, what: str) -> None:
    """What is advised against the best constant answer, which is known in hindsight only."""
    less = f"less{key}"
    section.table(
        ["samples", "the best single answer", f"{who.lower()} less that", "95% interval"],
        [
            [
                str(row["samples"] or "mean"),
                TITLES.get(best := str(row[f"best{key}"]), best),
                number(row[less]["mean"], "+"),
                interval([row[less]["low"], row[less]["high"]], "+"),
            ]
            for row in rows
        ],
        f"{who} against {what}, paired over populations; below 0, {who.lower()} is better",
        left=(1,),
    )


def regret_figure(rows: list[Row]) -> Figure:
    """Regret of every policy against the number of samples."""
    with drawing(6.8, 3.8) as (figure, axes):
        at = np.array([row["samples"] for row in rows], float)
        for place, (name, title) in enumerate(TITLES.items()):
            colour, line = look(place)
            mean, low, high = (
                np.array([np.nan if row[name][k] is None else row[name][k] for row in rows])
                for k in ("mean", "low", "high")
            )
            axes.plot(at, mean, color=colour, linestyle=line, marker="o", markersize=3, label=title)
            axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set_xscale("log")
        axes.set_xticks(at, [f"{m:g}" for m in at])
        axes.minorticks_off()
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_xlabel("samples per client")
        axes.set_ylabel("mean regret, nats")
        axes.grid(linewidth=0.6)
        legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8)
        return figure


def _method(results: Row) -> Section:
    section, settings = Section("How it was done"), results["settings"]
    section.text(
        f"{settings['seeds']} populations: samples of the same 100 clients, drawn anew, so that "
        "intervals are about samples, not about other clients. Step sizes are chosen on two "
        "others, by samples that were held out: of FedAvg, HypCluster (with the true number of "
        "clusters), interpolation and Local stopped early; Local trained for long takes ten times "
        "as many steps of the same size, as somebody would who does not stop early, and is worse "
        "for it. How advice decides was settled on samples of another seed. Advice sees five folds "
        "of the training samples; then every candidate is fitted on all of them, and its expected "
        "loss computed from the true distributions. "
        "Bounds alone: the candidate with the least bound, "
        "vacuous or not. Advice with λ: a client may also "
        "be advised data interpolation with one of a few λ; its regret is still against the best "
        "of the three, and may be below 0."
    )
    rows = next(iter(results["regret"].values()))[:-1]
    section.table(
        ["samples", "FedAvg", "HypCluster", "Local", "interpolation"],
        [[str(row["samples"]), *(f"{rate:g}" for rate in row["rates"].values())] for row in rows],
        f"Step sizes, out of {', '.join(f'{rate:g}' for rate in results['rates'])}",
    )
    ends = sum(bool(edge(r, results["rates"])) for row in rows for r in row["rates"].values())
    if ends:
        section.text(
            f"{ends} of {4 * len(rows)} are the largest or the smallest that was tried.", "note"
        )
    return section
