"""The page about the EMNIST experiment: what ``page.md`` shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.experiments.common.statistics import tally
from sartor.experiments.emnist.settings import GROUPS
from sartor.experiments.emnist.studies import studies
from sartor.experiments.emnist.words import (
    TABLES,
    as_claimed,
    quick_version,
    table_methods,
    titled,
    verdict,
    warm_rounds,
)
from sartor.report import PageKind
from sartor.report.compare import compare_values
from sartor.report.figures import INK, change_figure, curve, drawing, legend, legend_outside, look
from sartor.report.numbers import amount, percent, share, spread, traffic
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import client_values, cost_table, provenance, sorted_keys
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("page.md"), {"titled": titled})

COLUMNS = {
    "initial": "initial model", "finetune": "+ Finetune", "dapper": "+ Dapper",
    "mapper": "+ Mapper",
}  # fmt: skip


def emnist_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, settings, about = record.results, record.results["settings"], record.results["data"]
    values = {
        **results,
        "gains": _gain_figures(record),  # reads all clients before anything is written
        **_claims(results["claims"]),
        "hurt_by": _hurt_by(results),
        "quick": quick_version(results),
        "note": " Generated handwriting, not real EMNIST." * about["generated"],
        "paper_note": " The paper's numbers are of real EMNIST." * about["generated"],
        "tables": tables_figure(results),
        "tests": float(record.clients()["test_size"].to_numpy().mean()),
        **_tables(results),
        **{f"gained_{group}": _gained(results, group) for group in GROUPS},
        **_sources(results),
        **studies(results),
        "compared": results["comparisons"],
        "more_rounds": settings["rounds"] + settings["joint"],
        "orders": _orders(results),
        **_lambda(results),
        "forgetting": {
            name: results["methods"][name]["forgetting"]
            for name in (*table_methods(results), "fedavg + mapper without joint rounds")
            if results["methods"].get(name, {}).get("forgetting")
        },
        "domains": " and ".join(f"{amount(n)} of {name}" for name, n in about["domains"].items()),
        **_algorithms(results),
        **_cost(results),
    }
    return [*TEMPLATE.sections(values, record), provenance(record, command(settings))]


def command(settings: Row) -> str:
    """The command line that runs it again."""
    data = settings["data"]
    known = data if data in ("emnist", "generated") else "DATA"
    keys = ("writers", "seeds", "rounds", "joint", "precision", "seed")
    lines = [
        f"sartor reproduce emnist{' --quick' * settings['quick']} --data {known}",
        " ".join(f"--row {row}" for row in settings["rows"]),
        " ".join(f"--part {part}" for part in settings["parts"]),
        " ".join(f"--{key} {settings[key]}" for key in keys if key in settings),
        "--out DIRECTORY",
    ]
    return " \\\n    ".join(lines)


def _claims(claims: Sequence[Row]) -> dict[str, Any]:
    """The claims by kind, how many are as the paper says, and the largest differences."""
    order = list(dict.fromkeys(claim["claim"] for claim in claims))
    by_kind: dict[str, list[Row]] = {"better": [], "alike": [], "averse": []}
    for claim in sorted(claims, key=lambda c: order.index(c["claim"])):
        row, _, personal = claim["b"].partition(" + ")
        shown = {**as_claimed(claim), "second": personal or row, "verdict": verdict(claim)}
        by_kind[claim["kind"]].append(shown)
    better, alike, averse = by_kind.values()
    counted = {**by_kind, "differences": better + averse}
    pair = ("hypcluster", "fedavg", 0.0)
    gains = [c for c in better if " + " in c["a"]]
    more = sum(c["beyond_chance"] and not c["holds"] for c in averse)
    apart = [c for c in alike if c["beyond_chance"]]
    return {
        "claims": by_kind,
        "tally": {kind: tally(some) for kind, some in counted.items()},
        "hurts": {"more": more, "same": len(averse) - tally(averse)["hold"] - more},
        "clustering": {c["group"]: c for c in better if (c["a"], c["b"], c["margin"]) == pair},
        "changes": {
            group: _ends([c for c in gains if c["group"] == group], "mean") for group in GROUPS
        },
        "changed": {"total": len(gains), "sure": sum(c["beyond_chance"] for c in gains)},
        "apart": len(apart),
        "largest": max(apart, key=lambda c: abs(c["mean"]), default=None),
    }


def _ends(rows: Sequence[Row], key: str) -> Row:
    least, most = (pick(rows, key=lambda row: row[key]) for pick in (min, max))
    return {"least": least, "most": most}


def _hurt_by(results: Row) -> Row:
    """Which methods hurt the fewest and the most writers, and how many beyond chance."""
    found = [
        {"name": name, "group": group, **hurt}
        for name in table_methods(results)
        for group, hurt in results["methods"][name].get("hurt", {}).items()
    ]
    return {**_ends(found, "hurt"), "beyond": max(hurt["hurt_beyond_chance"] for hurt in found)}


def _tables(results: Row) -> dict[str, Any]:
    """Tables 2 and 3: short, with the paper's numbers in brackets, and in full."""
    found: dict[str, Any] = {}
    for table, group in TABLES.items():
        ours, paper = results[table], results["paper"][table]
        full = {}
        for name, (row, column) in table_methods(results).items():
            cell, theirs = ours[row][column], paper[row][column]
            full[name] = {**cell, "paper": theirs, "less": cell["mean"] - theirs}
        name = max(full, key=lambda name: full[name]["mean"])
        best = full[name]["mean"]
        found[f"best_{group}"] = {"name": name, **full[name]}
        found[f"{table}_full"] = full
        found[f"{table}_cells"] = {
            row: {
                **cells,
                "paper": paper[row],
                "best": [COLUMNS[c] for c in COLUMNS if cells[c]["mean"] == best],
            }
            for row, cells in ours.items()
        }
    return found


