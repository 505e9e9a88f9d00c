"""From cells to numbers: Tables 2 and 3, who gains and who is hurt, and what goes beyond."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sartor.central.settings import describe
from sartor.data import ClientData
from sartor.evaluation import Scores
from sartor.evaluation.statistics import (
    gains,
    jsonable,
    worst_decile,
)
from sartor.experiments.emnist.cells import Cell
from sartor.experiments.emnist.claims import claims, comparisons
from sartor.experiments.emnist.methods import ORDERS, Line, lines
from sartor.experiments.emnist.pool import (
    GROUPS,
    Cells,
    Floats,
    Pool,
    by_writer,
    cell_name,
    member,
)
from sartor.experiments.emnist.settings import COLUMNS, PAPER, VALIDATION, Settings
from sartor.report.emnist import verdict
from sartor.report.emnist_method import left_out
from sartor.report.emnist_words import as_claimed, points


def summarise(settings: Settings, data: ClientData, cells: Cells) -> dict[str, Any]:
    """What ``results.json`` says, but for when and where it was made."""
    pool = Pool(settings, data, cells)
    names = [name for line in lines(settings) for name in line.cells()]
    tables = {
        table: {
            row: {
                column: pool.estimate(pool.values(cell_name(row, column), group))
                for column in COLUMNS
            }
            for row in settings.rows
        }
        for table, group in zip(("table2", "table3"), GROUPS, strict=True)
    }
    found = {
        "experiment": "emnist",
        "seed": settings.seed,
        "settings": {**settings.to_table(), "validation": VALIDATION},
        "data": _about(settings, data, cells),
        **tables,
        "paper": {
            table: {
                row: dict(zip(COLUMNS, PAPER[table][row], strict=True)) for row in settings.rows
            }
            for table in PAPER
        },
        "claims": claims(pool),
        "comparisons": comparisons(pool, names),
        "algorithms": {
            line.name: _settings(line, cells[0, line.cells()[0]].facts.get("chosen", {}))
            for line in lines(settings)
        },
        "methods": {name: _method(pool, name) for name in names},
    }
    if "lambda" in settings.parts and "fedavg" in settings.rows:
        found["lambda"] = _by_lambda(pool)
    if "order" in settings.parts:
        orders = {"shuffled": "fedavg", **{o: f"fedavg by {o}" for o in ORDERS}}
        found["order"] = {o: _gap(pool, name) for o, name in orders.items() if name in names}
    return dict(jsonable(found))


def _settings(line: Line, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters behind a line's cells, with what validation has chosen."""
    personal = {name: describe(algorithm) for name, algorithm in line.personal.items()}
    if line.central is None:
        return {
            "central": None,
            "personal": {name: {**a, **chosen} for name, a in personal.items()},
        }
    return {"central": {**describe(line.central), **chosen}, "personal": personal}


def _by_lambda(pool: Pool) -> dict[str, Any]:
    """Dapper with one λ for all; and with the best on each writer's own test images."""
    cover = pool.settings.cover
    found: dict[str, Any] = {"cover": list(cover)}
    for group in GROUPS:
        every = [pool.values(f"fedavg + dapper with λ = {point:g}", group) for point in cover]
        found[group] = [pool.estimate(values) for values in every]
        found[f"{group}_oracle"] = pool.estimate(np.max(every, axis=0))
    return found


def _gap(pool: Pool, name: str) -> dict[str, Any]:
    """How much better off unseen writers are than seen ones; they are not the same writers."""
    seen, unseen = (pool.values(name, group) for group in GROUPS)
    gap = np.nanmean(unseen, axis=1) - np.nanmean(seen, axis=1)
    means = [by_writer(values)[0] for values in (seen, unseen)]
    error = float(np.sqrt(sum(m.var(ddof=1) / len(m) for m in means)))
    mean = float(gap.mean())
    return {
        "seen": pool.estimate(seen), "unseen": pool.estimate(unseen), "gap": mean,
        "low": mean - 1.96 * error, "high": mean + 1.96 * error, "by_seed": gap.tolist(),
    }  # fmt: skip


def _about(settings: Settings, data: ClientData, cells: Cells) -> dict[str, Any]:
    scores = cells[0, settings.rows[0]].scores
    domains = data.metadata.get("domain")
    return {
        "generated": settings.generated or all(c.startswith("generated-") for c in data.ids),
        "fingerprint": data.fingerprint,
        "writers": len(data),
        "images": len(data.rows),
        "seen": int(scores.seen.sum()),
        "unseen": int((~scores.seen).sum()),
        "domains": {}
        if domains is None
        else {str(d): int((domains == d).sum()) for d in np.unique(domains)},
    }


def _method(pool: Pool, name: str) -> dict[str, Any]:
    """Everything about one method."""
    cells = [pool.cells[seed, name] for seed in range(pool.settings.seeds)]
    first = cells[0].scores
    domains = sorted(set(first.domain or ()))
    groups = (*GROUPS, "all", *domains)
    found: dict[str, Any] = {
        "accuracy": {g: pool.estimate(v) for g in groups if _some(v := pool.values(name, g))},
        "loss": {g: pool.estimate(v) for g in GROUPS if _some(v := pool.values(name, g, "loss"))},
        "worst_decile": {
            g: float(np.mean([worst_decile(row[~np.isnan(row)], True) for row in v]))
            for g in (*GROUPS, "all")
            if _some(v := pool.values(name, g))
        },
        "cost": _mean_cost(cells),
        "seconds": [cell.facts["seconds"] for cell in cells],
    }
    if "validation_loss" in cells[0].facts:
        found["validation_loss"] = [cell.facts["validation_loss"] for cell in cells]
    for fact in ("loss", "margin", "domain_weights", "chosen", "tried"):
        if fact in cells[0].facts:
            found["training_loss" if fact == "loss" else fact] = cells[0].facts[fact]
    if "cluster" in first.extra and " + " not in name:
        found["clusters"] = _clusters(cells)
        found["oracle"] = {
            g: pool.estimate(pool.values(name, g, "oracle_accuracy")) for g in GROUPS
        }
    if "lambda" in first.extra:
        found["lambda"] = {g: _shares(cells, g) for g in GROUPS}
    central = name.partition(" + ")[0]
    if central != name:
        found |= _against(pool, name, central)
    return found


