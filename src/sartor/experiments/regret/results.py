"""The numbers of the experiment: regret by number of samples and policy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.advice.advice import SHARING
from sartor.evaluation.means import mean_interval
from sartor.evaluation.statistics import jsonable
from sartor.experiments.common.directory import plain_settings
from sartor.experiments.regret.page import TITLES, in_words
from sartor.experiments.regret.work import (
    CONSTANT,
    LAMBDAS,
    LOCALS,
    POLICIES,
    TUNED,
    PopulationResult,
    RegretSettings,
    Results,
)
from sartor.experiments.synthetic.methods import RATES
from sartor.experiments.synthetic.population import CLIENTS
from sartor.runs.record import stacked
from sartor.types import Floats


def summarise(settings: RegretSettings, results: Results) -> dict[str, Any]:
    """The content of ``results.json``, without when and where it was made."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in LOCALS:
        rows, regrets = [], []
        for m in settings.samples:
            some = [results[m, kind, n] for n in range(settings.seeds)]
            # [policies, seeds]: the mean over the clients of each population
            by_seed = [{name: r.mean() for name, r in one.regret().items()} for one in some]
            regrets.append(np.array([[means[name] for means in by_seed] for name in POLICIES]))
            advised = np.stack([one.chosen[0] for one in some])  # [seeds, clients]
            lambdas = np.stack([one.lambda_ for one in some])
            rows.append({
                "samples": m,
                "advised": {name: float((advised == n).mean()) for n, name in enumerate(SHARING)},
                "alike": _alike(advised),
                "alike_with_lambda": _alike(np.where(lambdas < 0, advised, len(SHARING) + lambdas)),
                "interpolate": float((lambdas >= 0).mean()),
                "vacuous": float(np.mean([one.vacuous for one in some])),
                "rates": dict(zip(TUNED, some[0].rates.tolist(), strict=True)),
                **_estimates(regrets[-1]),
            })  # fmt: skip
        found[kind] = [*rows, {"samples": None, **_estimates(np.mean(regrets, axis=0))}]
    return dict(jsonable({
        "seed": settings.seed, "settings": plain_settings(settings), "rates": list(RATES),
        "regret": found,
    }))  # fmt: skip


def _alike(advised: Floats) -> float:
    """The share of populations in which all clients got the same advice."""
    return float((advised == advised[:, :1]).all(axis=1).mean())


def _estimates(regrets: Floats) -> dict[str, Any]:
    """Means and intervals over populations, by policy; and advice minus the best constant policy.

    Args:
        regrets: [policies, populations].
    """
    found: dict[str, Any] = dict(zip(POLICIES, map(_estimate, regrets), strict=True))
    for policy, known, key in (("advice", SHARING, ""), ("interpolation", CONSTANT, "_of_all")):
        best = int(regrets[: len(known)].mean(axis=1).argmin())
        less = regrets[POLICIES.index(policy)] - regrets[best]
        found |= {f"best{key}": known[best], f"less{key}": _estimate(less)}
    return found


def _estimate(values: Floats) -> dict[str, float]:
    return {"mean": float(values.mean()), **mean_interval(values)._asdict()}


def client_table(results: Results) -> pa.Table:
    """A row for every client of every population."""

    def table(result: PopulationResult) -> pa.Table:
        return pa.table({
            "client": range(CLIENTS),
            "advice": np.array(SHARING)[result.chosen[0]],
            "bounds_say": np.array(SHARING)[result.chosen[1]],
            "lambda": pa.array(np.array(LAMBDAS)[result.lambda_], mask=result.lambda_ < 0),
            **{f"loss_{name}": losses for name, losses in result.losses().items()},
        })  # fmt: skip

    return stacked(
        ({"samples": samples, "local": local, "population": population}, table(result))
        for (samples, local, population), result in results.items()
    )


def as_text(results: Mapping[str, Any]) -> list[str]:
    """The regrets as lines for a terminal."""
    lines = []
    for kind, rows in results["regret"].items():
        lines += ["", f"Mean regret in nats, Local {kind}"]
        lines.append(f"{'samples':>8}" + "".join(f"{title:>14}" for title in TITLES.values()))
        for row in rows:
            regrets = "".join(f"{row[name]['mean']:14.4f}" for name in TITLES)
            lines.append(f"{row['samples'] or 'mean':>8}{regrets}")
    return [*lines, "", *(in_words(kind, rows) for kind, rows in results["regret"].items())]
