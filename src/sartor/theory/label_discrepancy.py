"""Label discrepancy: how differently two distributions judge the hypotheses of a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.data.names import check_names, refuse_words
from sartor.errors import ConfigError, DataError
from sartor.models import Model, Params
from sartor.models.layers import to_float
from sartor.randomness import mix
from sartor.theory import exact
from sartor.theory.ascent import Ascent, Pairs, ascend
from sartor.theory.bound import check_counts, check_positive

Floats = npt.NDArray[np.float64]
Examples = ClientData | Mapping[str, Any] | tuple[Any, Any]
"""Data whose training parts count, a mapping with "y" (and "x"), or a pair (x, y)."""

EXACT = {"linear": "radius", "categorical": "bound"}
"""Models with a closed form, and what bounds their hypotheses."""


class Discrepancy(float):
    """A discrepancy, and how it was found.

    Attributes:
        exact: whether it is the discrepancy of these samples, or only reached by a hypothesis.
        chance: what two samples of one distribution would show, of the same sizes: 2.5% and 97.5%
            of permutations; ``None`` if there were none.
        p_value: the share of permutations that show as much.
    """

    exact: bool = False
    chance: tuple[float, float] | None = None
    p_value: float | None = None

    @classmethod
    def of(cls, value: float, exact: bool, permuted: Floats) -> Discrepancy:
        """A value, with what permutations gave."""
        self = cls(value)
        self.exact = exact
        if len(permuted):
            low, high = np.quantile(permuted, [0.025, 0.975])
            self.chance = float(low), float(high)
            as_much = permuted >= value * (1 - 1e-6)  # the same value by other sums
            self.p_value = float((1 + as_much.sum()) / (1 + len(permuted)))
        return self

    def __repr__(self) -> str:
        told = [f"{float(self):.4f}", "exact" if self.exact else "at least"]
        if self.chance is not None:
            low, high = self.chance
            told += [f"by chance {low:.4f} to {high:.4f}", f"p = {self.p_value:.3f}"]
        return f"Discrepancy({', '.join(told)})"


def discrepancy(
    model: Model,
    a: Examples,
    b: Examples,
    *,
    bound: float | None = None,
    radius: float | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    permutations: int = 0,
    seed: int = 0,
    starts: int = 4,
    steps: int = 200,
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
        b: examples of D2; none that are in ``a`` as well, if there are permutations.
        bound: the largest loss. A log-loss has none by itself: probabilities are kept at e^−bound
            or more. A squared error is cut off.
        radius: of the ball of parameters that H is made of, intercepts included.
        centre: of that ball; all parameters 0 if not given.
        method: ``"exact"`` or ``"ascent"``; the exact one if not given, where there is one.
        permutations: how often the examples are divided at random.
        seed: of permutations and starts.
        starts: of the ascent, for each sign.
        steps: of the ascent, from each start.

    >>> from sartor.models import categorical
    >>> one, other = {"y": np.array([0, 0, 1])}, {"y": np.array([2, 2, 1])}
    >>> discrepancy(categorical(symbols=3), one, other, bound=3.0)
    Discrepancy(1.9301, exact)
    """
    check_counts(least=0, permutations=permutations)
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps)
    if isinstance(a, ClientData) and isinstance(b, ClientData):
        check_names(a.label_names, a.feature_names, b, "the other side has")
    first, second = _examples(model, a), _examples(model, b)
    examples = _joined(first, second)
    size, total = len(first.y), len(examples.y)
    order = np.random.default_rng(seed)
    shared_out = [np.arange(total), *(order.permutation(total) for _ in range(permutations))]
    rows = np.argsort(np.stack(shared_out) >= size, axis=1, kind="stable")
    one, other = list(rows[:, :size]), list(rows[:, size:])  # D1 and D2, for each permutation
    if hypotheses.exact:
        moments = (hypotheses.moments(examples, several) for several in (one, other))
        found = hypotheses.between(*moments)
    else:
        words = np.arange(len(rows), dtype=np.uint32)
        found = hypotheses.search(examples, Pairs(*_padded(one), *_padded(other), words))
    return Discrepancy.of(float(found[0]), hypotheses.exact, found[1:])


