"""A central algorithm: what a cohort of clients computes, and what the server does with the sum."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy.typing as npt

from sartor.central import fitting
from sartor.central.checkpoint import Checkpoint
from sartor.central.fitting import Fit
from sartor.central.model import CentralModel
from sartor.central.settings import check_settings, check_subclass
from sartor.checking import AnyPath, Count, checks_arguments
from sartor.data import ClientData
from sartor.engine import Chunk, Cohort, Engine, traced
from sartor.locks import locked_file
from sartor.models import Model
from sartor.registry import register
from sartor.types import Ints


@dataclasses.dataclass(frozen=True)
class Central(abc.ABC):
    """A central algorithm.

    A subclass is a frozen dataclass of hyper-parameters. It defines :meth:`init`, :meth:`clients`
    and :meth:`server`; and where it needs them :meth:`attributes`, :meth:`strata`, :meth:`begin`
    and :meth:`finish`. Everything else, such as rounds, checkpoints, progress and the cost ledger,
    is done for it. Its class name is what configurations call it.

    Attributes:
        rounds: communication rounds T.
        cohort: clients that take part in a round; all of them if there are fewer.
    """

    rounds: Count = traced(200)
    cohort: Count = traced(20)

    for_everybody: ClassVar[bool] = True
    """Whether it minimises the loss on everybody's examples: then none is worse than a guess."""

    known: ClassVar[dict[str, type[Central]]] = {}
    """The central algorithms by the name that configurations use."""

    def __init_subclass__(cls, listed: bool = True) -> None:
        super().__init_subclass__()
        if listed:
            register(Central.known, cls.__name__, cls)

    @abc.abstractmethod
    def init(self, model: Model, data: ClientData, key: jax.Array) -> Any:
        """The server's state before the first round, from a random key.

        A NamedTuple with a field ``hypotheses``: the central hypotheses, stacked [q, ...]. Refuse
        data here that the algorithm cannot work with.
        """

    @abc.abstractmethod
    def clients(self, state: Any, cohort: Cohort) -> tuple[Any, dict[str, jax.Array]]:
        """What a cohort uploads, summed over its clients; and metrics by name.

        The metrics need every client's ``loss``: [clients]. All of them go into the history.
        """

    @abc.abstractmethod
    def server(self, state: Any, upload: Any) -> Any:
        """The state after a round."""

    def attributes(self, data: ClientData) -> dict[str, npt.NDArray[Any]]:
        """What the algorithm knows about every client, by name: [clients, ...].

        In ``clients``, ``cohort.attributes`` holds those of the cohort.
        """
        return {}

    def strata(self, data: ClientData) -> Ints | None:
        """[clients] the stratum of each, if rare strata are to have seats in cohorts.

        A stratum is rare if a cohort holds less than two of its clients on average. If there is a
        rare one, ``cohort.attributes["stands_for"]`` says how many clients of a uniform cohort each
        client stands for. Multiply weights by it, as FedAvg's ``weigh`` does; sums over a cohort
        then have the same mean as with uniform cohorts.
        """
        return None

    def begin(self, state: Any, fit: Fit) -> Any:
        """Where a run begins: from ``fit.start``, or where finding it takes work.

        A run that is resumed skips this.
        """
        return state if fit.start is None else state._replace(hypotheses=fit.start.hypotheses)

    def finish(self, trained: CentralModel, state: Any, fit: Fit) -> CentralModel:
        """What is left to do after the last round."""
        return trained

    def __post_init__(self) -> None:
        check_subclass(self)

    @checks_arguments
    def fit(
        self,
        model: Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        checkpoint: AnyPath | None = None,
        progress: bool | None = None,
        on_chunk: Callable[[Chunk], None] | None = None,
        start: CentralModel | None = None,
    ) -> CentralModel:
        """Train on the training parts of the seen clients.

        Args:
            model: the hypothesis class.
            data: the clients.
            seed: seed of all randomness.
            engine: how to run it; sensible for the machine if not given.
            checkpoint: a file to keep the run in. If it exists, the run resumes from it, and ends
                with the same bits as one that was never stopped.
            progress: whether to show a progress bar; only on a terminal if not given.
            on_chunk: called with every finished chunk of rounds, before it is in the checkpoint.
            start: a central model to start from; a random one if not given.

        Returns:
            The trained central model.
        """
        check_settings(self)
        what = fitting.prepared(self, model, data, seed, engine, start)
        with nullcontext() if checkpoint is None else locked_file(checkpoint):
            return fitting.fit(self, what, checkpoint, progress, on_chunk)

    @checks_arguments
    def check(self, model: Model, data: ClientData) -> None:
        """Refuse a model or data that the algorithm cannot work with, before any work starts."""
        check_settings(self)
        fitting.prepared(self, model, data, 0, None, None)

    @checks_arguments
    def checkpoint_for(
        self,
        path: AnyPath,
        model: Model,
        data: ClientData,
        *,
        seed: int = 0,
        engine: Engine | None = None,
        start: CentralModel | None = None,
    ) -> Checkpoint:
        """The checkpoint of this run; its ``check`` refuses the file of another one."""
        what = fitting.prepared(self, model, data, seed, engine, start)
        return Checkpoint(Path(path), fitting.identity(self, what))
