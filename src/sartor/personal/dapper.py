"""Dapper: from the central model, train on a λ-mixture of the client's data and everybody's.

Section 5 and figure 3 of the paper. For every client k:

1. sample r · m_k examples Ĉ' from Ĉ, the data of all seen clients or of its cluster
   (:class:`Interpolation`);
2. for each λ in a cover of [0, 1], start from h_c, and in every step take an example of the client
   with probability λ and else the next one of Ĉ' (:meth:`Interpolation.__call__`);
3. take the λ whose model is best on examples that were held out (:meth:`Dapper.choices`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sartor.checking import Count, Positive, checked
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import SEARCHED, Jobs, Own, Recipe, Searched, padded, traced
from sartor.errors import ConfigError
from sartor.models import Model
from sartor.personal.base import Personal
from sartor.personal.choosing import COVER, Choices, Select, as_cover
from sartor.personal.objectives import Guaranteed, Theory, Weighted, average_of, averaged_sgd
from sartor.personal.sources import Sample, check_company, clients_sample, generated, public_sample
from sartor.personal.statistics import Solver
from sartor.personal.task import Source, Task
from sartor.randomness import Words, mix, uniforms
from sartor.types import Ints

Step = Literal["sample", "weight"]
From = Literal["clients", "statistics", "generated", "public"]


@dataclasses.dataclass(frozen=True)
class Dapper(Personal):
    """Data interpolation: train on a λ-mixture of the client's and other clients' examples.

    Attributes:
        epochs: passes over the mixed data (the paper: 1).
        batch: examples in one step. With ``step="weight"``, the client's own examples in a step,
            to which r times as many others are added.
        learning_rate: step size of SGD (the paper: 0.04), or the best of several,
            on examples that some clients hold out.
        optimizer: replaces SGD: an ``Optimizer`` or any optax transformation.
        guard: a client keeps the central model unless its own is better on held-out examples.
            ``None`` does so wherever there is a central model and something is held out.
        folds: number of folds of the training part, for clients without a validation part.
        shrink: choose for a client not only by its own held-out examples, but also by what is good
            for others.
        cover: Λ, the candidates for λ, the weight of the client's own data.
        select: how a client chooses λ, always by plain loss: ``"holdout"`` on its validation part
            (or by folds if it has none), ``"kfold"`` by folds of its training part, ``"train"`` on
            the examples it trained on, as in the pseudo-code. ``"train"`` favours λ = 1.
        r: sampled examples for each example of the client (the paper: 5). For every λ, one pass
            takes r · m_k examples with ``step="sample"``, and (r + 1) · m_k with ``"weight"``.
        step: ``"sample"`` draws each example from the client with probability λ, otherwise from the
            sample (the pseudo-code). ``"weight"`` weights both losses instead. It has the same
            expectation and less variance.
        mixture: Ĉ, the clients to mix with: ``"all"`` seen clients, or those in the same
            ``"cluster"``.
        source: where the sample Ĉ' comes from. ``"clients"`` sends examples of other clients.
            ``"statistics"`` sends second moments, and solves linear regression on all of Ĉ exactly.
            ``"generated"`` draws from the central model (densities only), or from a
            ``sampler(key, count, cluster)`` passed to ``fit``, which returns columns of examples.
            ``"public"`` takes the data passed to ``fit`` as ``public``.
        theory: follow the theorem: its r and step size (instead of ``r`` and ``learning_rate``),
            steps on single examples, projection, and the average of all iterates.

    >>> Dapper(cover=(0.0, 0.5, 1.0)).r
    5
    """

    epochs: Count = 1
    learning_rate: Positive | Searched = traced(SEARCHED)
    cover: tuple[float, ...] = COVER
    select: Select = "holdout"
    r: Count = 5
    step: Step = "sample"
    mixture: Literal["all", "cluster"] = "all"
    source: From = "clients"
    theory: Theory | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cover", as_cover("Dapper", self.cover))
        super().__post_init__()
        if self.theory is not None:
            if self.step != "sample" or self.optimizer is not None or self.epochs != 1:
                raise ConfigError(
                    "Dapper: the theorem is about one pass of SGD with step='sample'; leave out "
                    "step, optimizer and epochs"
                )
            object.__setattr__(self, "r", self.theory.r)
            object.__setattr__(self, "batch", 1)

    def recipe(self, model: Model, data: ClientData) -> Recipe:
        """SGD from h_c. With source sampling, a pass over r · m_k slots is r passes over m_k."""
        if self.theory is not None:
            objective: Own = Guaranteed(model, theory=self.theory, r=self.r)
            sgd = averaged_sgd(self.theory.R / 2)
            return Recipe(objective, sgd, self.epochs * self.r, self.batch, average_of)
        if self.step == "sample":
            return Recipe(Own(model), self.optimizer, self.epochs * self.r, self.batch)
        return Recipe(Weighted(model, r=self.r), self.optimizer, self.epochs, self.batch)

    def choices(self) -> Choices:
        """The best λ of the cover."""
        return Choices(self.cover, self.select)

    def trains_on(self, task: Task, public: Any = None, sampler: Any = None) -> Source:
        """A mixture of the client's data and Ĉ'."""
        by_cluster: tuple[Any, ...] = ()
        if self.mixture == "cluster" and task.central is not None:
            by_cluster = task.cluster, task.central.members(task.data)
        if self.source in ("clients", "statistics"):
            check_company(task.data, *by_cluster)
        if self.source == "statistics":
            return Solver.of(task.data, *by_cluster)
        if public is not None:
            sample = public_sample(task.data, public)
        elif self.source == "generated":
            sample = generated(task, self.r, sampler)
        else:
            sample = clients_sample(task.data, *by_cluster)
        return Interpolation(
            sample, mix(task.seed, "personal", task.data.hashes), self.r, self.step, public
        )

    def check(
        self, model: Model, data: ClientData, public: Any = None, sampler: Any = None
    ) -> None:
        """Refuse a source that does not fit the model, the data, or what was given to ``fit``."""
        if self.source in ("clients", "statistics") and len(data) == 1:
            check_company(data)
        checked("Dapper: public", public, ClientData | None)
        checked("Dapper: sampler", sampler, Callable[..., Any] | None)
        if public is not None and self.source != "public":
            raise ConfigError("Dapper: give public= to fit together with source='public'")
        if public is None and self.source == "public":
            raise ConfigError(
                "Dapper: source='public' takes the public data as an argument, fit(..., "
                "public=data), so it cannot be run from a configuration; use Python for it"
            )
        if self.source == "generated" and sampler is None and model.kind != "density":
            raise ConfigError(
                f"Dapper: source='generated' draws from density models, and this is a {model.kind} "
                "model; give fit a sampler(key, count, cluster) that makes examples"
            )
        if self.source == "statistics" and (model.spec or {}).get("name") != "linear":
            raise ConfigError(
                "Dapper: source='statistics' solves linear regression, sartor.models.linear; use "
                "another source for this model"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Interpolation(Source):
    """Mixes a client's batches with draws from Ĉ, with replacement, each used once a pass.

    A client has one sample Ĉ' for all λ and all trials, and for its final model. A trial on a fold
    of the client's training part draws again where it drew from that part, as otherwise the fold
    would not be held out: from the others in Ĉ, or if there are none from what it trains on.

    Attributes:
        sample: Ĉ.
        words: [clients] their randomness.
        r: draws for each example of the client.
        step: replace examples with probability 1 − λ, or add r times as many.
        public: the public data that Ĉ is, if it is.
    """

    sample: Sample
    words: Words
    r: int
    step: Step
    public: ClientData | None = None

    @property
    def mixing(self) -> Interpolation:  # type: ignore[override]
        """It mixes rows itself."""
        return self

    @property
    def data(self) -> ClientData:
        """What rows refer to."""
        return self.sample.data

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        """That of the data with what was added to it."""
        return self.data.fingerprint

    def width(self, batch: int) -> int:
        """Rows in a step."""
        return batch if self.step == "sample" else (1 + self.r) * batch

    def received(self, task: Task, sizes: Ints) -> Cost:
        """Clients receive r · m_k examples; the ledger also says if these are other clients'."""
        cost, count = Cost.nothing(task.data.ids), self.r * sizes
        columns = task.data.columns.values()
        example = sum(c.dtype.itemsize * int(np.prod(c.shape[1:])) for c in columns)
        if self.sample.sent:
            cost.down[:] += count * example
        if self.sample.shared:
            total = int(count.sum())
            cost.left.update({"shared_examples": total, "shared_bytes": total * example})
        return cost

    def __call__(self, rows: npt.NDArray[Any], jobs: Jobs, batch: int) -> npt.NDArray[Any]:
        """Rows [steps, lanes, width] from the clients' own [steps, lanes, batch]."""
        steps, lanes, _ = rows.shape
        words, sizes, lambda_ = (
            padded(a, lanes)[:, None] for a in (jobs.words, jobs.train.sizes, jobs.values["lambda"])
        )
        # The number of each draw in its pass, 0 … r·m_k − 1. With "sample", a pass is r epochs of
        # the client, each of m_k draws. With "weight", each of its own examples takes r draws.
        step = np.arange(steps)[:, None, None]
        epoch, inside = np.divmod(step, np.maximum(-(-sizes // batch), 1))
        if self.step == "sample":
            slot = epoch % self.r * sizes + inside * batch + np.arange(batch)
        else:
            slot = inside * self.r * batch + np.arange(self.r * batch)
        others = self.sample.draw(self.words, slot, jobs)
        if self.step == "weight":
            mine = np.where(lambda_ > 0, rows, others[..., :batch])  # λ = 0 reads no client data
            return np.concatenate([mine, others], axis=2)
        toss = uniforms(mix(words, "source", step * batch + np.arange(batch)))
        return np.where(toss < lambda_, rows, others)
