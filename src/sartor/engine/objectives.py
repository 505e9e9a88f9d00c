"""What a client's own model starts from, minimises and predicts, beside the central hypotheses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import jax

from sartor.engine.lanes import Batch
from sartor.models import Model, Params, in_precision
from sartor.trees import Tree, flatten, unflatten

Leaves = Mapping[str, Any]
"""Parameters by leaf name."""


class Objective(Protocol):
    """What a personal algorithm minimises for one client; it must be hashable.

    ``central`` are the central hypotheses, stacked [q, ...], or ``None``; ``job`` is what is known
    of the client: ``cluster``, its hypothesis, and what else the algorithm has asked for.
    """

    @property
    def model(self) -> Model:
        """The hypothesis class of what is predicted."""

    def __hash__(self) -> int:
        """Compiled programs are found again by it."""

    @property
    def exact(self) -> bool:
        """Whether the minimiser can be found at once, from a batch of all examples."""

    def solve(self, central: Params, batch: Batch, job: Tree) -> Leaves:
        """That minimiser."""

    def shapes(self) -> dict[str, Any]:
        """The leaves that a client has of its own, by name; each with ``shape`` and ``dtype``."""

    def start(self, central: Params, job: Tree) -> Leaves:
        """The client's own leaves before the first step."""

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Tree) -> jax.Array:
        """What a step descends."""

    def predict(self, own: Leaves, central: Params, x: Any, job: Tree) -> jax.Array:
        """Log-probabilities, or means, in evaluation mode."""

    def whole(self, own: Leaves, central: Params, job: Tree) -> Params:
        """The client's own hypothesis, as a whole."""

    def asks(self, central: Params, readers: int) -> bool:
        """Whether to find out once what all central hypotheses say of examples.

        It pays for the objectives that need it, where more jobs read each example than there are
        hypotheses. Jobs are then told under ``said``.
        """

    def says(self, central: Params, x: Any) -> jax.Array:
        """What every central hypothesis says of examples: [q, n, ...]."""

    def in_precision(self, precision: Literal["f32", "bf16"]) -> Objective:
        """The same, computing in another precision."""


@dataclasses.dataclass(frozen=True)
class Own:
    """The client has a whole model, or some layers of one, and minimises its loss on a batch.

    Attributes:
        model: the hypothesis class.
        trained: names of the leaves that the client has of its own; the others are its central
            hypothesis's.
        from_scratch: start at random and not from the central hypothesis.
    """

    model: Model
    trained: tuple[str, ...]
    from_scratch: bool = False

    @property
    def exact(self) -> bool:
        """It is trained by gradient steps."""
        return False

    def solve(self, central: Params, batch: Batch, job: Tree) -> Leaves:
        """There is no such thing."""
        raise NotImplementedError

    def shapes(self) -> dict[str, Any]:
        """The leaves that are trained."""
        leaves = flatten(self._shape())
        return {name: leaves[name] for name in self.trained}

    def start(self, central: Params, job: Tree) -> Leaves:
        """The central hypothesis of the client's cluster, or a random one."""
        if self.from_scratch:
            key = jax.random.wrap_key_data(job["init"], impl="threefry2x32")
            return flatten(self.model.init(key))
        return pick(central, job, self.trained)

    def loss(self, own: Leaves, central: Params, batch: Batch, job: Tree) -> jax.Array:
        """The mean training loss of the batch."""
        whole = self.whole(own, central, job)
        return batch.mean(self.model.loss(whole, batch.x, batch.y, batch.key))

    def predict(self, own: Leaves, central: Params, x: Any, job: Tree) -> jax.Array:
        """What the client's model says."""
        return self.model.apply(self.whole(own, central, job), x, None)

    def whole(self, own: Leaves, central: Params, job: Tree) -> Params:
        """A whole hypothesis: the client's leaves, and the central ones for the rest."""
        frozen = [name for name in flatten(self._shape()) if name not in own]
        return unflatten(self._shape(), {**own, **pick(central, job, frozen)} if frozen else own)

    def asks(self, central: Params, readers: int) -> bool:
        """The client's model is all that predicts."""
        return False

    def says(self, central: Params, x: Any) -> jax.Array:
        """Nobody asks."""
        raise NotImplementedError

    def in_precision(self, precision: Literal["f32", "bf16"]) -> Own:
        """The same, computing in another precision."""
        return dataclasses.replace(self, model=in_precision(self.model, precision))

    def _shape(self) -> Params:
        return jax.eval_shape(self.model.init, jax.random.key(0))


SMALL = 2**16
"""Numbers in a model up to which several are evaluated side by side."""


def over_hypotheses(f: Callable[[Params], Tree], hypotheses: Params) -> Tree:
    """A function of each of q hypotheses: small models side by side, large ones in turn."""
    numbers = sum(leaf[0].size for leaf in jax.tree.leaves(hypotheses))
    return jax.vmap(f)(hypotheses) if numbers < SMALL else jax.lax.map(f, hypotheses)


def pick(central: Params, job: Tree, names: Any) -> dict[str, Any]:
    """Some leaves of the central hypothesis of a job."""
    leaves = flatten(central)
    return {name: leaves[name][job["cluster"]] for name in names}
