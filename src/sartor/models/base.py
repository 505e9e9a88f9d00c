"""What a model is: a few pure functions. Sartor assumes nothing else about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from sartor.caching import made_once
from sartor.checking import Count, Part, Whole, check_fields
from sartor.data import ClientData
from sartor.data.scaling import Scale, Scaling
from sartor.errors import ConfigError

Params = Any
"""A pytree of arrays: the paper's hypothesis h."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A hypothesis class H: how to draw a hypothesis, what it predicts, what a mistake costs.

    Attributes:
        init: ``init(key) -> params``.
        apply: ``apply(params, x, key) -> log-probabilities [n, classes]`` for classification, or
            ``-> mean [n]`` (or ``[n, outputs]``) for regression, example by example: batches are
            padded, so the prediction for one example must not depend on the others. ``key`` is a
            random key while training (dropout on) and ``None`` in evaluation mode. For density
            estimation, where the input space is empty, ``x`` is ``None`` and log-probabilities
            ``[classes]`` do.
        kind: ``"classification"``, ``"density"`` (classification without inputs) or
            ``"regression"``.
        classes: number of classes; ``None`` for regression.
        input_shape: shape of one input, checked against the data before any work; ``None`` skips
            the check.
        smoothing: label smoothing of the *training* loss: the target becomes
            ``(1 - smoothing)·onehot + smoothing/classes``. The paper's "logit smoothing with
            weight 0.9" is ``smoothing=0.1``. Evaluation always reports the plain loss.
        training_loss: ``(prediction, y) -> loss [n]``, to replace cross entropy or squared error.
        argmin: ``(x, y, mask, beside, lambda_) -> params``, for classes without useful gradients:
            the exact minimiser of the plain loss of λ·h + (1−λ)·beside over the examples whose
            mask is set, where ``beside`` are the log-probabilities [n, classes] of the other model
            in the mixture. Mapper passes λ = 1 if there is no other model.
        scale: how features are scaled before the model sees them, by statistics of the training
            parts: ``"standardize"``, ``"whiten"`` (which also makes them uncorrelated), or not at
            all. Trained models remember the statistics.
        informed: ``(params, prediction, unit) -> params``: a hypothesis that begins with a
            prediction for whatever input: the log-shares of the classes, or the mean target. The
            unit is 1 for classes, and the standard deviation of targets. Central training with
            automatic step sizes begins there; with 0 for both, training from scratch does.
        spec: name and arguments of the factory that made the model, so that saved models can be
            loaded without pickle; ``None`` for models of the user's own functions.

    >>> def init(key): return {"p": jnp.zeros(())}
    >>> def apply(params, x, key): return jax.nn.log_softmax(jnp.stack([params["p"] * x, 0 * x], 1))
    >>> model = Model(init, apply, classes=2)
    >>> params = model.init(jax.random.key(0))
    >>> model.loss(params, jnp.ones(3), jnp.array([0, 1, 0])).round(3).tolist()
    [0.6930000185966492, 0.6930000185966492, 0.6930000185966492]
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Any, jax.Array | None], jax.Array]
    kind: Literal["classification", "density", "regression"] = "classification"
    classes: Count | None = None
    input_shape: tuple[Whole, ...] | None = None
    smoothing: Part = 0.0
    training_loss: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    argmin: Callable[[Any, jax.Array, jax.Array, jax.Array, jax.Array], Params] | None = None
    scale: Scale | None = dataclasses.field(default=None, compare=False)
    informed: Callable[[Params, jax.Array, jax.Array], Params] | None = dataclasses.field(
        default=None, compare=False
    )
    spec: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind != "regression" and self.classes is None:
            raise ConfigError(
                f"a {self.kind} model needs classes (got None); say kind='regression' if the model "
                "predicts a number"
            )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Model:
        """The ready model that a table of a configuration names."""
        from sartor.models.zoo import rebuild

        return rebuild(table)

    def scaling_of(self, data: ClientData) -> Scaling | None:
        """How this model's features are scaled, by the training parts of the seen clients."""
        return None if self.scale is None else Scaling.of(data, self.scale)

    @property
    def curvature(self) -> float:
        """How fast the slope of the loss changes with a prediction: step sizes go by it."""
        return 2.0 if self.kind == "regression" else 0.25

    @property
    def has_accuracy(self) -> bool:
        """Whether "the most probable label is right" means anything for this model."""
        return self.kind == "classification"

    def loss(self, params: Params, x: Any, y: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """The training loss of every example, label smoothing included."""
        return self.loss_of(self.apply(params, x, key), y)

    def loss_of(self, prediction: jax.Array, y: jax.Array) -> jax.Array:
        """The training loss of every example, given the predictions."""
        if self.training_loss is not None:
            return self.training_loss(prediction, y)
        plain = self._plain_loss(prediction, y)
        if self.kind == "regression" or self.smoothing == 0.0:
            return plain
        return (1 - self.smoothing) * plain - self.smoothing * prediction.mean(axis=-1)

    def score(self, params: Params, x: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The plain loss of every example, and whether the most probable label is right."""
        return self.score_of(self.apply(params, x, None), y)

    def score_of(self, prediction: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The same, given the predictions."""
        loss = self._plain_loss(prediction, y)
        if self.kind == "regression":
            return loss, jnp.zeros(loss.shape, bool)
        best = jnp.broadcast_to(prediction.argmax(axis=-1), y.shape)
        return loss, best == y

    def gain_range(
        self, before: jax.Array, after: jax.Array, y: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The least and the most by which the plain loss of every example could fall.

        From one prediction to another, over all labels that the example might have: all classes,
        or for regression everything between ``labels[0]`` and ``labels[1]``. ``y`` gives the shape.

        >>> model = Model(lambda key: {}, lambda params, x, key: x, kind="regression")
        >>> a, b, y = jnp.array([1.0]), jnp.array([2.0]), jnp.array([2.0])
        >>> least, most = model.gain_range(a, b, y, jnp.array([0.0, 3.0]))
        >>> least.tolist(), most.tolist()  # of a label 0, and of a label 3
        ([-3.0], [3.0])
        """
        if self.kind == "regression":
            before, after = (jnp.broadcast_to(p, y.shape) for p in (before, after))
            # (y − before)² − (y − after)² is linear in y.
            ends = [(after - before) * (2 * end - before - after) for end in labels]
            ends = [jnp.stack(ends).min(axis=0), jnp.stack(ends).max(axis=0)]
            least, most = (end.reshape(len(y), -1).sum(axis=1) for end in ends)
            return least, most
        # Two labels that have no probability at all are alike.
        gain = jnp.where(before == after, 0.0, after - before)
        least, most = (
            jnp.broadcast_to(end, y.shape) for end in (gain.min(axis=-1), gain.max(axis=-1))
        )
        return least, most

    def _plain_loss(self, prediction: jax.Array, y: jax.Array) -> jax.Array:
        if self.kind == "regression":
            error = jnp.square(prediction - y)
            return error.reshape(error.shape[0], -1).sum(axis=1)
        if prediction.ndim == 1:  # densities predict the same of every example
            return -prediction[y.astype(jnp.int32)]
        log_probs = jnp.broadcast_to(prediction, (*y.shape, prediction.shape[-1]))
        return -jnp.take_along_axis(log_probs, y[:, None].astype(jnp.int32), axis=-1)[:, 0]


@made_once(maxsize=128)
def in_precision(model: Model, precision: Literal["f32", "bf16"]) -> Model:
    """The same model computing in another precision; its parameters stay in float32.

    >>> from sartor.models import logistic
    >>> half = in_precision(logistic(features=2, classes=3), "bf16")
    >>> half.apply(half.init(jax.random.key(0)), jnp.ones((1, 2)), None).dtype
    dtype('float32')
    """
    if precision == "f32":
        return model

    def lower(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.bfloat16) if leaf.dtype == jnp.float32 else leaf

    def apply(params: Params, x: Any, key: jax.Array | None) -> jax.Array:
        params, x = jax.tree.map(lower, (params, x))
        return model.apply(params, x, key).astype(jnp.float32)

    return dataclasses.replace(model, apply=apply)


@made_once(maxsize=128)
def parameter_bytes(model: Model) -> int:
    """The number of bytes of a hypothesis.

    >>> from sartor.models import categorical
    >>> parameter_bytes(categorical(symbols=50))
    200
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(int(leaf.size) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def count_parameters(params: Params) -> int:
    """The number of parameters of a hypothesis.

    >>> count_parameters({"w": jnp.zeros((3, 4)), "b": jnp.zeros(4)})
    16
    """
    return sum(int(leaf.size) for leaf in jax.tree.leaves(params))
