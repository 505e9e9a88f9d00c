"""FedAvg: clients train the global model on their own data, the server averages the changes.

The paper's uniform global model (section 2.3): with weights m_k/m it minimises the loss on the
concatenation of all clients' samples.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sartor.central.base import Central
from sartor.engine import Cohort, Optimizer
from sartor.engine.optimizers import Chosen, build
from sartor.errors import ConfigError
from sartor.models import Model, Params


class State(NamedTuple):
    """The global model and the memory of the server's optimizer."""

    params: Params
    memory: optax.OptState


class Upload(NamedTuple):
    """What a cohort sends: sums only, so that secure aggregation stays possible."""

    change: Params
    weight: jax.Array


@dataclasses.dataclass(frozen=True)
class FedAvg(Central):
    """Federated averaging with partial participation; with the paper's server momentum of 0.9.

    Attributes:
        rounds: communication rounds T.
        cohort: clients that take part in a round; all of them if there are fewer.
        epochs: passes of a client over its own data in a round.
        batch: examples in a client's step.
        learning_rate: step size of the clients' SGD; not used with a ``client_optimizer``.
        weights: ``"size"`` weighs client k by m_k (the paper's m_k/m), ``"uniform"`` by 1 (1/p).
        server_learning_rate: step size of the server on the averaged change; like the momentum
            not used with a ``server_optimizer``.
        server_momentum: momentum of the server; 0 is plain averaging.
        client_optimizer: replaces the clients' SGD; an ``Optimizer`` or any optax transformation.
        server_optimizer: likewise for the server.

    >>> FedAvg(rounds=10, cohort=5).server_momentum
    0.9
    """

    epochs: int = 1
    batch: int = 20
    learning_rate: float = 0.05
    weights: Literal["size", "uniform"] = "size"
    server_learning_rate: float = 1.0
    server_momentum: float = 0.9
    client_optimizer: Chosen = None
    server_optimizer: Chosen = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in ("size", "uniform"):
            raise ConfigError(f"FedAvg: weights must be 'size' or 'uniform' (got {self.weights!r})")
        if not 0 <= self.server_momentum < 1:
            raise ConfigError(
                f"FedAvg: server_momentum must be in [0, 1) (got {self.server_momentum!r})"
            )

    def init(self, model: Model, key: jax.Array) -> State:
        """A random model."""
        params = model.init(key)
        return State(params, self._server.init(params))

    def clients(self, state: State, cohort: Cohort) -> tuple[Upload, dict[str, jax.Array]]:
        """Every client trains from the global model; the changes are summed by weight."""
        weights = cohort.sizes if self.weights == "size" else jnp.ones_like(cohort.sizes)
        trained = cohort.train(state.params, self._client, weights)
        upload = Upload(trained.change, weights.sum())
        return upload, {"loss": trained.loss, "finite": trained.finite}

    def server(self, state: State, upload: Upload) -> State:
        """A step of the server's optimizer, with minus the average change as the gradient."""
        gradient = jax.tree.map(
            lambda change, old: (-change / upload.weight).astype(old.dtype),
            upload.change,
            state.params,
        )
        updates, memory = self._server.update(gradient, state.memory, state.params)
        return State(optax.apply_updates(state.params, updates), memory)

    def hypotheses(self, state: State) -> Params:
        """The global model as a stack of one."""
        return jax.tree.map(lambda a: a[None], state.params)

    @property
    def _client(self) -> optax.GradientTransformation:
        return build(
            self.client_optimizer, Optimizer("sgd", (("learning_rate", self.learning_rate),))
        )

    @property
    def _server(self) -> optax.GradientTransformation:
        options = [("learning_rate", self.server_learning_rate)]
        if self.server_momentum:
            options.append(("momentum", self.server_momentum))
        return build(self.server_optimizer, Optimizer("sgd", tuple(options)))
