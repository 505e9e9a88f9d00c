"""Logistic hierarchical models, with variances by Laplace's approximation.

log odds of y = offset + x·β + z·b_k with b_k = Λ u_k and u_k ~ N(0, I). For a given Λ, Newton's
method finds the most probable β and u. All steps are exact: the equations have an arrow's shape, a
block for each client and a border for β. The likelihood of Λ is the integral over u, which Laplace
takes by the curvature at the mode (Bates et al. 2015, glmer with nAGQ = 0). Its gradient is exact,
and counts that the mode moves with Λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from sartor.effects.effects import Effects
from sartor.effects.factors import Factors, factor_of, inverse_of, least, times
from sartor.effects.linear import unit_of
from sartor.effects.rows import Design
from sartor.errors import DataError
from sartor.types import Floats, Ints

RIDGE = 1e-8
"""The penalty of β per row, for columns of unit size: it keeps β finite where classes separate."""

STEPS = 100
"""Newton steps, of which a few are needed."""

CLOSE = 1e-13
"""Newton's method ends where a step is expected to gain less than this for each row."""


class Problem(NamedTuple):
    """Rows by client, with labels, offsets and weights: [clients, rows] in each block."""

    design: Design
    labels: list[Floats]
    offsets: list[Floats]
    weights: list[Floats]
    clients: int
    rows: float

    @classmethod
    def of(
        cls, fixed: Floats, varying: Floats, y: Floats, owner: Ints, clients: int,
        offset: Floats | None, weights: Floats | None,
    ) -> Problem:  # fmt: skip
        """Gather rows that are in any order."""
        offset = np.zeros(len(y)) if offset is None else offset
        weights = np.ones(len(y)) if weights is None else weights
        design = Design.of(fixed, varying, owner, clients)
        labels, offsets, each = (
            [values[rows] for rows in design.rows] for values in (y, offset, weights)
        )
        return cls(design, labels, offsets, each, clients, float(weights.sum()))


class Curve(NamedTuple):
    """The log likelihood of rows at a point, and its derivatives.

    Attributes:
        value: the log likelihood.
        x, z: its gradients, [fixed] and [clients, varying].
        xx, zx, zz: its negative curvature, of which zx and zz are by client.
        scores: of each block, the scores of its rows.
    """

    value: float
    x: Floats
    z: Floats
    xx: Floats
    zx: Floats
    zz: Floats
    scores: list[Floats]


class Mode(NamedTuple):
    """The most probable β and u for a factor.

    Attributes:
        fixed, own: β, and u of each client.
        value: the penalised log likelihood.
        curve: the log likelihood there.
        arrow: the equations of the last step.
    """

    fixed: Floats
    own: Floats
    value: float
    curve: Curve
    arrow: Arrow


class Arrow(NamedTuple):
    """The inverse of the equations of β and all u.

    Attributes:
        inverse: [clients, varying, varying] of the clients' blocks.
        moves: [clients, varying, fixed] that times the border.
        uncertainty: [fixed, fixed] the inverse of what is left for β.
        logs: the sum of the log determinants of the clients' blocks.
    """

    inverse: Floats
    moves: Floats
    uncertainty: Floats
    logs: float

    @classmethod
    def of(cls, curve: Curve, factor: Floats, ridge: float) -> Arrow:
        """The equations at a point."""
        v, p, turned = curve.zz.shape[1], len(curve.x), np.swapaxes(factor, -1, -2)
        block = np.eye(v) + turned @ curve.zz @ factor
        inverse = inverse_of(block)
        border = turned @ curve.zx
        moves = inverse @ border
        left = curve.xx - np.tensordot(border, moves, axes=([0, 1], [0, 1])) + ridge * np.eye(p)
        return cls(inverse, moves, inverse_of(left), float(np.linalg.slogdet(block)[1].sum()))

    def solve(self, x: Floats, u: Floats) -> tuple[Floats, Floats]:
        """The solution for right-hand sides of β and of all u."""
        fixed = self.uncertainty @ (x - np.tensordot(self.moves, u, axes=([0, 1], [0, 1])))
        return fixed, np.einsum("kvw,kw->kv", self.inverse, u) - self.moves @ fixed


def curve_at(problem: Problem, fixed: Floats, clients: Floats) -> Curve:
    """The log likelihood of all rows for effects β and b."""
    design, v, p = problem.design, clients.shape[1], len(fixed)
    value, scores = 0.0, []
    x, xx = np.zeros(p), np.zeros((p, p))
    z = np.zeros((problem.clients, v))
    zx, zz = np.zeros((problem.clients, v, p)), np.zeros((problem.clients, v, v))
    for block, k in enumerate(design.clients):
        some_x, some_z = design.fixed[block], design.varying[block]
        y, weight = problem.labels[block], problem.weights[block]
        score = problem.offsets[block] + some_x @ fixed
        score += (some_z @ clients[k][:, :, None])[:, :, 0]
        chance = special.expit(score)
        value += float((weight * (y * score - np.logaddexp(0, score))).sum())
        apart = (weight * (y - chance))[:, None, :]
        steep = (weight * chance * (1 - chance))[:, :, None]
        turned = some_z.transpose(0, 2, 1)
        z[k] = (apart @ some_z)[:, 0]
        zz[k] = turned @ (steep * some_z)
        if p:
            weighted = steep * some_x
            zx[k] = turned @ weighted
            x += (apart @ some_x).sum(axis=(0, 1))
            xx += np.tensordot(some_x, weighted, axes=([0, 1], [0, 1]))
        scores.append(score)
    return Curve(value, x, z, xx, zx, zz, scores)


