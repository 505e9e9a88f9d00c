"""The same work for several seeds at once: their calls of compiled programs become one call.

A small model does not fill a device, and ``jax.vmap`` over seeds would. But a fit is Python: it
plans, chooses, writes files and calls several compiled programs in between. So each seed's work
runs as it would alone, on a thread of its own, and only the calls are vectorised:

1. A worker that calls a compiled program (:class:`Compiled`) puts the call on a list and waits.
2. As soon as all workers wait, the calling thread takes those calls that are alike: the same
   program, with arguments of the same shapes. It makes one ``vmap``-ed call for all of them.
3. Their workers go on with their slices of the results, until all wait again.

Code that is written for one seed does not have to know about it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

from sartor.checking import Count, checks_arguments
from sartor.errors import InterruptedRun
from sartor.trees import Tree

Item = TypeVar("Item")
Result = TypeVar("Result")

SAME = 2**20
"""Arrays of at most so many whole numbers are compared, and passed once if all workers give the
same. Comparing larger ones would take longer than it saves."""

AT_ONCE = 2
"""Workers that run at a time: one may compute in numpy while another holds the interpreter; with
more, they spend their time taking it from each other."""


class Compiled:
    """A compiled function; calls that workers make side by side become one.

    >>> double = Compiled(lambda x: 2 * x)
    >>> int(double(np.int32(4)))
    8
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # Also for calls that are all the same, so that nothing is computed several times.
        self._alone: Any = jax.jit(function, compiler_options=_options(many=False))
        self._batched: dict[Any, Any] = {}  # vectorised programs that have run, so are compiled
        self._lock = threading.Lock()

    def __call__(self, *args: Tree) -> Any:
        """The answer, once everybody waits for theirs."""
        crew: _Crew | None = getattr(_here, "crew", None)
        return self._alone(*args) if crew is None else crew.call(self, args)

    @property
    def compiled(self) -> int:
        """How often it was compiled for single calls."""
        count: int = self._alone._cache_size()
        return count

    def vectorized(self, calls: list[list[Any]], structure: Any) -> list[Any]:
        """The results of several calls, given by their leaves, from one vectorised call."""
        # What all give alike is passed once. It says how the work goes, such as a schedule: loops
        # with the same bounds for everybody stay cheap loops, and gathers stay gathers.
        same = [_same([call[i] for call in calls]) for i in range(len(calls[0]))]
        if all(same):
            answer = self._alone(*jax.tree.unflatten(structure, calls[0]))
            return [answer] * len(calls)
        leaves = [
            calls[0][i] if shared else np.stack([np.asarray(call[i]) for call in calls])
            for i, shared in enumerate(same)
        ]
        # Which program answers depends on nothing but the calls, so that numbers repeat to the bit.
        key = structure, tuple(same), _shapes(leaves)
        # The first call compiles. Crews of other threads that need the same program wait for it.
        with contextlib.nullcontext() if key in self._batched else self._lock:
            program = self._batched.get(key) or self._over_calls(structure, same)
            out = jax.tree.map(np.asarray, program(*leaves))
            self._batched[key] = program
        return [jax.tree.map(lambda a, n=n: a[n], out) for n in range(len(calls))]

    def _over_calls(self, structure: Any, same: list[bool]) -> Any:
        """The function over the leaves of several calls, some of which are passed once."""

        def by_leaf(*leaves: Any) -> Any:
            return self._function(*jax.tree.unflatten(structure, leaves))

        over = jax.vmap(by_leaf, in_axes=[None if shared else 0 for shared in same])
        return jax.jit(over, compiler_options=_options(many=True))


@checks_arguments
def side_by_side(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    width: Count | None = None,
    until: threading.Event | None = None,
) -> list[Result]:
    """``[work(item) for item in items]``, with what they ask of the device done together.

    It pays where the items are alike and small: several seeds, or points of a grid, of models
    that do not fill the machine by themselves. An error in one of them ends all.

    Args:
        work: what to do; it may fit and evaluate anything.
        items: seeds, settings, data sets.
        width: how many are vectorised in one call; all of them if not given. Calls are filled up
            to it, so that another number of items needs no other compilation.
        until: when it is set, by another thread, everybody stops with an ``InterruptedRun``.

    A fit waits until all others wait too, so ``work`` must not hold a lock during one.

    >>> side_by_side(lambda seed: seed + 1, range(3))
    [1, 2, 3]
    """
    todo = list(items)
    crew = _Crew(width or max(len(todo), 1), len(todo), until)

    def run(n: int) -> Result:
        _here.crew, _here.number = crew, n
        try:
            with crew.turn:
                return work(todo[n])
        except BaseException as error:
            crew.fail(error)
            raise
        finally:
            crew.leave()

    with ThreadPoolExecutor(max(len(todo), 1)) as workers:
        results = [workers.submit(run, n) for n in range(len(todo))]
        try:
            crew.serve()
        except BaseException as error:
            crew.fail(error)
            raise
    # The first error, and not that of a worker which was stopped because of it.
    if crew.error is not None:
        raise crew.error
    return [result.result() for result in results]


