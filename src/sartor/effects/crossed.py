"""Two groupings of the same rows, nested or crossed: shops in regions, or users and items.

y = offset + x·β + z·b_k + w·c_g + ε with b_k ~ N(0, Σ), c_g ~ N(0, Γ) and ε ~ N(0, σ²/weight): the
rows of client k and of level g of the second grouping have effects of both. Shops in regions are
the special case in which each shop meets one region. All variances are estimated together by REML,
as in ``linear.py``: the grouping with more effects is eliminated block by block, and the other one
is solved for densely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sartor.effects.crossing import Grouping, Pairs, Solution, Sums, solve
from sartor.effects.effects import Effects
from sartor.effects.factors import Factors, factor_of, inverse_of, least
from sartor.effects.linear import Moments, unit_of
from sartor.effects.updating import without_fixed
from sartor.errors import DataError
from sartor.types import Floats

MOST = 5000
"""Effects of the grouping that is solved for densely."""


@dataclass(frozen=True, eq=False)
class CrossedEffects:
    """A fitted model of two groupings.

    Attributes:
        first: β, and the effects of the first grouping. Their ``spread`` is given β and the second
            grouping's effects.
        second: the effects of the second grouping, likewise; without β.
    """

    first: Effects
    second: Effects

    @property
    def fixed(self) -> Floats:
        """β, the effects that are the same for all rows."""
        return self.first.fixed

    @property
    def variances(self) -> tuple[Floats, Floats, float]:
        """The covariances of both groupings' effects, and the variance of rows around them."""
        return self.first.covariance, self.second.covariance, self.first.noise

    def score(
        self, fixed: Floats, first: Grouping, second: Grouping, offset: Floats | None = None
    ) -> Floats:
        """The scores of rows. Levels that the fit has not seen, −1, have an effect of 0."""
        nothing = np.zeros((len(fixed), 0))
        found = self.first.score(fixed, first.columns, first.owner, offset)
        return found + self.second.score(nothing, second.columns, second.owner)


def fit_crossed(
    fixed: Floats,
    first: Grouping,
    second: Grouping,
    y: Floats,
    *,
    offset: Floats | None = None,
    weights: Floats | None = None,
    covariances: tuple[Floats, Floats] | None = None,
    correlated: bool = True,
) -> CrossedEffects:
    """Fit a linear model with effects of two groupings, nested or crossed.

    Args:
        fixed: [rows, fixed] columns with the same effects for everybody; see :func:`fit_linear`.
        first: one grouping, such as users.
        second: the other one, such as items.
        y: [rows] the labels.
        offset: [rows] what is known beforehand, such as the predictions of a central model.
        weights: [rows] how much each row counts.
        covariances: of both groupings' effects, divided by the noise. By default they are
            estimated.
        correlated: whether effects of different columns of a grouping may be correlated.

    >>> rng = np.random.default_rng(0)
    >>> user, item = rng.integers(0, 500, 8000), rng.integers(0, 100, 8000)
    >>> ones = np.ones((8000, 1))
    >>> y = rng.normal(0, 2, 500)[user] + rng.normal(0, 1, 100)[item] + rng.normal(0, 1, 8000)
    >>> fit = fit_crossed(ones, Grouping(ones, user, 500), Grouping(ones, item, 100), y)
    >>> user_variance, item_variance, noise = fit.variances
    >>> user_variance.round(1), item_variance.round(1), round(noise, 1)
    (array([[4.1]]), array([[1.1]]), 1.0)
    """
    for columns in (y, fixed, first.columns, second.columns, 0.0 if offset is None else offset):
        if not np.isfinite(columns).all():
            raise DataError("rows must hold finite numbers; fill gaps before fitting effects")
    target = y if offset is None else y - offset
    both = Side.of(first), Side.of(second)
    order = (0, 1) if first.size >= second.size else (1, 0)
    small = both[order[1]].grouping
    if small.size > MOST:
        raise DataError(
            f"two groupings have {first.size:,} and {second.size:,} effects; the smaller number "
            f"can be {MOST:,} at most: merge rare levels into one, or let fewer columns vary"
        )
    fixed_unit = unit_of(fixed)
    large = both[order[0]].grouping
    sums = Sums(
        Moments.of(fixed / fixed_unit, large.columns, target, weights, large.owner, large.levels),
        Moments.of(fixed / fixed_unit, small.columns, target, weights, small.owner, small.levels),
        Pairs.of(large, small, weights),
    )
    if covariances is None:
        kinds = [Factors(of.zz.shape[1], correlated) for of in (sums.own, sums.other)]
        places = kinds[0].places

        def loss(factors: list[Any]) -> tuple[float, Sequence[Any]]:
            return solve(sums, factors[0], factors[1], places)[:2]

        factors = least(loss, kinds, large.levels)
    else:
        factors = [both[at].factor_of(covariances[at]) for at in order]
    found = solve(sums, factors[0], factors[1], np.diag_indices(0))
    effects = [
        both[at].effects(moments, factor, own, found, fixed_unit)
        for at, moments, factor, own in zip(
            order, sums[:2], factors, (found.own, found.other), strict=True
        )
    ]
    mine, theirs = (effects[at] for at in order)  # turned twice, they are as they were given
    return CrossedEffects(mine, without_fixed(theirs))


class Side(NamedTuple):
    """A grouping with columns of unit size, and the units that they had.

    Attributes:
        grouping: rows of no level have columns of zeros.
        unit: the root mean square of each column.
    """

    grouping: Grouping
    unit: Floats

    @classmethod
    def of(cls, grouping: Grouping) -> Side:
        """Take a grouping as it is given."""
        columns = np.where(grouping.owner[:, None] >= 0, grouping.columns, 0.0)
        unit = unit_of(columns)
        return cls(Grouping(columns / unit, np.maximum(grouping.owner, 0), grouping.levels), unit)

    def factor_of(self, covariance: Floats) -> Floats:
        """The factor of a given covariance."""
        return factor_of(np.asarray(covariance, np.float64) * np.outer(self.unit, self.unit))

    def effects(
        self, moments: Moments, factor: Floats, own: Floats, found: Solution, fixed_unit: Floats
    ) -> Effects:
        """Its effects in the units that were given, each with what the others leave unknown."""
        p, back = len(found.fixed), factor / self.unit[:, None]
        inverse = inverse_of(np.eye(len(factor)) + factor.T @ moments.zz @ factor)
        return Effects(
            fixed=found.fixed / fixed_unit,
            clients=own @ back.T,
            covariance=found.noise * back @ back.T,
            noise=found.noise,
            spread=found.noise * back @ inverse @ back.T,
            follows=back @ inverse @ factor.T @ moments.zx[:, :, :p] * fixed_unit,
            uncertainty=found.noise * found.uncertainty / np.outer(fixed_unit, fixed_unit),
        )
