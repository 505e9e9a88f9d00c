"""The page about the EMNIST experiment: what ``page.md`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sartor.experiments.common.claims import count
from sartor.experiments.emnist.figures import one_lambda_figure, tables_figure
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
from sartor.report.figures import Values, change_figure
from sartor.report.numbers import amount, percent, points, share, spread, traffic
from sartor.report.page import Row, Section
from sartor.report.record import Record
from sartor.report.runs import cost_table, provenance
from sartor.report.template import Template

TEMPLATE = Template(Path(__file__).with_name("page.md"), {"titled": titled})

COLUMNS = {
    "initial": "initial model", "finetune": "+ Finetune", "dapper": "+ Dapper",
    "mapper": "+ Mapper",
}  # fmt: skip

PRECISION = {"f32": "float32", "bf16": "bfloat16, with parameters in float32"}


def emnist_sections(record: Record) -> list[Section]:
    """The parts of the page about one run of the experiment."""
    results, settings, about = record.results, record.results["settings"], record.results["data"]
    generated = about["generated"]
    domains = " and ".join(f"{amount(n)} of {name}" for name, n in about["domains"].items())
    values = {
        **results,
        "gains": _gain_figures(record),  # reads all clients before anything is written
        **_lead(results),
        "warned": [f"Warning: {warning}" for warning in results.get("warnings", ())],
        "quick": quick_version(results),
        "note": " Generated handwriting, not real EMNIST." * generated,
        "paper_note": " The paper's numbers are of real EMNIST." * generated,
        "columns": list(COLUMNS.values()),
        "tables": tables_figure(results),
        "tests": float(record.clients()["test_size"].to_numpy().mean()),
        **_tables(results),
        **_claims(results),
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
        "what": "generated, not real, handwriting" if generated else "handwriting",
        "domains": f" ({domains})" if domains else "",
        settings["network"]: True,
        "precision": PRECISION[settings["precision"]],
        **_algorithms(results),
        **_cost(results),
    }  # fmt: skip
    return [
        *TEMPLATE.sections({"cnn": False, "mlp": False, **values}, record),
        provenance(record, command(settings)),
    ]


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


def _lead(results: Row) -> dict[str, Any]:
    """What clustering and personal models change, and whom they hurt."""
    claims, pair = results["claims"], ("hypcluster", "fedavg")
    clustering = " and ".join(
        f"{points(c['mean'])} points{'' if c['beyond_chance'] else ' (may be chance)'} for "
        f"{c['group']} writers"
        for c in claims
        if (c["a"], c["b"]) == pair and not c["margin"]
    )
    if clustering:
        papers = [[results["paper"][table][row]["initial"] for row in pair] for table in TABLES]
        clustering += f" (the paper: {' and '.join(f'{100 * (a - b):+.1f}' for a, b in papers)})"
    gains = [c for c in claims if c["kind"] == "better" and " + " in c["a"]]
    ranges = []
    for group in GROUPS:
        mine = sorted((c for c in gains if c["group"] == group), key=lambda c: c["mean"])
        ends = [f"{points(c['mean'])} ({titled(c['a'])})" for c in (mine[0], mine[-1])]
        ranges.append(f"{' to '.join(ends)} for {group} writers")
    pairs = [c for c in claims if c["kind"] == "alike"]
    apart = [c for c in pairs if c["beyond_chance"]]
    largest = ""
    if apart:
        top = max(apart, key=lambda c: abs(c["mean"]))
        largest = (
            f" The largest is {points(top['mean'])} points between {titled(top['a'])} and "
            f"{titled(top['b'])} for {top['group']} writers."
        )
    hurt = [
        (found[group], f"{share(found[group]['hurt'])} ({titled(name)}, {group})")
        for name in table_methods(results)
        for group in GROUPS
        if group in (found := results["methods"][name].get("hurt", {}))
    ]
    least, most = (pick(hurt, key=lambda h: h[0]["hurt"])[1] for pick in (min, max))
    beyond = max(found["hurt_beyond_chance"] for found, _ in hurt)
    return {
        "clustering": clustering,
        "changes": {
            "ranges": ", and ".join(ranges), "count": len(gains),
            "sure": sum(c["beyond_chance"] for c in gains),
        },
        "apart": {
            "count": len(apart), "pairs": len(pairs), "largest": largest,
            "undecided": _undecided(pairs),
        },
        "hurt": {
            "least": least, "most": most,
            "sure": f"at most {share(beyond)} do" if beyond else "nobody does",
        },
    }  # fmt: skip


def _tables(results: Row) -> dict[str, Any]:
    """Tables 2 and 3: short, with the paper's numbers in brackets, and in full."""
    found: dict[str, Any] = {}
    for table, group in TABLES.items():
        ours, paper = results[table], results["paper"][table]
        full = {}
        for name, (row, column) in table_methods(results).items():
            mean, theirs = ours[row][column]["mean"], paper[row][column]
            less = None if mean is None else mean - theirs
            full[name] = {**ours[row][column], "paper": theirs, "less": less}
        name = max(full, key=lambda name: full[name]["mean"] or 0.0)
        best = full[name]["mean"]
        found[f"best_{group}"] = {"name": name, **full[name]}
        found[f"{table}_full"] = full
        found[f"{table}_cells"] = [
            {
                "row": row,
                "cells": [
                    f"{percent(cells[c]['mean'])} ({percent(paper[row][c], 1)})" for c in COLUMNS
                ],
                "best": [COLUMNS[c] for c in COLUMNS if cells[c]["mean"] == best],
            }
            for row, cells in ours.items()
        ]
    return found


