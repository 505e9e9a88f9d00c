"""The rounds of Mapper: what its cohorts compute, under the server's rule of a central row."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.central import Agnostic, Central, CentralModel, FedAvg
from sartor.central.settings import without
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Cohort
from sartor.engine.engine import model_identity
from sartor.engine.optimizers import UNIT_SGD, rates
from sartor.engine.rounds import Pass
from sartor.engine.schedule import Ints, Spans
from sartor.errors import ConfigError
from sartor.models import Model, Params
from sartor.personal.choosing import make_trials
from sartor.personal.objectives import Beside

CLUSTER = "cluster of Mapper"
"""The metadata that a client's fixed cluster is handed on in."""


class State(NamedTuple):
    """The server's state, and the local models that clients have kept, if they keep any."""

    server: Any
    kept: dict[str, jax.Array]
    visited: jax.Array

    @property
    def hypotheses(self) -> Params:
        """The central hypotheses."""
        return self.server.hypotheses


class Upload(NamedTuple):
    """What the server receives; and what stays with the clients, by their places in the data."""

    server: Any
    place: jax.Array
    kept: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Joint(Central):
    """Joint training of the central model.

    Attributes:
        rounds: communication rounds T.
        cohort: clients that take part in a round.
        mapper: Mapper's settings.
        rule: whose server it is: FedAvg's weights of clients, or Agnostic's of domains.
        q: how many central hypotheses there are; every client stays with its own.
        remember: whether there is memory for all that a cohort's trials train. The chosen one is
            then the client's local model; otherwise it is trained again, with the same draws.
    """

    mapper: Any = None
    rule: FedAvg = dataclasses.field(default_factory=FedAvg)
    q: int = 1
    remember: bool = True

    @classmethod
    def after(cls, central: CentralModel | None, mapper: Any, remember: bool = True) -> Joint:
        """The rounds that follow a central model's own."""
        # From nothing as the pseudo-code has it: plain steps.
        rule = FedAvg(server_momentum=0.0) if central is None else _rule(central)
        q = central.q if central else 1
        return cls(mapper.rounds, mapper.cohort, mapper, rule, q, remember)

    def __post_init__(self) -> None:
        """Mapper has checked its settings."""

    @property
    def epochs(self) -> int:
        """Passes of a client over its data for the central model."""
        return int(max(self.mapper.central_epochs, 1))

    @property
    def batch(self) -> int:
        """Examples in a client's step."""
        return int(self.mapper.batch)

    @property
    def scores(self) -> bool:
        """Only the rule may need it."""
        return False

    def check(self, data: ClientData) -> None:
        """What the rule needs."""
        self.rule.check(data)

    def _identity(self, model: Model, data: ClientData, *rest: Any) -> dict[str, Any]:
        """What a local model of the user's own functions computes is part of the run, too."""
        identity = super()._identity(model, data, *rest)
        del identity["algorithm"]["remember"]  # the machine's business
        local = self.mapper.local
        return identity if local is None else {**identity, "local": model_identity(local, data)}

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """Every client's cluster, and what the rule has to know."""
        mapper, everyone = self.mapper, len(data)
        return {
            **self.rule.attributes(data),
            **rates(None, mapper.central_learning_rate, everyone),
            **{f"local {name}": a for name, a in mapper.rates(everyone).items()},
            "cluster": data.metadata[CLUSTER].astype(np.int32),
            "place": np.arange(len(data), dtype=np.int32),
        }

    def bare(self) -> Any:
        """Step sizes come with the clients."""
        mapper = without(self.mapper, learning_rate=1.0, central_learning_rate=1.0)
        return without(super().bare(), rule=self.rule.bare(), mapper=mapper)

    def passes(self, data: ClientData, seed: int) -> dict[str, Pass]:
        """Trials of every λ, local training with the one chosen, and the central model's step."""
        mapper, cover = self.mapper, self._cover()
        epochs, batch = mapper.steps(data)
        passes = {"personalize": Pass(epochs, batch), "train": Pass(self.epochs, self.batch)}
        if len(cover) == 1:  # nothing to choose
            return passes
        if self.remember and self._whole(data):
            del passes["personalize"]
        trials = make_trials(data, mapper.select, mapper.folds, seed)
        folds = int(trials.fold.max()) + 1 if len(trials.fold) else 1
        tables = np.zeros((4, len(data), folds), np.int64)
        at = (trials.client, trials.fold)
        for table, values in zip(tables, (*trials.train[:2], *trials.held[:2]), strict=True):
            table[at] = values
        first, sizes, held_first, held_sizes = tables
        jobs = folds * len(cover)
        # With λ = 0 no step changes anything; one that is as short as can be hands the trial in.
        wide = np.where(cover > 0, sizes[:, :, None], np.minimum(sizes, 1)[:, :, None])
        train = Spans(
            np.repeat(first, len(cover), axis=1), wide.reshape(len(data), jobs), trials.train.pool
        )
        held = Spans(held_first, held_sizes, trials.held.pool)
        return {"trial": Pass(epochs, batch, jobs, len(cover), train, held), **passes}

    def _whole(self, data: ClientData) -> bool:
        """Whether trials train on all that seen clients train on: there are no folds."""
        held = bool((data.sizes("validation")[data.seen] > 0).all())
        select = self.mapper.select
        return select == "train" or (select == "holdout" and held)

    def cost(
        self, model: Model, data: ClientData, seed: int, start: CentralModel | None = None
    ) -> Cost:
        """A client does not train again what it has tried, whatever a simulation does."""
        return Central.cost(without(self, remember=True), model, data, seed, start)

    def _cover(self) -> npt.NDArray[np.float32]:
        """The candidates from the largest on: those that share draws need one that trains first."""
        return np.array(self.mapper.cover[::-1], np.float32)

    def init(self, model: Model, data: ClientData, key: jax.Array) -> Any:
        """A random model, q times."""
        server = self.rule.init(model, data, key)
        if self.q > 1:
            server = self.rule.state_of(
                jax.tree.map(lambda a: jnp.repeat(a, self.q, axis=0), server.hypotheses)
            )
        kept = {}
        if self.mapper.keep_local:
            shapes = self.mapper.objective(model).shapes()
            kept = {n: jnp.zeros((len(data), *s.shape), s.dtype) for n, s in shapes.items()}
        return State(server, kept, jnp.zeros(len(data), bool))

    def resume(self, state: Any, start: CentralModel) -> Any:
        """Go on from a central model as the rule does."""
        return state._replace(server=self.rule.resume(state.server, start))

    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """Steps 1 to 3 of the figure, for every client of the cohort."""
        mapper, h_c = self.mapper, state.hypotheses
        cluster, place = cohort.clients["cluster"], cohort.clients["place"]
        known = {"cluster": cluster, "size": cohort.sizes, "place": place}
        if "local rate" in cohort.clients:
            known["rate"] = cohort.clients["local rate"]
        beside = Beside(h_c, state.kept, state.visited) if mapper.keep_local else h_c
        objective = mapper.objective(cohort.model).in_precision(cohort.precision)
        cover = jnp.asarray(self._cover())

        # 1 and 2. A local model for each λ; the best of them, the smallest λ where equal.
        best = jnp.zeros(len(cohort.sizes), jnp.int32)
        if len(cover) > 1:
            remember = "personalize" not in cohort.plans
            trial = cohort.trial(objective, mapper.sgd, beside, known, cover, remember=remember)
            # Who cannot be tried takes what is best on average for the others.
            tried = trial.tried[:, None]
            mean = jnp.where(tried, trial.losses, 0).sum(axis=0, keepdims=True)
            losses = jnp.where(tried, trial.losses, mean)
            best = len(cover) - 1 - losses[:, ::-1].argmin(axis=1)
        lambda_ = cover[best]
        if "personalize" in cohort.plans:
            local, finite = cohort.personalize(
                objective, mapper.sgd, beside, {**known, "lambda": lambda_}
            )
        else:
            mine = jnp.arange(len(best)) * len(cover) + best
            local, finite = jax.tree.map(lambda a: a[mine], (trial.own, trial.finite))

        # 3. The central model through the mixture.
        def mixture_loss(h: Any, batch: Any, job: Any) -> jax.Array:
            return objective.central_loss(h, job["local"], batch, job)

        sgd: Any = UNIT_SGD.build() if mapper.central_epochs else None
        weights = self.rule.weigh(state.server, cohort)
        trained = cohort.train(
            h_c, sgd, weights, cluster, mixture_loss,
            {"lambda": lambda_, "local": local},
        )  # fmt: skip
        kept = dict(local) if mapper.keep_local else {}
        upload = Upload(self.rule.upload(state.server, cohort, trained, trained.loss), place, kept)
        metrics = {
            "loss": trained.loss,
            "finite": trained.finite & finite,
            "lambda": lambda_.mean(),
            **self.rule.notes(state.server),
        }
        return upload, metrics

    def server(self, state: Any, upload: Any) -> Any:
        """As the rule has it; and clients keep their local models, if they do."""
        kept = {name: a.at[upload.place].set(upload.kept[name]) for name, a in state.kept.items()}
        server = self.rule.server(state.server, upload.server)
        return State(server, kept, state.visited.at[upload.place].set(True))

    def finish(self, trained: CentralModel, data: ClientData, state: Any) -> CentralModel:
        """As the rule has it; and hand on the local models that clients have kept."""
        trained = self.rule.finish(trained, data, state.server)
        return JointModel(**vars(trained), kept=state.kept, visited=state.visited)


