"""What an algorithm sees of one round: a cohort of clients, and passes over their examples."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from sartor.engine.lanes import LANES, Batch, Program, fold, read_by, take
from sartor.engine.objectives import Leaves, Objective, over_hypotheses
from sartor.engine.programs import (
    Loss,
    examiner,
    personal,
    said_of,
    single_step,
    trainer,
    tried,
)
from sartor.engine.schedule import Schedule
from sartor.models import Model, Params
from sartor.randomness import mix
from sartor.trees import Tree

TRIED = 32
"""Models that are scored side by side on what was held out."""


class Trained(NamedTuple):
    """What a cohort's training gives.

    Attributes:
        change: the sums over jobs of weight · (trained − start), by hypothesis: [q, ...].
        weight: the sums of the weights, by hypothesis: [q].
        loss: each client's mean training loss.
        finite: whether each client's update is finite. A sum could not tell whose is not.
    """

    change: Params
    weight: jax.Array
    loss: jax.Array
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


class Held(NamedTuple):
    """What a cohort's trials are tried on.

    Attributes:
        rows: [clients, folds, most] rows of the data.
        sizes: [clients, folds] how many of them count.
    """

    rows: Any
    sizes: Any


class Trial(NamedTuple):
    """What became of a cohort's trials.

    Attributes:
        losses: [clients, candidates] the mean plain loss on what each client holds out.
        tried: [clients] who holds anything out.
        own: the leaves that were trained, [clients · folds · candidates, ...], if remembered.
        finite: [clients · folds · candidates] whether they are finite.
    """

    losses: jax.Array
    tried: jax.Array
    own: Leaves | None
    finite: jax.Array


class Cohort(NamedTuple):
    """One round's clients, inside ``jit``. Where and how many at once they run is not seen here.

    Attributes:
        model: the hypothesis class.
        clients: one entry for each client: its random ``key``, its number of training examples
            ``size`` (m_k), the step size ``rate`` of its SGD, and what else the algorithm has
            asked for.
        plans: the schedule of every pass, with the same number of jobs for every client.
        batches: examples in a step of every pass.
        held: for passes that are trials, what they are tried on.
        examples: what a score pass reads; ``None`` if the algorithm has not asked for it.
        columns: the data's columns.
        devices: over how many devices the lanes are spread.
        precision: of the arithmetic; the model computes in it already.
    """

    model: Model
    clients: Tree
    plans: dict[str, Schedule]
    batches: dict[str, int]
    held: dict[str, Held]
    examples: Examples | None
    columns: dict[str, jax.Array]
    devices: int
    precision: Literal["f32", "bf16"] = "f32"

    @property
    def sizes(self) -> jax.Array:
        """[clients] numbers of training examples m_k."""
        sizes: jax.Array = self.clients["size"]
        return sizes

    def score(self, hypotheses: Params) -> jax.Array:
        """Every client's mean loss under every hypothesis, in evaluation mode: [clients, q]."""
        if self.examples is None:
            raise ValueError("the algorithm has not asked for a score pass")
        rows, owner, batches = self.examples
        everyone = jnp.arange(len(self.sizes))[:, None]

        def add(b: jax.Array, sums: jax.Array) -> jax.Array:
            x, y = take(self.columns, rows[b])
            losses = over_hypotheses(lambda h: self.model.loss(h, x, y), hypotheses)
            mine = (owner[b] == everyone).astype(losses.dtype)
            # A product and not a scatter: the order of additions is the same in every run.
            return sums + jnp.einsum("kb,qb->kq", mine, losses, precision="highest")

        q = jax.tree.leaves(hypotheses)[0].shape[0]
        sums = jax.lax.fori_loop(0, batches[0], add, jnp.zeros((len(self.sizes), q)))
        if self.devices > 1:
            sums = jax.lax.psum(sums, LANES)
        return sums / self.sizes[:, None]

    def train(
        self,
        hypotheses: Params,
        optimizer: optax.GradientTransformation | None,
        weights: jax.Array,
        cluster: jax.Array | None = None,
        loss: Loss | None = None,
        values: Tree = None,
    ) -> Trained:
        """Every client starts from its hypothesis and trains on its own examples.

        Args:
            hypotheses: stacked: [q, ...].
            optimizer: the client's optimizer; ``None`` makes a single step along the gradient of
                all of the client's examples.
            weights: [clients].
            cluster: [clients] the hypothesis of each client, or [clients, n] for n jobs of each;
                the first one for all if not given.
            loss: what is descended; the model's training loss if not given.
            values: what the loss has to know of every client: [clients, ...].
        """
        clients = len(self.sizes)
        if cluster is None:
            cluster = jnp.zeros(clients, jnp.int32)
        cluster = cluster.reshape(clients, -1)
        copies = cluster.shape[1]

        def own_loss(params: Params, batch: Batch, job: Tree) -> jax.Array:
            return batch.mean(self.model.loss(params, batch.x, batch.y, batch.key))

        def start(job: Tree) -> Params:
            return _pick(hypotheses, job["group"])

        loss = loss or own_loss
        if optimizer is None:
            program = single_step(loss, start)
        else:
            program = trainer(loss, optimizer, start)

        def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
            trained, report = program.end(carry, job)
            change = jax.tree.map(lambda new, old: job["weight"] * (new - old), trained, start(job))
            return change, report

        known = {**(values or {}), "key": self.clients["key"], "weight": weights}
        if "rate" in self.clients:
            known["rate"] = self.clients["rate"]
        jobs = jax.tree.map(lambda a: jnp.repeat(a, copies, axis=0), known)
        jobs["group"] = cluster.reshape(-1)
        q = jax.tree.leaves(hypotheses)[0].shape[0]
        change, report = self._fold(program._replace(end=end), "train", jobs, q)
        member = jobs["group"] == jnp.arange(q)[:, None]
        by_client = {name: a.reshape(clients, copies) for name, a in report.items()}
        return Trained(
            change,
            jnp.where(member, jobs["weight"], 0).sum(axis=1),
            by_client["loss"].mean(axis=1),
            by_client["finite"].astype(bool).all(axis=1),
        )

    def personalize(
        self,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        central: Params,
        values: Tree,
    ) -> tuple[Leaves, jax.Array]:
        """Every client trains leaves of its own: [clients, ...]; and whether they are finite."""
        program = _kept(personal(objective, optimizer, central))
        jobs = {**values, **self._keys("personalize", 1)}
        said = self._said("personalize", objective, central, 1)
        _, report = self._fold(program, "personalize", jobs, 1, said)
        return report["own"], report["finite"].astype(bool)

    def trial(
        self,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        central: Params,
        values: Tree,
        cover: jax.Array,
        *,
        remember: bool = False,
    ) -> Trial:
        """Every client trains leaves of its own for each λ, and is tried on what it holds out.

        The jobs of a client are its folds, and inside these the candidates. To ``remember`` what
        they have trained takes the memory of all of them at once.
        """
        held = self.held["trial"]
        clients, folds, most = held.rows.shape
        each = folds * len(cover)
        jobs = jax.tree.map(lambda a: jnp.repeat(a, each, axis=0), values)
        jobs |= self._keys("trial", len(cover))
        jobs["lambda"] = jnp.tile(cover, clients * folds)
        exam = {
            "held": jnp.repeat(held.rows.reshape(-1, most), len(cover), axis=0),
            "held_size": jnp.repeat(held.sizes.reshape(-1), len(cover)),
        }
        said = self._said("trial", objective, central, len(cover))
        if said is not None:
            held_said = said_of(objective, central, self.columns, held.rows.reshape(-1))
            mine = values["cluster"], jnp.arange(clients)
            held_said = held_said.reshape(-1, clients, folds * most, *said.shape[2:])[mine]
            held_said = held_said.reshape(-1, most, *said.shape[2:])
            exam["held said"] = jnp.repeat(held_said, len(cover), axis=0)
        program = personal(objective, optimizer, central)
        if remember:
            _, report = self._fold(_kept(program), "trial", jobs, 1, said)
            score = examiner(objective, central, self.columns)
            taken = {**jobs, **exam}, report["own"]
            report["held_loss"] = jax.lax.map(lambda a: score(*a), taken, batch_size=TRIED)
        else:
            program = tried(program, objective, central, self.columns)
            _, report = self._fold(program, "trial", {**jobs, **exam}, 1, said)
        losses = report["held_loss"].reshape(clients, folds, len(cover))
        # What diverges is not chosen.
        sound = (report["finite"].reshape(losses.shape) > 0) & ~jnp.isnan(losses)
        losses = jnp.where(sound, losses, jnp.inf)
        total = held.sizes.sum(axis=1)
        share = held.sizes / jnp.maximum(total[:, None], 1)
        means = jnp.where(share[:, :, None] > 0, losses * share[:, :, None], 0).sum(axis=1)
        return Trial(means, total > 0, report.get("own"), report["finite"].astype(bool))

    def _keys(self, name: str, copies: int) -> Tree:
        """The keys of a pass's jobs, and of what they draw at random to start from."""
        keys = {"key": self.clients[f"{name} key"], "init": self.clients[f"{name} init"]}
        flat = jax.tree.map(lambda a: jnp.repeat(a.reshape(-1, 2), copies, axis=0), keys)
        return {**flat, "group": jnp.zeros(len(flat["key"]), jnp.int32)}

    def _said(
        self, name: str, objective: Objective, central: Params, readers: int
    ) -> jax.Array | None:
        """What the central hypotheses say of a pass's examples, if it pays to ask all of them."""
        if not objective.asks(central, readers) or set(self.columns) == {"y"}:
            return None
        plan = self.plans[name]
        return said_of(objective, central, self.columns, plan.order, read_by(plan))

    def _fold(
        self, program: Program, name: str, jobs: Tree, q: int, said: jax.Array | None = None
    ) -> tuple[Tree, Tree]:
        plan, batch = self.plans[name], self.batches[name]
        return fold(program, plan, self.columns, jobs, batch, q, self.devices, said)


