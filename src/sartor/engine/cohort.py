"""What an algorithm sees of one round: a cohort of clients, and passes over their examples.

An algorithm's ``clients`` is called twice with a :class:`Cohort`. First in a *rehearsal*, without
data: passes only note what they are, and return zeros of the right shapes. This is how the host
learns what to plan. Then inside the compiled program, where each pass takes the next plan from the
host (:class:`PassInput`) and runs it. So passes must come in the same order both times, which they
do as long as ``clients`` does not decide by numbers that differ.
"""

import dataclasses
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sartor.data import ClientData
from sartor.engine.engine import Engine
from sartor.engine.job import Ask, Batch, ClientProgram, Ended, Held, Job, judged
from sartor.engine.lanes import LANES, fold, where
from sartor.engine.objectives import over_hypotheses
from sartor.engine.programs import HELD, Loss, ask_ahead, single_step, trainer
from sartor.engine.schedule import Spans
from sartor.errors import ConfigError
from sartor.models import Model, Params, in_precision, take
from sartor.trees import Tree, form


class Reading(Protocol):
    """Which examples the jobs of a pass read, where it is not all of the training part."""

    @property
    def whole(self) -> bool:
        """Whether every job reads all that its client would train on in the end."""

    def spans(self, data: ClientData, seed: int) -> tuple[Spans, Spans | None]:
        """What every job trains on, [clients, jobs]; and what every draw is tried on."""


@dataclasses.dataclass(frozen=True)
class Pass:
    """How a cohort goes over its examples in one call of :meth:`Cohort.run`.

    Attributes:
        epochs: how often a job reads its examples.
        batch: examples in a step.
        jobs: how many jobs a client has.
        copies: so many jobs in a row share their draws and read the same examples, such as the
            candidates λ in one fold. A client has jobs / copies draws.
        draws: the purpose of the draws. Passes with the same purpose draw the same.
        reads: which examples jobs read; the client's training part if not given.
        counted: whether it is work of the client's, or only of the simulation.
        q: how many hypotheses uploads are summed for.
        bytes_up: bytes that one job uploads.
    """

    epochs: int
    batch: int
    jobs: int = 1
    copies: int = 1
    draws: str | None = None
    reads: Reading | None = None
    counted: bool = True
    q: int = 1
    bytes_up: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "q"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ConfigError(
                    f"{name} of a pass must be a whole number of at least 1, and no traced setting "
                    f"(got {value!r})"
                )


class Passed(NamedTuple):
    """What a pass over a cohort gives.

    Attributes:
        total: the sums over jobs of weight · upload, by hypothesis: [q, ...].
        weight: the sums of the weights, by hypothesis: [q].
        record: what jobs record: [clients, ...], or [clients, jobs, ...] if there are several.
        finite: [clients, ...] which jobs ended well.
    """

    total: Tree
    weight: jax.Array
    record: Any
    finite: jax.Array


class Examples(NamedTuple):
    """A cohort's training examples in batches, whoever's they are: what a score pass reads.

    Attributes:
        rows: [batches, batch] rows of the data.
        owner: [batches, batch] the client in the cohort that each belongs to, or nobody.
        batches: [devices] how many batches there really are.
    """

    rows: Any
    owner: Any
    batches: Any


class PassInput(NamedTuple):
    """What a pass needs from the host. On the device; in a chunk, with an axis of rounds before.

    Attributes:
        plan: the schedule of its jobs.
        key: [clients, draws, 2] random words.
        init: [clients, draws, 2] random words for what jobs start from.
        held: [clients, draws, most] what they are tried on, if it is a trial.
    """

    plan: Any
    key: Any
    init: Any
    held: Held | None


class Inputs(NamedTuple):
    """What a round needs from the host.

    Attributes:
        passes: an input for each pass, in the order in which the algorithm makes them.
        examples: what score passes read; ``None`` if there are none.
        sizes: [clients] numbers of training examples.
        place: [clients] where in the table of client states each client is.
        attributes: what the algorithm knows of every client, by name: [clients, ...].
        round: the number of the round, counted from 0.
    """

    passes: tuple[PassInput, ...]
    examples: Examples | None
    sizes: Any
    place: Any
    attributes: dict[str, Any]
    round: Any