_here = threading.local()


class _Stopped(Exception):
    """Ends a worker because another one has failed."""


class _Call:
    """A call that waits for its answer."""

    def __init__(self, program: Compiled, args: Tree) -> None:
        self.worker: int = _here.number
        self.program = program
        self.leaves, self.structure = jax.tree.flatten(args)
        self.key = id(program), self.structure, _shapes(self.leaves)
        self.answer: Any = None
        self.answered = False


class _Crew:
    """Workers whose calls are answered together."""

    def __init__(self, width: int, live: int, until: threading.Event | None) -> None:
        self.width = width
        self.live = live
        self.until = until
        self.error: BaseException | None = None
        self._waiting: list[_Call] = []
        self.turn = threading.Semaphore(AT_ONCE)
        self._change = threading.Condition()

    def call(self, program: Compiled, args: Tree) -> Any:
        """Wait for the answer to a call; on a worker's thread."""
        call = _Call(program, args)
        self.turn.release()  # another worker may compute while this one waits
        with self._change:
            self._waiting.append(call)
            self._change.notify_all()
            self._change.wait_for(lambda: call.answered or self.error is not None)
        self.turn.acquire()
        if not call.answered:
            raise _Stopped
        return call.answer

    def fail(self, error: BaseException) -> None:
        """End everybody's work."""
        with self._change:
            self.error = self.error or error
            self._change.notify_all()

    def leave(self) -> None:
        """A worker is done."""
        with self._change:
            self.live -= 1
            self._change.notify_all()

    def serve(self) -> None:
        """Answer calls until all workers are done; on the thread that has started them."""
        while True:
            if self.until is not None and self.until.is_set():
                raise InterruptedRun("stopped side by side")
            with self._change:
                self._change.wait_for(lambda: self.error or len(self._waiting) == self.live)
                if self.error or not self.live:
                    return
                # In the order of the workers, so that a run repeats bit for bit.
                self._waiting.sort(key=lambda call: call.worker)
                keys = [call.key for call in self._waiting]
                # The most frequent kind of call first: the others wait for more of their kind.
                most = max(keys, key=keys.count)
                now = [call for call in self._waiting if call.key == most][: self.width]
            # Filled up with copies of the last call: another number of calls is another shape.
            filled = [*now, *[now[-1]] * (self.width - len(now))]
            answers = now[0].program.vectorized([c.leaves for c in filled], now[0].structure)
            with self._change:
                for call, answer in zip(now, answers, strict=False):
                    call.answer, call.answered = answer, True
                    self._waiting.remove(call)
                self._change.notify_all()


def vectorizing() -> bool:
    """Whether this is the work of one of several, side by side."""
    return getattr(_here, "crew", None) is not None


def _options(many: bool) -> dict[str, Any]:
    """What is asked of the compiler, for single calls and for many that are vectorised.

    On a GPU it would time several kernels for each product and take the fastest: another one in
    another process, and so other numbers. What it takes untimed compiles in half the time and
    repeats to the bit; it is about as fast in bfloat16, and slower in float32 (bench/RESULTS.md).
    On a CPU, small models take longer to compile than to run: LLVM leaves out what pays least.
    """
    match jax.default_backend():
        case "gpu":
            return {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
        case "cpu" if many:
            return {"xla_llvm_disable_expensive_passes": True}
    return {}


def _shapes(leaves: list[Any]) -> tuple[Any, ...]:
    """What decides which compiled program takes these arguments."""
    return tuple((np.shape(a), str(jax.dtypes.result_type(a))) for a in leaves)


def _same(leaves: list[Any]) -> bool:
    """Whether all are the same array, or whole numbers that are the same.

    Floats are never compared: a learning rate that happens to be the same for all would be another
    program than one that differs. Arrays on the device are not either, as that would fetch them.
    """
    first = leaves[0]
    if all(leaf is first for leaf in leaves):
        return True
    if any(isinstance(leaf, jax.Array) for leaf in leaves) or np.size(first) > SAME:
        return False
    if np.asarray(first).dtype.kind == "f":
        return False
    return all(np.array_equal(first, leaf) for leaf in leaves[1:])
