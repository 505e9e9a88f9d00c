"""What a personal algorithm is applied to, and what its clients train on."""

from collections.abc import Iterator
from typing import NamedTuple

from sartor.central import CentralModel
from sartor.cost import Cost
from sartor.data import ClientData
from sartor.engine import Block, ClientStates, Engine, Jobs, Mixing, Recipe, lanes_of, train_each
from sartor.models import Model
from sartor.types import Bools, Ints


class Task(NamedTuple):
    """What a personal algorithm is applied to.

    Attributes:
        model: the hypothesis class.
        central: the central model that clients start from, if any.
        cluster: [clients] the central hypothesis of each client.
        data: the clients.
        seed: seed of all randomness.
        engine: how to run it.
        given: the central model that was given to ``fit``; ``begin`` may have trained it further.
        kept: what clients have kept from earlier rounds, to start from.
        capped: whether steps are cut where they would make the loss explode.
    """

    model: Model
    central: CentralModel | None
    cluster: Ints
    data: ClientData
    seed: int
    engine: Engine
    given: CentralModel | None = None
    kept: ClientStates | None = None
    capped: bool = False


class Source:
    """What clients train on: here, their own examples and nothing else.

    A subclass says how jobs are done instead, and what that costs.

    Attributes:
        mixing: what is mixed into the clients' batches, if anything.
        fingerprint: what models depend on in addition to the clients' data.
        public: further data whose training parts clients train on.
    """

    mixing: Mixing | None = None
    fingerprint: str = ""
    public: ClientData | None = None

    def train(
        self, task: Task, recipe: Recipe, jobs: Jobs, done: Bools, *, fetch: bool
    ) -> Iterator[Block]:
        """Do all jobs that are not done, a block at a time."""
        return train_each(
            task.data, recipe, jobs, central=task.central and task.central.hypotheses, done=done,
            engine=task.engine, mixing=self.mixing, kept=task.kept, fetch=fetch,
        )  # fmt: skip

    def widest(self, task: Task, recipe: Recipe, jobs: Jobs) -> int:
        """The most jobs in a block."""
        return lanes_of(task.data, recipe, jobs, task.engine, self.mixing)

    def work(self, task: Task, recipe: Recipe, jobs: Jobs) -> Cost:
        """What the jobs ask of their clients: steps, and examples in them."""
        return jobs.cost(task.data, recipe, self.mixing)

    def received(self, task: Task, sizes: Ints) -> Cost:
        """What clients with so many examples send and receive before they train."""
        return Cost.nothing(task.data.ids)
