"""Every bound of the paper as a number, with the paper's constants or with derived ones.

``constants="paper"`` is the formula as printed, every O(·) with the constant 1 (Blitzer's with 2c,
where c = 1). Some of them have slips, and an O(·) promises nothing at a given size;
``constants="derived"`` is what a proof with all its constants gives, and each function says where
the two differ. The proofs rest on three facts about losses between 0 and B, for m independent
samples, whatever distributions they are from:

- McDiarmid: a largest deviation exceeds its mean by B·√(log(1/δ) / 2m) with probability δ at most;
- symmetrization: that mean is at most twice the Rademacher complexity of the losses;
- Massart and Sauer: with pseudo-dimension d, twice that is at most B·√(2·d·log(em/d) / m).

A bound is about losses of at most ``bound`` (B); a log-loss has to be clipped, or bounded by the
probabilities that a model can give. d is the pseudo-dimension of the losses, ℜ their expected
complexity, and disc that of the true distributions: with estimates from the same samples, which is
all one has, a bound is an estimate, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from sartor.errors import ConfigError
from sartor.theory.bound import Bound, check_counts, check_delta, check_number, check_positive

Constants = Literal["paper", "derived"]


def local(
    *,
    m: float,
    d: float | None = None,
    delta: float,
    rademacher: float | None = None,
    constants: Constants = "derived",
    bound: float = 1.0,
) -> Bound:
    """A client's own model: how far it is from the best of its class (equation 1).

    L_D1(h_D̂1) − L_D1(h_D1) = O(ℜ_{D1,m1}(H)) = O(√(d + log 1/δ) / √m1)

    Derived: 2·ℜ + B·√(2·log(2/δ) / m), where 2·ℜ is at most B·√(2·d·log(em/d) / m).

    Args:
        m: m1, the client's samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ, the probability that it does not hold.
        rademacher: ℜ_{D1,m1}, of the losses, if it is known; instead of d.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> local(m=1000, d=10, delta=0.05)
    Bound(0.4207, complexity 0.3348 + confidence 0.0859)
    >>> local(m=5, d=10, delta=0.05).vacuous
    True
    """
    _check(constants, delta, bound, m=m)
    if constants == "paper":
        if rademacher is not None:
            return Bound.of(bound, complexity=_known(rademacher))
        size = math.sqrt((_given(d) + math.log(1 / delta)) / m)
        return Bound.of(bound, few=_few(d, m), complexity=bound * size)
    return Bound.of(
        bound,
        few=rademacher is None and _few(d, m),
        complexity=_complexity(m, d, rademacher, bound),
        confidence=bound * math.sqrt(2 * math.log(2 / delta) / m),
    )


def global_(
    *,
    m: float,
    d: float | None = None,
    delta: float,
    disc: float,
    rademacher: float | None = None,
    constants: Constants = "derived",
    bound: float = 1.0,
) -> Bound:
    """One model for all, as one client sees it (equation 2).

    L_D1(h_Û) − L_D1(h_D1) = O(ℜ_{U,m}(H)) + disc(D1, U)

    Derived, the discrepancy counts twice: what is best for everybody is compared with what is best
    for the client, and each of the two may be worse by it on the other's distribution.

    Args:
        m: all clients' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: disc_H(D1, U), between the client and everybody.
        rademacher: ℜ_{U,m}, of the losses, if it is known; instead of d.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.

    >>> global_(m=1000, d=10, delta=0.05, disc=0.0) == local(m=1000, d=10, delta=0.05)
    True
    """
    alone = local(m=m, d=d, delta=delta, rademacher=rademacher, constants=constants, bound=bound)
    twice = 1 if constants == "paper" else 2
    return alone.plus(discrepancy=twice * _discrepancy(disc, bound))


def skewness(lambda_: Sequence[float], m: Sequence[float]) -> float:
    """s(λ, m) = Σ_k λ_k² / (m_k / m): how far mixture weights are from the shares of samples.

    It is 1 if they are the same, and larger otherwise.

    >>> skewness([0.25, 0.75], [10, 30]), skewness([0.5, 0.5], [10, 30])
    (1.0, 1.3333333333333333)
    """
    weights, sizes = np.asarray(lambda_, np.float64), np.asarray(m, np.float64)
    if weights.shape != sizes.shape or weights.ndim != 1 or not len(weights):
        raise ConfigError(f"lambda_, m: one for every client, got {lambda_} and {m}")
    if not (sizes > 0).all():
        raise ConfigError(f"m: client {int(np.argmin(sizes))} has no samples; leave it out")
    if (weights < 0).any() or not math.isclose(weights.sum(), 1, abs_tol=1e-6):
        raise ConfigError(f"lambda_: weights are at least 0 and add up to 1, got {weights}")
    return float((weights**2 / sizes).sum() * sizes.sum())


def agnostic(
    *,
    m: float,
    d: float,
    delta: float,
    disc: float,
    skewness: float,
    cover: int,
    epsilon: float,
    constants: Constants = "derived",
    bound: float = 1.0,
) -> Bound:
    """One model for the worst mixture of clients, as one of them sees it (appendix B).

    L_D1(h) ≤ L_D1(h_D1) + Õ(√s(Λ_ε, m) · √(d + log |Λ_ε|/δ) / √m + ε) + disc(D1, D_λ*)

    Derived: B·√s·(√(2·d·log(em/d) / m) + √(2·log(2·|Λ_ε|/δ) / m)) + ε·B + disc. The paper's λ* is
    the mixture that is worst for the trained model h, which needs a saddle point (convex losses);
    in general it is the one that is worst for h_D1, and the largest of disc(D1, D_λ) is enough. The
    client alone must be one of the mixtures, or within ε of one: without it this is not its bound.

    Args:
        m: all clients' samples.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: the discrepancy between the client and the worst mixture.
        skewness: s(Λ_ε, m), the largest :func:`skewness` of the mixtures.
        cover: |Λ_ε|, how many mixtures there are.
        epsilon: ε, how far (in the sum of absolute differences) others are from the nearest.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    _check(constants, delta, bound, m=m, skewness=skewness)
    check_counts(cover=cover)
    check_number(epsilon=epsilon)
    if not epsilon >= 0:
        raise ConfigError(f"epsilon={epsilon}: it must be at least 0")
    if skewness < 1 - 1e-9:
        raise ConfigError(f"skewness={skewness}: it is at least 1")
    d = _given(d)
    distance = {"cover": bound * epsilon, "discrepancy": _discrepancy(disc, bound)}
    few = _few(d, m)
    if constants == "paper":
        size = math.sqrt(skewness * (d + math.log(cover / delta)) / m)
        return Bound.of(bound, few=few, complexity=bound * size, **distance)
    confidence = bound * math.sqrt(2 * skewness * math.log(2 * cover / delta) / m)
    complexity = math.sqrt(skewness) * _complexity(m, d, None, bound)
    return Bound.of(bound, few=few, complexity=complexity, confidence=confidence, **distance)


