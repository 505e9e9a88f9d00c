"""Linear hierarchical models, with variances by restricted maximum likelihood (REML).

y = offset + x·β + z·b_k + ε with b_k ~ N(0, σ² Λ Λᵀ) and ε ~ N(0, σ²/weight). For a given Λ, β and
all b_k solve one least-squares problem. Its normal equations have an arrow's shape: a block for
each client, and a border for β. So the criterion of REML (Bates et al. 2015, equation 41) and its
gradient in Λ follow from sums over each client's rows, which are computed once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sartor.effects.effects import Effects
from sartor.effects.factors import Factors, factor_of, inverse_of, least
from sartor.effects.rows import Design
from sartor.errors import DataError
from sartor.types import Floats, Ints

RIDGE = 1e-8
"""The penalty of β per row, for columns of unit size: it decides between equal solutions."""


class Moments(NamedTuple):
    """Sums over rows of products of columns; the label is the last one of the border.

    Attributes:
        zz: [clients, varying, varying].
        zx: [clients, varying, fixed + 1].
        xx: [fixed + 1, fixed + 1], over all clients.
        rows: the number of rows.
        rank: how many of the fixed columns say something of their own.
    """

    zz: Floats
    zx: Floats
    xx: Floats
    rows: int
    rank: int

    @classmethod
    def of(
        cls,
        fixed: Floats,
        varying: Floats,
        y: Floats,
        weights: Floats | None,
        owner: Ints,
        clients: int,
    ) -> Moments:
        """The moments of rows."""
        border = np.concatenate([fixed, y[:, None]], axis=1)
        rows = len(y)
        if weights is not None:
            root = np.sqrt(weights)[:, None]
            border, varying = border * root, varying * root
            rows = int((weights > 0).sum())
        v = varying.shape[1]
        zz, zx = np.zeros((clients, v, v)), np.zeros((clients, v, border.shape[1]))
        design = Design.of(border, varying, owner, clients)
        for k, x, z in zip(design.clients, design.fixed, design.varying, strict=True):
            turned = z.transpose(0, 2, 1)
            zz[k], zx[k] = turned @ z, turned @ x
        xx = border.T @ border
        rank = int(np.linalg.matrix_rank(xx[:-1, :-1], hermitian=True)) if len(xx) > 1 else 0
        return cls(zz, zx, xx, rows, rank)


class Solution(NamedTuple):
    """The least-squares solution for a given factor.

    Attributes:
        criterion: −2 log of the restricted likelihood, up to a constant.
        gradient: its gradient in the factor.
        fixed: β.
        noise: σ².
        inverse: [clients, varying, varying] (I + ΛᵀZᵀZΛ)⁻¹.
        moves: [clients, varying, fixed + 1] that times ΛᵀZᵀ[X y].
        uncertainty: the inverse of β's equations.
    """

    criterion: float
    gradient: Floats
    fixed: Floats
    noise: float
    inverse: Floats
    moves: Floats
    uncertainty: Floats


def solve(moments: Moments, factor: Floats) -> Solution:
    """Solve the arrow for one factor Λ: the clients' blocks first, and then the border."""
    zz, zx = moments.zz, moments.zx
    p, v = zx.shape[2] - 1, zz.shape[1]
    scaled = zz @ factor
    block = np.eye(v) + factor.T @ scaled
    inverse = inverse_of(block)
    turned = factor.T @ zx
    moves = inverse @ turned
    left = moments.xx - np.tensordot(turned, moves, axes=([0, 1], [0, 1]))
    equations = left[:p, :p] + RIDGE * max(moments.rows, 1) * np.eye(p)
    uncertainty = inverse_of(equations)
    beta = uncertainty @ left[:p, p]
    missed = left[:p, p] - equations @ beta  # by rounding, where columns say the same
    freedom = max(moments.rows - moments.rank, 1)
    floor = max(1e-14 * moments.xx[p, p], 1e-300)
    rest = max(float(left[p, p] - (left[:p, p] + missed) @ beta), floor)
    logs = np.linalg.slogdet(block)[1].sum() + np.linalg.slogdet(equations)[1]
    criterion = float(logs + freedom * np.log(rest / freedom))
    # The gradient: of the blocks' determinants, and of what is left of the border.
    share = np.zeros((p + 1, p + 1))
    share[:p, :p] = uncertainty
    share += np.outer(apart := np.append(-beta, 1.0), apart) * freedom / rest
    remains = zx - scaled @ moves
    gradient = (scaled @ inverse).sum(axis=0)
    gradient -= np.tensordot(remains @ share, moves, axes=([0, 2], [0, 2]))
    return Solution(criterion, 2 * gradient, beta, rest / freedom, inverse, moves, uncertainty)


def fit_linear(
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
    """Fit a linear hierarchical model to the rows of all clients.

    Args:
        fixed: [rows, fixed] columns with the same effects for everybody, with ones for an
            intercept; none, [rows, 0], leaves the offset to stand for everybody.
        varying: [rows, varying] columns whose effects vary between clients.
        y: [rows] the labels.
        owner: [rows] the client of each row, from 0.
        clients: the number of clients, with those that have no rows.
        offset: [rows] what is known beforehand, such as the predictions of a central model.
        weights: [rows] how much each row counts.
        covariance: of the clients' effects, divided by the noise: the inverse of a ridge penalty.
            By default it is estimated.
        correlated: whether effects of different columns may be correlated.

    >>> rng = np.random.default_rng(0)
    >>> owner = np.repeat(np.arange(500), 10)
    >>> ones = np.ones((5000, 1))
    >>> y = 3 + rng.normal(0, 2, 500)[owner] + rng.normal(0, 1, 5000)
    >>> fit = fit_linear(ones, ones, y, owner, 500)
    >>> fit.fixed.round(), fit.covariance.round(), round(fit.noise)
    (array([3.]), array([[4.]]), 1)
    """
    target = y if offset is None else y - offset
    if not (np.isfinite(target).all() and np.isfinite(fixed).all() and np.isfinite(varying).all()):
        raise DataError("rows must hold finite numbers; fill gaps before fitting effects")
    fixed_unit, unit = unit_of(fixed), unit_of(varying)
    moments = Moments.of(fixed / fixed_unit, varying / unit, target, weights, owner, clients)
    if covariance is None:
        (factor,) = least(
            lambda factors: ((found := solve(moments, factors[0])).criterion, [found.gradient]),
            [Factors(varying.shape[1], correlated)],
            clients,
        )
    else:
        factor = factor_of(np.asarray(covariance, np.float64) * np.outer(unit, unit))
    solution = solve(moments, factor)
    p = fixed.shape[1]
    own = solution.moves @ np.append(-solution.fixed, 1.0)
    back = factor / unit[:, None]
    return Effects(
        fixed=solution.fixed / fixed_unit,
        clients=own @ back.T,
        covariance=solution.noise * back @ back.T,
        noise=solution.noise,
        spread=solution.noise * back @ solution.inverse @ back.T,
        follows=back @ solution.moves[:, :, :p] * fixed_unit,
        uncertainty=solution.noise * solution.uncertainty / np.outer(fixed_unit, fixed_unit),
    )


def unit_of(columns: Floats) -> Floats:
    """The root mean square of columns, and 1 for those of zeros: steps then have one scale."""
    size = np.sqrt(np.square(columns).mean(axis=0)) if len(columns) else np.ones(columns.shape[1])
    return np.where(size > 0, size, 1.0)
