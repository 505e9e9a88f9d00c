"""Clusterings that do not ask the hypotheses: the baselines of the paper's appendix C.1.

Clients are clustered once, before any training, by what is known about them (k-means on
meta-features) or by the distribution of their examples (Bregman clustering); then every cluster
trains a model of its own with FedAvg.
"""

import abc
import dataclasses
import weakref
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central.bregman import Points, hard_clustering
from sartor.central.fedavg import FedAvg, State
from sartor.central.fitting import Fit
from sartor.central.model import CentralModel
from sartor.central.settings import check_clusters
from sartor.checking import Count, Range, check_memory
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Cohort, in_order, positions
from sartor.errors import DataError
from sartor.models import Model, parameter_bytes
from sartor.randomness import mix
from sartor.types import Floats, Ints

NUMBERS = 2**22
"""About how many features are held at a time."""


class Space(abc.ABC):
    """Where clients are points. Its fields are plain values or arrays."""

    kind: ClassVar[str]
    mean: Any
    scale: Any

    @abc.abstractmethod
    def points(self, data: ClientData) -> Points:
        """The clients."""

    def standardized(self, vectors: Floats) -> Floats:
        """Vectors without the mean of the seen clients, on their scale."""
        return (vectors - np.asarray(self.mean)) / np.asarray(self.scale)

    def to_dict(self) -> dict[str, Any]:
        """In plain values."""
        fields = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        return {"kind": self.kind, **fields}


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The rule of a clustering in some space: a client belongs to the nearest centre.

    Attributes:
        space: where clients are points.
        centres: the centres.
    """

    space: Space
    centres: Points

    def assign(self, data: ClientData) -> Ints:
        """The cluster of every client."""
        return np.asarray(self.space.points(data).divergence(self.centres).argmin(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """The rule in plain values."""
        return {
            "space": self.space.to_dict(),
            "vectors": self.centres.vectors.tolist(),
            "simplex": self.centres.simplex.tolist(),
        }


def rule_from(table: dict[str, Any]) -> Nearest:
    """A rule back from its plain values."""
    spaces: dict[str, Any] = {kind.kind: kind for kind in (MetaFeatures, Distributions)}
    space = dict(table["space"])
    made = spaces[space.pop("kind")](**space)
    return Nearest(made, Points(np.array(table["vectors"]), np.array(table["simplex"])))


_RULES: weakref.WeakKeyDictionary[ClientData, dict[Any, Nearest]] = weakref.WeakKeyDictionary()
"""Clusterings by data set and settings: a fit needs its own before and after its rounds."""


@dataclasses.dataclass(frozen=True)
class Clusters(FedAvg, listed=False):
    """FedAvg for every cluster of a clustering that is found before training.

    The attributes are FedAvg's, and:

    Attributes:
        q: number of clusters.
        restarts: number of clusterings from different starts. The best one is taken.
    """

    q: Count = 2
    restarts: Annotated[int, Range(1, 10_000)] = 10

    @abc.abstractmethod
    def space(self, data: ClientData) -> Space:
        """Where the clients are points, learnt from the seen ones."""

    def rule(self, data: ClientData) -> Nearest:
        """Cluster the seen clients; the draws depend on who they are, not on a seed."""
        rules = _RULES.setdefault(data, {})
        if self not in rules:
            space = self.space(data)
            seen = data.select([data.ids[k] for k in in_order(data)])  # whatever their order
            word = int(np.bitwise_xor.reduce(mix("clusters", seen.hashes)))
            centres = hard_clustering(space.points(seen), self.q, self.restarts, word)
            rules[self] = Nearest(space, centres)
        return rules[self]

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """Every client's cluster."""
        return {"cluster": self.rule(data).assign(data).astype(np.int32)}

    def init(self, model: Model, data: ClientData, key: jax.Array) -> State:
        """The same random model for every cluster."""
        check_clusters(self, self.q, data)
        what = f"{type(self).__name__}: {self.q:,} models in training"
        check_memory(what, 3.0 * self.q * parameter_bytes(model), "choose a smaller q")
        self.space(data)  # refuses data without what it needs
        one = model.init(key)
        return self.state_of(
            jax.tree.map(lambda a: jnp.broadcast_to(a, (self.q, *jnp.shape(a))), one)
        )

    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client trains its cluster's model."""
        f = cohort.attributes["cluster"]
        trained = self.train(state, cohort, f)
        share = (f[:, None] == jnp.arange(self.q)).mean(axis=0)
        return self.upload(state, cohort, trained), {"loss": trained.record["loss"], "share": share}

    def finish(self, trained: CentralModel, state: Any, fit: Fit) -> CentralModel:
        """Remember how clients are assigned, and what their descriptions of themselves cost."""
        data, rule = fit.data, self.rule(fit.data)
        numbers = rule.centres.vectors.shape[1] + rule.centres.simplex.shape[1]
        described = Cost.nothing(data.ids)
        described.up[data.seen] += 8 * numbers
        described.left["descriptions"] = numbers * int(data.seen.sum())
        cost = trained.cost + described if trained.cost else None
        return dataclasses.replace(trained, clusterings=(self.q,), rule=rule, cost=cost)


