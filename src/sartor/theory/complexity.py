"""The complexity of a class of hypotheses (section 2.1): Rademacher's, and the pseudo-dimension."""

import math
from typing import Any, Literal

import jax
import numpy as np

from sartor.checking import Count, Numbers, Positive, Whole, checks_arguments
from sartor.errors import ConfigError, DataError
from sartor.models import Model, count_parameters
from sartor.theory.bound import Number

ALL_SIGNS = 14
"""Up to this many samples, all signs are enumerated, and the complexity is exact."""

BLOCK = 2**22
"""Numbers in memory at a time."""


class Rademacher(Number):
    """An empirical Rademacher complexity, ℜ̂ = E_σ[max_h 1/m·Σ_i σ_i·h(z_i)].

    Attributes:
        error: the standard error of the mean over draws of signs; 0 if all signs were enumerated.
    """

    error: float = 0.0

    def __repr__(self) -> str:
        return f"Rademacher({float(self):.4f}" + (f" ± {self.error:.4f})" if self.error else ")")


@checks_arguments
def rademacher(
    values: Numbers | None = None,
    *,
    x: Numbers | None = None,
    radius: Positive | None = None,
    draws: Count = 1000,
    seed: Whole = 0,
) -> Rademacher:
    """The empirical Rademacher complexity of a finite class, or of linear functions in a ball.

    The best hypothesis for given signs is exact. The mean over signs is exact up to 14 samples.
    With more samples, it is the mean of ``draws`` random draws.

    Args:
        values: for a finite class: the value (such as the loss) of each hypothesis for each sample,
            [hypotheses, m].
        x: for linear functions wᵀx with |w| ≤ radius: the samples, [m, features].
        radius: radius of that ball.
        draws: number of draws of signs.
        seed: seed of the draws.

    >>> rademacher([[0.0, 0.0], [1.0, 1.0]])  # a half of the mean of max(0, σ_1 + σ_2)
    Rademacher(0.2500)
    """
    if (values is None) == (x is None):
        raise ConfigError("rademacher: give values of a finite class, or x and radius")
    table = np.asarray(values if x is None else x, np.float64)
    if x is not None:
        if radius is None:
            raise ConfigError("radius: give that of the ball of linear functions")
        table = table.reshape(len(table), -1).T if table.size and table.ndim else table[None]
    if table.ndim != 2 or not table.size:
        raise DataError(f"rademacher: [hypotheses, samples] are needed, got {table.shape}")
    if not np.isfinite(table).all():
        raise DataError("rademacher: there are values that are not finite; leave them out")
    m = table.shape[1]
    exact = m <= ALL_SIGNS
    generator, found = np.random.default_rng(seed), []
    total, at_once = 2**m if exact else draws, max(1, BLOCK // max(table.shape))
    for start in range(0, total, at_once):
        count = min(at_once, total - start)
        if exact:  # the bits of all numbers
            bits = (start + np.arange(count)) >> np.arange(m)[:, None] & 1
            signs = 2.0 * bits - 1
        else:
            signs = generator.choice((-1.0, 1.0), (m, count))
        sums = table @ signs
        best = sums.max(axis=0) if x is None else (radius or 0.0) * np.linalg.norm(sums, axis=0)
        found.append(best / m)
    largest = np.concatenate(found)
    sure = exact or len(largest) < 2
    error = 0.0 if sure else float(largest.std(ddof=1) / math.sqrt(len(largest)))
    return Rademacher(largest.mean(), error=error)


How = Literal["known", "at most", "parameters"]

SQUARED = 4.67
"""The c with 2^c = 2ec: no more than c·d samples can be labelled in all ways."""


class Dimension(Number):
    """A pseudo-dimension, and how it is known.

    Attributes:
        how: ``"known"``; ``"at most"``; or ``"parameters"``, where the number of parameters stands
            for it. The pseudo-dimension of a network is about that, and often larger.
    """

    how: How = "parameters"

    def __repr__(self) -> str:
        return f"Dimension({float(self):g}, {self.how})"


@checks_arguments
def pseudo_dimension(model: Model) -> Dimension:
    """The pseudo-dimension d of a model's losses, which the bounds need.

    It is n + 1 for a linear classifier of n features and two classes, and K − 1 for densities over
    K symbols. The squared error of a linear function exceeds a threshold on two sides, so m samples
    can be labelled in at most (2em/(n+1))^(n+1) ways, and the pseudo-dimension is at most
    4.67·(n + 1). For other models the number of parameters stands for it, and ``how`` says so.

    >>> from sartor.models import categorical, cnn, linear
    >>> pseudo_dimension(linear(features=3)), pseudo_dimension(categorical(symbols=50))
    (Dimension(18.68, at most), Dimension(49, known))
    >>> pseudo_dimension(cnn())
    Dimension(1.20659e+06, parameters)
    """
    shapes: Any = jax.eval_shape(model.init, jax.random.key(0))
    count, spec = count_parameters(shapes), model.spec or {}
    match spec.get("name"):
        case "linear" if spec["outputs"] == 1:
            return Dimension(SQUARED * count, how="at most")
        case "logistic" if spec["classes"] == 2:
            return Dimension(count / 2, how="known")
        case "categorical" if spec["symbols"] > 1:
            return Dimension(count - 1, how="known")
    return Dimension(count, how="parameters")