@dataclasses.dataclass(frozen=True, eq=False)
class JointModel(CentralModel):
    """The central model of Mapper, with the local models that clients have kept.

    Attributes:
        kept: their leaves: [clients of the data, ...].
        visited: which clients have one.
    """

    kept: Any = None
    visited: Any = None


def with_clusters(data: ClientData, cluster: Ints) -> ClientData:
    """The data with every client's fixed cluster among its metadata."""
    return dataclasses.replace(data, metadata={**data.metadata, CLUSTER: cluster})


def _rule(central: CentralModel) -> FedAvg:
    """The server of the algorithm that trained a central model."""
    table = dict(central.algorithm)
    if table["name"] == "Joint":  # a Mapper after another
        table = dict(table["rule"])
    kind: Any = Agnostic if table.pop("name") == "Agnostic" else FedAvg
    wanted = {field.name for field in dataclasses.fields(kind)}
    settings = {key: value for key, value in table.items() if key in wanted}
    if any(isinstance(settings.get(key), str) for key in ("client_optimizer", "server_optimizer")):
        raise ConfigError(
            "Mapper goes on with the central model's server, whose optimizer was an optax "
            "transformation of your own; name it instead: sartor.Optimizer('adam', ...)"
        )
    rule: FedAvg = kind(**settings)
    return rule
