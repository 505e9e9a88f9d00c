"""Every bound of the paper as a number, with the paper's constants or with derived ones.

``constants="paper"`` is the formula as printed. Every O(·) has the constant 1 (Blitzer's has 2c,
with c = 1). Some formulas have slips, and an O(·) promises nothing at a given size.
``constants="derived"`` comes from a proof with all its constants. Each function says where the two
differ. The proofs use three facts about losses between 0 and B and m independent samples, which may
have different distributions:

- McDiarmid: with probability 1 − δ, the largest deviation exceeds its mean by at most
  B·√(log(1/δ) / 2m);
- symmetrization: that mean is at most twice the Rademacher complexity of the losses;
- Massart and Sauer: with pseudo-dimension d, twice that is at most B·√(2·d·log(em/d) / m).

No loss may exceed ``bound`` (B). A log-loss has to be clipped, or bounded by the probabilities that
a model can give. d is the pseudo-dimension of the losses, ℜ is their expected complexity, and disc
is the discrepancy of the true distributions. With estimates from the same samples, a bound is only
an estimate, too.
"""

import math
from typing import Annotated, Literal

import numpy as np

from sartor.checking import (
    Count,
    NotNegative,
    Numbers,
    Positive,
    Probability,
    Range,
    Share,
    checks_arguments,
    shown,
)
from sartor.errors import ConfigError
from sartor.theory.bound import Bound

Constants = Literal["paper", "derived"]


