"""FedAvg: clients train the global model on their own data, the server averages the changes.

The paper's uniform global model (section 2.3): with weights m_k/m it minimises the loss on the
concatenation of all clients' samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sartor.central.base import Central
from sartor.central.model import CentralModel
from sartor.checking import Count, Part, Positive
from sartor.data import ClientData
from sartor.engine import AUTOMATIC, Automatic, Chosen, Cohort, Job, Passed, build, traced
from sartor.errors import ConfigError
from sartor.models import Model, Params

TINY = float(np.finfo(np.float32).tiny)


class State(NamedTuple):
    """The hypotheses, one here and q in a clustering, each with its server's memory: [q, ...]."""

    hypotheses: Params
    memory: optax.OptState


class Upload(NamedTuple):
    """What a cohort sends, by hypothesis: sums only, so that secure aggregation stays possible."""

    change: Params
    weight: jax.Array


@dataclasses.dataclass(frozen=True)
class FedAvg(Central):
    """Federated averaging with partial participation.

    Attributes:
        rounds: communication rounds T.
        cohort: number of clients in a round; all clients if there are fewer.
        epochs: passes of a client over its own data in a round.
        batch: examples in one step of a client.
        learning_rate: step size of the clients' SGD: a number, or ``Automatic()``, which falls
            from round to round. Ignored with a ``client_optimizer``.
        weights: ``"size"`` weights client k by its examples (the paper's m_k/m), ``"uniform"``
            weights all clients the same (1/p).
        server_learning_rate: step size of the server. Ignored with a ``server_optimizer``.
        server_momentum: momentum of the server. 0 is plain averaging. The default is the paper's
            0.9 with a step size that is given, and 0 with an automatic one, which it would make
            swing. Ignored with a ``server_optimizer``.
        client_optimizer: replaces the clients' SGD: an ``Optimizer`` or any optax transformation.
        server_optimizer: replaces the server's SGD: an ``Optimizer`` or any optax transformation.

    >>> FedAvg().server_momentum, FedAvg(learning_rate=0.05).server_momentum
    (0.0, 0.9)
    """

    epochs: Count = 1
    batch: Count = 20
    learning_rate: Positive | Automatic = traced(AUTOMATIC)
    weights: Literal["size", "uniform"] = "size"
    server_learning_rate: Positive = 1.0
    server_momentum: Part | None = None
    client_optimizer: Chosen = None
    server_optimizer: Chosen = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_momentum is None:
            automatic = isinstance(self.learning_rate, Automatic) and self.client_optimizer is None
            object.__setattr__(self, "server_momentum", 0.0 if automatic else 0.9)

    def init(self, model: Model, data: ClientData, key: jax.Array) -> Any:
        """A random model."""
        return self.state_of(jax.tree.map(lambda a: a[None], model.init(key)))

    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Every client trains from the global model; the changes are summed by weight."""
        trained = self.train(state, cohort)
        return self.upload(state, cohort, trained), {"loss": trained.record["loss"]}

    def server(self, state: Any, upload: Any) -> Any:
        """A step of the server's optimizer, with minus the average change as the gradient.

        A hypothesis that nobody has trained keeps its parameters and its memory.
        """

        def step(params: Params, memory: Any, change: Params, weight: jax.Array) -> Any:
            gradient = jax.tree.map(
                lambda c, old: (-c / jnp.maximum(weight, TINY)).astype(old.dtype), change, params
            )
            updates, after = self.server_sgd.update(gradient, memory, params)
            new = optax.apply_updates(params, updates), after
            return jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, (params, memory))

        hypotheses, memory = jax.vmap(step)(
            state.hypotheses, state.memory, upload.change, upload.weight
        )
        return state._replace(hypotheses=hypotheses, memory=memory)

    # What follows is shared with the clusterings, Agnostic and the rounds of Mapper.

    def state_of(self, hypotheses: Params) -> Any:
        """The state before the first round from these hypotheses."""
        return State(hypotheses, jax.vmap(self.server_sgd.init)(hypotheses))

    def train(self, state: Any, cohort: Cohort, hypothesis: jax.Array | None = None) -> Passed:
        """Every client trains its hypothesis on its own data."""
        return cohort.train(
            state.hypotheses, self.optimizer_of(cohort),
            epochs=self.epochs, batch=self.batch,
            weights=self.weigh(state, cohort), hypothesis=hypothesis,
        )  # fmt: skip

    def optimizer_of(self, cohort: Cohort) -> Callable[[Job], optax.GradientTransformation]:
        """The optimizer of each client of a cohort."""

        def optimizer(job: Job) -> optax.GradientTransformation:
            steps = self.epochs * jnp.ceil(job.size / self.batch)
            done = cohort.round / self.rounds
            rate = self.step_size(self.learning_rate, cohort.model, steps, done)
            return build(self.client_optimizer, rate)

        return optimizer

    def step_size(self, rate: float | Automatic, model: Model, steps: Any, done: Any = 0.0) -> Any:
        """The size of each of a client's steps, after a share of the rounds is done.

        Momentum makes more of it later on.
        """
        if not isinstance(rate, Automatic):
            return rate
        momentum = 0.0 if self.server_optimizer else self.server_momentum or 0.0
        return rate.at(done, steps, model.curvature) * (1 - momentum)

    def notes(self, state: Any) -> dict[str, jax.Array]:
        """What the history of a run keeps of the state before every round."""
        return {}

    def weigh(self, state: Any, cohort: Cohort) -> jax.Array:
        """How much each client of a cohort counts."""
        own = cohort.sizes if self.weights == "size" else jnp.ones_like(cohort.sizes)
        stands_for = cohort.attributes.get("stands_for")  # where some are in more cohorts
        return own if stands_for is None else own * stands_for

    def upload(
        self, state: Any, cohort: Cohort, trained: Passed, losses: jax.Array | None = None
    ) -> Any:
        """What the cohort sends to the server."""
        return Upload(trained.total, trained.weight)

    @property
    def server_rule(self) -> FedAvg:
        """How clients are weighed and what the server does, for each hypothesis by itself."""
        return FedAvg(**{f.name: getattr(self, f.name) for f in dataclasses.fields(FedAvg)})

    @property
    def server_sgd(self) -> optax.GradientTransformation:
        """The server's optimizer."""
        if self.server_optimizer is not None:
            return build(self.server_optimizer, None)
        return optax.sgd(self.server_learning_rate, self.server_momentum or None)


def server_rule_of(central: CentralModel) -> FedAvg:
    """The server of the algorithm that trained a central model; FedAvg's if it has none like it."""
    table = dict(central.algorithm)
    while "rule" in table:  # rounds that went on with another one's server
        table = dict(table["rule"])
    kind = Central.known.get(table["name"], FedAvg)
    if not issubclass(kind, FedAvg):
        return FedAvg()
    if kind.server_rule is FedAvg.server_rule:  # its FedAvg settings are all that matters
        kind = FedAvg
    settings = {f.name: table[f.name] for f in dataclasses.fields(kind) if f.name in table}
    if any(isinstance(settings.get(key), str) for key in ("client_optimizer", "server_optimizer")):
        raise ConfigError(
            "Mapper continues with the central model's server, whose optimizer was an optax "
            "transformation of your own; name it instead: sartor.Optimizer('adam', ...)"
        )
    return kind(**settings).server_rule
