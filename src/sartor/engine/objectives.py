"""What a client's own model starts from, minimises and predicts, next to the central hypotheses."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import jax
import jax.numpy as jnp

from sartor.engine.job import Ask, Batch, Job
from sartor.models import Model, Params, in_precision
from sartor.registry import register
from sartor.trees import Tree, flatten, unflatten

Leaves = Mapping[str, Any]
"""Parameters by leaf name."""


@dataclasses.dataclass(frozen=True)
class Objective(abc.ABC):
    """What a personal algorithm minimises for one client.

    Subclasses are frozen dataclasses that define ``start``, ``loss`` and ``predict``; the rest has
    defaults. ``own`` are the leaves that the client has of its own, ``central`` the central
    hypotheses, stacked [q, ...], or ``None``. ``job.hypothesis`` says which of them is the
    client's, and ``job.values`` what was chosen for it, such as ``"lambda"``.

    Attributes:
        model: the hypothesis class of what is predicted.
    """

    model: Model

    asks_central: ClassVar[bool] = False
    """Whether ``batch.central`` is needed: what the client's central hypothesis predicts."""

    idle_at_zero: ClassVar[bool] = False
    """Whether with λ = 0 the client's own leaves do not matter, so that none are trained."""

    never_negative: ClassVar[bool] = False
    """Whether losses are never negative, so that `Searched` may cut steps by their size."""

    known: ClassVar[dict[str, type[Objective]]] = {}
    """All objectives by name: how saved models find theirs."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "loss" in cls.__dict__ and "never_negative" not in cls.__dict__:
            cls.never_negative = False  # another loss, of which nothing is known
        register(Objective.known, cls.__name__.lower(), cls, "choose another name")

    @abc.abstractmethod
    def start(self, central: Params, job: Job) -> Leaves:
        """The client's own leaves before the first step."""

    @abc.abstractmethod
    def loss(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """What a step descends."""

    @abc.abstractmethod
    def predict(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """Log-probabilities, or means, in evaluation mode."""

    @property
    def standalone(self) -> bool:
        """Whether no central hypothesis is needed."""
        return False

    @property
    def exact(self) -> bool:
        """Whether ``solve`` finds the minimiser at once, from a batch of all examples."""
        return False

    def solve(self, central: Params, batch: Batch, job: Job) -> Leaves:
        """That minimiser."""
        raise NotImplementedError

    def whole(self, own: Leaves, central: Params, job: Job) -> Params:
        """The client's own hypothesis, which users get as its parameters."""
        return dict(own)

    def abstain(self, own: Leaves, central: Params, job: Job) -> tuple[Leaves, dict[str, float]]:
        """Leaves and values with which clients predict exactly as their central hypotheses do.

        Needed for ``guard``, which lets a client keep the central model. It is called for several
        clients at once: leaves are [clients, ...], and so is ``job.hypothesis``.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no `abstain`, which guard needs")


AnyObjective = TypeVar("AnyObjective", bound=Objective)


def leaf_shapes(objective: Objective) -> dict[str, Any]:
    """The leaves that a client has of its own, by name; each with ``shape`` and ``dtype``."""

    def start() -> Leaves:
        central = jax.vmap(objective.model.init)(jax.random.split(jax.random.key(0), 1))
        word = jnp.zeros(2, jnp.uint32)
        return dict(objective.start(central, Job(jnp.zeros((), jnp.int32), word, 1.0, word)))

    shapes: dict[str, Any] = jax.eval_shape(start)
    return shapes


def lowered(objective: AnyObjective, precision: Literal["f32", "bf16"]) -> AnyObjective:
    """The same objective, with all its models computing in another precision."""
    models = {
        field.name: in_precision(value, precision)
        for field in dataclasses.fields(objective)
        if isinstance(value := getattr(objective, field.name), Model)
    }
    return dataclasses.replace(objective, **models)


@dataclasses.dataclass(frozen=True)
class Own(Objective):
    """The client has a whole model, or some layers of one, and minimises its loss on a batch.

    Attributes:
        model: the hypothesis class.
        trained: names of the leaves that the client has of its own; all of them if not given.
            The others are those of its central hypothesis.
        from_scratch: start at random and not from the central hypothesis.
    """

    trained: tuple[str, ...] | None = None
    from_scratch: bool = False

    never_negative = True

    @property
    def standalone(self) -> bool:
        """A model that starts at random is the client's alone."""
        return self.from_scratch

    def start(self, central: Params, job: Job) -> Leaves:
        """The client's central hypothesis, or one that knows nothing."""
        if self.from_scratch:
            return from_scratch(self.model, job)
        return pick(central, job, flatten(central) if self.trained is None else self.trained)

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """The mean training loss of the batch."""
        whole = self.whole(own, central, job)
        return batch.mean(self.model.loss(whole, batch.x, batch.y, batch.key))

    def predict(self, own: Leaves, central: Params, batch: Batch, job: Job) -> jax.Array:
        """What the client's model predicts."""
        return self.model.apply(self.whole(own, central, job), batch.x, None)

    def whole(self, own: Leaves, central: Params, job: Job) -> Params:
        """A whole hypothesis: the client's leaves, and the central ones for the rest."""
        shape = jax.eval_shape(self.model.init, jax.random.key(0))
        frozen = [name for name in flatten(shape) if name not in own]
        return unflatten(shape, {**own, **pick(central, job, frozen)} if frozen else own)

    def abstain(self, own: Leaves, central: Params, job: Job) -> tuple[Leaves, dict[str, float]]:
        """The leaves of the central hypothesis."""
        return pick(central, job, own), {}


def from_scratch(model: Model, job: Job) -> Leaves:
    """A random hypothesis; where the model can, one that predicts 0, or all classes alike.

    Random weights are far off where targets are near 1e-6.
    """
    params = model.init(job.init_key)
    if model.informed is not None:
        params = model.informed(params, jnp.zeros(()), jnp.zeros(()))
    return flatten(params)


SMALL = 2**16
"""Numbers in a model up to which several are evaluated side by side."""


def over_hypotheses(f: Callable[[Params], Tree], hypotheses: Params) -> Tree:
    """A function of each of q hypotheses: small models side by side, large ones in turn."""
    numbers = sum(leaf[0].size for leaf in jax.tree.leaves(hypotheses))
    return jax.vmap(f)(hypotheses) if numbers < SMALL else jax.lax.map(f, hypotheses)


def pick(central: Params, job: Job, names: Any) -> dict[str, Any]:
    """Some leaves of a job's central hypothesis."""
    leaves = flatten(central)
    return {name: leaves[name][job.hypothesis] for name in names}


def asking(objective: Objective, central: Params) -> Ask | None:
    """Who predicts ``batch.central`` for an objective that needs it."""
    if not objective.asks_central:
        return None
    model = objective.model
    return Ask(
        lambda hypothesis, x: model.apply(hypothesis, x, None), central, once=objective.exact
    )


def predict(objective: Objective, own: Leaves, central: Params, x: Any, job: Job) -> jax.Array:
    """What a client's own leaves predict for examples, in evaluation mode."""
    ask = asking(objective, central)
    said = None if ask is None else ask.one(job.hypothesis, x)
    return objective.predict(own, central, Batch(x, None, central=said), job)