class Kept(NamedTuple):
    """What clients keep between rounds.

    Attributes:
        table: a pytree of arrays [places, ...].
        visited: [places] whose state is in the table; the others begin.
    """

    table: Tree
    visited: Any


NOTHING = Kept((), np.zeros(0, bool))
"""The table of clients that keep nothing."""


@dataclasses.dataclass
class Rehearsal:
    """What an algorithm's round consists of, found out by tracing it once without any data.

    Attributes:
        passes: its passes, in order.
        scored: how many hypotheses clients score; 0 if they score none.
        keeps: shapes of what a client keeps; ``None`` if it keeps nothing.
    """

    passes: list[Pass] = dataclasses.field(default_factory=list)
    scored: int = 0
    keeps: Tree = None


class Cohort:
    """One round's clients, inside ``jit``. How many of them run at once, and where, is not seen.

    An algorithm's ``clients`` calls :meth:`run`, or what stands on it: :meth:`train` and
    :func:`sartor.engine.trial`; and :meth:`score`.

    Attributes:
        model: the hypothesis class.
        sizes: [clients] numbers of training examples m_k.
        attributes: what the algorithm has said to know of every client, by name: [clients, ...].
        round: the number of the round, counted from 0.
        finite: [clients] whose passes have all ended well so far.
        kept: what clients keep between rounds; an empty table if they keep nothing.
        engine: how it is run.
        columns: the data's columns, on the device.
        rehearsal: what is found out about the algorithm, if this is no real round.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        inputs: Inputs,
        columns: dict[str, jax.Array],
        kept: Kept = NOTHING,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self.model = in_precision(model, engine.precision)
        self.sizes: jax.Array = inputs.sizes
        self.attributes = inputs.attributes
        self.round: jax.Array = inputs.round
        self.kept = kept
        self.finite = jnp.ones(len(inputs.sizes), bool)
        self.engine, self.columns, self.rehearsal = engine, columns, rehearsal
        self._inputs = inputs
        self._next: Iterator[PassInput] = iter(inputs.passes)  # one for each call of `run_pass`
        self._devices = len(engine.local_devices())

    def run(
        self,
        program: ClientProgram,
        *,
        epochs: int = 1,
        batch: int = 20,
        q: int = 1,
        hypothesis: jax.Array | None = None,
        weights: jax.Array | None = None,
        values: Tree = None,
        keep: Callable[[Job], Tree] | None = None,
    ) -> Passed:
        """Every client does a job: all of a round's work goes through this door.

        Args:
            program: what a job does: ``start(job)``, ``step(carry, batch, job)``,
                ``end(carry, job)``.
            epochs: how often a client reads its training examples.
            batch: examples in a step; each epoch ends with what is left, however small.
            q: how many hypotheses there are.
            hypothesis: [clients] the hypothesis of each client, which it adds to; the first one
                for all if not given. With [clients, jobs] every client has several jobs, which
                read the same batches.
            weights: [clients] how much each upload counts; m_k if not given.
            values: what jobs know as ``job.values``: any pytree of arrays [clients, ...].
            keep: if clients keep a state between rounds: how it begins, as a function of the job.
                Jobs find it in ``job.kept``, and ``end`` returns the new one.

        Returns:
            Weighted sums by hypothesis, and a record of every client.
        """
        jobs = 1 if hypothesis is None or jnp.ndim(hypothesis) < 2 else jnp.shape(hypothesis)[1]
        passed, _ = self.run_pass(
            program, Pass(epochs, batch, jobs, copies=jobs, q=q),
            hypothesis=hypothesis, weights=weights, values=values, keep=keep,
        )  # fmt: skip
        self.finite = self.finite & passed.finite.reshape(len(self.sizes), -1).all(axis=1)
        return passed

    def train(
        self,
        hypotheses: Params,
        optimizer: Any,
        *,
        epochs: int = 1,
        batch: int = 20,
        weights: jax.Array | None = None,
        hypothesis: jax.Array | None = None,
        loss: Loss | None = None,
        values: Tree = None,
        learning_rate: Any = None,
    ) -> Passed:
        """Every client starts from its hypothesis and trains on its own examples.

        Args:
            hypotheses: stacked: [q, ...].
            optimizer: the clients' optimizer; ``None`` makes a single step of ``learning_rate``
                along the gradient of all of the client's examples.
            epochs: passes of a client over its examples.
            batch: examples in a step.
            weights: [clients] how much each change counts; m_k if not given.
            hypothesis: [clients] the hypothesis of each client, or several, [clients, jobs]; the
                first one if not given.
            loss: what a step descends, ``loss(params, batch, job)``; the model's training loss if
                not given.
            values: what the loss knows of every client as ``job.values``: [clients, ...].
            learning_rate: see ``optimizer``.

        Returns:
            The sums of weight · (trained − start), and each client's mean training ``loss``.
        """

        def own_loss(params: Params, batch: Batch, job: Job) -> jax.Array:
            return batch.mean(self.model.loss(params, batch.x, batch.y, batch.key))

        def start(job: Job) -> Params:
            return jax.tree.map(lambda a: a[job.hypothesis], hypotheses)

        if optimizer is None:
            program = single_step(loss or own_loss, learning_rate, start)
        else:
            of_job = optimizer if callable(optimizer) else lambda job: optimizer
            program = trainer(loss or own_loss, of_job, start)

        def end(carry: Tree, job: Job) -> Ended:
            trained = program.end(carry, job)
            change = jax.tree.map(lambda new, old: new - old, trained.upload, start(job))
            return trained._replace(upload=change)

        q = jax.tree.leaves(hypotheses)[0].shape[0]
        return self.run(
            program._replace(end=end), epochs=epochs, batch=batch, q=q, hypothesis=hypothesis,
            weights=weights, values=values,
        )  # fmt: skip

    def score(self, hypotheses: Params) -> jax.Array:
        """Every client's mean loss under every hypothesis, in evaluation mode: [clients, q]."""
        q = jax.tree.leaves(hypotheses)[0].shape[0]
        if self.rehearsal is not None:
            self.rehearsal.scored += q
            return jnp.zeros((len(self.sizes), q))
        assert self._inputs.examples is not None
        rows, owner, batches = self._inputs.examples
        everyone = jnp.arange(len(self.sizes))[:, None]

        def add(b: jax.Array, sums: jax.Array) -> jax.Array:
            x, y = take(self.columns, rows[b])
            losses = over_hypotheses(lambda h: self.model.loss(h, x, y), hypotheses)
            mine = (owner[b] == everyone).astype(losses.dtype)
            # A product and not a scatter: the order of additions is the same in every run.
            return sums + jnp.einsum("kb,qb->kq", mine, losses, precision="highest")

        sums = jax.lax.fori_loop(0, batches[0], add, jnp.zeros((len(self.sizes), q)))
        if self._devices > 1:
            sums = jax.lax.psum(sums, LANES)
        return sums / self.sizes[:, None]

    def run_pass(
        self,
        program: ClientProgram,
        spec: Pass,
        *,
        hypothesis: jax.Array | None = None,
        weights: jax.Array | None = None,
        values: Tree = None,
        keep: Callable[[Job], Tree] | None = None,
        ask: Ask | None = None,
    ) -> tuple[Passed, Job]:
        """A pass of any kind, and all of its jobs, flat: [clients · jobs, ...].

        Where clients have several jobs, ``values`` are [clients, jobs, ...]; and what they keep
        is read by all of them, and changed by none.
        """
        clients, count, q = len(self.sizes), spec.jobs, spec.q
        given = self._given(spec)
        if hypothesis is None:
            hypothesis = jnp.zeros(clients, jnp.int32)
        if weights is None:
            weights = self.sizes
        for name, tree, axes in (
            ("hypothesis", hypothesis, (1, 2)), ("weights", weights, (1,)), ("values", values, ()),
        ):  # fmt: skip
            for leaf in jax.tree.leaves(tree):
                shape = jnp.shape(leaf)
                if shape[:1] != (clients,) or (axes and len(shape) not in axes):
                    raise ConfigError(
                        f"{name} must have an entry for each of the {clients} clients of the "
                        f"cohort (got an array of shape {shape})"
                    )
        if count == 1:
            values = jax.tree.map(lambda a: a[:, None], values)
        # Copies of a draw read the same examples. In a rehearsal nobody reads anything.
        readers = 0 if self.rehearsal is not None else spec.copies
        ask, held = ask_ahead(ask, self.columns, given.plan, readers, hypothesis, given.held)
        # From one entry for each draw, and one for each client, to one for each job: first
        # [clients, jobs, ...], and then flat, since lanes do not care whose jobs they are.
        by_draw = (given.key, given.init, held)
        key, init, held = jax.tree.map(lambda a: jnp.repeat(a, spec.copies, axis=1), by_draw)
        by_client = self.sizes, weights
        sizes, weights = (jnp.repeat(a[:, None], count, axis=1) for a in by_client)
        if hypothesis.ndim == 1:
            hypothesis = jnp.repeat(hypothesis[:, None], count, axis=1)
        jobs = Job(hypothesis, key, sizes, init, None, values, held)
        jobs, weights = jax.tree.map(
            lambda a: a.reshape(clients * count, *a.shape[2:]), (jobs, weights)
        )
        if keep is not None:
            jobs = jobs._replace(kept=self._recall(keep, jobs, count))
        if self.rehearsal is not None:
            total, results = self._rehearse(self.rehearsal, spec, program, jobs, weights)
        else:
            total, results = fold(
                program, given.plan, self.columns, jobs, weights, spec.batch,
                q=q, devices=self._devices, ask=ask,
            )  # fmt: skip
        record, kept, finite = results
        if keep is not None and count == 1:  # of several jobs, it is not known which to keep
            self.keep(kept)
        member = jobs.hypothesis == jnp.arange(q)[:, None]
        weight = jnp.where(member, weights, 0).sum(axis=1)
        if count > 1:
            record, finite = jax.tree.map(
                lambda a: a.reshape(clients, count, *a.shape[1:]), (record, finite)
            )
        return Passed(total, weight, record, finite.astype(bool)), jobs

    def _given(self, spec: Pass) -> PassInput:
        """What the host has planned for this pass; zeros in a rehearsal, which comes before."""
        if self.rehearsal is None:
            return next(self._next)
        clients, draws = len(self.sizes), spec.jobs // spec.copies
        words = jnp.zeros((clients, draws, 2), jnp.uint32)
        rows = jnp.zeros((clients, draws, HELD), jnp.int32)
        held = None if spec.reads is None else Held(rows, jnp.zeros((clients, draws), jnp.int32))
        return PassInput(None, words, words, held)

    def _rehearse(
        self,
        rehearsal: Rehearsal,
        spec: Pass,
        program: ClientProgram,
        jobs: Job,
        weights: jax.Array,
    ) -> tuple[Tree, Tree]:
        """Results of the right shapes, without a step; and a note that there is such a pass."""
        one = jax.tree.map(lambda a: a[0], jobs)
        program = judged(program)
        ended = jax.eval_shape(lambda: program.end(program.start(one), one))
        before, after = form(one.kept), form(ended.keep)
        if spec.jobs == 1 and before != after:
            raise ConfigError(
                "a client must keep what it began with, in the same form: `keep` of cohort.run "
                f"begins with {before}, and `keep` of what `end` returns is {after}"
            )
        leaves = jax.tree.leaves(ended.upload)
        bytes_ = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        rehearsal.passes.append(dataclasses.replace(spec, bytes_up=bytes_))
        total = jax.tree.map(
            lambda a: jnp.zeros((spec.q, *a.shape), jnp.result_type(weights, a)), ended.upload
        )
        count = len(jobs.hypothesis)
        results = (ended.record, ended.keep, ended.finite)
        return total, jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), results)

    def _recall(self, begins: Callable[[Job], Tree], jobs: Job, count: int) -> Tree:
        """What each job's client has kept, or how that begins."""
        if not callable(begins):
            raise ConfigError("keep must be a function of the job that says how the state begins")
        begin = jax.vmap(begins)(jobs)
        if self.rehearsal is not None:
            shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), begin)
            if self.rehearsal.keeps not in (None, shapes):
                raise ConfigError("a client keeps one state, of the same shapes in all passes")
            self.rehearsal.keeps = shapes
            return begin
        place = jnp.repeat(self._inputs.place, count)
        old = jax.tree.map(lambda a: a[place], self.kept.table)
        return where(self.kept.visited[place], old, begin)

    def keep(self, state: Tree) -> None:
        """Let clients keep a state, [clients, ...], that a pass began with ``keep``."""
        if self.rehearsal is None:
            place = self._inputs.place
            table = jax.tree.map(lambda t, a: t.at[place].set(a), self.kept.table, state)
            self.kept = Kept(table, self.kept.visited.at[place].set(True))