@dataclasses.dataclass(frozen=True)
class MetaFeatures(Space):
    """Clients as vectors of meta-features: numbers standardized, words as indicators.

    Attributes:
        features: names of the clients' metadata.
        words: the words of every feature that is not a number.
        mean: what is subtracted.
        scale: what is divided by.
    """

    kind: ClassVar[str] = "meta-features"

    features: tuple[str, ...]
    words: dict[str, list[str]]
    mean: Any = 0.0
    scale: Any = 1.0

    def points(self, data: ClientData) -> Points:
        """The clients."""
        columns = []
        for name in self.features:
            if name not in data.metadata:
                raise DataError(f"clients have no metadata {name!r}, which clusters depend on")
            values = data.metadata[name]
            if name in self.words:
                columns.append(values.astype(str)[:, None] == np.array(self.words[name]))
            else:
                bad = ~np.isfinite(values.astype(np.float64))
                if bad.any():
                    raise DataError(
                        f"client {data.ids[int(bad.argmax())]!r} has {values[bad][0]} as its "
                        f"metadata {name!r}, which k-means cannot use; fill it in, or leave "
                        "that feature out"
                    )
                columns.append(values[:, None])
        raw = np.concatenate([np.asarray(c, np.float64) for c in columns], axis=1)
        return Points(self.standardized(raw), np.zeros((len(raw), 0)))


@dataclasses.dataclass(frozen=True)
class KMeansClusters(Clusters):
    """k-means on the clients' metadata, such as place or device; then FedAvg for each cluster.

    It has FedAvg's attributes, ``q`` and ``restarts`` of :class:`Clusters`, and this one:

    Attributes:
        features: names of the metadata to use (default: all).
    """

    features: tuple[str, ...] | None = None

    def space(self, data: ClientData) -> MetaFeatures:
        """The meta-features, standardized over the seen clients."""
        names = self.features or tuple(sorted(data.metadata))
        missing = [name for name in names if name not in data.metadata]
        if not names or missing:
            what = f"no metadata {missing[0]!r}" if missing else "no metadata"
            raise DataError(
                f"KMeansClusters: clients have {what}; there is {sorted(data.metadata) or 'none'}. "
                "Give metadata with the data, or use HypCluster, which needs none"
            )
        seen = data.select(data.seen)
        words = {
            name: sorted(set(seen.metadata[name].astype(str).tolist()))
            for name in names
            if seen.metadata[name].dtype.kind not in "iufb"
        }
        raw = MetaFeatures(names, words).points(seen).vectors
        spread = raw.std(axis=0)
        return MetaFeatures(names, words, raw.mean(axis=0), np.where(spread > 0, spread, 1.0))


@dataclasses.dataclass(frozen=True)
class Distributions(Space):
    """Clients as distributions: of their labels, and the mean of their standardized features.

    Attributes:
        classes: number of classes; 0 if labels are numbers, which then count as a feature.
        mean: mean of the features over all examples of the seen clients.
        scale: their standard deviation.
    """

    kind: ClassVar[str] = "distributions"

    classes: int
    mean: Any = 0.0
    scale: Any = 1.0

    def points(self, data: ClientData) -> Points:
        """The clients' training parts."""
        sizes = data.sizes("train")
        simplex = np.zeros((len(data), self.classes))
        if self.classes:
            owner = np.repeat(np.arange(len(data)), sizes)
            y = data.columns["y"][data.rows[positions(data, np.arange(len(data)), "train")]]
            known = y < self.classes  # the centres know nothing of labels that came later
            np.add.at(simplex, (owner[known], y[known]), 1.0)
            simplex = simplex / np.maximum(simplex.sum(axis=1, keepdims=True), 1)
        means, _ = feature_moments(data, with_labels=not self.classes)
        return Points(self.standardized(means), simplex)


@dataclasses.dataclass(frozen=True)
class BregmanClusters(Clusters):
    """Bregman clustering of feature and label distributions; then FedAvg for each cluster.

    The divergence is the KL divergence of the label distributions plus the squared distance of the
    means of standardized features (the divergence of Gaussians with one covariance). It does not
    use the model. A comparison with HypCluster shows what using the model gains. It has FedAvg's
    attributes, and ``q`` and ``restarts`` of :class:`Clusters`.
    """

    def space(self, data: ClientData) -> Distributions:
        """The distributions, with features standardized over all examples of the seen clients."""
        y = data.columns["y"]
        classes = int(y.max()) + 1 if y.dtype.kind in "iu" else 0
        seen = data.select(data.seen)
        means, squares = feature_moments(seen, with_labels=not classes)
        share = (seen.sizes("train") / seen.sizes("train").sum())[:, None]
        mean = (share * means).sum(axis=0)
        spread = np.sqrt(np.maximum((share * squares).sum(axis=0) - mean**2, 0))
        return Distributions(classes, mean, np.where(spread > 0, spread, 1.0))


def feature_moments(data: ClientData, *, with_labels: bool) -> tuple[Floats, Floats]:
    """Every client's mean of each feature, and of its square: [clients, features]."""
    names = [n for n in sorted(data.columns) if n != "y" or with_labels]
    width = sum(int(np.prod(data.columns[n].shape[1:])) for n in names)
    sizes = data.sizes("train")
    means, squares = np.zeros((2, len(data), width))
    group = np.cumsum(sizes) * width // NUMBERS
    for number in np.unique(group) if names else ():
        some = np.flatnonzero(group == number)
        rows = data.rows[positions(data, some, "train")]
        flat = np.concatenate(
            [np.asarray(data.columns[n][rows], np.float64).reshape(len(rows), -1) for n in names],
            axis=1,
        )
        starts = np.cumsum(sizes[some]) - sizes[some]
        means[some] = np.add.reduceat(flat, starts) / sizes[some, None]
        squares[some] = np.add.reduceat(flat**2, starts) / sizes[some, None]
    return means, squares