def _against(pool: Pool, name: str, central: str) -> dict[str, Any]:
    """How writers fare against the central model, and what theirs has forgotten."""
    found: dict[str, Any] = {"gain": {}, "hurt": {}}
    for group in GROUPS:
        gain = pool.values(name, group) - pool.values(central, group)
        if not _some(gain):
            continue
        found["gain"][group] = pool.tested(gain)
        hurt, beyond, gained = [], [], []
        for seed in range(pool.settings.seeds):
            mine, base = (pool.cells[seed, n].scores for n in (name, central))
            verdict = gains(_paired(mine, base))
            here = member(mine, group)
            hurt.append(float((verdict.sign[here] < 0).mean()))
            gained.append(float((verdict.sign[here] > 0).mean()))
            beyond.append(float(((verdict.sign < 0) & verdict.beyond_chance)[here].mean()))
        found["hurt"][group] = {
            "gained": float(np.mean(gained)), "hurt": float(np.mean(hurt)),
            "hurt_beyond_chance": float(np.mean(beyond)), "by_seed": hurt,
        }  # fmt: skip
    first = pool.cells[0, name].scores.extra
    if "mixture_loss" in first and "central_mixture_loss" in first:
        forgotten = pool.values(name, "all", "mixture_loss") - pool.values(
            name, "all", "central_mixture_loss"
        )
        found["forgetting"] = pool.estimate(forgotten)
    return found


def _paired(scores: Scores, baseline: Scores) -> Scores:
    return dataclasses.replace(scores, baseline=baseline)


def _some(values: Floats) -> bool:
    return bool((~np.isnan(values)).any(axis=1).all())


def _clusters(cells: list[Cell]) -> dict[str, Any]:
    """How many of each domain's writers are in which cluster; the largest cluster first."""
    found: list[dict[str, list[int]]] = []
    for cell in cells:
        scores = cell.scores
        cluster = scores.extra["cluster"].astype(int)
        counts = np.bincount(cluster, minlength=cell.facts["q"])
        order = np.argsort(-counts, kind="stable")
        domains = np.array(scores.domain) if scores.domain else np.full(len(scores), "all")
        found.append(
            {
                str(d): np.bincount(cluster[domains == d], minlength=len(counts))[order].tolist()
                for d in np.unique(domains)
            }
        )
    return {"by_seed": found}


def _shares(cells: list[Cell], group: str) -> dict[str, float]:
    """The share of writers that have chosen each λ."""
    chosen = np.concatenate(
        [cell.scores.extra["lambda"][member(cell.scores, group)] for cell in cells]
    )
    values, counts = np.unique(chosen, return_counts=True)
    return {f"{v:g}": float(n / len(chosen)) for v, n in zip(values, counts, strict=True)}


def _mean_cost(cells: list[Cell]) -> dict[str, float]:
    costs = [cell.facts["cost"] or {} for cell in cells]
    return {key: float(np.mean([cost[key] for cost in costs])) for key in costs[0]}


def most_memory(cells: Iterable[Cell]) -> dict[str, int | None]:
    """The most that was in use while any of them was made, whatever process it was."""
    found = [cell.facts["memory"] for cell in cells]
    return {
        key: max((facts[key] for facts in found if facts[key] is not None), default=None)
        for key in ("host_bytes", "device_bytes")
    }


def client_table(cells: Mapping[tuple[int, str], Cell]) -> pa.Table:
    """One row for each cell and writer."""
    tables = []
    for (seed, name), cell in cells.items():
        table = cell.scores.table()
        count = table.num_rows
        table = table.add_column(0, "seed", pa.array(np.full(count, seed)))
        tables.append(table.add_column(0, "method", pa.array([name] * count, pa.string())))
    return pa.concat_tables(tables, promote_options="default")


def as_text(results: Mapping[str, Any]) -> list[str]:
    """The tables beside the paper's, and the claims, as lines for a terminal."""
    about, lines_ = results["data"], []
    kind = "generated" if about["generated"] else "real"
    for table, group in zip(("table2", "table3"), GROUPS, strict=True):
        lines_.append(
            f"{table[:5].title()} {table[-1]}: test accuracy of {about[group]} {group} writers "
            f"({kind}); in brackets the paper's"
        )
        lines_.append(f"{'':<12}" + "".join(f"{column:>16}" for column in COLUMNS))
        for row, cells in results[table].items():
            paper = results["paper"][table][row]
            found = (f"{cells[c]['mean']:.1%} ({paper[c]:.1%})" for c in COLUMNS)
            lines_.append(f"{row:<12}" + "".join(f"{cell:>16}" for cell in found))
        lines_.append("")
    lines_.append(
        "The paper's claims, in points: of accuracy, or by how many fewer writers are hurt"
    )
    for text in dict.fromkeys(claim["claim"] for claim in results["claims"]):
        several = [as_claimed(c) for c in results["claims"] if c["claim"] == text]
        found = (f"{c['group']} {points(c['mean'])} ({verdict(c)})" for c in several)
        lines_.append(f"  {text}: {', '.join(found)}")
    if results["settings"]["quick"]:
        lines_ += ["", left_out(results)]
    return lines_