def find_mode(problem: Problem, factor: Floats, fixed: Floats, own: Floats) -> Mode:
    """Newton's method from a start; a step that does not gain is halved.

    The factor is that of all clients, [varying, varying], or of each, [clients, varying, varying].
    """
    ridge, turned = RIDGE * max(problem.rows, 1), np.swapaxes(factor, -1, -2)

    def look(fixed: Floats, own: Floats) -> tuple[Curve, float]:
        curve = curve_at(problem, fixed, times(factor, own))
        penalty = ridge * float(fixed @ fixed) + float(np.square(own).sum())
        return curve, curve.value - penalty / 2

    curve, value = look(fixed, own)
    for _ in range(STEPS):
        arrow = Arrow.of(curve, factor, ridge)
        slope_x, slope_u = curve.x - ridge * fixed, times(turned, curve.z) - own
        step_x, step_u = arrow.solve(slope_x, slope_u)
        gain = float(slope_x @ step_x + (slope_u * step_u).sum())
        if gain < CLOSE * problem.rows:
            break
        size = 1.0
        while True:
            next_curve, next_value = look(fixed + size * step_x, own + size * step_u)
            if next_value >= value or size < 1e-6:
                break
            size /= 2
        fixed, own = fixed + size * step_x, own + size * step_u
        curve, value = next_curve, next_value
    return Mode(fixed, own, value, curve, arrow)


def evidence(problem: Problem, factor: Floats, mode: Mode) -> tuple[float, Floats]:
    """The log likelihood of a factor by Laplace's approximation, and its gradient."""
    curve, arrow = mode.curve, mode.arrow
    scaled = curve.zz @ factor
    # What the mode does not move: it is where the penalised likelihood is flat.
    gradient = np.tensordot(curve.z, mode.own, axes=(0, 0)) - (scaled @ arrow.inverse).sum(axis=0)
    # The curvature at the mode changes as scores do: by Λ itself, and because the mode moves.
    sure = factor @ arrow.inverse @ factor.T
    tilt_x, tilt_z = np.zeros(len(mode.fixed)), np.zeros_like(curve.z)
    design = problem.design
    for block, k in enumerate(design.clients):
        chance = special.expit(curve.scores[block])
        z = design.varying[block]
        leverage = ((z @ sure[k]) * z).sum(axis=2)
        tilt = problem.weights[block] * chance * (1 - chance) * (1 - 2 * chance) * leverage
        tilt_z[k] = (tilt[:, None, :] @ z)[:, 0]
        tilt_x += np.tensordot(tilt, design.fixed[block], axes=([0, 1], [0, 1]))
    move_x, move_u = arrow.solve(tilt_x, tilt_z @ factor)
    turn = np.tensordot(curve.z, move_u, axes=(0, 0))
    follow = tilt_z - curve.zx @ move_x - np.einsum("kvw,kw->kv", scaled, move_u)
    turn += np.tensordot(follow, mode.own, axes=(0, 0))
    return mode.value - arrow.logs / 2, gradient - turn / 2


def fit_logistic(
    fixed: Floats,
    varying: Floats,
    y: Floats,
    owner: Ints,
    clients: int,
    *,
    offset: Floats | None = None,
    weights: Floats | None = None,
    covariance: Floats | None = None,
    correlated: bool = True,
) -> Effects:
    """Fit a logistic hierarchical model to the rows of all clients.

    The arguments are those of :func:`fit_linear`. Labels are 0 and 1, and ``offset`` is in log
    odds. A given ``covariance`` is the inverse of the ridge penalty of the clients' effects.

    >>> rng = np.random.default_rng(0)
    >>> owner = np.repeat(np.arange(500), 40)
    >>> odds = 1 + rng.normal(0, 2, 500)[owner]
    >>> y = (rng.random(20000) < 1 / (1 + np.exp(-odds))).astype(float)
    >>> fit = fit_logistic(np.ones((20000, 1)), np.ones((20000, 1)), y, owner, 500)
    >>> fit.fixed.round(), fit.covariance.round()
    (array([1.]), array([[4.]]))
    """
    for values in (fixed, varying, 0.0 if offset is None else offset):
        if not np.isfinite(values).all():
            raise DataError("rows must hold finite numbers; fill gaps before fitting effects")
    fixed_unit, unit = unit_of(fixed), unit_of(varying)
    columns = fixed / fixed_unit, varying / unit
    problem = Problem.of(*columns, y, owner, clients, offset, weights)
    p, v = fixed.shape[1], varying.shape[1]
    here = np.zeros(p), np.zeros((clients, v))
    if covariance is None:

        def loss(factors: list[Any]) -> tuple[float, Sequence[Any]]:
            nonlocal here
            mode = find_mode(problem, factors[0], *here)
            here = mode.fixed, mode.own
            value, gradient = evidence(problem, factors[0], mode)
            return -value, [-gradient]

        (factor,) = least(loss, [Factors(v, correlated)], clients)
    else:
        factor = factor_of(np.asarray(covariance, np.float64) * np.outer(unit, unit))
    mode = find_mode(problem, factor, *here)
    back = factor / unit[:, None]
    return Effects(
        fixed=mode.fixed / fixed_unit,
        clients=mode.own @ back.T,
        covariance=back @ back.T,
        noise=1.0,
        spread=back @ mode.arrow.inverse @ back.T,
        follows=back @ mode.arrow.moves * fixed_unit,
        uncertainty=mode.arrow.uncertainty / np.outer(fixed_unit, fixed_unit),
    )
