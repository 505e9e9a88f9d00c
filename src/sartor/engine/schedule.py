"""Who works when: uneven clients packed into lanes, as plain numpy.

A *job* is one client's work in one pass (later a (client, λ) or a (client, cluster)); it takes a
number of steps, each a batch. Padding all clients to the longest would waste half the work on
real data, so jobs are packed into L lanes like continuous batching: longest first, each to the
lane that is free the earliest. A schedule says for every round, step and lane which rows to read,
which job that is, and whether the job ends there. All rounds of a run share one shape, so one
compiled program runs them all; how many steps a round really takes is a number, not a shape.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.randomness import Words, mix, shuffles

Ints = npt.NDArray[np.int64]


class Packing(NamedTuple):
    """Where the jobs of each round go.

    Attributes:
        lane: lane of each job, [rounds, jobs].
        start: first step of each job in its lane, [rounds, jobs].
        steps: steps that each lane is busy, [rounds, lanes].
    """

    lane: Ints
    start: Ints
    steps: Ints


class Schedule(NamedTuple):
    """What every lane does at every step; a pytree, so that it travels to the device as it is.

    Attributes:
        steps: [rounds, devices] steps until the last lane of the device is done.
        rows: [rounds, steps, lanes, batch] rows of the data (0 where masked).
        count: [rounds, steps, lanes] how many of these rows count; 0 in an idle lane.
        job: [rounds, steps + 1, lanes] whose step it is; where idle, some valid job.
        tick: [rounds, steps, lanes] the number of the step inside its job.
        last: [rounds, steps, lanes] whether the job ends with this step.
    """

    steps: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    job: npt.NDArray[np.int32]
    tick: npt.NDArray[np.int32]
    last: npt.NDArray[np.bool_]

    @property
    def busy(self) -> float:
        """The share of lane-steps that do work, between 0 and 1.

        >>> keys, ones = mix(0, "doc", [[1, 2]]), np.array([[0, 5]])
        >>> schedule(ones, np.array([[5, 3]]), keys, batch=5, epochs=1, lanes=2).busy
        1.0
        """
        lanes = self.count.shape[2] // self.steps.shape[1]
        return float((self.count > 0).sum() / (self.steps.sum() * lanes))


def pack(steps: Ints, lanes: int) -> Packing:
    """Pack jobs of given lengths into lanes: longest first, to the lane that is free earliest.

    Vectorised over rounds; the loop runs over the jobs of one round.

    >>> pack(np.array([[4, 1, 2, 3]]), lanes=2).steps.tolist()
    [[5, 5]]
    """
    rounds, jobs = steps.shape
    everyone = np.arange(rounds)
    order = np.argsort(-steps, axis=1, kind="stable")
    busy = np.zeros((rounds, lanes), np.int64)
    lane = np.zeros((rounds, jobs), np.int64)
    start = np.zeros((rounds, jobs), np.int64)
    for place in range(jobs):
        job = order[:, place]
        free = busy.argmin(axis=1)
        lane[everyone, job] = free
        start[everyone, job] = busy[everyone, free]
        busy[everyone, free] += steps[everyone, job]
    return Packing(lane, start, busy)


def one_each(steps: Ints) -> Packing:
    """One job for each lane, all starting at once."""
    rounds, jobs = steps.shape
    lane = np.broadcast_to(np.arange(jobs), (rounds, jobs))
    return Packing(lane, np.zeros_like(steps), steps)


def steps_of(sizes: Ints, batch: int, epochs: int) -> Ints:
    """Steps a client of m examples takes: every epoch ends with what is left, however small.

    >>> steps_of(np.array([20, 21, 1]), batch=20, epochs=3).tolist()
    [3, 6, 3]
    """
    return -(-sizes // batch) * epochs


def schedule(
    first: Ints,
    sizes: Ints,
    keys: Words,
    *,
    batch: int,
    epochs: int,
    lanes: int,
    devices: int = 1,
    capacity: int | None = None,
    packing: Packing | None = None,
    shuffle: bool = True,
) -> Schedule:
    """Fill a packing with batches of examples.

    Args:
        first: [rounds, jobs] where each job's examples begin; they lie end to end.
        sizes: [rounds, jobs] how many examples each job has.
        keys: [rounds, jobs] the jobs' own randomness: orders depend on it and on nothing else.
        batch: examples in a step.
        epochs: passes over the examples, each in an order of its own.
        lanes: lanes on all devices together.
        devices: devices the lanes are spread over; must divide ``lanes``.
        capacity: steps to make room for; as many as needed if not given.
        packing: where the jobs go; packed here if not given.
        shuffle: whether each epoch's order is random.

    Returns:
        The schedule; its ``rows`` are positions ``first + place``.
    """
    rounds, jobs = sizes.shape
    per_epoch = -(-sizes // batch)
    steps = per_epoch * epochs
    packing = packing or pack(steps, lanes)
    capacity = capacity or int(packing.steps.max())
    shape = (rounds, capacity, lanes)

    def flat(a: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return a.reshape(rounds * jobs)

    round_, start, lane = np.arange(rounds * jobs) // jobs, flat(packing.start), flat(packing.lane)

    # One entry for every step of every job.
    owner, tick = _ragged(flat(steps))
    at = (round_[owner], start[owner] + tick, lane[owner])
    count = np.zeros(shape, np.int32)
    left = flat(sizes)[owner] - (tick % flat(per_epoch)[owner]) * batch
    count[at] = np.minimum(left, batch)
    job = np.zeros((rounds, capacity + 1, lanes), np.int32)
    job[at] = owner % jobs
    ticks = np.zeros(shape, np.int32)
    ticks[at] = tick
    last = np.zeros(shape, np.bool_)
    last[at] = tick == flat(steps)[owner] - 1

    # One entry for every example of every epoch of every job.
    epoch_sizes = np.repeat(flat(sizes), epochs)
    pass_, place = _ragged(epoch_sizes)
    order = place
    if shuffle:
        epoch_keys = mix(flat(keys)[:, None], "epoch", np.arange(epochs)).reshape(-1)
        order = shuffles(epoch_keys, epoch_sizes)
    owner, epoch = pass_ // epochs, pass_ % epochs
    step = start[owner] + epoch * flat(per_epoch)[owner] + place // batch
    rows = np.zeros((*shape, batch), np.int32)
    rows[round_[owner], step, lane[owner], place % batch] = flat(first)[owner] + order

    ends = packing.steps.reshape(rounds, devices, lanes // devices).max(axis=2)
    return Schedule(ends.astype(np.int32), rows, count, job, ticks, last)


def _ragged(sizes: npt.NDArray[np.generic]) -> tuple[Ints, Ints]:
    """For ragged lists end to end: the owner of every entry, and its place in its own list."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owner, np.arange(len(owner)) - starts[owner]
