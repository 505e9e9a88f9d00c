"""How rich a class of hypotheses is: Rademacher complexity, and pseudo-dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from sartor.errors import ConfigError, DataError
from sartor.models import Model, count_parameters
from sartor.theory.bound import check_positive

Floats = npt.NDArray[np.float64]

ALL_SIGNS = 14
"""Up to so many samples all signs are gone through, and the complexity is exact."""

BLOCK = 2**22
"""Numbers that are worked on at a time."""


class Rademacher(float):
    """An empirical Rademacher complexity, ℜ̂ = E_σ[max_h 1/m·Σ_i σ_i·h(z_i)].

    Attributes:
        error: the standard error of the mean over draws of signs; 0 if all signs were gone through.
    """

    error: float

    @classmethod
    def of(cls, largest: Floats, exact: bool) -> Rademacher:
        """The mean over signs, of what the best hypothesis reaches for each."""
        self = cls(largest.mean())
        few = exact or len(largest) < 2
        self.error = 0.0 if few else float(largest.std(ddof=1) / math.sqrt(len(largest)))
        return self

    def __repr__(self) -> str:
        return f"Rademacher({float(self):.4f}" + (f" ± {self.error:.4f})" if self.error else ")")


def rademacher(
    values: npt.ArrayLike | None = None,
    *,
    x: npt.ArrayLike | None = None,
    radius: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Rademacher:
    """The empirical Rademacher complexity of a finite class, or of linear functions in a ball.

    For given signs the best hypothesis is found exactly; the mean over signs is exact up to 14
    samples, and of ``draws`` draws with more.

    Args:
        values: of a finite class: what each hypothesis (its loss, say) is for each sample,
            [hypotheses, m].
        x: of linear functions wᵀx with |w| ≤ radius: the samples, [m, features].
        radius: of that ball.
        draws: of signs.
        seed: of the draws.

    >>> rademacher([[0.0, 0.0], [1.0, 1.0]])  # a half of the mean of max(0, σ_1 + σ_2)
    Rademacher(0.2500)
    """
    if (values is None) == (x is None):
        raise ConfigError("rademacher: give values of a finite class, or x and radius")
    table = np.asarray(values if x is None else x, np.float64)
    if x is not None:
        check_positive(radius=radius or 0.0)
        table = table.reshape(len(table), -1).T
    if table.ndim != 2 or not table.size:
        raise DataError(f"rademacher: [hypotheses, samples] are needed, got {table.shape}")
    m = table.shape[1]
    best: Callable[[Floats], Floats]
    if x is None:
        best = lambda sums: sums.max(axis=0)  # noqa: E731
    else:
        best = lambda sums: (radius or 0.0) * np.linalg.norm(sums, axis=0)  # noqa: E731
    if m <= ALL_SIGNS:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=m))).T
        return Rademacher.of(best(table @ signs) / m, exact=True)
    generator, found = np.random.default_rng(seed), []
    at_once = max(1, BLOCK // max(table.shape))
    for start in range(0, draws, at_once):
        signs = generator.choice((-1.0, 1.0), (m, min(at_once, draws - start)))
        found.append(best(table @ signs) / m)
    return Rademacher.of(np.concatenate(found), exact=False)


class Dimension(float):
    """A pseudo-dimension, and how it is known.

    Attributes:
        how: ``"known"``; or ``"parameters"``, a count of parameters that stands for it: networks
            have no less than about as many, and often more.
    """

    how: Literal["known", "parameters"]

    @classmethod
    def of(cls, value: float, how: Literal["known", "parameters"]) -> Dimension:
        """A value."""
        self = cls(value)
        self.how = how
        return self

    def __repr__(self) -> str:
        return f"Dimension({float(self):g}, {self.how})"


def pseudo_dimension(model: Model) -> Dimension:
    """The pseudo-dimension d of a model.

    Linear functions of n features with an intercept have n + 1, and so have two classes told apart
    by them; densities over K symbols have K − 1 at most. For others the number of parameters
    stands for it, and ``how`` says so.

    >>> from sartor.models import categorical, cnn, linear
    >>> pseudo_dimension(linear(features=3)), pseudo_dimension(categorical(symbols=50))
    (Dimension(4, known), Dimension(49, known))
    >>> pseudo_dimension(cnn())
    Dimension(1.20659e+06, parameters)
    """
    shapes: Any = jax.eval_shape(model.init, jax.random.key(0))
    count, spec = count_parameters(shapes), model.spec or {}
    match spec.get("name"):
        case "linear" if spec["outputs"] == 1:
            return Dimension.of(count, "known")
        case "logistic" if spec["classes"] == 2:
            return Dimension.of(count / 2, "known")
        case "categorical" if spec["symbols"] > 1:
            return Dimension.of(count - 1, "known")
    return Dimension.of(count, "parameters")
