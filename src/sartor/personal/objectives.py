"""What Dapper's clients minimise where it is not simply the loss on a mixed batch."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sartor.caching import made_once
from sartor.checking import Positive, check_fields
from sartor.engine import Batch, Job, Leaves, Own
from sartor.models import Params
from sartor.theory import bounds


@dataclasses.dataclass(frozen=True)
class Weighted(Own):
    """λ · the loss on the client's examples + (1 − λ) · the loss on those sampled from others.

    A step's batch holds some of the client's examples, and after them ``r`` times as many others.

    Attributes:
        model: the hypothesis class.
        trained: names of the leaves that the client has of its own; all of them if not given.
        from_scratch: start at random and not from the central hypothesis.
        r: how many others there are for each example of the client.
    """

    r: int = 1

    never_negative = True

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """The weighted loss of the two parts of a batch."""
        whole = self.whole(own, central, job)
        losses = self.model.loss(whole, batch.x, batch.y, batch.key)
        count = losses.shape[0] // (1 + self.r)
        here = batch.mask[:count]
        there = jnp.arange(self.r * count) < self.r * here.sum()
        mine = jnp.where(here, losses[:count], 0).sum() / jnp.maximum(here.sum(), 1)
        others = jnp.where(there, losses[count:], 0).sum() / jnp.maximum(there.sum(), 1)
        lambda_: jax.Array = job.values["lambda"]
        return lambda_ * mine + (1 - lambda_) * others


@dataclasses.dataclass(frozen=True)
class Theory:
    """The constants of a problem that the theorem on Dapper needs (section 5).

    Attributes:
        mu: μ, the loss is μ-strongly convex in the parameters.
        G: gradients of the loss have at most this norm.
        R: the diameter of the hypotheses that are considered: a ball around the central model.
    """

    mu: Positive
    G: Positive
    R: Positive

    def __post_init__(self) -> None:
        check_fields(self)

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

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """η(λ, m_k) · the loss of a batch."""
        assert self.theory is not None
        rate = self.theory.step_size(job.values["lambda"], self.r * job.size)
        return rate * super().loss(own, central, batch, job)


class Averaged(NamedTuple):
    """The memory of :func:`averaged_sgd`."""

    centre: Any
    average: Any
    steps: jax.Array


@made_once(maxsize=32)
def averaged_sgd(radius: float) -> optax.GradientTransformation:
    """Gradient steps of size 1, projected on a ball around the start, with a running average.

    :func:`average_of` gives the average. Step sizes that differ between clients are in the loss,
    which is scaled by them.
    """

    def init(params: Any) -> Averaged:
        return Averaged(params, params, jnp.zeros(()))

    def update(gradient: Any, memory: Averaged, params: Any) -> tuple[Any, Averaged]:
        steps = memory.steps + 1
        average = jax.tree.map(lambda a, p: a + (p - a) / steps, memory.average, params)
        away = jax.tree.map(lambda p, g, c: p - g - c, params, gradient, memory.centre)
        scale = jnp.minimum(1.0, radius / jnp.maximum(optax.tree.norm(away), 1e-30))
        updates = jax.tree.map(
            lambda a, c, p: (c + scale * a - p).astype(p.dtype), away, memory.centre, params
        )
        return updates, Averaged(memory.centre, average, steps)

    return optax.GradientTransformation(init, update)


def average_of(params: Any, memory: Averaged) -> Any:
    """The average of all iterates: what the theorem is about."""
    return memory.average
