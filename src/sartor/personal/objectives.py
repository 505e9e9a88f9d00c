"""What clients of Dapper and Mapper minimise; and every objective in plain values, for files."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from sartor.engine.lanes import Batch
from sartor.engine.objectives import Leaves, Objective, Own, over_hypotheses, pick
from sartor.errors import ConfigError
from sartor.models import FACTORIES, Model, Params, in_precision
from sartor.theory import bounds
from sartor.trees import Tree, flatten, unflatten


@dataclasses.dataclass(frozen=True)
class Weighted(Own):
    """λ · the loss on the client's examples + (1 − λ) · the loss on those sampled from others.

    A step's batch holds some of the client's examples, and after them ``r`` times as many others.

    Attributes:
        model: the hypothesis class.
        trained: names of the leaves that the client has of its own.
        from_scratch: start at random and not from the central hypothesis.
        r: how many others there are for each example of the client.
    """

    r: int = 1

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Tree) -> jax.Array:
        """The weighted loss of the two halves of a batch."""
        whole = self.whole(own, central, job)
        losses = self.model.loss(whole, batch.x, batch.y, batch.key)
        count = losses.shape[0] // (1 + self.r)
        here = batch.mask[:count]
        there = jnp.arange(self.r * count) < self.r * here.sum()
        mine = jnp.where(here, losses[:count], 0).sum() / jnp.maximum(here.sum(), 1)
        others = jnp.where(there, losses[count:], 0).sum() / jnp.maximum(there.sum(), 1)
        return job["lambda"] * mine + (1 - job["lambda"]) * others


@dataclasses.dataclass(frozen=True)
class Guaranteed(Own):
    """The loss scaled by the step size of the paper's theorem, which depends on λ and m_k.

    Attributes:
        model: the hypothesis class.
        trained: names of the leaves that the client has of its own.
        from_scratch: start at random and not from the central hypothesis.
        theory: the constants of the problem.
        r: steps for each example of the client.
    """

    theory: Theory | None = None
    r: int = 1

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Tree) -> jax.Array:
        """η(λ, m_k) · the loss of a batch."""
        assert self.theory is not None
        rate = self.theory.step_size(job["lambda"], self.r * job["size"])
        return rate * super().loss(own, central, batch, job)


@dataclasses.dataclass(frozen=True)
class Theory:
    """What the theorem on Dapper asks to be known of the problem (section 5).

    Attributes:
        mu: μ, the loss is μ-strongly convex in the parameters.
        G: gradients of the loss have at most this norm.
        R: the diameter of the hypotheses that are considered: a ball around the central model.
    """

    mu: float
    G: float
    R: float

    def __post_init__(self) -> None:
        if not min(self.mu, self.G, self.R) > 0:
            raise ConfigError(f"Theory: mu, G and R must be positive (got {self})")

    @property
    def r(self) -> int:
        """The theorem's r ≥ G²·(4G/μ + 2R)²: steps for each example of the client.

        >>> Theory(mu=1.0, G=0.75, R=0.5).r
        9
        """
        return bounds.dapper_r(mu=self.mu, G=self.G, R=self.R, constants="paper")

    def step_size(self, lambda_: Any, steps: Any) -> jax.Array:
        """η = min(2Gλ / (μ(1−λ)), R) / (G·√T), for T = r·m_k steps."""
        distance = 2 * self.G * lambda_ / (self.mu * jnp.maximum(1 - lambda_, 1e-12))
        return jnp.minimum(distance, self.R) / (self.G * jnp.sqrt(steps))


class Beside(NamedTuple):
    """The central hypotheses, and local models that clients have kept from earlier rounds.

    Attributes:
        hypotheses: stacked: [q, ...].
        kept: leaves of local models: [clients, ...].
        visited: [clients] whether a client has one yet.
    """

    hypotheses: Params
    kept: Leaves
    visited: jax.Array


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The client has a local model h_l, and predicts λ · h_l + (1 − λ) · h_c.

    Predictions are mixed, not parameters and not logits: probabilities for classification and
    densities, means for regression.

    Attributes:
        model: the hypothesis class H_c of the central model.
        local: the hypothesis class H_l of the local ones. If it is the same, they start from the
            central hypothesis; if not, at random.
        joint: train the local model inside the mixture; otherwise by itself.
    """

    model: Model
    local: Model
    joint: bool = True

    def shapes(self) -> dict[str, Any]:
        """The leaves of a local model."""
        return flatten(self._shape())

    def start(self, central: Params, job: Tree) -> Leaves:
        """The central hypothesis, or a random local model; or the one that the client has kept."""
        if self.local == self.model:
            new = pick(_hypotheses(central), job, flatten(self._shape()))
        else:
            key = jax.random.wrap_key_data(job["init"], impl="threefry2x32")
            new = flatten(self.local.init(key))
        if not isinstance(central, Beside):
            return new
        place = job["place"]
        return {
            name: jnp.where(central.visited[place], central.kept[name][place], leaf)
            for name, leaf in new.items()
        }

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Tree) -> jax.Array:
        """The training loss of the mixture; h_c is in evaluation mode while h_l trains."""
        said = self.local.apply(self.whole(own, central, job), batch.x, batch.key)
        if self.joint:
            said = self._mix(job["lambda"], said, self._central(central, batch.x, job))
        return batch.mean(self.model.loss_of(said, batch.y))

    @property
    def exact(self) -> bool:
        """Whether the local class knows its minimiser."""
        return self.local.argmin is not None

    def solve(self, central: Params, batch: Batch, job: Tree) -> Leaves:
        """The local model that minimises the loss of the mixture, or its own."""
        assert self.local.argmin is not None
        beside = self._central(central, batch.x, job)
        beside = jnp.broadcast_to(beside, (*batch.y.shape, beside.shape[-1]))
        lambda_ = job["lambda"] if self.joint else jnp.ones(())
        return flatten(self.local.argmin(batch.x, batch.y, batch.mask, beside, lambda_))

    def predict(self, own: Leaves, central: Params, x: Any, job: Tree) -> jax.Array:
        """The mixture."""
        said = self.local.apply(self.whole(own, central, job), x, None)
        return self._mix(job["lambda"], said, self._central(central, x, job))

    def whole(self, own: Leaves, central: Params, job: Tree) -> Params:
        """The local model."""
        return unflatten(self._shape(), own)

    def central_loss(self, hypothesis: Params, own: Leaves, batch: Batch, job: Tree) -> jax.Array:
        """The same loss as a function of h_c, which is in training mode here and h_l is not."""
        said = self.local.apply(unflatten(self._shape(), own), batch.x, None)
        central = self.model.apply(hypothesis, batch.x, batch.key)
        return batch.mean(self.model.loss_of(self._mix(job["lambda"], said, central), batch.y))

    def in_precision(self, precision: Literal["f32", "bf16"]) -> Mixture:
        """The same, computing in another precision."""
        return dataclasses.replace(
            self,
            model=in_precision(self.model, precision),
            local=in_precision(self.local, precision),
        )

    def asks(self, central: Params, readers: int) -> bool:
        """Of few hypotheses; an exact minimiser reads each example once, and then predicts."""
        hypotheses = jax.tree.leaves(_hypotheses(central))[0].shape[0]
        return self.joint and not self.exact and hypotheses < readers

    def says(self, central: Params, x: Any) -> jax.Array:
        """What every central hypothesis says of examples: [q, n, ...]."""
        said: jax.Array = over_hypotheses(
            lambda h: self.model.apply(h, x, None), _hypotheses(central)
        )
        return said

    def _central(self, central: Params, x: Any, job: Tree) -> jax.Array:
        if "said" in job:  # found once for all who read these examples
            said: jax.Array = job["said"]
            return said
        hypothesis = jax.tree.map(lambda a: a[job["cluster"]], _hypotheses(central))
        return jax.lax.stop_gradient(self.model.apply(hypothesis, x, None))

    def _mix(self, lambda_: jax.Array, local: jax.Array, central: jax.Array) -> jax.Array:
        return interpolate(lambda_, local, central, probabilities=self.model.kind != "regression")

    def _shape(self) -> Params:
        return jax.eval_shape(self.local.init, jax.random.key(0))


