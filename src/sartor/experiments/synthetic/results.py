"""From cells to numbers: Table 1, Figure 1, who gains and who is hurt, and the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.data import synthetic_distributions
from sartor.evaluation.statistics import bootstrap_interval, jsonable
from sartor.experiments.synthetic.cells import CLUSTERS, Cell, Place, table_place
from sartor.experiments.synthetic.claims import claims
from sartor.experiments.synthetic.methods import METHODS, RESTARTS
from sartor.experiments.synthetic.population import (
    CLIENTS,
    SYMBOLS,
    TABLE_SAMPLES,
    TUNING,
    Floats,
    Settings,
    bayes_limit,
    population_limit,
    smoothed,
)

PAPER = {1: 3.4, 2: 3.1, 3: 2.9, 4: 2.7, 5: 2.7}
"""Table 1 of the paper."""

Cells = Mapping[Place, Cell]


def summarise(settings: Settings, cells: Cells) -> dict[str, Any]:
    """What ``results.json`` says, but for when and where it was made."""
    truth = settings.truth
    limits = {q: population_limit(truth, q) for q in CLUSTERS}
    smooth = {q: population_limit(smoothed(truth), q) for q in CLUSTERS}
    apart = smoothed(synthetic_distributions(CLIENTS, SYMBOLS, "shifted"))
    bayes = bayes_limit(truth)
    places = [
        Place(samples, method.name)
        for samples in sorted(settings.samples)
        for method in METHODS
        if Place(samples, method.name) in cells
    ]
    found = {
        "experiment": "synthetic",
        "seed": settings.seed,
        "settings": {
            **settings.to_table(),
            "clients": CLIENTS,
            "symbols": SYMBOLS,
            "table_samples": TABLE_SAMPLES,
            "tuning_populations": TUNING,
        },
        "limits": {
            "bayes": bayes,
            "clusters": limits,
            "smoothed": smooth,
            "smoothed_shifted": {q: population_limit(apart, q) for q in CLUSTERS},
        },
        "table1": [
            {
                "q": q,
                **_losses(cells[table_place(q)]),
                "limit": limits[q],
                "smoothed_loss": float(cells[table_place(q)].smoothed.mean()),
                "smoothed_limit": smooth[q],
                "paper": PAPER[q],
                "restarts": RESTARTS.get(q, 1),
                **_facts(cells[table_place(q)]),
            }
            for q in CLUSTERS
        ],
        "figure1": [
            {
                "samples": place.samples,
                "method": place.method,
                **_losses(cells[place]),
                **_facts(cells[place]),
                "against_fedavg": _gains(cells[place], cells[Place(place.samples, "FedAvg")]),
            }
            for place in places
        ],
        "claims": claims(settings, cells, limits),
    }
    return dict(jsonable(found))


def _losses(cell: Cell) -> dict[str, float]:
    """Means over clients and seeds, with 95% intervals over seeds."""
    found: dict[str, float] = {}
    for name, loss, prefix in (("test_loss", cell.test, ""), ("exact_loss", cell.exact, "exact_")):
        low, high = bootstrap_interval(loss.mean(axis=1))
        found |= {name: float(loss.mean()), f"{prefix}low": low, f"{prefix}high": high}
    return found


def _facts(cell: Cell) -> dict[str, Any]:
    """What was chosen, by validation and by the clients, and what it cost."""
    found: dict[str, Any] = {
        "rate": cell.choice.rate,
        "smoothing": cell.choice.smoothing,
        "tried": [[*choice, loss] for choice, loss in cell.tried],
        "cost": cell.cost,
    }
    if cell.lambda_ is not None:
        values, counts = np.unique(cell.lambda_, return_counts=True)
        shares = (counts / cell.lambda_.size).tolist()
        found["lambda"] = {f"{v:g}": share for v, share in zip(values, shares, strict=True)}
    if cell.cluster is not None and cell.cluster.max() > 0:
        clusters = cell.cluster.astype(int)
        members = np.stack([np.bincount(row, minlength=clusters.max() + 1) for row in clusters])
        shares = members / clusters.shape[1]
        # Which cluster is called the first is chance: the largest of every seed, and so on.
        found["cluster_shares"] = (-np.sort(-shares, axis=1)).mean(axis=0).tolist()
    return found


def _gains(cell: Cell, central: Cell) -> dict[str, Any]:
    """How clients fare against FedAvg in exact loss, where no luck of test samples is left."""
    gain = central.exact - cell.exact  # [seeds, clients]
    hurt = gain < 0
    return {
        "gained": float((gain > 0).mean()),
        "hurt": float(hurt.mean()),
        "hurt_interval": _over_seeds(hurt.mean(axis=1)),
        "mean_gain": float(gain.mean()),
        "mean_gain_interval": _over_seeds(gain.mean(axis=1)),
        "mean_if_gained": float(gain[gain > 0].mean()) if (gain > 0).any() else None,
        "mean_if_hurt": float(gain[hurt].mean()) if hurt.any() else None,
        "percentiles": {str(p): float(np.percentile(gain, p)) for p in (5, 25, 50, 75, 95)},
    }


def _over_seeds(values: Floats) -> list[float]:
    """A 95% interval; all seeds alike leave no doubt."""
    return [float(values[0])] * 2 if np.ptp(values) == 0 else list(bootstrap_interval(values))


def client_table(cells: Cells) -> pa.Table:
    """One row for each cell, seed and client."""
    columns: dict[str, list[Any]] = {}

    def add(name: str, values: Any) -> None:
        columns.setdefault(name, []).append(values)

    for place, cell in sorted(cells.items()):
        seeds, clients = cell.test.shape
        nothing = np.full(cell.test.shape, np.nan)
        add("samples", np.full(cell.test.size, place.samples))
        add("method", np.full(cell.test.size, place.method))
        add("seed", np.repeat(np.arange(seeds), clients))
        add("client", np.tile([f"client-{k:03d}" for k in range(clients)], seeds))
        add("loss", cell.test.reshape(-1).astype(np.float32))
        add("exact_loss", cell.exact.reshape(-1).astype(np.float32))
        for name, values in (("lambda", cell.lambda_), ("cluster", cell.cluster)):
            add(name, (nothing if values is None else values).reshape(-1).astype(np.float32))
    return pa.table({name: np.concatenate(parts) for name, parts in columns.items()})


def as_text(results: Mapping[str, Any]) -> Iterator[str]:
    """The table, the figure's numbers and the claims, line by line."""
    yield "Table 1: loss of HypCluster with q clusters, 100 samples per client"
    rows = [("test loss", "test_loss"), ("exact", "exact_loss"), ("least possible", "limit")]
    yield f"{'q':<16}" + "".join(f"{row['q']:>8}" for row in results["table1"])
    for name, key in (*rows, ("the paper", "paper")):
        yield f"{name:<16}" + "".join(f"{row[key]:8.3f}" for row in results["table1"])
    sizes = sorted({row["samples"] for row in results["figure1"]})
    yield "\nFigure 1: exact loss by samples per client"
    yield f"{'':<22}" + "".join(f"{n:>8}" for n in sizes)
    for method in dict.fromkeys(row["method"] for row in results["figure1"]):
        losses = [row["exact_loss"] for row in results["figure1"] if row["method"] == method]
        yield f"{method:<22}" + "".join(f"{loss:8.3f}" for loss in losses)
    yield f"{'Bayes limit':<22}" + f"{results['limits']['bayes']:8.3f}" * len(sizes)
    yield "\nThe paper's claims"
    for claim in results["claims"]:
        mark = {True: "holds", False: "does not hold", None: "cannot be decided"}[claim["holds"]]
        yield f"  {claim['claim']}: {mark} (p = {claim['p_value']:.2g})"
