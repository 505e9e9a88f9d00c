"""What a personal algorithm is applied to, and what its clients train on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sartor.central import CentralModel
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Block, Engine, Ints, Jobs, Mixing, Recall, Recipe, train_each
from sartor.models import Model


class Task(NamedTuple):
    """What a personal algorithm is applied to.

    Attributes:
        model: the hypothesis class.
        central: the central model that clients start from, if there is one.
        cluster: [clients] the central hypothesis of each client.
        data: the clients.
        seed: seed of all randomness.
        engine: how to run it.
        given: the central model that was given, if the algorithm has trained it further.
        kept: what clients have kept from rounds before, to start from.
    """

    model: Model
    central: CentralModel | None
    cluster: Ints
    data: ClientData
    seed: int
    engine: Engine
    given: CentralModel | None = None
    kept: Recall | None = None


class Source(Protocol):
    """What clients train on: how jobs are done, and what that costs."""

    def train(
        self, task: Task, recipe: Recipe, jobs: Jobs, done: npt.NDArray[np.bool_], *, fetch: bool
    ) -> Iterator[Block]:
        """Do all jobs that are not done, a block at a time."""

    def work(self, task: Task, recipe: Recipe, jobs: Jobs) -> Cost:
        """What the jobs ask of their clients."""

    def received(self, task: Task, sizes: Ints) -> Cost:
        """What clients with so many examples send and receive before they train."""

    @property
    def fingerprint(self) -> str:
        """What else it depends on beside the clients' data."""


class OwnData:
    """Clients train on their own examples, and nothing else."""

    mixing: Mixing | None = None
    fingerprint = ""

    def train(
        self, task: Task, recipe: Recipe, jobs: Jobs, done: npt.NDArray[np.bool_], *, fetch: bool
    ) -> Iterator[Block]:
        """Train in the engine's lanes."""
        return train_each(
            task.data, recipe, jobs, central=task.central and task.central.hypotheses, done=done,
            engine=task.engine, mixing=self.mixing, kept=task.kept, fetch=fetch,
        )  # fmt: skip

    def work(self, task: Task, recipe: Recipe, jobs: Jobs) -> Cost:
        """Steps, and examples in them."""
        return jobs.cost(task.data, recipe, self.mixing)

    def received(self, task: Task, sizes: Ints) -> Cost:
        """Nothing."""
        return Cost.nothing(task.data.ids)
