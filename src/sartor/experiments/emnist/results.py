"""The numbers of Tables 2 and 3, who gains and who is hurt, and what goes beyond the paper."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.evaluation.statistics import gains, jsonable, worst_decile
from sartor.experiments.common.directory import plain_settings
from sartor.experiments.common.statistics import mean_cost, shares
from sartor.experiments.emnist.claims import claims, comparisons
from sartor.experiments.emnist.methods import ORDERS, Family, families
from sartor.experiments.emnist.pooled import PooledSeeds, member
from sartor.experiments.emnist.settings import COLUMNS, GROUPS, PAPER, VALIDATION, EmnistSettings
from sartor.experiments.emnist.words import TABLES, as_claimed, method_name, quick_version, verdict
from sartor.experiments.emnist.work import Results, SeedResult
from sartor.report.numbers import points
from sartor.runs.record import stacked
from sartor.types import Floats


def summarise(settings: EmnistSettings, data: ClientData, results: Results) -> dict[str, Any]:
    """The content of ``results.json``, without when and where it was made."""
    pooled, rows = PooledSeeds(settings, data, results), settings.rows
    names = [name for family in families(settings) for name in family.methods()]

    def cell(row: str, column: str, group: str) -> dict[str, Any]:
        return pooled.estimate(pooled.values(method_name(row, column), group))

    found = {
        "seed": settings.seed,
        "settings": {**plain_settings(settings), "validation": VALIDATION},
        "data": _about(settings, data, results),
        **{
            table: {row: {c: cell(row, c, group) for c in COLUMNS} for row in rows}
            for table, group in TABLES.items()
        },
        "paper": {
            table: {row: dict(zip(COLUMNS, PAPER[table][row], strict=True)) for row in rows}
            for table in PAPER
        },
        "claims": claims(pooled),
        "comparisons": comparisons(pooled, names),
        "algorithms": {
            family.name: algorithms(family, results[0, next(iter(family.methods()))])
            for family in families(settings)
        },
        "methods": {name: _method(pooled, name) for name in names},
    }
    if "lambda" in settings.parts and "fedavg" in rows:
        found["lambda"] = _by_lambda(pooled)
    if "order" in settings.parts:
        orders = {"shuffled": "fedavg", **{order: f"fedavg by {order}" for order in ORDERS}}
        found["order"] = {o: _gap(pooled, name) for o, name in orders.items() if name in names}
    return dict(jsonable(found))


def algorithms(family: Family, first: SeedResult) -> dict[str, Any]:
    """The hyper-parameters of a family, with what validation has chosen."""
    chosen = first.facts.get("chosen", {})
    personal = {name: describe(algorithm) for name, algorithm in family.personal.items()}
    if family.central is None:
        tuned = {name: {**a, **chosen} for name, a in personal.items()}
        return {"central": None, "personal": tuned}
    return {"central": {**describe(family.central), **chosen}, "personal": personal}


def _by_lambda(pooled: PooledSeeds) -> dict[str, Any]:
    """Dapper with one λ for all; and with the best λ on each writer's own test images."""
    cover = pooled.settings.cover
    found: dict[str, Any] = {"cover": list(cover)}
    for group in GROUPS:
        every = [pooled.values(f"fedavg + dapper with λ = {point:g}", group) for point in cover]
        found[group] = [pooled.estimate(values) for values in every]
        found[f"{group}_oracle"] = pooled.estimate(np.max(every, axis=0))
    return found


def _gap(pooled: PooledSeeds, name: str) -> dict[str, Any]:
    """The accuracy of unseen writers minus that of seen writers."""
    seen, unseen = (pooled.values(name, group) for group in GROUPS)
    gap = np.nanmean(unseen, axis=1) - np.nanmean(seen, axis=1)
    before, after = pooled.estimate(seen), pooled.estimate(unseen)
    # The writers of both groups are independent, so distances to the ends add up as deviations do.
    falls, rises = (
        float(np.hypot(after["mean"] - after[a], before[b] - before["mean"]))
        for a, b in (("low", "high"), ("high", "low"))
    )
    mean = float(gap.mean())
    return {
        "seen": before, "unseen": after, "gap": mean, "low": mean - falls, "high": mean + rises,
        "rough": before["rough"] or after["rough"], "by_seed": gap.tolist(),
    }  # fmt: skip


def _about(settings: EmnistSettings, data: ClientData, results: Results) -> dict[str, Any]:
    ids, seen = data.ids, results[0, settings.rows[0]].scores.seen
    domains = data.metadata.get("domain", np.array([]))
    return {
        "generated": settings.data == "generated" or all(c.startswith("generated-") for c in ids),
        "fingerprint": data.fingerprint,
        "writers": len(data),
        "images": len(data.rows),
        "seen": int(seen.sum()),
        "unseen": int((~seen).sum()),
        "domains": {str(d): int((domains == d).sum()) for d in np.unique(domains)},
    }


