"""What Mapper's clients minimise and predict: a mixture of a local and a central model."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sartor.engine import Batch, Job, Leaves, Objective, from_scratch, pick
from sartor.models import Model, Params
from sartor.trees import flatten, unflatten


@dataclasses.dataclass(frozen=True)
class Mixture(Objective):
    """The client has a local model h_l, and predicts λ · h_l + (1 − λ) · h_c.

    Predictions are mixed, not parameters and not logits: probabilities for classification and
    densities, means for regression.

    Attributes:
        model: the hypothesis class H_c of the central model.
        local: the hypothesis class H_l of the local ones. If it is the same, they start from the
            central hypothesis; if not, at random.
        joint: train the local model inside the mixture; otherwise by itself.
    """

    local: Model
    joint: bool = True

    asks_central: ClassVar[bool] = True
    idle_at_zero: ClassVar[bool] = True
    never_negative: ClassVar[bool] = True

    def start(self, central: Params, job: Job) -> Leaves:
        """The central hypothesis, or a local model that knows nothing."""
        if self.local == self.model:
            return pick(central, job, flatten(self._shape()))
        return from_scratch(self.local, job)

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """The training loss of the mixture; h_c is in evaluation mode while h_l trains."""
        said = self.local.apply(self.whole(own, central, job), batch.x, batch.key)
        if self.joint:
            said = self._mix(job, said, batch.central)
        return batch.mean(self.model.loss_of(said, batch.y))

    def predict(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """The mixture."""
        said = self.local.apply(self.whole(own, central, job), batch.x, None)
        return self._mix(job, said, batch.central)

    def central_loss(self, hypothesis: Params, own: Leaves, batch: Batch, job: Job) -> jax.Array:
        """The loss as a function of h_c, which is in training mode here while h_l is not."""
        said = self.local.apply(unflatten(self._shape(), own), batch.x, None)
        central = self.model.apply(hypothesis, batch.x, batch.key)
        return batch.mean(self.model.loss_of(self._mix(job, said, central), batch.y))

    @property
    def exact(self) -> bool:
        """Whether the local class knows its minimiser."""
        return self.local.argmin is not None

    def solve(self, central: Params, batch: Batch, job: Job) -> Leaves:
        """The local model that minimises the loss of the mixture, or its own."""
        assert self.local.argmin is not None
        other = jnp.broadcast_to(batch.central, (*batch.y.shape, batch.central.shape[-1]))
        lambda_ = job.values["lambda"] if self.joint else jnp.ones(())
        return flatten(self.local.argmin(batch.x, batch.y, batch.mask, other, lambda_))

    def whole(self, own: Leaves, central: Params, job: Job) -> Params:
        """The local model."""
        return unflatten(self._shape(), own)

    def abstain(self, own: Leaves, central: Params, job: Job) -> tuple[Leaves, dict[str, float]]:
        """λ = 0; a local model that is not finite is replaced, as 0 · NaN would not be 0."""
        return {name: np.where(np.isfinite(a), a, 0) for name, a in own.items()}, {"lambda": 0.0}

    def _mix(self, job: Job, local: jax.Array, central: jax.Array) -> jax.Array:
        probabilities = self.model.kind != "regression"
        return interpolate(job.values["lambda"], local, central, probabilities=probabilities)

    def _shape(self) -> Params:
        return jax.eval_shape(self.local.init, jax.random.key(0))


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
