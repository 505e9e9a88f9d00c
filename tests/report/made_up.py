"""Experiments of made-up cells: what is trained is tested elsewhere."""

from __future__ import annotations

import numpy as np

from sartor.data.dataset import assemble
from sartor.evaluation import Scores
from sartor.experiments.emnist.cells import Cell as Scored
from sartor.experiments.emnist.methods import lines
from sartor.experiments.emnist.results import client_table, summarise
from sartor.experiments.emnist.work import _plain
from sartor.experiments.synthetic import reproduce
from sartor.experiments.synthetic.cells import Cell, tasks
from sartor.experiments.synthetic.methods import Choice
from sartor.files import write_atomic, write_json
from sartor.report import write_report
from sartor.runs.record import provenance, write_table
from sartor.runs.toml import to_toml


def made_up(settings, out):
    """Write cells of random numbers, then let the experiment go on from there."""
    random = np.random.default_rng(5)
    write_atomic(out / "config.toml", to_toml({"synthetic": settings.to_table()}))
    for place in (place for task in tasks(settings) for place in task):
        shape = settings.seeds, 100
        exact = 2 + 5 / place.samples + random.random(shape)
        lambda_ = random.choice([0.0, 0.5, 1.0], shape) if "apper" in place.method else None
        cluster = random.integers(4, size=shape).astype(float) if "Hyp" in place.method else None
        tried = [(Choice(0.5, 0.0), 2.5), (Choice(2.0, 0.0), 2.25)]
        if place.method.startswith("Local,"):
            tried = []
        cost = {"down": 4e6, "up": 2e5, "examples": 1e4, "steps": 200.0}
        losses = exact + 0.01, exact, exact + 0.2
        cell = Cell(*losses, lambda_, cluster, Choice(2.0, 0.0), tried, cost, 1.5)
        cell.save(place.path(out / "checkpoint"))
    reproduce(settings, out, resume=True)
    return out


def made_up_emnist(settings, out, writers=20, domains=True):
    """Write what the EMNIST experiment writes, of random scores."""
    random = np.random.default_rng(6)
    source = np.where(np.arange(writers) % 4 == 3, "high school", "census")
    data = assemble(
        {"x": np.zeros((writers, 1), np.uint8), "y": np.zeros(writers, np.int32)},
        np.arange(writers), [f"writer-{n}" for n in range(writers)],
        metadata={"domain": source} if domains else None,
    )  # fmt: skip
    cells = {}
    for seed in range(settings.seeds):
        size = random.integers(8, 20, writers)
        shuffled = random.permutation(writers) < 0.7 * writers
        for line in lines(settings):
            seen = shuffled if line.order == "shuffled" else np.arange(writers) < 0.7 * writers
            for name in line.cells():
                extra, facts = _made_up_facts(random, settings, line, name, writers)
                scores = Scores(
                    name, data.ids, size=4 * size, test_size=size, seen=seen,
                    example_loss=random.exponential(1.0, size.sum()),
                    example_correct=random.random(size.sum()) < 0.6 + 0.1 * (" + " in name),
                    domain=tuple(source) if domains else None, extra=extra,
                )  # fmt: skip
                cells[seed, name] = Scored(scores, facts)
    results = {
        **summarise(settings, data, cells), **provenance(),
        "memory": {"host_bytes": 3 * 10**9, "device_bytes": None},
        "wall_seconds": {"total": 75.0, "cells": {f"{n} {name}": 1.5 for n, name in cells}},
    }  # fmt: skip
    write_atomic(out / "config.toml", to_toml({"emnist": settings.to_table()}))
    write_table(out / "per_client.parquet", client_table(cells))
    write_json(out / "results.json", results)
    write_report([out], out / "report.html")
    return out


def _made_up_facts(random, settings, line, name, writers):
    extra, facts = {}, {"cost": {"down": 4e6, "up": 2e5, "examples": 1e4, "steps": 200.0}}
    facts |= {"seconds": 1.5, "memory": {"host_bytes": 2**30, "device_bytes": None}}
    personal = line.central is None or name != line.name
    q = getattr(line.central, "q", 1)
    if q > 1:
        extra["cluster"] = random.integers(2, size=writers)
        facts["q"] = line.central.q
        extra |= {} if personal else {"oracle_accuracy": random.random(writers)}
    if personal and "apper" in name:
        extra["lambda"] = random.choice(settings.cover, writers)
    if personal and line.central is not None:
        extra |= {n: random.random(writers) for n in ("mixture_loss", "central_mixture_loss")}
    if not (personal or line.everything):
        facts["validation_loss"] = 1.25
    if line.name == "agnostic" and not personal:
        facts["domain_weights"] = [0.6, 0.4]
    if line.grid:
        options = [_plain(change) for change in line.grid]
        losses = [2.0 - 0.125 * n for n in range(len(options))]
        facts |= {"chosen": options[-1], "tried": list(zip(options, losses, strict=True))}
    return extra, facts