@checks_arguments
def local(
    *,
    m: Positive,
    d: Positive | None = None,
    delta: Probability,
    rademacher: NotNegative | None = None,
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> Bound:
    """Equation 1: the excess loss of a local model, over the best of its class.

    L_D1(h_D̂1) − L_D1(h_D1) = O(ℜ_{D1,m1}(H)) = O(√(d + log 1/δ) / √m1)

    Derived: 2·ℜ + B·√(2·log(2/δ) / m), where 2·ℜ is at most B·√(2·d·log(em/d) / m).

    Args:
        m: m1, the number of the client's samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ, the probability that the bound fails.
        rademacher: ℜ_{D1,m1} of the losses, instead of d.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> local(m=1000, d=10, delta=0.05)
    Bound(0.4207, complexity 0.3348 + confidence 0.0859)
    >>> local(m=5, d=10, delta=0.05).vacuous
    True
    """
    return _one_model(m, d, rademacher, delta, constants, bound)


@checks_arguments
def global_(
    *,
    m: Positive,
    d: Positive | None = None,
    delta: Probability,
    disc: NotNegative,
    rademacher: NotNegative | None = None,
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> Bound:
    """Equation 2: the excess loss of the uniform global model, on one client.

    L_D1(h_Û) − L_D1(h_D1) = O(ℜ_{U,m}(H)) + disc(D1, U)

    Derived: the discrepancy counts twice. The bound compares the best model for everybody with the
    best model for the client, and the loss of each may change by disc from one distribution to the
    other.

    Args:
        m: the number of all clients' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: disc_H(D1, U), between the client and everybody.
        rademacher: ℜ_{U,m} of the losses, instead of d.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> global_(m=1000, d=10, delta=0.05, disc=0.0) == local(m=1000, d=10, delta=0.05)
    True
    """
    alone = local(m=m, d=d, delta=delta, rademacher=rademacher, constants=constants, bound=bound)
    twice = 1 if constants == "paper" else 2
    return alone.plus(discrepancy=twice * _discrepancy(disc, bound))


@checks_arguments
def skewness(lambda_: Numbers, m: Numbers) -> float:
    """Appendix B.2: the skewness s(λ, m) = Σ_k λ_k² / (m_k / m) of mixture weights.

    It is 1 if the weights are the clients' shares of samples, and larger otherwise.

    >>> skewness([0.25, 0.75], [10, 30]), skewness([0.5, 0.5], [10, 30])
    (1.0, 1.3333333333333333)
    """
    weights, sizes = np.asarray(lambda_, np.float64), np.asarray(m, np.float64)
    if weights.shape != sizes.shape or weights.ndim != 1 or not len(weights):
        raise ConfigError(
            f"lambda_ and m must hold one number for every client (got {shown(lambda_)} and "
            f"{shown(m)})"
        )
    if not (sizes > 0).all():
        raise ConfigError(f"m: client {int(np.argmin(sizes))} has no samples; leave it out")
    if (weights < 0).any() or not math.isclose(weights.sum(), 1, abs_tol=1e-6):
        raise ConfigError(f"lambda_: weights are at least 0 and add up to 1, got {weights}")
    return float((weights**2 / sizes).sum() * sizes.sum())


@checks_arguments
def agnostic(
    *,
    m: Positive,
    d: Positive,
    delta: Probability,
    disc: NotNegative,
    skewness: Annotated[float, Range(1 - 1e-9)],
    cover: Annotated[int, Range(1)],
    epsilon: NotNegative,
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> Bound:
    """Appendix B.2: the agnostic model, trained for the worst mixture of clients, on one client.

    L_D1(h) ≤ L_D1(h_D1) + Õ(√s(Λ_ε, m) · √(d + log |Λ_ε|/δ) / √m + ε) + disc(D1, D_λ*)

    Derived: B·√s·(√(2·d·log(em/d) / m) + √(2·log(2·|Λ_ε|/δ) / m)) + ε·B + disc. The paper's λ* is
    the worst mixture for the trained model h, which needs a saddle point (convex losses). In
    general λ* is the worst mixture for h_D1, and the largest disc(D1, D_λ) is enough. The client
    alone must be one of the mixtures, or within ε of one. Otherwise the bound is not about it.

    Args:
        m: the number of all clients' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: the discrepancy between the client and the worst mixture.
        skewness: s(Λ_ε, m), the largest :func:`skewness` of the mixtures.
        cover: |Λ_ε|, the number of mixtures.
        epsilon: ε, how far any other mixture is from the nearest one, in the sum of absolute
            differences.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    found = _one_model(m, d, None, delta, constants, bound, skewness, cover)
    return found.plus(cover=bound * epsilon, discrepancy=_discrepancy(disc, bound))


@checks_arguments
def cluster(
    *,
    m: Positive,
    p: Count,
    q: Count,
    delta: Probability,
    d: Positive | None = None,
    rademacher: NotNegative | None = None,
    disc: NotNegative | None = None,
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> Bound:
    """Section 4.2, theorem and corollary: true against empirical loss of q cluster models.

    max |Σ_k m_k/m·(min_i L_Dk(h_i) − min_i L_D̂k(h_i))|
        ≤ 2·√(p·log(2q/δ) / m) + max_C Σ_i m_Ci/m · ℜ_{Ci,m_Ci}(H)

    With d, this is the corollary, whose last term is √(d·q/m · log(em/d)). With ``disc``, it is the
    combined bound on the excess loss of clients, over the best model for each of them:

    Σ_k m_k/m·(L_Dk(ĥ_f(k)) − min_h L_Dk(h)) ≤ ... + Σ_k m_k/m · disc(D_k, C_f(k)).

    Derived: √((p·log q + log(2/δ)) / 2m)·B + √(2·d·q/m · log(em/d))·B. This has symmetrization's
    factor of 2 on ℜ. Its union bound counts all q^p clusterings, so that q = 1 has no p. The
    combined bound is twice this, by the lemma of appendix C.2, plus the discrepancies. The paper
    leaves out the 2 there, and writes d·q·e·log(m/d).

    Args:
        m: the number of all clients' samples.
        p: the number of clients.
        q: the number of clusters.
        delta: δ.
        d: the pseudo-dimension of H with the loss.
        rademacher: max_C Σ_i m_Ci/m·ℜ_{Ci,m_Ci}, instead of d.
        disc: Σ_k m_k/m·disc_H(D_k, C_f(k)), for the combined bound.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    if q > p:
        raise ConfigError(f"q={q}: there are no more clusters than clients, which are {p}")
    d = _dimension(d, rademacher)
    if constants == "derived":
        times = 1 if disc is None else 2  # the lemma of appendix C.2
        confidence = times * bound * math.sqrt((p * math.log(q) + math.log(2 / delta)) / (2 * m))
        complexity = times * _complexity(m, d, rademacher, bound, q)
    else:
        confidence = 2 * bound * math.sqrt(p * math.log(2 * q / delta) / m)
        if rademacher is not None:
            complexity = rademacher
        elif disc is None:
            complexity = bound * math.sqrt(_log_growth(m, d) * q / m)
        else:
            complexity = bound * math.sqrt(d * q * math.e * math.log(max(m / d, 1)) / m)
    found = Bound.of(bound, few=d > m, complexity=complexity, confidence=confidence)
    return found if disc is None else found.plus(discrepancy=_discrepancy(disc, bound))


@checks_arguments
def epsilon(*, lambda_: Share, m_k: Positive, m_C: Positive) -> float:
    """Section 5: ε_λ = √(λ²/m_k + (1−λ)²/m_C), the rate at which a λ-mixture generalizes.

    >>> epsilon(lambda_=1.0, m_k=100, m_C=10_000)
    0.1
    """
    return math.sqrt(lambda_**2 / m_k + (1 - lambda_) ** 2 / m_C)


@checks_arguments
def blitzer(
    *,
    lambda_: Share,
    m_k: Positive,
    m_C: Positive,
    d: Positive,
    delta: Probability,
    disc: NotNegative | None = None,
    constants: Constants = "derived",
    bound: Positive = 1.0,
    c: Positive = 1.0,
) -> Bound:
    """Section 5, Blitzer's lemma: the excess loss of the model trained on a λ-mixture of samples.

    λ·L_Dk(h_λ̂) + (1−λ)·L_C(h_λ̂) − (λ·L_Dk(h_λ) + (1−λ)·L_C(h_λ)) = O(ε_λ · √(d·log 1/δ))

    The paper has the sign of its last term wrong. With ``disc``, this bounds the client's excess
    loss L_Dk(h_λ̂) − min_h L_Dk(h), which has 2·(1−λ)·disc(D_k, C) more.

    Paper: 2c·ε_λ·√(d·log 1/δ). Derived: B·ε_λ·(√(2·d·log(e(m_k+m_C)/d)) + √(2·log 2/δ)), if none of
    the samples of C are the client's own.

    Args:
        lambda_: λ, the weight of the client's own samples.
        m_k: the number of the client's samples.
        m_C: the number of the others' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: disc_H(D_k, C), for the client's excess loss.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
        c: the constant of the O(·), for ``"paper"``.
    """
    worth, total = epsilon(lambda_=lambda_, m_k=m_k, m_C=m_C), m_k + m_C
    if constants == "derived":
        terms = {
            "complexity": bound * worth * math.sqrt(2 * _log_growth(total, d)),
            "confidence": bound * worth * math.sqrt(2 * math.log(2 / delta)),
        }
    else:
        terms = {"complexity": 2 * c * bound * worth * math.sqrt(d * math.log(1 / delta))}
    if disc is not None:
        terms["discrepancy"] = 2 * (1 - lambda_) * _discrepancy(disc, bound)
    return Bound.of(bound, few=d > total, **terms)


@checks_arguments
def dapper(
    *,
    lambda_: Share,
    m_k: Positive,
    mu: Positive,
    G: Positive,
    R: Positive,
    r: Count | None = None,
    constants: Constants = "derived",
) -> Bound:
    """Section 5, theorem: the empirical excess loss of Dapper's SGD on the λ-mixture of samples.

    E[g(h_A)] − g(h_λ̂) ≤ G/√(r·m_k) · min(2Gλ/(μ(1−λ)), R)

    This bounds the mean, for the step size of :func:`dapper_step_size`. It is at most
    λ/√m_k ≤ ε_λ if r is at least :func:`dapper_r`. The loss is μ-strongly convex, and the norms of
    its gradients are at most G (the paper calls that G-smooth). The paper's SGD bound misses a 1/T,
    which the mean of T iterates has; the result is the same.

    Args:
        lambda_: λ.
        m_k: the number of the client's samples.
        mu: μ, how strongly convex the loss is.
        G: the largest norm of a gradient.
        R: the diameter of H.
        r: steps for each of the client's samples (default: :func:`dapper_r`).
        constants: for r, see :func:`dapper_r`.
    """
    steps = (dapper_r(mu=mu, G=G, R=R, constants=constants) if r is None else r) * m_k
    rate = dapper_step_size(lambda_=lambda_, steps=steps, mu=mu, G=G, R=R)
    return Bound.of(math.inf, optimization=rate * G**2)  # the step size is distance / (G·√T)


@checks_arguments
def dapper_r(*, mu: Positive, G: Positive, R: Positive, constants: Constants = "derived") -> int:
    """Section 5, theorem: the r that is enough for ε_λ, for every λ.

    Paper: r ≥ G²·(4G/μ + 2R)². Derived: G²·(2G/μ + R)², a quarter of it, because the largest value
    of min(2G/(μ(1−λ)), R/λ) is 2G/μ + R. It is where both are equal, at λ = Rμ/(2G + Rμ).

    >>> dapper_r(mu=1.0, G=0.75, R=0.5, constants="paper"), dapper_r(mu=1.0, G=0.75, R=0.5)
    (9, 3)
    """
    factor = 2 if constants == "paper" else 1
    return max(1, math.ceil((G * factor * (2 * G / mu + R)) ** 2 - 1e-9))


@checks_arguments
def dapper_step_size(
    *, lambda_: Share, steps: Positive, mu: Positive, G: Positive, R: Positive
) -> float:
    """Section 5, theorem: the step size η = min(2Gλ/(μ(1−λ)), R) / (G·√T), for T = r·m_k steps."""
    distance = R if lambda_ == 1 else min(2 * G * lambda_ / (mu * (1 - lambda_)), R)
    return distance / (G * math.sqrt(steps))


@checks_arguments
def interpolation(
    *,
    m: Positive,
    p: Count,
    delta: Probability,
    d_c: Positive | None = None,
    d_l: Positive | None = None,
    rademacher: NotNegative | None = None,
    lipschitz: Positive = 1.0,
    constants: Constants = "derived",
    bound: Positive = 1.0,
) -> Bound:
    """Section 6, theorem and corollary: the excess loss of interpolated models.

    Σ_k m_k/m·(L_Dk(ĥ) − L_Dk(h*))
        ≤ 2L·(ℜ_{U,m}(H_c) + Σ_k m_k/m·ℜ_{Dk,m_k}(H_l)) + 2·√(log(1/δ) / m)

    for h = (1−λ_k)·h_c + λ_k·h_{l,k}. With pseudo-dimensions, this is the corollary:
    2L·(√(d_c/m · log(em/d_c)) + √(d_l·p/m · log(em/d_l))) + 2·√(log(1/δ) / m).

    Derived: L·√(2·(p·log 2 + d_c·log(em/d_c) + p·d_l·log(em/(p·d_l))) / m) + B·√(2·log(2/δ) / m),
    for predictions between 0 and 1. The p·log 2 comes from the clients' choices of λ: each of them
    decides which of the two models follows the random signs. The paper takes the complexity of
    (1−λ_k)·h_c to be that of h_c, as if λ_k were fixed in advance. Its theorem does not hold for
    many clients with few samples each.

    Args:
        m: the number of all clients' samples.
        p: the number of clients.
        delta: δ.
        d_c: the pseudo-dimension of H_c.
        d_l: the pseudo-dimension of H_l.
        rademacher: the sum of complexities in brackets, instead of dimensions. Derived, the
            clients' choices of λ add √(p·log 2 / 2m) to it.
        lipschitz: L, the Lipschitz constant of the loss.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    d_c, d_l = _dimension(d_c, rademacher, "d_c"), _dimension(d_l, rademacher, "d_l")
    paper = constants == "paper"
    if rademacher is not None:
        choices = 0.0 if paper else math.sqrt(p * math.log(2) / (2 * m))
        complexity = 2 * lipschitz * (rademacher + choices)
    elif paper:
        both = math.sqrt(_log_growth(m, d_c) / m) + math.sqrt(p * _log_growth(m, d_l) / m)
        complexity = lipschitz * (2 * both)
    else:
        choices = p * math.log(2) + _log_growth(m, d_c) + p * _log_growth(m / p, d_l)
        complexity = lipschitz * math.sqrt(2 * choices / m)
    confidence = math.sqrt((4 * math.log(1 / delta) if paper else 2 * math.log(2 / delta)) / m)
    few = d_c > m or d_l > m / p
    return Bound.of(bound, few=few, complexity=complexity, confidence=bound * confidence)


def _one_model(
    m: float,
    d: float | None,
    rademacher: float | None,
    delta: float,
    constants: Constants,
    bound: float,
    skewness: float = 1.0,
    cover: int = 1,
) -> Bound:
    """The excess loss of one model trained on m samples, for every mixture of a cover at once.

    Equations 1 and 2 have one mixture, whose weights are the shares of samples: skewness 1.
    """
    d = _dimension(d, rademacher)
    if constants == "derived":
        complexity = math.sqrt(skewness) * _complexity(m, d, rademacher, bound)
        confidence = bound * math.sqrt(2 * skewness * math.log(2 * cover / delta) / m)
        return Bound.of(bound, few=d > m, complexity=complexity, confidence=confidence)
    size = math.sqrt(skewness * (d + math.log(cover / delta)) / m)
    return Bound.of(bound, few=d > m, complexity=bound * size if rademacher is None else rademacher)


def _complexity(m: float, d: float, rademacher: float | None, bound: float, q: int = 1) -> float:
    """2·ℜ of the losses of q models, or an upper bound of it."""
    if rademacher is not None:
        return 2 * rademacher
    return bound * math.sqrt(2 * q * _log_growth(m, d) / m)


def _log_growth(m: float, d: float) -> float:
    """Sauer's lemma: the logarithm of how many ways m samples can be labelled, at most."""
    return d * math.log(math.e * m / d) if d <= m else m


def _dimension(d: float | None, rademacher: float | None, name: str = "d") -> float:
    """The pseudo-dimension; 0 if the Rademacher complexity is known and counts instead."""
    if rademacher is not None:
        return 0.0
    if d is None:
        raise ConfigError(f"{name}: give the pseudo-dimension, or rademacher=")
    return d


def _discrepancy(disc: float, bound: float) -> float:
    if not 0 <= disc <= bound * (1 + 1e-9):
        raise ConfigError(f"disc={disc}: it must be from 0 to the largest loss, bound={bound}")
    return disc
