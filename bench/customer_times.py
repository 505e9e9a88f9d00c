"""How long does a model for each customer take?

`python bench/customer_times.py` fits `auto` to all 336,776 flights by destination, predicts them,
updates one client, and fits the exact hierarchical models of 100,000 clients with 20 rows each.
It takes about ten minutes on two cores; nothing else should run.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import sartor
from sartor.effects import fit_linear, fit_logistic

CLIENTS, ROWS = 100_000, 20


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do it, and print the seconds."""
    began = time.perf_counter()
    found = work()
    print(f"{what}: {time.perf_counter() - began:.2f} s", flush=True)
    return found


def flights() -> None:
    """All flights by destination, with the defaults."""
    example = sartor.data.example("flights")
    frame = example.frame()
    X, y = frame.drop(columns=example.label), frame[example.label]
    model = sartor.PersonalClassifier(client=example.client, progress=True)
    timed("auto, flights by destination", lambda: model.fit(X, y))
    print("   ", dict(zip(*np.unique(model.models_.names, return_counts=True), strict=True)))
    print("   ", model.tried_.mixture, model.tried_.skipped)
    some = X[:64_000]
    timed("64,000 rows, the first call", lambda: model.predict_proba(some))
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    for _ in range(3):
        timed("64,000 rows", lambda: model.predict_proba(some))
    print(f"    compilations after the first call: {len(compiled)}")
    timed("all rows", lambda: model.predict_proba(X))
    own = model.models_.names != "global"
    client = next((name for name, k in model.models_.ids.items() if own[k]), "ATL")
    mine = (X[example.client] == client).to_numpy().nonzero()[0][:500]
    timed(f"update, 500 rows of {client}", lambda: model.update(X.iloc[mine], y.iloc[mine]))


def hierarchical() -> None:
    """A level and a slope for each of many clients."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    x = np.stack([np.ones(len(owner)), draw.normal(size=len(owner))], axis=1)
    score = ((np.array([0.5, 1.0]) + draw.normal(0, 0.7, (CLIENTS, 2)))[owner] * x).sum(axis=1)
    y = score + draw.normal(size=len(owner))
    returned = (draw.random(len(owner)) < 1 / (1 + np.exp(-score))).astype(float)
    timed("linear, 100,000 clients", lambda: fit_linear(x, x, y, owner, CLIENTS))
    timed("logistic, 100,000 clients", lambda: fit_logistic(x, x, returned, owner, CLIENTS))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    hierarchical()
    flights()
