"""New rows of clients, and new clients, without the rows that a model was fitted to.

What was known of a client is the prior of what is known with its new rows. The effects of everybody
and their variances stay as they are. For linear models this is the same as fitting the client to
all of its rows; for logistic ones it is close, as its earlier rows are summed up by a normal
distribution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sartor.effects.effects import Effects
from sartor.effects.factors import inverse_of, root_of, times
from sartor.effects.logistic import Problem, find_mode
from sartor.effects.rows import blocks
from sartor.types import Floats, Ints


def with_clients(effects: Effects, clients: int) -> Effects:
    """Room for more clients, of whom nothing is known yet."""
    more = clients - len(effects.clients)
    grown: dict[str, Any] = {
        "clients": _more(effects.clients, more),
        "spread": np.concatenate([effects.spread, np.repeat(effects.covariance[None], more, 0)]),
        "follows": _more(effects.follows, more),
    }
    return replace(effects, **grown)


def without_client(effects: Effects, client: int) -> Effects:
    """Forget what is known of a client: it is a new one again."""
    found = {name: getattr(effects, name).copy() for name in ("clients", "spread", "follows")}
    found["clients"][client], found["follows"][client] = 0.0, 0.0
    found["spread"][client] = effects.covariance
    return replace(effects, **found)


def without_fixed(effects: Effects) -> Effects:
    """The clients' effects alone, for scores that everybody's are part of already."""
    nothing = np.zeros(0)
    follows = effects.follows[:, :, :0]
    return replace(effects, fixed=nothing, follows=follows, uncertainty=np.zeros((0, 0)))


def update_linear(
    effects: Effects, fixed: Floats, varying: Floats, y: Floats, owner: Ints,
    offset: Floats | None = None, weights: Floats | None = None,
) -> Effects:  # fmt: skip
    """Learn from new rows of some clients of a linear model.

    >>> from sartor.effects import fit_linear
    >>> rng = np.random.default_rng(0)
    >>> owner, ones = np.repeat(np.arange(50), 8), np.ones((400, 1))
    >>> y = rng.normal(0, 2, 50)[owner] + rng.normal(0, 1, 400)
    >>> first = np.arange(400) % 8 < 4
    >>> part = fit_linear(ones[first], ones[first], y[first], owner[first], 50)
    >>> later = update_linear(part, ones[~first], ones[~first], y[~first], owner[~first])
    >>> bool((later.spread < part.spread).all())
    True
    """
    rest = y - fixed @ effects.fixed - (0.0 if offset is None else offset)
    rest = rest - np.einsum("rv,rv->r", varying, effects.clients[owner])
    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    z, rest = varying * root[:, None], rest * root
    clients, spread = effects.clients.copy(), effects.spread.copy()
    for k, rows in blocks(owner, len(clients)):
        turned = z[rows].transpose(0, 2, 1)
        before = spread[k]
        # In the room of the prior's factor, where even a singular one has an inverse.
        factor = root_of(before)
        seen = np.swapaxes(factor, 1, 2) @ turned @ z[rows] @ factor / effects.noise
        inverse = inverse_of(np.eye(seen.shape[1]) + seen)
        after = factor @ inverse @ np.swapaxes(factor, 1, 2)
        clients[k] += times(after, (turned @ rest[rows][:, :, None])[:, :, 0]) / effects.noise
        spread[k] = after
    return replace(effects, clients=clients, spread=spread)


def update_logistic(
    effects: Effects, fixed: Floats, varying: Floats, y: Floats, owner: Ints,
    offset: Floats | None = None, weights: Floats | None = None,
) -> Effects:  # fmt: skip
    """Learn from new rows of some clients of a logistic model."""
    known = effects.score(fixed, varying, owner, offset)
    some, place = np.unique(owner, return_inverse=True)
    factor = root_of(effects.spread[some])
    nothing = np.zeros((len(y), 0))
    problem = Problem.of(nothing, varying, y, place, len(some), known, weights)
    mode = find_mode(problem, factor, np.zeros(0), np.zeros((len(some), varying.shape[1])))
    clients, spread = effects.clients.copy(), effects.spread.copy()
    clients[some] += times(factor, mode.own)
    spread[some] = factor @ mode.arrow.inverse @ np.swapaxes(factor, 1, 2)
    return replace(effects, clients=clients, spread=spread)


def _more(values: Floats, rows: int) -> Floats:
    return np.concatenate([values, np.zeros((rows, *values.shape[1:]))])
