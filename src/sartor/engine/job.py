"""What the engine runs: a client's job, the batches it reads, and the program it follows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sartor.trees import Tree


class Held(NamedTuple):
    """Examples that a job does not train on, to be tried on at its end.

    Attributes:
        rows: [most] rows of the data.
        size: how many of them count.
        central: what the central hypothesis predicts for them, if that was computed beforehand.
    """

    rows: Any
    size: Any
    central: Any = None


class Job(NamedTuple):
    """One client's work in a pass. Inside a program, the fields are those of a single job.

    Attributes:
        hypothesis: which of the central hypotheses it starts from and adds to.
        key: two words of its randomness. Draws do not depend on where or when the job runs.
        size: m_k, the client's number of training examples.
        init: two words for what it draws at random to start from.
        kept: what the client has kept from its last round, or how that begins.
        values: the algorithm's own values: any pytree.
        held: what it is tried on at the end, if it is a trial.
    """

    hypothesis: Any
    key: Any
    size: Any
    init: Any = None
    kept: Tree = None
    values: Tree = None
    held: Held | None = None

    @property
    def init_key(self) -> jax.Array:
        """A random key for what the job starts from."""
        return jax.random.wrap_key_data(self.init, impl="threefry2x32")


class Batch(NamedTuple):
    """What a step reads.

    Attributes:
        x: features of the examples; ``None`` if the data has none.
        y: their labels.
        mask: which of them count; a batch may be filled up with repeated examples.
        key: a random key of this step; ``None`` in evaluation mode.
        central: what the job's central hypothesis predicts for them, where an objective needs it.
    """

    x: Any
    y: Any
    mask: Any = None
    key: Any = None
    central: Any = None

    def mean(self, values: jax.Array) -> jax.Array:
        """The mean over the examples that count."""
        total = jnp.where(self.mask, values, 0).sum()
        return total / jnp.maximum(self.mask.sum(), 1)


class Ended(NamedTuple):
    """What a job ends with.

    Attributes:
        upload: what leaves the client. The server sees only weighted sums of it over clients.
        record: a few numbers about the client, by name, such as its ``loss``.
        keep: what the client keeps for its next round.
        finite: whether the job ended well; by default, whether all numbers above are finite.
    """

    upload: Tree = ()
    record: Any = ()
    keep: Tree = None
    finite: Any = None

    def well(self) -> jax.Array:
        """Whether the job ended well. A sum over jobs could not tell which of them did not."""
        if self.finite is not None:
            return jnp.asarray(self.finite)
        leaves = [jnp.asarray(a) for a in jax.tree.leaves((self.upload, self.record, self.keep))]
        finite = [jnp.isfinite(a).all() for a in leaves if jnp.issubdtype(a.dtype, jnp.inexact)]
        return jnp.stack(finite).all() if finite else jnp.ones((), bool)


class ClientProgram(NamedTuple):
    """What a job does: three pure functions.

    Attributes:
        start: ``start(job) -> carry``.
        step: ``step(carry, batch, job) -> carry``, once for each batch.
        end: ``end(carry, job) -> Ended``.
    """

    start: Callable[[Job], Tree]
    step: Callable[[Tree, Batch, Job], Tree]
    end: Callable[[Tree, Job], Ended]


def judged(program: ClientProgram) -> ClientProgram:
    """The same program: it carries arrays, and always says whether the job ended well."""

    def start(job: Job) -> Tree:
        return jax.tree.map(jnp.asarray, program.start(job))

    def end(carry: Tree, job: Job) -> Ended:
        ended = Ended(*program.end(carry, job))
        ended = ended._replace(finite=ended.well())
        return jax.tree.map(jnp.asarray, ended)

    return program._replace(start=start, end=end)


class Ask(NamedTuple):
    """Makes the predictions in ``Batch.central``.

    Attributes:
        predict: ``predict(hypothesis, x)`` in evaluation mode.
        hypotheses: stacked: [q, ...].
        answers: [q, examples, ...] predictions for all examples of a schedule, if they were
            computed beforehand. That pays where several jobs read the same examples.
        once: whether a job reads each example once only, as an exact minimiser does.
    """

    predict: Callable[[Tree, Any], jax.Array]
    hypotheses: Tree
    answers: jax.Array | None = None
    once: bool = False

    def one(self, hypothesis: jax.Array, x: Any) -> jax.Array:
        """What one hypothesis predicts for a batch; nothing is trained through it."""
        chosen = jax.tree.map(lambda a: a[hypothesis], self.hypotheses)
        return jax.lax.stop_gradient(self.predict(chosen, x))
