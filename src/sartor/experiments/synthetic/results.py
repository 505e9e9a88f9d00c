"""The numbers of Table 1 and of the plot, who gains and who is hurt, and the paper's claims."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.evaluation.means import mean_interval
from sartor.evaluation.statistics import jsonable
from sartor.experiments.common.directory import plain_settings
from sartor.experiments.common.statistics import shares
from sartor.experiments.synthetic.claims import claims
from sartor.experiments.synthetic.methods import METHODS, RESTARTS
from sartor.experiments.synthetic.population import (
    CLIENTS,
    SYMBOLS,
    TABLE_SAMPLES,
    TUNING,
    SyntheticSettings,
    bayes_limit,
    population_limit,
    smoothed,
)
from sartor.experiments.synthetic.work import CLUSTERS, MethodResult, Results, table_key
from sartor.runs.record import stacked

PAPER = {1: 3.4, 2: 3.1, 3: 2.9, 4: 2.7, 5: 2.7}
"""Table 1 of the paper."""


def summarise(settings: SyntheticSettings, results: Results) -> dict[str, Any]:
    """The content of ``results.json``, without when and where it was made."""
    truth, shifted = settings.truth, dataclasses.replace(settings, layout="shifted").truth
    limits = {q: population_limit(truth, q) for q in CLUSTERS}
    smoothed_limits = {q: population_limit(smoothed(truth), q) for q in CLUSTERS}
    keys = [(n, method.name) for n in sorted(settings.samples) for method in METHODS]
    return dict(jsonable({
        "seed": settings.seed,
        "settings": {
            **plain_settings(settings), "clients": CLIENTS, "symbols": SYMBOLS,
            "table_samples": TABLE_SAMPLES, "tuning_populations": TUNING,
        },
        "limits": {
            "bayes": bayes_limit(truth),
            "clusters": limits,
            "smoothed": smoothed_limits,
            "smoothed_shifted": {q: population_limit(smoothed(shifted), q) for q in CLUSTERS},
        },
        "table1": [
            {
                "q": q,
                **_losses(result),
                "limit": limits[q],
                "smoothed_loss": float(result.smoothed.mean()),
                "smoothed_limit": smoothed_limits[q],
                "paper": PAPER[q],
                "restarts": RESTARTS.get(q, 1),
                **_facts(result),
            }
            for q in CLUSTERS
            for result in [results[table_key(q)]]
        ],
        "figure1": [
            {
                "samples": n,
                "method": name,
                **_losses(result),
                **_facts(result),
                "against_fedavg": _gains(result, results[n, "FedAvg"]),
            }
            for n, name in keys
            if (result := results.get((n, name)))
        ],
        "claims": claims(settings, results, limits),
    }))  # fmt: skip


def _losses(result: MethodResult) -> dict[str, float]:
    """Means over clients and seeds, with 95% intervals over seeds."""
    found: dict[str, float] = {}
    losses = ("test_loss", result.test, ""), ("exact_loss", result.exact, "exact_")
    for name, loss, prefix in losses:
        low, high, _ = mean_interval(loss.mean(axis=1))
        found |= {name: float(loss.mean()), f"{prefix}low": low, f"{prefix}high": high}
    return found


def _facts(result: MethodResult) -> dict[str, Any]:
    """What validation and the clients chose, and the cost."""
    found: dict[str, Any] = {
        **result.choice._asdict(),
        "tried": [[*tuned, loss] for tuned, loss in result.tried],
        "cost": result.cost,
    }
    if result.lambda_ is not None:
        found["lambda"] = shares(result.lambda_)
    if result.cluster is not None and result.cluster.max() > 0:
        clusters = result.cluster.astype(int)
        members = np.stack([np.bincount(row, minlength=clusters.max() + 1) for row in clusters])
        # The numbers of clusters are arbitrary, so they are sorted by size in every seed.
        ordered = -np.sort(-members / clusters.shape[1], axis=1)
        found["cluster_shares"] = ordered.mean(axis=0).tolist()
    return found


def _gains(result: MethodResult, central: MethodResult) -> dict[str, Any]:
    """The clients' gains over FedAvg in exact loss, free of the noise of test samples."""
    gain = central.exact - result.exact  # [seeds, clients]
    gained, hurt = gain > 0, gain < 0
    return {
        "gained": float(gained.mean()),
        "hurt": float(hurt.mean()),
        "hurt_interval": mean_interval(hurt.mean(axis=1))[:2],
        "mean_gain": float(gain.mean()),
        "mean_gain_interval": mean_interval(gain.mean(axis=1))[:2],
        "mean_if_gained": float(gain[gained].mean()) if gained.any() else None,
        "mean_if_hurt": float(gain[hurt].mean()) if hurt.any() else None,
        "percentiles": {str(p): float(np.percentile(gain, p)) for p in (5, 25, 50, 75, 95)},
    }


def client_table(results: Results) -> pa.Table:
    """One row for each method, number of samples, seed and client."""

    def table(result: MethodResult) -> pa.Table:
        seeds, clients = result.test.shape
        missing = np.full(result.test.shape, np.nan)
        values = {
            "loss": result.test, "exact_loss": result.exact,
            "lambda": missing if result.lambda_ is None else result.lambda_,
            "cluster": missing if result.cluster is None else result.cluster,
        }  # fmt: skip
        return pa.table({
            "seed": np.repeat(np.arange(seeds), clients),
            "client": [f"client-{k:03d}" for k in range(clients)] * seeds,
            **{name: found.reshape(-1).astype(np.float32) for name, found in values.items()},
        })  # fmt: skip

    return stacked(
        ({"samples": samples, "method": name}, table(results[samples, name]))
        for samples, name in sorted(results)
    )


def as_text(results: Mapping[str, Any]) -> Iterator[str]:
    """The numbers of the table and the figure, and the claims, as lines for a terminal."""
    yield "Table 1: loss of HypCluster with q clusters, 100 samples per client"
    rows = [("test loss", "test_loss"), ("exact", "exact_loss"), ("lowest possible", "limit")]
    yield f"{'q':<16}" + "".join(f"{row['q']:>8}" for row in results["table1"])
    for name, key in (*rows, ("the paper", "paper")):
        yield f"{name:<16}" + "".join(f"{row[key]:8.3f}" for row in results["table1"])
    sizes = sorted({row["samples"] for row in results["figure1"]})
    yield "\nExact loss by samples per client (the paper's synthetic plot, section 7.1)"
    yield f"{'':<22}" + "".join(f"{n:>8}" for n in sizes)
    for method in dict.fromkeys(row["method"] for row in results["figure1"]):
        losses = [row["exact_loss"] for row in results["figure1"] if row["method"] == method]
        yield f"{method:<22}" + "".join(f"{loss:8.3f}" for loss in losses)
    yield f"{'Bayes limit':<22}" + f"{results['limits']['bayes']:8.3f}" * len(sizes)
    yield "\nThe paper's claims"
    for claim in results["claims"]:
        verdict = {True: "holds", False: "does not hold", None: "cannot be decided"}
        yield f"  {claim['claim']}: {verdict[claim['holds']]} (p = {claim['p_value']:.2g})"
