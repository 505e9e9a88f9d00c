"""The parts of the EMNIST page that compare some methods; each is shown if it was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


STARTS = {
    "hypcluster": "warm, {} each",
    "hypcluster from warm, short": "warm, {} each",
    "hypcluster from clients": "single clients' models",
    "hypcluster from kmeans++": "k-means++ of clients' models",
    "hypcluster from random": "random models",
}
"""The starts of HypCluster, and their names."""

CLUSTERS = {"hypcluster q=1": 1, "hypcluster": 2, "hypcluster q=3": 3, "hypcluster q=4": 4}
"""HypCluster with other numbers of clusters."""

LOCAL = ("local", "fedavg", "fedavg + finetune")

SERVERS = (
    "fedavg", "fedavg with adam", "fedavg with adagrad", "hypcluster", "hypcluster with adam"
)  # fmt: skip
"""Servers with momentum, and adaptive ones."""


def studies(results: Row) -> dict[str, Row]:
    """What the page shows of each study that was run: of any of its own methods."""
    starts = {
        name: title.format(warm_rounds(results["algorithms"][name]["central"]))
        for name, title in STARTS.items()
        if name in results["algorithms"]
    }
    servers = [name + tuned for name in SERVERS for tuned in ("", " + finetune")]
    known: dict[str, tuple[Mapping[str, str], Mapping[str, int], Sequence[str]]] = {
        "starts": (starts, dict.fromkeys(starts, 2), ()),
        "clusters": ({name: f"q = {q}" for name, q in CLUSTERS.items()}, CLUSTERS, ()),
        "local": ({name: titled(name) for name in LOCAL}, {}, ["local"]),
        "controls": (CONTROLS, {}, ()),
        "servers": ({name: titled(name) for name in servers}, {}, SERVERS),
    }
    own = {
        "starts": " from ", "clusters": " q=", "local": "local", "controls": "more rounds",
        "servers": " with ada",
    }  # fmt: skip
    return {
        study: _shown(results["methods"], *parts)
        for study, parts in known.items()
        if any(own[study] in name for name in parts[0] if name in results["methods"])
    }


def _shown(
    methods: Row, titles: Mapping[str, str], clusters: Mapping[str, int], tuned: Sequence[str]
) -> Row:
    names = {name: title for name, title in titles.items() if name in methods}
    most = max((q for name, q in clusters.items() if name in methods), default=0)
    return {
        "rows": [
            {
                "seen": None, "unseen": None, **methods[name]["accuracy"], "title": title,
                "held_out": _mean(methods[name].get("validation_loss") or [None]),
            }
            for name, title in names.items()
        ],
        "places": [f"{n + 1}." for n in range(most)],
        "clusters": [
            row
            for name, title in names.items()
            if (q := clusters.get(name))
            for row in _cluster_rows(methods[name], title, q, most)
        ],
        "tried": [row for name in tuned if name in methods for row in _tried(name, methods[name])],
        "edges": "".join(_edges(name, methods[name]) for name in tuned if name in methods),
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


def _tried(name: str, method: Row) -> list[dict[str, Any]]:
    """The candidates of validation, and their losses."""
    if name in ("fedavg", "hypcluster"):
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
