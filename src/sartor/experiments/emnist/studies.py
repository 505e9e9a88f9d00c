"""The parts of the EMNIST page that compare some methods; each is shown if it was run."""

from collections.abc import Mapping, Sequence
from typing import Any

from sartor.experiments.emnist.words import titled, warm_rounds
from sartor.report.numbers import edge
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

CLUSTERS = ("hypcluster q=1", "hypcluster", "hypcluster q=3", "hypcluster q=4")
"""HypCluster with one to four clusters."""

LOCAL = ("local", "fedavg", "fedavg + finetune")

SERVERS = (
    "fedavg", "fedavg with adam", "fedavg with adagrad", "hypcluster", "hypcluster with adam"
)  # fmt: skip
"""Servers with momentum, and adaptive ones."""

TUNED = {"local": ("local",), "optimizers": SERVERS}
"""The methods whose candidates are shown."""


def studies(results: Row) -> dict[str, Row]:
    """What the page shows of each part that was run."""
    methods, algorithms = results["methods"], results["algorithms"]
    servers = [name + tuned for name in SERVERS for tuned in ("", " + finetune")]
    titles: dict[str, Mapping[str, str]] = {
        "starts": {
            name: title.format(warm_rounds(algorithms[name]["central"]))
            for name, title in STARTS.items()
            if name in algorithms
        },
        "clusters": {name: f"q = {q}" for q, name in enumerate(CLUSTERS, start=1)},
        "local": {name: titled(name) for name in LOCAL},
        "controls": CONTROLS,
        "optimizers": {name: titled(name) for name in servers},
    }
    found: dict[str, Row] = {}
    for part, titled_methods in titles.items():
        if part in results["settings"]["parts"]:
            names = {name: title for name, title in titled_methods.items() if name in methods}
            tuned = [name for name in TUNED.get(part, ()) if name in methods]
            clusters = [row for n, title in names.items() for row in _clusters(methods[n], title)]
            most = max((len(row["shares"]) for row in clusters), default=0)
            found[part] = {
                "rows": [_row(methods[name], title) for name, title in names.items()],
                "places": [f"{n + 1}." for n in range(most)],
                "clusters": clusters,
                "tried": [row for name in tuned for row in _tried(name, methods[name])],
                "edges": "".join(_edges(name, methods[name]) for name in tuned),
            }
    return found


def _row(method: Row, title: str) -> Row:
    losses = method.get("validation_loss") or [None]
    held_out = None if None in losses else sum(losses) / len(losses)
    return {
        "seen": None, "unseen": None, **method["accuracy"], "title": title, "held_out": held_out
    }  # fmt: skip


def _clusters(method: Row, title: str) -> Sequence[Row]:
    """The share of writers in each cluster, seed by seed; empty clusters count."""
    rows = []
    for seed, by_domain in enumerate(method.get("clusters", {}).get("by_seed", [])):
        counts = [sum(column) for column in zip(*by_domain.values(), strict=True)]
        shares = [n / max(sum(counts), 1) for n in counts]
        used = sum(value >= 0.01 for value in shares)
        rows.append({"title": title, "seed": seed, "shares": shares, "used": used})
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