def cluster(
    *,
    m: float,
    p: int,
    q: int,
    delta: float,
    d: float | None = None,
    rademacher: float | None = None,
    disc: float | None = None,
    constants: Constants = "derived",
    bound: float = 1.0,
) -> Bound:
    """Clusters: q models, each client with its best; true against empirical loss (section 4).

    max |Σ_k m_k/m·(min_i L_Dk(h_i) − min_i L_D̂k(h_i))|
        ≤ 2·√(p·log(2q/δ) / m) + max_C Σ_i m_Ci/m · ℜ_{Ci,m_Ci}(H)

    and with d its corollary, whose last term is √(d·q/m · log(em/d)). With ``disc`` the combined
    bound, of the loss that clients pay over the best model that each could have:

    Σ_k m_k/m·(L_Dk(ĥ_f(k)) − min_h L_Dk(h)) ≤ ... + Σ_k m_k/m · disc(D_k, C_f(k)).

    Derived: √((p·log q + log(2/δ)) / 2m)·B + √(2·d·q/m · log(em/d))·B. Symmetrization's factor of 2
    on ℜ is there, and the union over q^p clusterings is taken exactly, so that q = 1 has no p. The
    combined bound is twice this, by the paper's lemma 1, plus the discrepancies; the paper leaves
    the 2 out there, and writes d·q·e·log(m/d).

    Args:
        m: all clients' samples.
        p: clients.
        q: clusters.
        delta: δ.
        d: the pseudo-dimension of H with the loss.
        rademacher: max_C Σ_i m_Ci/m·ℜ_{Ci,m_Ci}, if it is known; instead of d.
        disc: Σ_k m_k/m·disc_H(D_k, C_f(k)).
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    _check(constants, delta, bound, m=m)
    check_counts(p=p, q=q)
    if q > p:
        raise ConfigError(f"q={q}: there are no more clusters than clients, which are {p}")
    few = rademacher is None and _few(d, m)
    if constants == "paper":
        confidence = 2 * bound * math.sqrt(p * math.log(2 * q / delta) / m)
        if rademacher is not None:
            complexity = _known(rademacher)
        elif disc is None:
            complexity = bound * math.sqrt(_log_growth(m, _given(d)) * q / m)
        else:
            dims = _given(d)
            complexity = bound * math.sqrt(dims * q * math.e * math.log(max(m / dims, 1)) / m)
    else:
        times = 1 if disc is None else 2  # lemma 1
        confidence = times * bound * math.sqrt((p * math.log(q) + math.log(2 / delta)) / (2 * m))
        complexity = times * _complexity(m, d, rademacher, bound, q)
    found = Bound.of(bound, few=few, complexity=complexity, confidence=confidence)
    return found if disc is None else found.plus(discrepancy=_discrepancy(disc, bound))


def epsilon(*, lambda_: float, m_k: float, m_C: float) -> float:
    """ε_λ = √(λ²/m_k + (1−λ)²/m_C): how much samples of a client and of others are worth together.

    >>> epsilon(lambda_=1.0, m_k=100, m_C=10_000)
    0.1
    """
    check_positive(m_k=m_k, m_C=m_C)
    _check_share(lambda_)
    return math.sqrt(lambda_**2 / m_k + (1 - lambda_) ** 2 / m_C)


def blitzer(
    *,
    lambda_: float,
    m_k: float,
    m_C: float,
    d: float,
    delta: float,
    disc: float | None = None,
    constants: Constants = "derived",
    bound: float = 1.0,
    c: float = 1.0,
) -> Bound:
    """The best model on a λ-mixture of samples, against the best on the mixture (Blitzer's lemma).

    λ·L_Dk(h_λ̂) + (1−λ)·L_C(h_λ̂) − (λ·L_Dk(h_λ) + (1−λ)·L_C(h_λ)) = O(ε_λ · √(d·log 1/δ))

    (the paper has the sign of its last term wrong). With ``disc``, what it means for the client:
    L_Dk(h_λ̂) − min_h L_Dk(h), which is at most that plus 2·(1−λ)·disc(D_k, C).

    Paper: 2c·ε_λ·√(d·log 1/δ). Derived: B·ε_λ·(√(2·d·log(e(m_k+m_C)/d)) + √(2·log 2/δ)), for
    samples of C that are not the client's own.

    Args:
        lambda_: λ, the weight of the client's own samples.
        m_k: their number.
        m_C: samples of the others.
        d: the pseudo-dimension of H with the loss.
        delta: δ.
        disc: disc_H(D_k, C).
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
        c: the constant of the O(·), for ``"paper"``.
    """
    _check(constants, delta, bound, m_k=m_k, m_C=m_C, d=d, c=c)
    worth, total = epsilon(lambda_=lambda_, m_k=m_k, m_C=m_C), m_k + m_C
    few = d > total
    if constants == "paper":
        size = 2 * c * bound * worth * math.sqrt(d * math.log(1 / delta))
        found = Bound.of(bound, few=few, complexity=size)
    else:
        found = Bound.of(
            bound,
            few=few,
            complexity=bound * worth * math.sqrt(2 * _log_growth(total, d)),
            confidence=bound * worth * math.sqrt(2 * math.log(2 / delta)),
        )
    if disc is None:
        return found
    return found.plus(discrepancy=2 * (1 - lambda_) * _discrepancy(disc, bound))


def dapper(
    *,
    lambda_: float,
    m_k: float,
    mu: float,
    G: float,
    R: float,
    r: int | None = None,
    constants: Constants = "derived",
) -> Bound:
    """How near Dapper's SGD comes to the best model on the λ-mixture of samples (section 5).

    E[g(h_A)] − g(h_λ̂) ≤ G/√(r·m_k) · min(2Gλ/(μ(1−λ)), R), which is at most λ/√m_k ≤ ε_λ from
    :func:`dapper_r` on; with the step size :func:`dapper_step_size`. The bound is on the mean.

    The loss is μ-strongly convex, and its gradients have at most the norm G (the paper calls that
    G-smooth). Its SGD bound misses a 1/T, which the mean of T iterates has; the result is the same.

    Args:
        lambda_: λ.
        m_k: the client's samples.
        mu: μ, how strongly convex the loss is.
        G: the largest norm of a gradient.
        R: the diameter of H.
        r: steps for each of the client's samples; the theorem's if not given.
        constants: for r, see :func:`dapper_r`.
    """
    steps = (dapper_r(mu=mu, G=G, R=R, constants=constants) if r is None else r) * m_k
    rate = dapper_step_size(lambda_=lambda_, steps=steps, mu=mu, G=G, R=R)
    return Bound.of(math.inf, optimization=rate * G**2)  # the step size is distance / (G·√T)


def dapper_r(*, mu: float, G: float, R: float, constants: Constants = "derived") -> int:
    """Samples of everybody's data for each of the client's that are enough for ε_λ, for every λ.

    Paper: r ≥ G²·(4G/μ + 2R)². Derived: G²·(2G/μ + R)², a quarter of it. The largest of
    min(2G/(μ(1−λ)), R/λ) is where the two are the same, at λ = Rμ/(2G + Rμ), and 2G/μ + R there.

    >>> dapper_r(mu=1.0, G=0.75, R=0.5, constants="paper"), dapper_r(mu=1.0, G=0.75, R=0.5)
    (9, 3)
    """
    _check_constants(constants)
    check_positive(mu=mu, G=G, R=R)
    factor = 2 if constants == "paper" else 1
    return max(1, math.ceil((G * factor * (2 * G / mu + R)) ** 2 - 1e-9))


def dapper_step_size(*, lambda_: float, steps: float, mu: float, G: float, R: float) -> float:
    """The theorem's η = min(2Gλ/(μ(1−λ)), R) / (G·√T), for T = r·m_k steps."""
    check_positive(steps=steps, mu=mu, G=G, R=R)
    _check_share(lambda_)
    distance = R if lambda_ == 1 else min(2 * G * lambda_ / (mu * (1 - lambda_)), R)
    return distance / (G * math.sqrt(steps))


def interpolation(
    *,
    m: float,
    p: int,
    delta: float,
    d_c: float | None = None,
    d_l: float | None = None,
    rademacher: float | None = None,
    lipschitz: float = 1.0,
    constants: Constants = "derived",
    bound: float = 1.0,
) -> Bound:
    """Local and central models interpolated, against the best ones (section 6).

    Σ_k m_k/m·(L_Dk(ĥ) − L_Dk(h*))
        ≤ 2L·(ℜ_{U,m}(H_c) + Σ_k m_k/m·ℜ_{Dk,m_k}(H_l)) + 2·√(log(1/δ) / m)

    for h = (1−λ_k)·h_c + λ_k·h_{l,k}, and with pseudo-dimensions
    2L·(√(d_c/m · log(em/d_c)) + √(d_l·p/m · log(em/d_l))) + 2·√(log(1/δ) / m).

    Derived: L·√(2·(p·log 2 + d_c·log(em/d_c) + p·d_l·log(em/(p·d_l))) / m) + B·√(2·log(2/δ) / m),
    for predictions between 0 and 1. Each client chooses its λ, and with it whose model follows the
    signs: that is where p·log 2 comes from. The paper takes the complexity of (1−λ_k)·h_c to be
    that of h_c, as if λ_k were known beforehand; with many clients and few samples of each its
    theorem does not hold.

    Args:
        m: all clients' samples.
        p: clients.
        delta: δ.
        d_c: the pseudo-dimension of H_c.
        d_l: the pseudo-dimension of H_l.
        rademacher: the sum of complexities in brackets, if it is known; instead of dimensions.
            Derived, clients' choices of λ add √(p·log 2 / 2m) to it.
        lipschitz: L, how fast the loss changes with the prediction.
        constants: ``"paper"`` or ``"derived"``.
        bound: B, the largest loss.
    """
    _check(constants, delta, bound, m=m, lipschitz=lipschitz)
    check_counts(p=p)
    few = rademacher is None and (_few(d_c, m) or _few(d_l, m / p))
    paper = constants == "paper"
    if rademacher is not None:
        choices = 0.0 if paper else math.sqrt(p * math.log(2) / (2 * m))
        complexity = 2 * lipschitz * (_known(rademacher) + choices)
    else:
        d_c, d_l = _given(d_c, "d_c"), _given(d_l, "d_l")
        both = math.sqrt(_log_growth(m, d_c) / m) + math.sqrt(p * _log_growth(m, d_l) / m)
        choices = p * math.log(2) + _log_growth(m, d_c) + p * _log_growth(m / p, d_l)
        complexity = lipschitz * (2 * both if paper else math.sqrt(2 * choices / m))
    confidence = math.sqrt((4 * math.log(1 / delta) if paper else 2 * math.log(2 / delta)) / m)
    return Bound.of(bound, few=few, complexity=complexity, confidence=bound * confidence)


def _complexity(
    m: float, d: float | None, rademacher: float | None, bound: float, q: int = 1
) -> float:
    """2·ℜ of the losses of q models."""
    if rademacher is not None:
        return 2 * _known(rademacher)
    return bound * math.sqrt(2 * q * _log_growth(m, _given(d)) / m)


def _log_growth(m: float, d: float) -> float:
    """How many ways m samples can be told apart, at most, in nats: Sauer's lemma."""
    return d * math.log(math.e * m / d) if d <= m else m


def _given(d: float | None, name: str = "d") -> float:
    if d is None:
        raise ConfigError(f"{name}: give the pseudo-dimension, or rademacher=")
    check_positive(**{name: d})
    return d


def _known(rademacher: float) -> float:
    check_number(rademacher=rademacher)
    if not rademacher >= 0:
        raise ConfigError(f"rademacher={rademacher}: a complexity is at least 0")
    return rademacher


def _few(d: float | None, m: float) -> bool:
    """Whether there are fewer samples than dimensions, so that nothing can be promised."""
    return d is not None and d > m


def _discrepancy(disc: float, bound: float) -> float:
    check_number(disc=disc)
    if not 0 <= disc <= bound * (1 + 1e-9):
        raise ConfigError(
            f"disc={disc}: a discrepancy is from 0 to the largest loss, bound={bound}"
        )
    return disc


def _check_share(lambda_: float) -> None:
    check_number(lambda_=lambda_)
    if not 0 <= lambda_ <= 1:
        raise ConfigError(f"lambda_={lambda_}: it must be from 0 to 1")


def _check(constants: Constants, delta: float, bound: float, **sizes: float) -> None:
    _check_constants(constants)
    check_delta(delta)
    check_positive(bound=bound, **sizes)


def _check_constants(constants: Constants) -> None:
    if constants not in ("paper", "derived"):
        raise ConfigError(f"constants={constants!r}: choose 'paper' or 'derived'")