def _claims(results: Row) -> dict[str, Any]:
    """The claims by kind, and how many are as the paper says."""
    by_kind: dict[str, list[Row]] = {"better": [], "alike": [], "averse": []}
    order = list(dict.fromkeys(claim["claim"] for claim in results["claims"]))
    for claim in sorted(results["claims"], key=lambda c: order.index(c["claim"])):
        row, _, personal = claim["b"].partition(" + ")
        by = f", by {100 * claim['margin']:g} points or more" if claim["margin"] else ""
        against = f"{titled(claim['a'])} against {titled(personal or row)}{by}"
        shown = {**as_claimed(claim), "against": against, "verdict": verdict(claim)}
        by_kind[claim["kind"]].append(shown)
    alike, averse = by_kind["alike"], by_kind["averse"]
    differences = [*by_kind["better"], *averse]
    generated = ", on generated handwriting, which proves nothing about EMNIST"
    more = sum(c["beyond_chance"] and not c["holds"] for c in averse)
    return {
        **{f"claims_{kind}": claims for kind, claims in by_kind.items()},
        "as_said": {
            kind: f"{count(claims)} of {len(claims)} as the paper says{_undecided(claims)}"
            for kind, claims in by_kind.items()
        },
        "claimed": {
            "differences": len(differences), "shown": count(differences), "alike": len(alike),
            "undecided": _undecided(differences), "not_shown": count(alike),
            "alike_undecided": _undecided(alike),
            "generated": generated * results["data"]["generated"],
        },
        "risk": {
            "fewer": count(averse), "more": more, "total": len(averse),
            "rest": len(averse) - count(averse) - more,
        },
    }  # fmt: skip


def _undecided(claims: Sequence[Row]) -> str:
    undecided = count(claims, None)
    return f", and {undecided} cannot be decided by one seed" if undecided else ""


def _gain_figures(record: Record) -> list[tuple[Figure, str, Path]]:
    """The gains of all writers over each central model."""
    accuracies, figures = _accuracies(record), []
    for row in record.results["table2"]:
        changes = {
            titled(column): 100 * (accuracies[name] - accuracies[row])
            for name, (base, column) in table_methods(record.results).items()
            if base == row and column != "initial"
        }
        figure = change_figure(changes, titled(row), "accuracy, points,", (5.0, 3.6))
        caption = f"On {titled(row)}: every writer of every seed, on its own test images."
        figures.append((figure, caption, record.figure(f"gains-{row}")))
    return figures


