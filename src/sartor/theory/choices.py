"""The λ and the number of clusters with the lowest bound."""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from sartor.checking import Count, NotNegative, Positive, Probability, checks_arguments
from sartor.errors import ConfigError
from sartor.theory.bound import Bound
from sartor.theory.bounds import Constants, blitzer, cluster


class BestLambda(NamedTuple):
    """A client's best λ.

    Attributes:
        lambda_: λ*.
        bound: the bound on the client's excess loss at λ*.
    """

    lambda_: float
    bound: Bound


class BestQ(NamedTuple):
    """The best number of clusters.

    Attributes:
        q: the number with the lowest bound; the smallest one if several have it.
        bounds: the bound of each number.
    """

    q: int
    bounds: Mapping[int, Bound]


@checks_arguments
def best_lambda(
    *,
    m_k: Positive,
    m_C: Positive,
    d: Positive,
    delta: Probability,
    disc: NotNegative,
    constants: Constants = "derived",
    bound: Positive = 1.0,
    c: Positive = 1.0,
) -> BestLambda:
    """Section 5: the λ* that minimises Blitzer's bound, a·ε_λ + 2·(1−λ)·disc(D_k, C).

    The bound is :func:`bounds.blitzer`; a is 2c·√(d·log 1/δ) for the paper's constants. Let
    β = m_k/(m_k + m_C) be the client's share of samples. At λ = β + t·√(β(1−β)), ε_λ is
    √((1 + t²) / (m_k + m_C)). So the minimum is where
    t/√(1+t²) = κ = 2·disc·√((m_k+m_C)·β(1−β)) / a. Without a discrepancy, λ* is β. With a large
    one, λ* is 1, the client alone.

    Args:
        m_k: the number of the client's samples.
        m_C: the number of the others' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: disc_H(D_k, C).
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
        c: the constant of the O(·), for ``"paper"``.

    >>> best_lambda(m_k=10, m_C=990, d=5, delta=0.05, disc=0.0).lambda_
    0.01
    >>> best_lambda(m_k=1000, m_C=99_000, d=5, delta=0.05, disc=0.9).lambda_
    1.0
    """
    at = functools.partial(
        blitzer, m_k=m_k, m_C=m_C, d=d, delta=delta, constants=constants, bound=bound, c=c
    )
    own = at(lambda_=1.0)  # a·ε_1, and ε_1 = 1/√m_k
    share, total = m_k / (m_k + m_C), m_k + m_C
    spread = math.sqrt(share * (1 - share))
    kappa = 2 * disc * math.sqrt(total) * spread / (own * math.sqrt(m_k))
    best = 1.0 if kappa >= 1 else min(1.0, share + spread * kappa / math.sqrt(1 - kappa**2))
    return BestLambda(float(best), at(lambda_=best, disc=disc))


@checks_arguments
def best_q(
    *,
    m: Positive,
    p: Count,
    d: Positive,
    delta: Probability,
    disc: Mapping[int, float],
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> BestQ:
    """Section 4.2: the number of clusters with the lowest combined bound.

    For all bounds to hold together, divide δ by the number of bounds. Clusters that were found on
    the same samples look closer to their clients than they are.

    Args:
        m: the number of all clients' samples.
        p: the number of clients.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: for each q, the mean discrepancy Σ_k m_k/m·disc_H(D_k, C_f(k)) of its clusters.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> best_q(m=100_000, p=100, d=10, delta=0.05, disc={1: 0.5, 2: 0.1, 3: 0.09}).q
    2
    """
    if not isinstance(disc, Mapping) or not disc:
        raise ConfigError("disc: give a mapping from q to mean discrepancies, such as {1: 0.5}")
    at = functools.partial(cluster, m=m, p=p, delta=delta, d=d, constants=constants, bound=bound)
    found = {q: at(q=q, disc=distance) for q, distance in sorted(disc.items())}
    return BestQ(min(found, key=lambda q: found[q]), found)