def _gain_figures(record: Record) -> list[tuple[Figure, str, Path]]:
    """The gains of all writers over each central model."""
    methods, figures = table_methods(record.results), []
    accuracies = client_values(record.clients(), "accuracy", methods)
    for row in record.results["table2"]:
        changes = {
            titled(column): 100 * (accuracies[name] - accuracies[row])
            for name, (base, column) in methods.items()
            if base == row and column != "initial"
        }
        figure = change_figure(changes, titled(row), "accuracy, points,", (5.0, 3.6))
        caption = f"On {titled(row)}: every writer of every seed, on its own test images."
        figures.append((figure, caption, record.figure(f"gains-{row}")))
    return figures


def tables_figure(results: Row) -> Figure:
    """Every cell of both tables with its interval, and the paper's number."""
    names, real = table_methods(results), not results["data"]["generated"]
    paper = "the paper" if real else "the paper, real EMNIST"
    with drawing(7.2, 1.5 + 0.36 * len(names)) as (figure, axes):
        for n, (table, group) in enumerate(TABLES.items()):
            colour, marker, y = look(n + 1)[0], "os"[n], np.arange(len(names)) + 0.3 * n - 0.15
            cells = [results[table][row][column] for row, column in names.values()]
            ends = ("mean", "low", "high")  # None becomes NaN
            mean, low, high = 100 * np.array([[c[k] for c in cells] for k in ends], float)
            error = np.maximum([mean - low, high - mean], 0)
            axes.errorbar(
                mean, y, xerr=error, fmt=marker, color=colour, markersize=5, capsize=2.5,
                linewidth=1.2, label=group,
            )  # fmt: skip
            theirs = np.array([results["paper"][table][r][c] for r, c in names.values()])
            axes.plot(
                100 * theirs, y, marker, color=colour, markerfacecolor="none", markersize=6.5,
                label=f"{group}, {paper}",
            )  # fmt: skip
        axes.set_yticks(range(len(names)), [titled(name) for name in names])
        axes.invert_yaxis()
        for at, (_, column) in enumerate(names.values()):
            if at and column == "initial":
                axes.axhline(at - 0.5, color=INK, linewidth=0.5, alpha=0.5)
        axes.set_xlabel("test accuracy, %" + ("" if real else ", on generated handwriting"))
        axes.grid(axis="x", linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        legend(axes, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, fontsize=9)
        return figure


def one_lambda_figure(results: Row) -> Figure:
    """Accuracy with one λ for all, and with the λ that writers choose."""
    found, chosen = results["lambda"], results["methods"]["fedavg + dapper"]["accuracy"]
    with drawing(6.4, 3.4) as (figure, axes):
        for n, group in enumerate(TABLES.values()):
            colour = look(n + 1)[0]
            style = f"{'os'[n]}-"
            curve(axes, found["cover"], found[group], group, colour, style=style, scale=100)
            own = 100 * chosen[group]["mean"]
            axes.axhline(own, color=colour, linestyle="--", linewidth=1, label=f"{group}, chosen")
        axes.set(xlabel="λ, the weight of the writer's own images", ylabel="test accuracy, %")
        axes.grid(axis="y", linewidth=0.6)
        legend_outside(axes)
        return figure


def _gained(results: Row, group: str) -> Sequence[Row]:
    """What each method gains over its central model."""
    found = []
    for name, (row, _) in table_methods(results).items():
        method, central = results["methods"][name], results["methods"][row]
        gain, hurt = (method.get(key, {}).get(group) for key in ("gain", "hurt"))
        worst, base = (each["worst_decile"][group] for each in (method, central))
        found.append({
            "name": name, "gain": gain, "hurt": hurt, "worst": worst,
            "worst_gain": worst - base if hurt else None,
        })  # fmt: skip
    return found


def _sources(results: Row) -> dict[str, Any]:
    """Census workers and students: their accuracies, weights and clusters."""
    counts, methods = results["data"]["domains"], results["methods"]
    rows = {}
    for name in table_methods(results):
        found = [methods[name]["accuracy"].get(domain) or {} for domain in counts]
        cells = [
            (percent(f.get("mean")), spread(f, percent), percent(f.get("seed_deviation")))
            for f in found
        ]
        rows[name] = {"cells": [cell for three in cells for cell in three]}
    weights = methods.get("agnostic", {}).get("domain_weights") or []
    by_seed = methods.get("hypcluster", {}).get("clusters", {}).get("by_seed", [])
    return {
        "source_headings": [h for domain in counts for h in (domain, "95% interval", "± seeds")],
        "sources": rows,
        "domain_weights": ", ".join(
            f"{d} has {share(w)} and {share(counts[d] / sum(counts.values()))} of the writers"
            for d, w in zip(counts, weights, strict=False)
        ),
        "source_clusters": [
            {
                "domain": domain, "seed": seed, "writers": sum(n),
                "larger": n[0] / max(sum(n), 1), "smaller": [*n, 0][1] / max(sum(n), 1),
            }
            for seed, by_domain in enumerate(by_seed)
            for domain, n in by_domain.items()
        ],
    }  # fmt: skip


def _orders(results: Row) -> Mapping[str, Any]:
    """FedAvg with writers in other orders, and the gap that is left with Finetune."""
    found = {}
    for order, row in results.get("order", {}).items():
        name = "fedavg" if order == "shuffled" else f"fedavg by {order}"
        accuracy = results["methods"][f"{name} + finetune"]["accuracy"]
        seen, unseen = (accuracy[group]["mean"] for group in GROUPS)
        found["by id" if order == "id" else order] = {**row, "finetuned": unseen - seen}
    return found


def _lambda(results: Row) -> dict[str, Any]:
    """The λ that writers choose, and one λ for all."""
    chosen = {
        f"{titled(name)}, {group}": {"shares": shares}
        for name in table_methods(results)
        for group, shares in results["methods"][name].get("lambda", {}).items()
    }
    keys = sorted_keys(row["shares"] for row in chosen.values())
    values: dict[str, Any] = {"lambdas": keys, "lambda_shares": chosen}
    if found := results.get("lambda"):
        values["one-lambda"] = one_lambda_figure(results)
        values["one_lambda"] = {
            **{
                f"λ = {value:g}": {group: found[group][n] for group in GROUPS}
                for n, value in enumerate(found["cover"])
            },
            "chosen by each writer": results["methods"]["fedavg + dapper"]["accuracy"],
            "oracle": {group: found[f"{group}_oracle"] for group in GROUPS},
        }
    return values


def _algorithms(results: Row) -> dict[str, Any]:
    """The hyper-parameters of the tables' rows and columns."""
    known = [results["algorithms"][row] for row in results["table2"]]
    central = {row: results["algorithms"][row]["central"] for row in results["table2"]}
    personal = {name: known[0]["personal"][name] for name in ("finetune", "dapper", "mapper")}
    return {
        "central": known[0]["central"], "personal": personal, "by_name": {**central, **personal},
        "warm_rounds": warm_rounds(central.get("hypcluster", {})),
        "candidates": len(personal["dapper"]["cover"]),
    }  # fmt: skip


def _cost(results: Row) -> dict[str, Any]:
    """What the methods cost, and how much time and memory all of them took."""
    methods = results["methods"]
    names = [name for name in (*table_methods(results), "local") if name in methods]
    memory = [
        f"{traffic(results['memory'][key])} {where}"
        for key, where in (("host_bytes", "of the process"), ("device_bytes", "on the device"))
        if results["memory"].get(key)
    ]
    return {
        **cost_table({titled(name): methods[name]["cost"] for name in names}),
        "models": len(methods),
        "most_memory": ", ".join(memory) or "not known",
    }


def compare(section: Section, records: Sequence[Record]) -> None:
    """The tables of several runs of the experiment."""
    generated = [r.name for r in records if r.results["data"]["generated"]]
    note = f"; generated handwriting: {', '.join(generated)}" if generated else ""
    for table, group in TABLES.items():
        accuracies = [
            {
                titled(name): percent(record.results[table][row][column]["mean"])
                for name, (row, column) in table_methods(record.results).items()
            }
            for record in records
        ]
        title = f"Table {table[-1]}, {group}"
        compare_values(section, title, records, accuracies, f"Test accuracy in %{note}")


PAGE = PageKind("The EMNIST experiment", emnist_sections, compare)
