"""The page about advice: what is advised, what it should gain, and what the bounds say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from sartor.report.figures import INK, drawing, legend
from sartor.report.numbers import amount, share
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import provenance
from sartor.report.template import Template

Columns = Mapping[str, Any]
"""The table of clients, by column."""

TEMPLATE = Template(Path(__file__).with_name("advice.md"))

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
    results, settings = record.results, record.results["settings"]
    columns = {name: np.array(values) for name, values in record.clients().to_pydict().items()}
    clients = {(p["experiment"], p["bounds"]): p["clients"] for p in results["sharing"]}
    shared = ("local", "global", "cluster")
    shares = sorted(results["shares"].items(), key=lambda item: -item[1])
    values = {
        **results,
        "advised": ", ".join(
            f"{share(part)} are advised to {ANSWERS[name][2]}" for name, part in shares if part > 0
        ),
        "alike": results["shares"]["global"] == 1,
        "gained": _gained(results),
        "silent": results["vacuous"] == 1,
        "answers": {
            name if name == "as advised" else _title(name): {
                "share": None,
                **found,
                "interval": found,
            }
            for name, found in results["policies"].items()
        },
        "plane": plane_figure(columns),
        "shared": {
            ANSWERS[a][2]: {b: clients.get((a, b), 0) for b in (*shared, "nothing")} for a in shared
        },
        "tried": ", ".join(f"{key}: {amount(n)}" for key, n in results["lambda"].items()),
        **_clients(columns),
        "candidates": ", ".join(f"{name} by {k}" for name, k in results["algorithms"].items()),
        "trust": _trust(settings["trust"]),
    }
    if results["lambda"]:
        names = ("low", "middle", "high")
        values["bounds_lambda"] = dict(zip(names, results["bounds_lambda"], strict=True))
    command = "sartor advise DIRECTORY --out ANOTHER  # its data and settings"
    return [*TEMPLATE.sections(values, record), provenance(record, command)]


def _gained(results: Row) -> Row:
    """What the advice gains, and what the best single answer for everybody would."""
    policies, barred = results["policies"], ("as advised", *results["settings"]["barred"])
    advised = policies["as advised"]
    single = {"global": 0.0} | {
        name: found["gain"] for name, found in policies.items() if name not in barred
    }
    best = max(single, key=lambda name: single[name])
    return {
        "size": abs(advised["gain"]), "way": "lower" if advised["gain"] >= 0 else "higher",
        "tested": advised["held_out"] is not None, "held_out": advised["held_out"],
        "best": _title(best), "single": single[best],
    }  # fmt: skip


def _title(name: str) -> str:
    return ANSWERS[name][2] if name in ANSWERS else f"interpolate with {name}"


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
        axes.set(xlabel="training examples of the client", ylabel="discrepancy to everybody")
        axes.grid(linewidth=0.6)
        legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9)
        return figure


def _clients(columns: Columns) -> dict[str, Any]:
    """The clients with the largest expected gains from their advice."""
    names = [name for name in ("local", "cluster", "interpolation") if f"gain_{name}" in columns]
    gains = {name: (columns[f"gain_{name}"], columns[f"deviation_{name}"]) for name in names}
    total = len(columns["client"])
    advised = np.zeros(total)  # the global model gains nothing over itself
    for name, (gain, _) in gains.items():
        advised = np.where(columns["advice"] == name, gain, advised)
    rows = []
    for k in np.argsort(-advised, kind="stable")[:SHOWN]:
        client = {name: values[k] for name, values in columns.items()}
        mixes = client["advice"] == "interpolation" and np.isfinite(client["lambda"])
        rows.append({
            **client,
            "clear": bool(client["clear"]),
            "words": ANSWERS[client["advice"]][2],
            "lambda_": f"{client['lambda']:g}" if mixes else "–",
            "gains": [f"{gain[k]:+.3f} ± {deviation[k]:.3f}" for gain, deviation in gains.values()],
        })  # fmt: skip
    return {"every": rows, "gained_by": names, "cut": total > SHOWN, "shown": SHOWN, "total": total}


def _trust(trust: float | None) -> str:
    if trust is None:
        return "all clients get the same answer"
    if trust == 0:
        return "clients differ only by their numbers of examples"
    return f"the advice follows {trust:.0%} of the differences between clients of a size"
