"""The page of advice: what is advised, what it should gain, and what the bounds say beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from sartor.report.figures import INK, drawing, legend
from sartor.report.page import Section, amount, interval, number, share
from sartor.report.record import Record
from sartor.report.runs import provenance

Row = Mapping[str, Any]
Columns = Mapping[str, Any]

SHOWN = 200
"""Clients in the table of the page; all of them are in per_client.parquet."""

LOOKS = {
    "local": ("#e0662b", "s", "stay local"),
    "global": ("#8a8f98", "o", "join the global model"),
    "cluster": ("#2c9c69", "^", "join the cluster"),
    "interpolation": ("#2a78d6", "D", "interpolate"),
}
"""Colour, marker and words of what is advised."""


def advice_sections(record: Record) -> list[Section]:
    """The parts of the page."""
    results = record.results
    columns = {name: np.array(values) for name, values in record.clients().to_pydict().items()}
    return [
        _headline(results),
        _policies(results),
        _picture(record, columns),
        _bounds(results, columns),
        _clients(columns),
        _method(results),
        provenance(record, "sartor advise DIRECTORY --out ANOTHER  # this one's data and settings"),
    ]


def _headline(results: Row) -> Section:
    section = Section("Advice")
    told = ", ".join(
        f"{share(part)} to {LOOKS[name][2]}"
        for name, part in sorted(results["shares"].items(), key=lambda item: -item[1])
        if part > 0
    )
    section.lead([
        f"Of {amount(results['clients'])} clients, {told}. For {share(results['clear'])} that is "
        "ahead of the next best answer by more than a standard deviation.",
        _overall(results),
        _promise(results),
    ])  # fmt: skip
    section.warned(results)
    section.text(results["data"]["summary"], "note")
    return section


def _overall(results: Row) -> str:
    policies, barred = results["policies"], ("as advised", *results["settings"]["barred"])
    advised = policies["as advised"]
    constant = {"global": 0.0} | {
        name: found["gain"] for name, found in policies.items() if name not in barred
    }
    best = max(constant, key=lambda name: constant[name])
    if results["shares"]["global"] == 1:
        return "Nothing has shown to be better than the global model, for all or for some."
    said = ""
    if advised["held_out"] is not None:
        said = (
            f" (advice by one half of the held-out examples has gained "
            f"{number(advised['held_out'], '+')} on the other half)"
        )
    return (
        f"As advised, a client is expected to lose {number(abs(advised['gain']))} "
        f"{'less' if advised['gain'] >= 0 else 'more'} per example than with the global model, in "
        f"the mean over clients{said}; the best single answer for all, "
        f"to {_title(best)}, {number(constant[best], '+')}."
    )


def _title(name: str) -> str:
    return LOOKS[name][2] if name in LOOKS else f"interpolate with {name}"


def _promise(results: Row) -> str:
    if results["vacuous"] == 1:
        return (
            "The bounds of the paper promise nothing here, to anybody: every one is larger than "
            "the largest loss."
        )
    of = "the clients"
    if results["vacuous"] > 0:
        of += f" to whom they promise anything (not to {share(results['vacuous'])})"
    return (
        "The bounds of the paper say the same about whom to share a model with for "
        f"{share(results['agree'])} of {of}."
    )


def _policies(results: Row) -> Section:
    section = Section("One answer for all")
    rows = []
    for name, found in results["policies"].items():
        rows.append([
            name if name == "as advised" else _title(name), number(found["gain"], "+"),
            number(found["held_out"], "+"), interval([found["low"], found["high"]], "+"),
        ])  # fmt: skip
    section.table(
        ["policy", "expected gain", "on held-out examples", "95% interval"],
        rows,
        f"Gain over the global model, mean over clients, {results['loss']}",
    )
    section.text(
        "On held-out examples: what was gained on training examples that were held out, in "
        f"{results['settings']['folds']} folds, with intervals over clients; as advised: by "
        "advice that one half of them gave, on the other half. Expected: that, weighed with what "
        "clients of a similar size gain, and for local models with what all of a client's examples "
        "will bring beyond those that were left to train on; the best of several expected gains "
        "is a little too high. Test examples were not used.",
        "note",
    )
    return section


def _picture(record: Record, columns: Columns) -> Section:
    section = Section("Clients")
    section.figure(
        plane_figure(columns),
        "Every client by its training examples and its label discrepancy to everybody's data: to "
        "the right, it can learn more by itself; above, others help it less.",
        record.directory / "figures" / "plane",
    )
    return section


def plane_figure(columns: Columns) -> Figure:
    """Clients on a plane of sample size against discrepancy, coloured by what is advised."""
    with drawing(6.8, 4.0) as (figure, axes):
        for name, (colour, marker, words) in LOOKS.items():
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


def _bounds(results: Row, columns: Columns) -> Section:
    section, settings = Section("What the bounds say"), results["settings"]
    section.text(_plainly(settings))
    pairs = {(p["experiment"], p["bounds"]): p["clients"] for p in results["sharing"]}
    names = ("local", "global", "cluster")
    section.table(
        ["the experiment says", *(f"bounds: {name}" for name in (*names, "nothing"))],
        [
            [LOOKS[a][2], *(amount(pairs.get((a, b), 0)) for b in (*names, "nothing"))]
            for a in names
        ],
        "With whom to share a model: clients by the experiment's answer and by the bounds'",
    )
    section.text(
        "The bounds compare equation 1 of the paper, for a model of the client's own samples, "
        "with equation 2, for one of everybody's samples and the discrepancy to them, and the same "
        "with the client's cluster, as if that had been given. Discrepancies are those of the "
        "samples, and too large where these are few. Where the bounds differ from the experiment, "
        "the advice is the experiment's: a bound holds for the worst case, and how large it is "
        "says little about how large the loss will be. Nothing: all of the client's bounds are "
        "larger than the largest loss.",
        "note",
    )
    if results["lambda"]:
        low, middle, high = results["bounds_lambda"]
        tried = ", ".join(f"{key}: {amount(n)}" for key, n in results["lambda"].items())
        section.text(
            f"λ, the weight of the client's own data in data interpolation, by the experiment "
            f"({tried} clients); by the bounds λ* is {middle:.2f} in the median, {low:.2f} to "
            f"{high:.2f}."
        )
    return section


def _plainly(settings: Row) -> str:
    """How far the bounds can be believed, in plain words."""
    d, most = settings["d"], settings["bound"]
    told = f"They reckon with a pseudo-dimension of {amount(d)}"
    if settings["d_how"] == "parameters":
        return (
            f"{told}, the number of the network's parameters, which is all that there is to go by. "
            "For networks such bounds are very loose: with fewer examples than parameters they are "
            f"larger than the largest loss itself ({most:.2f}), so that they say which of two "
            "answers a worst case favours, and nothing about how well a model will do."
        )
    how = "" if settings["d_how"] == "known" else ", at most"
    return (
        f"{told}{how} and a largest loss of {most:.2f}. They hold for every distribution, and are "
        "therefore many times larger than what is found in experiments (sartor reproduce bounds "
        "shows how many)."
    )


def _clients(columns: Columns) -> Section:
    section = Section("Every client")
    gains = [name for name in ("local", "cluster", "interpolation") if f"gain_{name}" in columns]
    gained = np.stack([columns[f"gain_{name}"] for name in gains])
    spread = np.stack([columns[f"deviation_{name}"] for name in gains])
    names = np.array(["global", *gains])[:, None]
    mine = np.where(columns["advice"] == names, [np.zeros(gained.shape[1]), *gained], 0).sum(axis=0)
    order = np.argsort(-mine, kind="stable")[:SHOWN]
    head = ["client", "examples", "advice", "λ", "clear"]
    head += [f"gain, {name}" for name in gains] + ["discrepancy", "bounds say", "λ*"]
    rows = []
    for k in order:
        value, told = columns["lambda"][k], columns["advice"][k]
        mixes = told == "interpolation" and np.isfinite(value)
        rows.append([
            str(columns["client"][k]), amount(columns["train_size"][k]), LOOKS[told][2],
            f"{value:g}" if mixes else "–",
            "yes" if columns["clear"][k] else "no",
            *(f"{g:+.3f} ± {s:.3f}" for g, s in zip(gained[:, k], spread[:, k], strict=True)),
            f"{columns['discrepancy_global'][k]:.3f}",
            str(columns["bounds_say"][k]),
            f"{columns['bounds_lambda'][k]:.2f}",
        ])  # fmt: skip
    caption = (
        "Expected gains over the global model ± standard deviation; the largest gain of what is "
        "advised first"
    )
    if len(order) < len(columns["client"]):
        caption += (
            f" ({SHOWN} of {amount(len(columns['client']))} clients; all in per_client.parquet)"
        )
    section.table(head, rows, caption, left=(2,))
    return section


def _followed(trust: float | None) -> str:
    if trust is None:
        return "all clients are given one answer"
    if trust == 0:
        return "clients are told apart by their numbers of examples alone"
    return f"of the differences between clients of a size {trust:.0%} are followed"


def _method(results: Row) -> Section:
    section, settings = Section("How it was found"), results["settings"]
    names = ", ".join(f"{name} by {kind}" for name, kind in results["algorithms"].items())
    section.text(
        f"Candidates: {names} (with λ = 1 it is trained on the client's data alone, but from the "
        f"global model on). Training examples were dealt out into {settings['folds']} folds. For "
        "each, all models were fitted without it, the central ones as well, and scored on it. A "
        "client's own mean over a few examples says little, so what is expected of it is drawn "
        "towards that of clients with as many examples, the more the fewer it has. Advice is "
        "drawn further: losses have long tails, and clients may seem to differ by a few unlucky "
        f"examples, so {_followed(settings['trust'])}, as much as paid when it was given by one "
        "half of every client's held-out examples and looked at on the other half. Where another "
        "answer is then expected to gain more than the one that is advised, that is not clear."
    )
    section.text(
        "It is advice about the algorithms with the settings below. A candidate whose steps are "
        "too large or too few for these data looks worse than it is; where one loses by much, try "
        "others for it, such as --set local.learning_rate=0.01."
    )
    where = settings["radius"]
    section.text(
        "Discrepancies are exact."
        if where is None
        else f"Discrepancies are searched among models at most {where:.2f} from the global one (as "
        "far as that is from where its training began, if nothing else was said), by a short "
        "gradient ascent: they are estimates from below."
    )
    return section
