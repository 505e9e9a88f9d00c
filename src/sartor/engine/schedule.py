"""Who works when: uneven clients packed into lanes, as plain numpy.

A *job* is one client's work in one pass, or one of several, such as one for each candidate λ. It
takes a number of steps, each a batch. Padding all clients to the longest would waste half the work
on real data. So jobs are packed into L lanes, like continuous batching: the longest first, each
into the lane that is free the earliest.

Lanes hand in finished jobs and take new ones together, at *turns*. Handing in moves whole models
through memory, so there should be few turns. A lane with time to spare waits for the others. For
jobs of 4, 1, 2 and 3 steps in two lanes (``.`` is an idle step):

    step      0  1  2  3  4
    lane 0    A  A  A  A  B      turn 0: lane 1 hands in D and takes C
    lane 1    D  D  D  C  C      turn 1: lane 0 hands in A and takes B
                                 turn 2: both hand in

A schedule says for every round, step and lane which examples to read and whose they are; and for
every turn who hands in and who is taken. All rounds of a run share one shape, so one compiled
program runs them all. How many steps and turns a round really has is a number, not a shape.

Examples are in one list, ``order``: first the examples of the first job in the order in which it
reads them, once for each epoch; then those of the next. A step is a stretch of that list, so it is
two numbers: where the stretch begins, and how long it is. Jobs with the same randomness and the
same examples, such as a client's candidates λ, share a stretch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.checking import check_memory
from sartor.randomness import Words, mix, shuffles
from sartor.types import Ints

Narrow = npt.NDArray[np.int32]
NOBODY = -1
"""No job: the lane idles, or hands in nothing."""


class Packing(NamedTuple):
    """Where the jobs of each round go.

    Turns belong to a device: its lanes meet there, and do not wait for those of other devices.

    Attributes:
        lane: [rounds, jobs] lane of each job.
        start: [rounds, jobs] first step of each job.
        turn: [rounds, jobs] the turn at which each job is handed in.
        turns: [rounds, devices] how many turns there are.
        bounds: [rounds, devices, turns + 1] turn n follows the steps ``bounds[n]`` to
            ``bounds[n + 1]``, without the last.
    """

    lane: Ints
    start: Ints
    turn: Ints
    turns: Ints
    bounds: Ints


class Schedule(NamedTuple):
    """What every lane does at every step; a pytree, so that it travels to the device as it is.

    Attributes:
        turns: [rounds, devices] how many turns there are.
        bounds: [rounds, turns + 1, devices] the steps between which each turn's work lies.
        hands_in: [rounds, turns, lanes] the job that the lane hands in then, or nobody.
        takes: [rounds, turns + 1, lanes] the job that the lane takes before that turn's steps.
        order: [rounds, examples] rows of the data in the order in which jobs read them.
        at: [rounds, steps, lanes] where in that list the step's batch begins.
        valid: [rounds, steps, lanes] how many rows the batch has; 0 in an idle lane.
        job: [rounds, steps, lanes] whose step it is; where idle, some valid job.
        tick: [rounds, steps, lanes] the number of the step inside its job.
    """

    turns: Narrow
    bounds: Narrow
    hands_in: Narrow
    takes: Narrow
    order: Narrow
    at: Narrow
    valid: Narrow
    job: Narrow
    tick: Narrow


def pack(steps: Ints, lanes: int, devices: int = 1) -> Packing:
    """Pack jobs of given lengths into lanes: longest first, to the lane that is free earliest.

    Vectorised over rounds; the loops run over the jobs and the turns of one round.

    >>> packing = pack(np.array([[4, 1, 2, 3]]), lanes=2)
    >>> packing.lane.tolist(), packing.start.tolist()
    ([[0, 0, 1, 1]], [[0, 4, 3, 0]])
    >>> packing.bounds.tolist()  # lane 1 hands in after step 3, lane 0 after step 4, both after 5
    [[[0, 3, 4, 5]]]
    """
    rounds, jobs = steps.shape
    lane, rank = np.zeros((2, rounds, jobs), np.int64)  # the lane of each job, and its place there
    busy, held = np.zeros((2, rounds, lanes), np.int64)  # steps and jobs in each lane so far
    if steps.all() and (steps == steps[:, :1]).all():
        # Clients of one size are dealt out to the lanes in turn, which needs no loop.
        whose = np.arange(jobs)
        lane[:], rank[:] = whose % lanes, whose // lanes
        held[:] = np.bincount(whose % lanes, minlength=lanes)
        busy = held * steps[:, :1]
    else:
        everyone = np.arange(rounds)
        for job in np.argsort(-steps, axis=1, kind="stable").T:  # one job of every round
            free = busy.argmin(axis=1)
            lane[everyone, job] = free
            rank[everyone, job] = held[everyone, free]
            held[everyone, free] += 1
            busy[everyone, free] += steps[everyone, job]
    return _turns(steps, lane, rank, busy, held, devices)


def _turns(steps: Ints, lane: Ints, rank: Ints, busy: Ints, held: Ints, devices: int) -> Packing:
    """Choose the turns: as few as possible without making the longest lane of a device longer.

    A lane that ends a job at step e and has s steps to spare may hand it in anywhere in e … e + s.
    The fewest turns that meet all these intervals are found greedily: the earliest deadline is a
    turn, everybody who is finished by then hands in, and so on. A lane that waits uses up some of
    its spare steps, and starts its next job later.

    Vectorised over rounds and lanes: lane n of a round is at its job number ``current[n]``.
    """
    rounds, lanes = busy.shape
    everyone = np.arange(rounds)[:, None]
    # Lane by lane and in order of rank: the length, start and turn of every job.
    length = np.zeros((rounds, lanes, int(held.max()) + 1), np.int64)
    length[everyone, lane, rank] = steps
    starts, turned = np.zeros((2, *length.shape), np.int64)

    def by_device(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return a.reshape(rounds, devices, lanes // devices)

    longest = by_device(busy).max(axis=2)
    spare = np.repeat(longest, lanes // devices, axis=1) - busy
    current = np.zeros((rounds, lanes), np.int64)
    end = length[:, :, 0].copy()
    bounds, turns = [np.zeros((rounds, devices), np.int64)], np.ones((rounds, devices), np.int64)
    everything = np.arange(lanes)
    while (more := current + 1 < held).any():  # lanes with another job after the current one
        deadline = np.where(more, end + spare, np.iinfo(np.int64).max)
        now = by_device(deadline).min(axis=2)
        going = now < np.iinfo(np.int64).max  # devices that need this turn
        turns += going
        bounds.append(np.where(going, now, longest))
        at = np.repeat(now, lanes // devices, axis=1)
        switch = more & (end <= at)
        turned[everyone, everything, current] = np.where(switch, len(bounds) - 2, 0)
        spare = np.where(switch, spare - (at - end), spare)
        current = current + switch
        here = (everyone, everything, current)
        starts[here] = np.where(switch, at, starts[here])
        end = np.where(switch, at + length[here], end)
    # What is left is handed in at a device's last turn, after the steps of its longest lane.
    last = np.repeat(turns - 1, lanes // devices, axis=1)
    turned[everyone, everything, np.maximum(held - 1, 0)] = last
    bounds.append(longest)
    return Packing(
        lane, starts[everyone, lane, rank], turned[everyone, lane, rank], turns, np.stack(bounds, 2)
    )


def one_each(steps: Ints, devices: int = 1) -> Packing:
    """One job for each lane, all starting at once and handed in at one turn."""
    rounds, jobs = steps.shape
    lane = np.broadcast_to(np.arange(jobs), (rounds, jobs))
    longest = steps.reshape(rounds, devices, -1).max(axis=2)
    bounds = np.stack([np.zeros_like(longest), longest], axis=2)
    nothing = np.zeros_like(steps)
    return Packing(lane, nothing, nothing, np.ones_like(longest), bounds)


def steps_of(sizes: Ints, batch: int, epochs: int) -> Ints:
    """Steps a client of m examples takes: every epoch ends with what is left, however small.

    >>> steps_of(np.array([20, 21, 1]), batch=20, epochs=3).tolist()
    [3, 6, 3]
    """
    return -(-sizes // batch) * epochs


class Spans(NamedTuple):
    """Some examples for each job: stretches of a list of positions in ``data.rows``.

    Attributes:
        first: [jobs] where each stretch begins.
        sizes: [jobs] how long it is.
        pool: the list; positions themselves, 0, 1, 2, ..., if there is none.
    """

    first: Ints
    sizes: Ints
    pool: Ints | None = None

    def take(self, jobs: Ints) -> Spans:
        """The stretches of some jobs."""
        return Spans(self.first[jobs], self.sizes[jobs], self.pool)

    def at(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Positions in ``data.rows`` of places in the list."""
        return places if self.pool is None else self.pool[places]

    def second(self) -> Spans:
        """Every second example of each stretch, counted from the second."""
        sizes = self.sizes // 2
        owner, place = ragged(sizes)
        return Spans(np.cumsum(sizes) - sizes, sizes, self.at(self.first[owner] + 2 * place + 1))

    def most(self, grain: int) -> int:
        """The length of the longest stretch, rounded up to a multiple."""
        return -(-int(self.sizes.max()) // grain) * grain

    def rows(self, most: int) -> Narrow:
        """Positions in ``data.rows`` of every stretch, filled up with zeros: [..., most]."""
        rows = np.zeros((*self.sizes.shape, most), np.int32)
        owner, place = ragged(self.sizes.reshape(-1))
        flat = rows.reshape(self.sizes.size, most)
        flat[owner, place] = self.at(self.first.reshape(-1)[owner] + place)
        return rows


class Room(NamedTuple):
    """What a schedule has room for: the most that any round of a run needs."""

    steps: int
    turns: int
    examples: int


def room(packing: Packing, sizes: Ints, batch: int, epochs: int, share: Ints) -> Room:
    """What a packing needs."""
    examples = int(listed(sizes, batch, epochs, share).max())
    return Room(int(packing.bounds.max()), int(packing.turns.max()), examples)


def listed(sizes: Ints, batch: int, epochs: int, share: Ints) -> Ints:
    """How long the list of examples is for jobs of these sizes, [..., jobs], in every round."""
    sizes = sizes[..., np.unique(share, return_index=True)[1]]
    return np.asarray((sizes * orders(sizes, batch, epochs)).sum(axis=-1))


def roomy(count: int) -> int:
    """Rounded up, so that a little more another time needs no other shape and no other program.

    >>> [roomy(n) for n in (3, 16_385, 40_000)]
    [16384, 20480, 40960]
    """
    count = max(count, 2**14)
    grain = 1 << (count.bit_length() - 3)
    return -(-count // grain) * grain


def orders(sizes: Ints, batch: int, epochs: int) -> Ints:
    """In how many orders a job reads its examples; one where an epoch is a single step."""
    return np.where(sizes > batch, epochs, 1)


def schedule(
    first: Ints,
    sizes: Ints,
    keys: Words,
    *,
    batch: int,
    epochs: int,
    lanes: int,
    devices: int = 1,
    share: Ints | None = None,
    space: Room | None = None,
    packing: Packing | None = None,
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
        share: [jobs] jobs with the same number have the same examples and the same key.
        space: what to make room for; as much as needed if not given.
        packing: where the jobs go; packed here if not given.

    Returns:
        The schedule; its ``order`` has positions ``first + place``.
    """
    rounds, jobs = sizes.shape
    per_epoch = -(-sizes // batch)
    steps = per_epoch * epochs
    size = 48.0 * float(steps.sum(dtype=np.float64))  # six numbers for each step
    check_memory(f"the plan of {epochs:,} epochs of all clients", size, "choose fewer epochs")
    packing = packing or pack(steps, lanes, devices)
    share = np.arange(jobs) if share is None else share
    space = space or room(packing, sizes, batch, epochs, share)
    grid = (rounds, max(space.steps, 1), lanes)
    flat_sizes, flat_steps, flat_per_epoch, start, lane, turn = (
        a.reshape(-1) for a in (sizes, steps, per_epoch, packing.start, packing.lane, packing.turn)
    )
    number = np.arange(rounds * jobs)
    round_, member = number // jobs, (number % jobs).astype(np.int32)

    # One entry for every job. A job is taken at the turn before its first step: the first one whose
    # steps do not begin earlier than that.
    works = flat_steps > 0
    hands_in = np.full((rounds, space.turns, lanes), NOBODY, np.int32)
    takes = np.full((rounds, space.turns + 1, lanes), NOBODY, np.int32)
    hands_in[round_[works], turn[works], lane[works]] = member[works]
    before = packing.bounds[round_, lane // (lanes // devices)] < start[:, None]
    takes[round_[works], before.sum(axis=1)[works], lane[works]] = member[works]

    # The list holds one stretch for all jobs that share; `which` says where a job's own is.
    _, one, which = np.unique(share, return_index=True, return_inverse=True)
    order, begin = _in_order(
        first[:, one], sizes[:, one], keys[:, one], batch, epochs, space.examples
    )

    # One entry for every step of every job. Each epoch has an order, and so a stretch, of its own;
    # but where an epoch is one step, which reads everything, all epochs read the same stretch.
    own, tick = ragged(flat_steps)
    grid_at = (round_[own], start[own] + tick, lane[own])
    valid, job, ticks, at = np.zeros((4, *grid), np.int32)
    epoch, inside = np.divmod(tick, flat_per_epoch[own])
    valid[grid_at] = np.minimum(flat_sizes[own] - inside * batch, batch)
    job[grid_at] = member[own]
    ticks[grid_at] = tick
    again = np.where(flat_per_epoch[own] > 1, epoch * flat_sizes[own], 0)
    at[grid_at] = begin[:, which].reshape(-1)[own] + again + inside * batch

    bounds = np.zeros((rounds, space.turns + 1, devices), np.int32)
    by_turn = packing.bounds.swapaxes(1, 2)[:, : space.turns + 1]
    bounds[:, : by_turn.shape[1]] = by_turn
    turns = packing.turns.astype(np.int32)
    return Schedule(turns, bounds, hands_in, takes, order, at, valid, job, ticks)


def _in_order(
    first: Ints, sizes: Ints, keys: Words, batch: int, epochs: int, examples: int
) -> tuple[Narrow, Ints]:
    """The list of examples of every round, and where in it each job's begin: [rounds, jobs]."""
    often = orders(sizes, batch, epochs)
    lengths = sizes * often
    flat_orders = often.reshape(-1)
    job, epoch = ragged(flat_orders)  # one entry for every order ...
    long = sizes.reshape(-1)[job]
    pass_, place = ragged(long)  # ... and one for every example in it
    # A job with a single order (one epoch, or one step) reads its examples as they lie in the data.
    several = flat_orders[job] > 1
    if several.any():
        words = mix(keys.reshape(-1)[job[several]], "epoch", epoch[several])
        place[several[pass_]] = shuffles(words, long[several])
    owner = job[pass_]
    order = np.zeros((len(sizes), max(examples, 1)), np.int32)
    order[owner // sizes.shape[1], ragged(lengths.sum(axis=1))[1]] = (
        first.reshape(-1)[owner] + place
    )
    return order, np.cumsum(lengths, axis=1) - lengths


def padded(array: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """The array with zeros at its end up to a length.

    >>> padded(np.array([1, 2]), 4).tolist()
    [1, 2, 0, 0]
    """
    out = np.zeros((length, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def ragged(sizes: Ints) -> tuple[Ints, Ints]:
    """For ragged lists end to end: the owner of every entry, and its place in its own list."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return owner, np.arange(len(owner)) - starts[owner]