def _hypotheses(central: Any) -> Params:
    return central.hypotheses if isinstance(central, Beside) else central


def interpolate(
    lambda_: Any, local: jax.Array, central: jax.Array, *, probabilities: bool
) -> jax.Array:
    """λ · local + (1 − λ) · central, of log-probabilities or of means; exact at λ = 0 and 1.

    >>> logs = jnp.log(jnp.array([[0.5, 0.5], [0.9, 0.1]]))
    >>> mixed = jnp.exp(interpolate(0.5, logs[0], logs[1], probabilities=True))
    >>> [round(float(p), 4) for p in mixed]
    [0.7, 0.3]
    """
    lambda_ = jnp.asarray(lambda_)
    inside = jnp.clip(lambda_, 1e-6, 1 - 1e-6)  # so that no gradient is infinite times zero
    if probabilities:
        mixed = jnp.logaddexp(jnp.log(inside) + local, jnp.log1p(-inside) + central)
    else:
        mixed = inside * local + (1 - inside) * central
    return jnp.where(lambda_ <= 0, central, jnp.where(lambda_ >= 1, local, mixed))


def describe_objective(objective: Objective) -> dict[str, Any]:
    """An objective in plain values, as far as predictions depend on it."""
    if isinstance(objective, Mixture):
        return {"name": "mixture", "local": objective.local.spec}
    return {"name": "own", "trained": list(objective.shapes())}


def rebuild_objective(table: dict[str, Any], model: Model, local: Model | None) -> Objective:
    """An objective back from its plain values."""
    if table["name"] == "own":
        return Own(model, tuple(table["trained"]))
    if local is None and table["local"] is None:
        raise ConfigError(
            "the clients' local models were made of your own functions, which no file holds; pass "
            "the same one: sartor.load(directory, local=...)"
        )
    return Mixture(model, local or rebuild_model(table["local"]))


def rebuild_model(spec: dict[str, Any]) -> Model:
    """A ready model from the name and arguments of its factory."""
    return FACTORIES[spec["name"]](**{key: v for key, v in spec.items() if key != "name"})
