"""What the bounds are for: which λ, how many clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from sartor.errors import ConfigError
from sartor.theory.bound import Bound
from sartor.theory.bounds import Constants, blitzer, cluster


class BestLambda(NamedTuple):
    """A client's λ, and what it promises.

    Attributes:
        lambda_: λ*.
        bound: of its excess loss, with the discrepancy.
    """

    lambda_: float
    bound: Bound


class BestQ(NamedTuple):
    """A number of clusters, and what each number promises.

    Attributes:
        q: with the least bound; the smallest of those that have it.
        bounds: by q.
    """

    q: int
    bounds: Mapping[int, Bound]


def best_lambda(
    *,
    m_k: float,
    m_C: float,
    d: float,
    delta: float,
    disc: float,
    constants: Constants = "derived",
    bound: float = 1.0,
    c: float = 1.0,
) -> BestLambda:
    """λ* that minimises a·ε_λ + 2·(1−λ)·disc(D_k, C), the bound of :func:`bounds.blitzer`.

    a is 2c·√(d·log 1/δ) for the paper's constants. With β = m_k/(m_k + m_C), the share of samples
    that are the client's, ε_λ is √((1 + t²) / (m_k + m_C)) at λ = β + t·√(β(1−β)), so that the
    least is where t/√(1+t²) = κ = 2·disc·√((m_k+m_C)·β(1−β)) / a: at λ = β if there is no
    discrepancy, and at 1, the client alone, from some discrepancy on.

    Args:
        m_k: the client's samples.
        m_C: samples of the others.
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

    def at(lambda_: float, distance: float | None = None) -> Bound:
        return blitzer(
            lambda_=lambda_, m_k=m_k, m_C=m_C, d=d, delta=delta, disc=distance,
            constants=constants, bound=bound, c=c,
        )  # fmt: skip

    own = at(1.0)  # a·ε_1, and ε_1 = 1/√m_k
    share, total = m_k / (m_k + m_C), m_k + m_C
    spread = math.sqrt(share * (1 - share))
    kappa = 2 * disc * math.sqrt(total) * spread / (own * math.sqrt(m_k))
    best = 1.0 if kappa >= 1 else min(1.0, share + spread * kappa / math.sqrt(1 - kappa**2))
    return BestLambda(float(best), at(best, disc))


def best_q(
    *,
    m: float,
    p: int,
    d: float,
    delta: float,
    disc: Mapping[int, float],
    constants: Constants = "derived",
    bound: float = 1.0,
) -> BestQ:
    """The number of clusters with the least combined bound.

    Several numbers are compared: for all bounds to hold together, give δ divided by how many. And
    clusters that were found in the same samples look closer to their clients than they are.

    Args:
        m: all clients' samples.
        p: clients.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: for each q, the mean discrepancy Σ_k m_k/m·disc_H(D_k, C_f(k)) of its clusters.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> best_q(m=100_000, p=100, d=10, delta=0.05, disc={1: 0.5, 2: 0.1, 3: 0.09}).q
    2
    """
    if not isinstance(disc, Mapping) or not disc:
        raise ConfigError(
            "disc: give a mapping from numbers of clusters to their mean discrepancies, as "
            "{1: 0.5, 2: 0.1}"
        )
    found = {
        q: cluster(
            m=m, p=p, q=q, delta=delta, d=d, disc=distance, constants=constants, bound=bound
        )
        for q, distance in sorted(disc.items())
    }  # fmt: skip
    return BestQ(min(found, key=lambda q: found[q]), found)