def _gained(results: Row, group: str) -> Sequence[Row]:
    """What each method gains over its central model, where there are writers to compare."""
    found = []
    for name, (row, column) in table_methods(results).items():
        method, central = results["methods"][name], results["methods"][row]
        worst, base = (each["worst_decile"].get(group) for each in (method, central))
        shown: dict[str, Any] = {"name": name, "worst": worst, "worst_gain": None}
        if column != "initial":
            if group not in method["hurt"]:
                continue
            shown |= {"gain": method["gain"][group], "hurt": method["hurt"][group]}
            if worst is not None and base is not None:
                shown["worst_gain"] = worst - base
        found.append({"gain": None, "hurt": None, **shown})
    return found


def _sources(results: Row) -> dict[str, Any]:
    """Census workers and students: their accuracies, weights and clusters."""
    counts, methods = results["data"]["domains"], results["methods"]
    rows = []
    for name in table_methods(results):
        cells: list[str] = []
        for domain in counts:
            found = methods[name]["accuracy"].get(domain) or {}
            mean, deviation = (percent(found.get(key)) for key in ("mean", "seed_deviation"))
            cells += [mean, spread(found, percent), deviation]
        rows.append({"name": name, "cells": cells})
    weights = methods.get("agnostic", {}).get("domain_weights") or []
    clustered = methods.get("hypcluster", {})
    by_seed = clustered.get("clusters", {}).get("by_seed", [])
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
        gap = None if None in (seen, unseen) else unseen - seen
        found["by id" if order == "id" else order] = {**row, "finetuned": gap}
    return found


def _lambda(results: Row) -> dict[str, Any]:
    """The λ that writers choose, and one λ for all."""
    chosen = {
        f"{titled(name)}, {group}": shares
        for name in table_methods(results)
        for group, shares in results["methods"][name].get("lambda", {}).items()
    }
    keys = sorted({key for shares in chosen.values() for key in shares}, key=float)
    values: dict[str, Any] = {
        "lambdas": keys,
        "lambda_shares": {
            name: {"shares": [shares.get(key, 0.0) for key in keys]}
            for name, shares in chosen.items()
        },
    }
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
    names = [*table_methods(results), *(["local"] if "local" in methods else [])]
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


def _accuracies(record: Record) -> dict[str, Values]:
    """The test accuracy of every writer of every seed by method, in the same order of writers."""
    table = record.clients()
    names, client = (np.array(table[c].to_pylist(), str) for c in ("method", "client"))
    seed, accuracy = (table[c].to_numpy().astype(float) for c in ("seed", "accuracy"))
    found = {}
    for name, (row, _) in table_methods(record.results).items():
        mine = np.flatnonzero(names == name)
        found[name] = accuracy[mine[np.lexsort((client[mine], seed[mine]))]]
        if not len(mine) or len(mine) != len(found[row]):
            raise ValueError(f"per_client.parquet lacks writers of {name}")
    return found


def compare(section: Section, records: Sequence[Record]) -> None:
    """The tables of several runs of the experiment."""
    generated = [r.name for r in records if r.results["data"]["generated"]]
    note = f"; generated handwriting: {', '.join(generated)}" if generated else ""
    for table, group in TABLES.items():

        def accuracies(record: Record, table: str = table) -> dict[str, str]:
            return {
                titled(name): percent(record.results[table][row][column]["mean"])
                for name, (row, column) in table_methods(record.results).items()
            }

        title = f"Table {table[-1]}, {group}"
        compare_values(section, title, records, accuracies, f"Test accuracy in %{note}")


PAGE = PageKind("The EMNIST experiment", emnist_sections, compare)
