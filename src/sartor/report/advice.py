"""The page about advice: what is advised, what it should gain, and what the bounds say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from sartor.report.figures import INK, drawing, legend
from sartor.report.numbers import amount, interval, number, share, signed
from sartor.report.page import Row, Section, Texts, listed
from sartor.report.record import Record
from sartor.report.runs import provenance

Columns = Mapping[str, Any]
"""The table of clients, by column."""

TEXTS = Texts(Path(__file__).with_name("advice.md"))

SHOWN = 200
"""How many clients the page lists; per_client.parquet has all."""

ANSWERS = {
    "local": ("#e0662b", "s", "stay local"),
    "global": ("#8a8f98", "o", "join the global model"),
    "cluster": ("#2c9c69", "^", "join the cluster"),
    "interpolation": ("#2a78d6", "D", "interpolate"),
}
"""What a client can be advised: colour and marker in the figure, and the words."""


def advice_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    columns = {name: np.array(values) for name, values in record.clients().to_pydict().items()}
    clients = Section("Clients")
    clients.figure(plane_figure(columns), TEXTS("plane"), record.figure("plane"))
    return [
        _summary(results),
        _policies(results),
        clients,
        _bounds(results),
        _clients(columns),
        _method(results),
        provenance(record, "sartor advise DIRECTORY --out ANOTHER  # its data and settings"),
    ]


def _summary(results: Row) -> Section:
    section = Section("Advice")
    advised = ", ".join(
        f"{share(part)} are advised to {ANSWERS[name][2]}"
        for name, part in sorted(results["shares"].items(), key=lambda item: -item[1])
        if part > 0
    )
    section.lead([
        f"Of {amount(results['clients'])} clients, {advised}. For {share(results['clear'])} of all "
        "clients, the advice leads the next best answer by more than a standard deviation.",
        _gain(results),
        _promise(results),
    ])  # fmt: skip
    section.warnings(results)
    section.note(results["data"]["summary"])
    return section


def _gain(results: Row) -> str:
    """What the advice gains, and what the best single answer for everybody would."""
    if results["shares"]["global"] == 1:
        return "No other answer was better than the global model, neither for all nor for some."
    policies, barred = results["policies"], ("as advised", *results["settings"]["barred"])
    advised = policies["as advised"]
    single = {"global": 0.0} | {
        name: found["gain"] for name, found in policies.items() if name not in barred
    }
    best = max(single, key=lambda name: single[name])
    tested = ""
    if advised["held_out"] is not None:
        tested = (
            " (advice from one half of the held-out examples gained "
            f"{signed(advised['held_out'])} on the other half)"
        )
    return (
        f"With this advice, the expected loss per example is {number(abs(advised['gain']))} "
        f"{'lower' if advised['gain'] >= 0 else 'higher'} than with the global model, on average "
        f"over clients{tested}. The best single answer for all, to {_title(best)}, gains "
        f"{signed(single[best])}."
    )


def _title(name: str) -> str:
    return ANSWERS[name][2] if name in ANSWERS else f"interpolate with {name}"


def _promise(results: Row) -> str:
    if results["vacuous"] == 1:
        return TEXTS("bounds promise nothing")
    of = "the clients"
    if results["vacuous"] > 0:
        of += f" for whom they promise anything (they do not for {share(results['vacuous'])})"
    return (
        "About whom to share a model with, the bounds of the paper agree for "
        f"{share(results['agree'])} of {of}."
    )


def _policies(results: Row) -> Section:
    section = Section("One answer for all")
    rows = [
        [
            name if name == "as advised" else _title(name),
            signed(found["gain"]),
            signed(found["held_out"]),
            interval([found["low"], found["high"]], signed),
        ]
        for name, found in results["policies"].items()
    ]
    section.table(
        listed("policy", "expected gain", "on held-out examples", "95% interval"),
        rows,
        f"Gain over the global model, mean over clients, {results['loss']}",
    )
    section.note(TEXTS("policies", folds=results["settings"]["folds"]))
    return section


def plane_figure(columns: Columns) -> Figure:
    """Clients by sample size and discrepancy, coloured by what they are advised."""
    with drawing(6.8, 4.0) as (figure, axes):
        for name, (colour, marker, words) in ANSWERS.items():
            mine = columns["advice"] == name
            if mine.any():
                axes.scatter(
                    columns["train_size"][mine], columns["discrepancy_global"][mine], s=22,
                    c=colour, marker=marker, alpha=0.75, linewidths=0.3, edgecolors=INK,
                    label=f"{words} ({int(mine.sum())})",
                )  # fmt: skip
        if columns["train_size"].max() > 3 * columns["train_size"].min():
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("training examples of the client")
        axes.set_ylabel("discrepancy to everybody")
        axes.grid(linewidth=0.6)
        legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        return figure


def _bounds(results: Row) -> Section:
    section, settings = Section("What the bounds say"), results["settings"]
    d = ("at most " if settings["d_how"] not in ("parameters", "known") else "") + amount(
        settings["d"]
    )
    kind = "parameters" if settings["d_how"] == "parameters" else "known"
    section.text(TEXTS(f"bounds, {kind}", d=d, largest=f"{settings['bound']:.2f}"))
    clients = {(p["experiment"], p["bounds"]): p["clients"] for p in results["sharing"]}
    names = ("local", "global", "cluster")
    by_bounds = (*names, "nothing")
    section.table(
        listed("the experiment says", *(f"bounds: {name}" for name in by_bounds)),
        [[ANSWERS[a][2], *(amount(clients.get((a, b), 0)) for b in by_bounds)] for a in names],
        "Whom to share a model with: clients by the experiment's answer and by that of the bounds",
    )
    section.note(TEXTS("bounds"))
    if results["lambda"]:
        low, middle, high = results["bounds_lambda"]
        tried = ", ".join(f"{key}: {amount(n)}" for key, n in results["lambda"].items())
        section.text(TEXTS("lambda", tried=tried, low=low, middle=middle, high=high))
    return section


def _clients(columns: Columns) -> Section:
    section = Section("Every client")
    answers = [name for name in ("local", "cluster", "interpolation") if f"gain_{name}" in columns]
    gains = {name: columns[f"gain_{name}"] for name in answers}
    advised = np.zeros(len(columns["client"]))  # the global model gains nothing over itself
    for name, gain in gains.items():
        advised = np.where(columns["advice"] == name, gain, advised)
    order = np.argsort(-advised, kind="stable")[:SHOWN]

    def lambda_of(k: int) -> str:
        value = columns["lambda"][k]
        mixes = columns["advice"][k] == "interpolation" and np.isfinite(value)
        return f"{value:g}" if mixes else "–"

    rows = [
        [
            str(columns["client"][k]), amount(columns["train_size"][k]),
            ANSWERS[columns["advice"][k]][2], lambda_of(k), "yes" if columns["clear"][k] else "no",
            *(f"{gains[n][k]:+.3f} ± {columns[f'deviation_{n}'][k]:.3f}" for n in answers),
            f"{columns['discrepancy_global'][k]:.3f}", str(columns["bounds_say"][k]),
            f"{columns['bounds_lambda'][k]:.2f}",
        ]
        for k in order
    ]  # fmt: skip
    caption, total = TEXTS("clients"), len(columns["client"])
    if len(order) < total:
        caption += f" ({SHOWN} of {amount(total)} clients; all are in per_client.parquet)"
    head = ["client", "examples", "advice", "λ", "clear", *(f"gain, {name}" for name in answers)]
    section.table(listed(*head, "discrepancy", "bounds say", "λ*"), rows, caption, left=("advice",))
    return section


def _trust(trust: float | None) -> str:
    if trust is None:
        return "all clients get the same answer"
    if trust == 0:
        return "clients differ only by their numbers of examples"
    return f"the advice follows {trust:.0%} of the differences between clients of a size"


def _method(results: Row) -> Section:
    section, settings = Section("How it was found"), results["settings"]
    candidates = ", ".join(f"{name} by {kind}" for name, kind in results["algorithms"].items())
    folds, trust = settings["folds"], _trust(settings["trust"])
    section.text(TEXTS("method", candidates=candidates, folds=folds, trust=trust))
    section.text(TEXTS("settings"))
    radius = settings["radius"]
    exact = "Discrepancies are exact."
    section.text(exact if radius is None else TEXTS("radius", radius=radius))
    return section