def discrepancies(
    model: Model,
    data: ClientData,
    *,
    clusters: npt.ArrayLike | None = None,
    bound: float | None = None,
    radius: float | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    sample: int = 1024,
    draw: int | None = None,
    seed: int = 0,
    starts: int = 4,
    steps: int = 200,
) -> Floats:
    """disc_H(D_k, C_f(k)) of every client and the mixture that it belongs to: [clients].

    Exact as in :func:`discrepancy`, or by an ascent; that is a lower bound for the examples that
    were looked at, and where there are more than ``sample`` an estimate.

    Args:
        model: the hypothesis class H.
        data: its training parts count; the mixture is of seen clients.
        clusters: f(k), whose mixture; everybody's, the paper's U, if not given.
        bound: see :func:`discrepancy`.
        radius: see :func:`discrepancy`.
        centre: see :func:`discrepancy`.
        method: see :func:`discrepancy`.
        sample: how many examples stand for a mixture, and for a client that has more, in an ascent.
        draw: take so many of them for a step of the ascent, at random, for speed; all if not given.
        seed: of sampling and starts.
        starts: of the ascent, for each sign.
        steps: of the ascent, from each start.
    """
    check_counts(sample=sample)
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps, draw)
    which = _clusters(data, clusters)
    columns, rows = _columns(model, data)
    sizes = np.where(data.seen, data.sizes("train"), 0)
    for f in np.unique(which):
        if not sizes[which == f].sum():
            raise DataError(f"cluster {f} has no seen clients, and so no mixture to compare with")
    if hypotheses.exact:
        moments = hypotheses.moments(columns, rows)
        mixture = {f: _mix(moments, np.where(which == f, sizes, 0)) for f in np.unique(which)}
        return hypotheses.between(moments, _stacked([mixture[f] for f in which]))
    keys = _keys(data, rows, seed)
    mixtures = {}
    for f in np.unique(which):
        members = np.flatnonzero((which == f) & data.seen)
        everybody = [np.concatenate([of[k] for k in members]) for of in (rows, keys)]
        mixtures[f] = _some(everybody[0], sample, everybody[1])
    first = _padded([_some(r, sample, k) for r, k in zip(rows, keys, strict=True)])
    second = _padded([mixtures[f] for f in which])
    return hypotheses.search(columns, Pairs(*first, *second, data.hashes.astype(np.uint32)))


def discrepancy_matrix(
    model: Model,
    data: ClientData,
    *,
    bound: float | None = None,
    radius: float | None = None,
    centre: Params | None = None,
    method: Literal["exact", "ascent"] | None = None,
    sample: int = 256,
    seed: int = 0,
    starts: int = 4,
    steps: int = 200,
) -> Floats:
    """disc_H(D_j, D_k) of every two clients: [clients, clients], symmetric, 0 on the diagonal.

    The arguments are those of :func:`discrepancies`.
    """
    check_counts(sample=sample)
    hypotheses = _Hypotheses(model, bound, radius, centre, method, seed, starts, steps)
    columns, rows = _columns(model, data)
    found = np.zeros((len(data), len(data)))
    if hypotheses.exact:
        moments = hypotheses.moments(columns, rows)
        for n in range(len(data)):  # a row at a time: all differences at once need much memory
            mine = jax.tree.map(lambda m, n=n: m[n : n + 1], moments)
            found[n] = hypotheses.between(mine, moments)
        return found
    keys = _keys(data, rows, seed)
    drawn, weights = _padded([_some(r, sample, k) for r, k in zip(rows, keys, strict=True)])
    j, k = np.triu_indices(len(data), 1)
    if len(j):
        words = np.arange(len(j), dtype=np.uint32)
        pairs = Pairs(drawn[j], weights[j], drawn[k], weights[k], words)
        found[j, k] = hypotheses.search(columns, pairs)
    return found + found.T


class _Examples(NamedTuple):
    """Columns of examples; x is None for densities."""

    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class _Hypotheses:
    """A class of hypotheses, and how its discrepancies are found."""

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
        check_counts(
            starts=self.starts, steps=self.steps, draw=1 if self.draw is None else self.draw
        )
        if self.method not in (None, "exact", "ascent"):
            raise ConfigError(f"method={self.method!r}: choose 'exact' or 'ascent'")
        limits = {"bound": self.bound, "radius": self.radius}
        check_positive(**{key: value for key, value in limits.items() if value is not None})
        if self.exact:
            return
        if self.method == "exact":
            forms = " and ".join(f"{name} models with {key}= alone" for name, key in EXACT.items())
            raise ConfigError(f"method='exact': there is a closed form for {forms}; use 'ascent'")
        if self.bound is None:
            raise ConfigError(
                "bound: this loss has no largest value, and neither has a discrepancy then; give "
                "bound=B (for a log-loss, probabilities are kept at e^−B or more, say B = 10)"
            )
        if self.radius is None:
            raise ConfigError("radius: give the radius of the ball of parameters to search")

    @property
    def exact(self) -> bool:
        """Whether there is a closed form: for some models, with their own limit alone."""
        limits = {"bound": self.bound, "radius": self.radius, "centre": self.centre}
        given = [key for key, value in limits.items() if value is not None]
        name = (self.model.spec or {}).get("name", "")
        return self.method != "ascent" and given == [EXACT.get(name)]

    def moments(self, examples: _Examples, rows: list[npt.NDArray[Any]]) -> Any:
        """Moments or frequencies of several samples, given by their rows: [samples, ...]."""
        x, y = examples
        if self.model.kind == "density":
            return np.stack([exact.label_frequencies(y[r], self.model.classes or 1) for r in rows])
        several = [exact.Moments.of(_inputs(x[r]), y[r], intercept=True) for r in rows]
        return _stacked(several)

    def between(self, first: Any, second: Any) -> Floats:
        """The discrepancies of distributions with these moments or frequencies, exactly."""
        if self.model.kind == "density":
            return exact.categorical(first, second, self.bound or 0.0)
        return exact.linear(first, second, self.radius or 0.0)

    def search(self, examples: _Examples, pairs: Pairs) -> Floats:
        """The discrepancies of pairs of samples, from below."""
        centre = self.centre
        if centre is None:
            centre = jax.tree.map(jnp.zeros_like, self.model.init(jax.random.key(0)))
        how = Ascent(self.radius or 0.0, self.starts, self.steps, draw=self.draw)
        key = jax.random.key(self.seed)
        return ascend(self.model, self.bound or 0.0, centre, *examples, pairs, how, key)