def _kept(program: Program) -> Program:
    """The same job, reporting what it has trained."""

    def end(carry: Tree, job: Tree) -> tuple[Tree, Tree]:
        own, report = program.end(carry, job)
        return {}, {**report, "own": own}

    return program._replace(end=end)


def _pick(hypotheses: Params, k: jax.Array) -> Params:
    return jax.tree.map(lambda a: a[k], hypotheses)


def sample_cohorts(seed: int, rounds: range, population: int, size: int) -> npt.NDArray[np.int64]:
    """Which clients take part in each round, without replacement: [rounds, size].

    The cost is that of the cohort, not of the population.

    >>> sample_cohorts(0, range(2), population=1_000_000, size=5).shape
    (2, 5)
    """
    if size >= population:
        return np.broadcast_to(np.arange(population), (len(rounds), population))
    few = 4 * size < population
    draws = 2 * size + 32 if few else population
    cohorts = np.empty((len(rounds), size), np.int64)
    for place, round_ in enumerate(rounds):
        words = mix(seed, "cohort", round_, np.arange(draws))
        if few:  # draw with replacement and keep the first of each: enough are left
            picks, first = np.unique(words % np.uint64(population), return_index=True)
            cohorts[place] = picks[np.argsort(first)][:size]
        else:
            cohorts[place] = np.argsort(words, kind="stable")[:size]
    return cohorts
