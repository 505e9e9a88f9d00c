"""Label discrepancy (section 2.3): the largest difference in loss between two distributions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.checking import Count, Numbers, Positive, Whole, checks_arguments
from sartor.data import ClientData
from sartor.data.encoding import as_column
from sartor.data.names import check_names, refuse_words
from sartor.errors import ConfigError, DataError
from sartor.models import Model, Params
from sartor.models.layers import to_float
from sartor.randomness import mix
from sartor.theory import exact
from sartor.theory.ascent import Ascent, Pairs, Sample, search_program
from sartor.theory.bound import Number
from sartor.types import Floats

Examples = ClientData | Mapping[str, Any] | tuple[Any, Any]
"""Data, of which the training parts are taken, a mapping with "y" (and "x"), or a pair (x, y)."""

EXACT = {"linear": "radius", "categorical": "bound"}
"""Models with a closed form, and the limit that it needs."""


class Discrepancy(Number):
    """A discrepancy, and how it was found.

    Attributes:
        exact: whether this is the discrepancy of the samples; otherwise it is a lower bound.
        chance: what two samples of one distribution would show, with the same sizes: the 2.5% and
            97.5% quantiles of permutations, or ``None`` without permutations.
        p_value: the share of permutations with at least this discrepancy.
    """

    exact: bool = False
    chance: tuple[float, float] | None = None
    p_value: float | None = None

    @classmethod
    def of(cls, value: float, exact: bool, permuted: Floats) -> Discrepancy:
        """A discrepancy, and those of permutations."""
        if not len(permuted):
            return cls(value, exact=exact)
        low, high = np.quantile(permuted, [0.025, 0.975])
        at_least = permuted >= value * (1 - 1e-6)  # equal values may be rounded differently
        p_value = float((1 + at_least.sum()) / (1 + len(permuted)))
        return cls(value, exact=exact, chance=(float(low), float(high)), p_value=p_value)

    def __repr__(self) -> str:
        words = [f"{float(self):.4f}", "exact" if self.exact else "at least"]
        if self.chance is not None:
            low, high = self.chance
            words += [f"by chance {low:.4f} to {high:.4f}", f"p = {self.p_value:.3f}"]
        return f"Discrepancy({', '.join(words)})"


@checks_arguments
def discrepancy(
    model: Model,
    a: Examples,
    b: Examples,
    *,
    bound: Positive | None = None,
    radius: Positive | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    permutations: Whole = 0,
    seed: Whole = 0,
    starts: Count = 4,
    steps: Count = 200,
) -> Discrepancy:
    """disc_H(D1, D2) = max_h |L_D1(h) − L_D2(h)| of two samples, with the model's plain loss.

    The result is exact for ``linear`` models with a radius (their squared error is not cut off
    then), and for ``categorical`` models with a bound. For others, gradient ascent in single
    precision finds a lower bound.

    Finite samples differ by chance, and a discrepancy is never below 0. ``permutations`` estimates
    what two samples of the same distribution would show.

    Args:
        model: the hypothesis class H.
        a: examples of D1: data (the training parts of all clients), a mapping with "x" and "y", or
            a pair (x, y).
        b: examples of D2. With permutations, they must not overlap with ``a``.
        bound: the largest loss. A log-loss has no bound by itself, so probabilities are kept at
            e^−bound or more. A squared error is cut off.
        radius: radius of the ball of parameters that H consists of, intercepts included.
        centre: centre of that ball (default: all parameters 0).
        method: ``"exact"`` or ``"ascent"`` (default: exact if there is a closed form).
        permutations: number of random divisions of the examples.
        seed: seed of permutations and starts.
        starts: starts of the ascent, for each sign.
        steps: steps of the ascent, from each start.

    >>> from sartor.models import categorical
    >>> one, other = {"y": np.array([0, 0, 1])}, {"y": np.array([2, 2, 1])}
    >>> discrepancy(categorical(symbols=3), one, other, bound=3.0)
    Discrepancy(1.9301, exact)
    """
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps)
    if isinstance(a, ClientData) and isinstance(b, ClientData):
        check_names(a.label_names, a.feature_names, b, "the other side has")
    first, second = _examples(model, a), _examples(model, b)
    here, there = first.y.shape[1:], second.y.shape[1:]
    if here != there:
        raise DataError(f"y: targets of shape {here} here and {there} there")
    examples = jax.tree.map(lambda *sides: np.concatenate(sides), first, second)
    size, total = len(first.y), len(examples.y)
    draws = np.random.default_rng(seed)
    orders = [np.arange(total), *(draws.permutation(total) for _ in range(permutations))]
    rows = np.argsort(np.stack(orders) >= size, axis=1, kind="stable")
    one, other = list(rows[:, :size]), list(rows[:, size:])  # D1 and D2, for each permutation
    if hypotheses.exact:
        moments = (hypotheses.moments(examples, several) for several in (one, other))
        found = hypotheses.between(*moments)
    else:
        words = np.arange(len(rows), dtype=np.uint32)
        found = hypotheses.search(examples, Pairs(_padded(one), _padded(other), words))
    return Discrepancy.of(float(found[0]), hypotheses.exact, found[1:])


@checks_arguments
def discrepancies(
    model: Model,
    data: ClientData,
    *,
    clusters: Numbers | None = None,
    bound: Positive | None = None,
    radius: Positive | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    sample: Count = 1024,
    draw: Count | None = None,
    seed: Whole = 0,
    starts: Count = 4,
    steps: Count = 200,
) -> Floats:
    """disc_H(D_k, C_f(k)) between each client and the mixture of its cluster: [clients].

    The result is exact for the models of :func:`discrepancy`. For others, an ascent finds a lower
    bound for the examples that it sees. It is an estimate if there are more than ``sample``.

    Args:
        model: the hypothesis class H.
        data: the clients; their training parts are taken. A mixture consists of seen clients.
        clusters: f(k), the cluster of each client (default: one for all, the paper's U).
        bound: see :func:`discrepancy`.
        radius: see :func:`discrepancy`.
        centre: see :func:`discrepancy`.
        method: see :func:`discrepancy`.
        sample: examples that an ascent takes of a mixture and of a client, at most.
        draw: random examples of them that each step of the ascent sees, for speed (default: all).
        seed: seed of sampling and starts.
        starts: starts of the ascent, for each sign.
        steps: steps of the ascent, from each start.
    """
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps, draw)
    which = np.zeros(len(data), np.int64) if clusters is None else np.asarray(clusters)
    if which.shape != (len(data),):
        raise ConfigError(
            f"clusters must hold one for each of {len(data)} clients (got shape {which.shape})"
        )
    columns, sizes = _columns(model, data), data.sizes("train")
    members = {f: (which == f) & data.seen for f in np.unique(which)}
    for f, mask in members.items():
        if not sizes[mask].sum():
            raise DataError(f"cluster {f} has no seen clients, and so no mixture to compare with")
    if hypotheses.exact:
        moments = hypotheses.moments(columns, _rows(data))
        mixed = {f: _mix(moments, np.where(mask, sizes, 0)) for f, mask in members.items()}
        return hypotheses.between(moments, _stacked([mixed[f] for f in which]))
    first = [_draw(data, [k], sample, seed) for k in range(len(data))]
    drawn = {f: _draw(data, np.flatnonzero(mask), sample, seed) for f, mask in members.items()}
    second, words = [drawn[f] for f in which], data.hashes.astype(np.uint32)
    return hypotheses.search(columns, Pairs(_padded(first), _padded(second), words))


@checks_arguments
def discrepancy_matrix(
    model: Model,
    data: ClientData,
    *,
    bound: Positive | None = None,
    radius: Positive | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    sample: Count = 256,
    seed: Whole = 0,
    starts: Count = 4,
    steps: Count = 200,
) -> Floats:
    """disc_H(D_j, D_k) between any two clients: [clients, clients], symmetric, 0 on the diagonal.

    The arguments are those of :func:`discrepancies`.
    """
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps)
    columns = _columns(model, data)
    found = np.zeros((len(data), len(data)))
    if hypotheses.exact:
        moments = hypotheses.moments(columns, _rows(data))
        for n in range(len(data)):  # a row at a time: all differences at once need much memory
            mine = jax.tree.map(lambda m, n=n: m[n : n + 1], moments)
            found[n] = hypotheses.between(mine, moments)
        return found
    j, k = np.triu_indices(len(data), 1)
    if len(j):
        clients = _padded([_draw(data, [k], sample, seed) for k in range(len(data))])
        first, second = (Sample(clients.rows[n], clients.weights[n]) for n in (j, k))
        words = np.arange(len(j), dtype=np.uint32)
        found[j, k] = hypotheses.search(columns, Pairs(first, second, words))
    return found + found.T


class _Examples(NamedTuple):
    """Columns of examples; x is None for densities."""

    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class _Hypotheses:
    """A class of hypotheses, and how to find its discrepancies."""

    model: Model
    bound: float | None
    radius: float | None
    centre: Params | None
    method: str | None
    seed: int
    starts: int
    steps: int
    draw: int | None = None

    def __post_init__(self) -> None:
        if self.exact:
            return
        if self.method == "exact":
            forms = " and ".join(f"{name} models with {key}= alone" for name, key in EXACT.items())
            raise ConfigError(f"method='exact': there is a closed form for {forms}; use 'ascent'")
        if self.bound is None:
            raise ConfigError("bound: this loss has no largest value; give bound=B, such as B = 10")
        if self.radius is None:
            raise ConfigError("radius: give the radius of the ball of parameters to search")

    @property
    def exact(self) -> bool:
        """Whether there is a closed form: some models have one if only their own limit is given."""
        limits = {"bound": self.bound, "radius": self.radius, "centre": self.centre}
        given = [key for key, value in limits.items() if value is not None]
        name = (self.model.spec or {}).get("name", "")
        return self.method != "ascent" and given == [EXACT.get(name)]

    def moments(self, examples: _Examples, rows: list[npt.NDArray[Any]]) -> Any:
        """Moments or frequencies of several samples, given by their rows: [samples, ...]."""
        x, y = examples
        if self.model.kind == "density":
            return np.stack([exact.label_frequencies(y[r], self.model.classes or 1) for r in rows])
        return _stacked([exact.Moments.of(to_float(x[r]), y[r], intercept=True) for r in rows])

    def between(self, first: Any, second: Any) -> Floats:
        """The exact discrepancies of distributions, from their moments or frequencies."""
        if self.model.kind == "density":
            return exact.categorical(first, second, self.bound or 0.0)
        return exact.linear(first, second, self.radius or 0.0)

    def search(self, examples: _Examples, pairs: Pairs) -> Floats:
        """Lower bounds of the discrepancies of pairs of samples."""
        centre = self.centre
        if centre is None:
            centre = jax.tree.map(jnp.zeros_like, self.model.init(jax.random.key(0)))
        how = Ascent(self.radius or 0.0, self.starts, self.steps, draw=self.draw)
        run = search_program(self.model, self.bound or 0.0, how)
        x, y = jax.tree.map(jnp.asarray, examples)
        found = np.asarray(run(centre, x, y, pairs, jax.random.key(self.seed)), np.float64)
        if not np.isfinite(found).all():
            raise DataError("losses are not finite; scale the inputs, or give a smaller radius")
        return found


def _examples(model: Model, given: Examples) -> _Examples:
    """The examples of one distribution."""
    if isinstance(given, ClientData):
        if model.kind == "regression":
            refuse_words(given)
        rows = np.concatenate(_rows(given))
        given = {name: given.seen_by_models(name, rows) for name in given.columns}
    elif isinstance(given, tuple | list):
        given = {"x": given[0], "y": given[1]}
    if "y" not in given:
        raise DataError(f"examples need labels 'y'; there are {', '.join(map(repr, given))}")
    if not as_column(given["y"], "y").size:
        raise DataError("there are no examples; a discrepancy needs some of both distributions")
    return _checked(model, given.get("x"), given["y"])


def _checked(model: Model, x: Any, y: Any) -> _Examples:
    """Examples that fit the model, with labels [n]. Refuse others."""
    y = as_column(y, "y")
    if not y.ndim:
        raise DataError(f"y: one label for each example is needed, got {y}")
    if y.dtype.kind not in "iufb":
        raise DataError(f"y: labels must be numbers, got {y.dtype}; sartor.data numbers words")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if model.kind != "regression":
        whole = y.ndim == 1 and (y.dtype.kind in "iu" or bool((y == np.rint(y)).all()))
        if not whole or y.min() < 0 or y.max() >= (model.classes or 1):
            raise DataError(f"y: labels are whole numbers from 0 to {(model.classes or 1) - 1}")
        y = y.astype(np.int32)
    elif not np.isfinite(y).all():
        raise DataError("y: there are values that are not finite; leave them out")
    if model.kind == "density":
        return _Examples(None, y)
    if x is None:
        raise DataError("x: the model needs inputs; give a mapping with 'x' and 'y'")
    x = as_column(x, "x")
    if not x.ndim or len(x) != len(y):
        raise DataError(
            f"{len(x) if x.ndim else 'no'} inputs and {len(y)} labels; give as many of both"
        )
    if model.input_shape is not None and x.shape[1:] != tuple(model.input_shape):
        raise DataError(
            f"x: an input has shape {x.shape[1:]}, and the model takes {model.input_shape}"
        )
    if x.dtype.kind not in "iufb":
        raise DataError(f"x: inputs must be numbers, got {x.dtype}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError("x: there are values that are not finite; leave them out")
    return _Examples(x, y)


def _columns(model: Model, data: ClientData) -> _Examples:
    """All examples of a data set."""
    if model.kind == "regression":
        refuse_words(data)
    x = data.seen_by_models("x", slice(None)) if "x" in data.columns else None
    return _checked(model, x, data.columns["y"])


def _rows(data: ClientData) -> list[npt.NDArray[Any]]:
    """The rows of each client's training part."""
    return [data.part(k, "train") for k in range(len(data))]


def _stacked(several: list[Any]) -> Any:
    return jax.tree.map(lambda *m: np.stack(m), *several)


def _mix(moments: Any, sizes: npt.NDArray[Any]) -> Any:
    """The moments of a mixture, weighted by numbers of samples."""
    return jax.tree.map(lambda m: np.tensordot(sizes / sizes.sum(), m, 1), moments)


def _draw(data: ClientData, clients: Iterable[Any], most: int, seed: int) -> npt.NDArray[Any]:
    """Random training rows of some clients, ``most`` at most.

    Each row has its own random key, and the rows with the smallest keys are drawn. So the draw
    depends neither on the order of clients nor on other clients.
    """
    rows, keys = [], []
    for k in clients:
        rows.append(data.part(k))
        keys.append(mix(seed, "discrepancy", data.hashes[k], np.arange(len(rows[-1]))))
    return np.concatenate(rows)[np.argsort(np.concatenate(keys), kind="stable")[:most]]


def _padded(several: list[npt.NDArray[Any]]) -> Sample:
    """Rows of different lengths in one array, with equal weights, and weight 0 for padding."""
    shape = len(several), max(map(len, several))
    found = Sample(np.zeros(shape, np.int32), np.zeros(shape, np.float32))
    for n, rows in enumerate(several):
        found.rows[n, : len(rows)], found.weights[n, : len(rows)] = rows, 1 / len(rows)
    return found