def _examples(model: Model, given: Examples) -> _Examples:
    if isinstance(given, ClientData):
        if model.kind == "regression":
            refuse_words(given)
        rows = np.concatenate([given.part(k, "train") for k in range(len(given))])
        found = {name: np.asarray(column[rows]) for name, column in given.columns.items()}
    elif isinstance(given, Mapping):
        found = dict(given)
    elif isinstance(given, tuple) and len(given) == 2:
        found = {"x": given[0], "y": given[1]}
    else:
        raise DataError(
            f"examples are ClientData, a mapping with 'x' and 'y', or a pair (x, y); got "
            f"{type(given).__name__}"
        )
    if "y" not in found:
        raise DataError(f"examples need labels 'y'; there are {', '.join(map(repr, found))}")
    y = np.asarray(found["y"])
    if not y.size:
        raise DataError("there are no examples; a discrepancy needs some of both distributions")
    return _checked(model, found.get("x"), y)


def _checked(model: Model, x: Any, y: Any) -> _Examples:
    """Examples that fit the model, with labels [n]; others are refused."""
    y = np.asarray(y)
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
    if len(x) != len(y):
        raise DataError(f"{len(x)} inputs and {len(y)} labels")
    shape = np.shape(x)[1:]
    if model.input_shape is not None and shape != tuple(model.input_shape):
        raise DataError(f"x: inputs of shape {shape}, where the model has {model.input_shape}")
    kind = getattr(x, "dtype", np.asarray(x).dtype).kind
    if kind not in "iufb":
        raise DataError(f"x: inputs must be numbers, got {np.asarray(x).dtype}")
    if kind == "f" and not np.isfinite(x).all():
        raise DataError("x: there are values that are not finite; leave them out")
    return _Examples(x, y)


def _columns(model: Model, data: ClientData) -> tuple[_Examples, list[npt.NDArray[Any]]]:
    """All examples, and the rows of every client's training part."""
    if model.kind == "regression":
        refuse_words(data)
    rows = [data.part(k, "train") for k in range(len(data))]
    return _checked(model, data.columns.get("x"), data.columns["y"]), rows


def _joined(a: _Examples, b: _Examples) -> _Examples:
    if a.y.shape[1:] != b.y.shape[1:]:
        raise DataError(f"y: targets of shape {a.y.shape[1:]} here and {b.y.shape[1:]} there")
    x = None if a.x is None else np.concatenate([np.asarray(a.x), np.asarray(b.x)])
    return _Examples(x, np.concatenate([a.y, b.y]))


def _inputs(x: Any) -> Floats:
    """What a linear model sees: [n, features]."""
    return np.asarray(to_float(np.asarray(x)), np.float64).reshape(len(x), -1)


def _stacked(several: list[Any]) -> Any:
    return jax.tree.map(lambda *m: np.stack(m), *several)


def _mix(moments: Any, sizes: npt.NDArray[Any]) -> Any:
    """Those of a mixture by numbers of samples."""
    return jax.tree.map(lambda m: np.tensordot(sizes / sizes.sum(), m, 1), moments)


def _clusters(data: ClientData, clusters: npt.ArrayLike | None) -> npt.NDArray[Any]:
    if clusters is None:
        return np.zeros(len(data), np.int64)
    which = np.asarray(clusters)
    if which.shape != (len(data),):
        raise ConfigError(f"clusters: one for each of {len(data)} clients, got {which.shape}")
    return which


def _keys(data: ClientData, rows: list[npt.NDArray[Any]], seed: int) -> list[npt.NDArray[Any]]:
    """A random key for every row of every client, by which rows are sampled."""
    return [
        mix(seed, "discrepancy", h, np.arange(len(r)))
        for h, r in zip(data.hashes, rows, strict=True)
    ]


def _some(rows: npt.NDArray[Any], most: int, keys: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Some rows, those with the least keys, in their order: whoever's rows came first."""
    return rows[np.argsort(keys, kind="stable")[:most]]


def _padded(
    rows: list[npt.NDArray[Any]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows of different lengths in one array, and weights that are 0 where it is filled up."""
    most = max(len(r) for r in rows)
    out, weights = np.zeros((len(rows), most), np.int32), np.zeros((len(rows), most), np.float32)
    for n, r in enumerate(rows):
        out[n, : len(r)], weights[n, : len(r)] = r, 1 / len(r)
    return out, weights