def _method(pooled: PooledSeeds, name: str) -> dict[str, Any]:
    """Everything about one method."""
    results = [pooled.results[seed, name] for seed in range(pooled.settings.seeds)]
    scores, facts = results[0].scores, results[0].facts
    groups = (*GROUPS, "all")

    def by_group(groups: Iterable[str], what: str = "accuracy") -> Iterator[tuple[str, Floats]]:
        """The values of groups that have writers in every seed."""
        for group in groups:
            values = pooled.values(name, group, what)
            if not np.isnan(values).all(axis=1).any():
                yield group, values

    found: dict[str, Any] = {
        "accuracy": {
            group: pooled.estimate(values)
            for group, values in by_group((*groups, *sorted(set(scores.domain or ()))))
        },
        "loss": {g: pooled.estimate(values) for g, values in by_group(GROUPS, "loss")},
        "worst_decile": {
            g: float(np.mean([worst_decile(row[~np.isnan(row)], True) for row in values]))
            for g, values in by_group(groups)
        },
        "cost": mean_cost([result.facts["cost"] or {} for result in results]),
        "seconds": [result.facts["seconds"] for result in results],
    }
    if "validation_loss" in facts:
        found["validation_loss"] = [result.facts["validation_loss"] for result in results]
    for fact in ("loss", "margin", "domain_weights", "chosen", "tried"):
        if fact in facts:
            found["training_loss" if fact == "loss" else fact] = facts[fact]
    if "cluster" in scores.extra and " + " not in name:
        found["clusters"] = {"by_seed": [_clusters(result) for result in results]}
        found["oracle"] = {
            g: pooled.estimate(pooled.values(name, g, "oracle_accuracy")) for g in GROUPS
        }
    if "lambda" in scores.extra:
        every = [result.scores for result in results]
        chosen = {g: [s.extra["lambda"][member(s, g)] for s in every] for g in GROUPS}
        found["lambda"] = {g: shares(np.concatenate(values)) for g, values in chosen.items()}
    central = name.partition(" + ")[0]
    if central != name:
        found |= _against(pooled, name, central)
    return found


def _against(pooled: PooledSeeds, name: str, central: str) -> dict[str, Any]:
    """The writers' gains over the central model, and what their models have forgotten."""
    found: dict[str, Any] = {"gain": {}, "hurt": {}}
    for group in GROUPS:
        found["gain"][group] = pooled.tested(pooled.gain(name, central, group))
        by_seed = []  # shares of writers: gained, hurt, hurt beyond chance
        for seed in range(pooled.settings.seeds):
            scores, baseline = (pooled.results[seed, n].scores for n in (name, central))
            verdicts = gains(dataclasses.replace(scores, baseline=baseline))
            here, sign = member(scores, group), verdicts.sign
            assert verdicts.beyond_chance is not None  # accuracy can always be tested
            sure = (sign < 0) & verdicts.beyond_chance
            by_seed.append([float(v[here].mean()) for v in (sign > 0, sign < 0, sure)])
        gained, hurt, beyond = zip(*by_seed, strict=True)
        found["hurt"][group] = {
            "gained": float(np.mean(gained)), "hurt": float(np.mean(hurt)),
            "hurt_beyond_chance": float(np.mean(beyond)), "by_seed": list(hurt),
        }  # fmt: skip
    if {"mixture_loss", "central_mixture_loss"} <= pooled.results[0, name].scores.extra.keys():
        before = pooled.values(name, "all", "central_mixture_loss")
        found["forgetting"] = pooled.estimate(pooled.values(name, "all", "mixture_loss") - before)
    return found


def _clusters(result: SeedResult) -> dict[str, list[int]]:
    """How many writers of each domain are in which cluster; the largest cluster first."""
    scores = result.scores
    cluster = scores.extra["cluster"].astype(int)
    counts = np.bincount(cluster, minlength=result.facts["q"])
    order = np.argsort(-counts, kind="stable")
    domains = np.array(scores.domain) if scores.domain else np.full(len(scores), "all")
    return {
        str(d): np.bincount(cluster[domains == d], minlength=len(counts))[order].tolist()
        for d in np.unique(domains)
    }


def most_memory(results: Iterable[SeedResult]) -> dict[str, int | None]:
    """The largest use of memory for any result, in any process."""
    found = [result.facts["memory"] for result in results]
    return {
        key: max((facts[key] for facts in found if facts[key] is not None), default=None)
        for key in ("host_bytes", "device_bytes")
    }


def client_table(results: Results) -> pa.Table:
    """One row for each method, seed and writer."""
    return stacked(
        ({"method": name, "seed": seed}, result.scores.table())
        for (seed, name), result in results.items()
    )


def as_text(results: Mapping[str, Any]) -> Iterator[str]:
    """The tables with the paper's numbers, and the claims, as lines for a terminal."""
    about = results["data"]
    kind = "generated" if about["generated"] else "real"
    for table, group in TABLES.items():
        yield (
            f"Table {table[-1]}: test accuracy of {about[group]} {group} writers ({kind}); the "
            "paper's in brackets"
        )
        yield f"{'':<12}" + "".join(f"{column:>16}" for column in COLUMNS)
        for row, cells in results[table].items():
            paper = results["paper"][table][row]
            shown = (f"{cells[c]['mean']:.1%} ({paper[c]:.1%})" for c in COLUMNS)
            yield f"{row:<12}" + "".join(f"{cell:>16}" for cell in shown)
        yield ""
    yield "The paper's claims, in points: of accuracy, or of how many fewer writers are hurt"
    found: dict[str, list[str]] = {}
    for claim in map(as_claimed, results["claims"]):
        words = f"{claim['group']} {points(claim['mean'])} ({verdict(claim)})"
        found.setdefault(claim["claim"], []).append(words)
    yield from (f"  {claim}: {', '.join(words)}" for claim, words in found.items())
    if results["settings"]["quick"]:
        yield ""
        yield quick_version(results)
