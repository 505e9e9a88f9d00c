"""The parts of the EMNIST page that compare some methods; each is shown if it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sartor.experiments.emnist.words import titled, warm_rounds
from sartor.report.numbers import edge, share
from sartor.report.page import Row

CONTROLS = {
    "fedavg": "FedAvg",
    "fedavg with more rounds": "FedAvg, more rounds",
    "fedavg on all images": "FedAvg, all images",
    "fedavg + finetune": "FedAvg + Finetune",
    "fedavg with more rounds + finetune": "more rounds + Finetune",
    "fedavg on all images + finetune": "all images + Finetune",
    "fedavg + finetune with Dapper's steps": "Finetune, Dapper's steps",
    "fedavg + dapper": "FedAvg + Dapper",
    "fedavg + dapper with Finetune's steps": "Dapper, Finetune's steps",
    "fedavg + mapper": "FedAvg + Mapper",
    "fedavg + mapper without joint rounds": "Mapper, no joint rounds",
    "fedavg + mapper without joint rounds, with Finetune's steps": "the same, Finetune's steps",
}
"""The methods of the section on controls, and their names there."""


class Study(NamedTuple):
    """A section that compares the accuracies of some methods.

    Attributes:
        title: of the section.
        text: the name of its paragraph in ``page.md``.
        methods: its methods, and their names in the tables.
        needs: it is shown if there is any of these methods; by default any of its own.
        heading: of the column with these names.
        caption: what the table of accuracies is about.
        clusters: numbers of clusters by method, if their shares are shown.
        tuned: the methods whose candidates of validation are shown.
    """

    title: str
    text: str
    methods: Mapping[str, str]
    needs: Sequence[str]
    heading: str = "model"
    caption: str = ""
    clusters: Mapping[str, int] = {}
    tuned: Sequence[str] = ()


def studies(results: Row) -> list[Row]:
    """What the page shows of each study that was run."""
    methods = results["methods"]
    return [
        _shown(results, study)
        for study in _known(results)
        if any(name in methods for name in study.needs)
    ]


def _known(results: Row) -> list[Study]:
    starts = {
        "hypcluster": "warm, {} each",
        "hypcluster from warm, short": "warm, {} each",
        "hypcluster from clients": "single clients' models",
        "hypcluster from kmeans++": "k-means++ of clients' models",
        "hypcluster from random": "random models",
    }
    starts = {
        name: title.format(warm_rounds(results["algorithms"][name]["central"]))
        for name, title in starts.items()
        if name in results["algorithms"]
    }
    numbers = {f"hypcluster{'' if q == 2 else f' q={q}'}": q for q in (1, 2, 3, 4)}
    adaptive = [f"{row} with {s}" for row in ("fedavg", "hypcluster") for s in ("adam", "adagrad")]
    central = sorted(["fedavg", "hypcluster", *adaptive])
    servers = sorted([*central, *(f"{name} + finetune" for name in central)])
    local = ("local", "fedavg", "fedavg + finetune")
    return [
        Study(
            "Starts of HypCluster", "starts", starts, [*starts][1:], "start",
            " of HypCluster with two clusters", dict.fromkeys(starts, 2),
        ),
        Study(
            "Numbers of clusters", "clusters", {name: f"q = {q}" for name, q in numbers.items()},
            [n for n, q in numbers.items() if q != 2], "clusters",
            " of HypCluster with q clusters", numbers,
        ),
        Study("Local", "local", {n: titled(n) for n in local}, ["local"], tuned=["local"]),
        Study("Controls", "controls", CONTROLS, ["fedavg with more rounds"]),
        Study(
            "Adaptive servers", "servers", {n: titled(n) for n in servers}, adaptive,
            tuned=central,
        ),
    ]  # fmt: skip


def _shown(results: Row, study: Study) -> Row:
    methods = results["methods"]
    names = {name: title for name, title in study.methods.items() if name in methods}
    tuned = [name for name in study.tuned if name in methods]
    return {
        "title": study.title, "heading": study.heading, "caption": study.caption,
        "about": {study.text: True},
        "rows": [
            {
                "seen": None, "unseen": None, **methods[name]["accuracy"], "title": title,
                "held_out": _mean(methods[name].get("validation_loss") or [None]),
            }
            for name, title in names.items()
        ],
        "places": [f"{n + 1}." for n in range(max(study.clusters.values(), default=0))],
        "clusters": [
            row
            for name, title in names.items()
            if (q := study.clusters.get(name))
            for row in _cluster_rows(methods[name], title, q, max(study.clusters.values()))
        ],
        "tried": [row for name in tuned for row in _tried(results, name)],
        "edges": "".join(_edges(name, methods[name]) for name in tuned),
    }  # fmt: skip


def _mean(losses: Sequence[float | None]) -> float | None:
    known = [loss for loss in losses if loss is not None]
    return sum(known) / len(known) if len(known) == len(losses) else None


def _cluster_rows(method: Row, title: str, q: int, most: int) -> Sequence[Row]:
    """The share of writers in each cluster, seed by seed; empty clusters count."""
    rows = []
    for seed, by_domain in enumerate(method.get("clusters", {}).get("by_seed", [])):
        counts = [sum(column) for column in zip(*by_domain.values(), strict=True)]
        shares = [n / max(sum(counts), 1) for n in [*counts, *[0] * q][:q]]
        used = sum(value >= 0.01 for value in shares)
        shown = [*map(share, shares), *[""] * most][:most]
        rows.append({"title": title, "seed": seed, "shares": shown, "used": used})
    return rows


def _tried(results: Row, name: str) -> list[dict[str, Any]]:
    """The candidates of validation, and their losses."""
    method = results["methods"][name]
    if name in results["table2"]:
        losses = method.get("validation_loss") or []
        momentum = "momentum, as in the paper"
        return [{"name": name, "options": momentum, "loss": loss} for loss in losses[:1]]
    return [
        {
            "name": name, "options": _candidate(options), "loss": loss,
            "best": ["tried", "validation loss"] if options == method["chosen"] else [],
        }
        for options, loss in method["tried"]
    ]  # fmt: skip


def _candidate(options: Row) -> str:
    server = options.get("server_optimizer")
    if server:
        return f"server step size {server['learning_rate']:g}"
    return f"step size {options['learning_rate']:g}, {options['epochs']} epochs"


def _edges(name: str, method: Row) -> str:
    """A sentence for each chosen setting that is the largest or smallest candidate."""
    tried = [options.get("server_optimizer", options) for options, _ in method.get("tried", [])]
    chosen: Row = method.get("chosen") or {}
    return "".join(
        f" {titled(name)} has the {end} {key.replace('_', ' ')} that was tried; others may be "
        "better."
        for key, value in chosen.get("server_optimizer", chosen).items()
        if isinstance(value, int | float) and (end := edge(value, [o[key] for o in tried]))
    )
