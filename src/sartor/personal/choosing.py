"""How a client chooses λ: every candidate is tried on examples that it has not trained on.

Trials are jobs like any others, (client, candidate, fold), and go through the lanes together.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.checking import Share, checked, is_list
from sartor.data import ClientData
from sartor.engine import Block, Jobs, Spans, positions, ragged
from sartor.errors import ConfigError, warn
from sartor.evaluation.shrinkage import posterior
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.randomness import mix, shuffles
from sartor.types import Bools, Floats, Ints

Select = Literal["holdout", "kfold", "train"]

COVER = tuple(i / 10 for i in range(11))
"""Eleven points, 0, 0.1, ... 1."""

TRIALS = "trials.safetensors"
"""The file, next to the clients' models, that keeps the losses of trials."""

LATEST = 2
"""Parts that are held out where examples have times: the last ones."""

SPEAKS = 4
"""Held-out examples from which on a client says something about itself."""

CROWD = 10
"""Clients that are needed to learn how much clients differ."""

CAUTION = 1.0
"""Standard errors that are taken off an expected gain, for the tails of losses are long."""

PAYS = 2.0, 3.0
"""Standard errors that choices have to gain on examples that they were not made by: by the scatter
of clients, or, as few clients that differ much scatter widely, by that of their examples."""

MOST_LOST = 10.0
"""What a candidate can lose for a client, in mean losses of the central model."""

SAVE_SECONDS = 2.0
"""About how much work on trials a kill may lose."""


class Trials(NamedTuple):
    """Who is tried on what; a client has one entry for each of its folds.

    Attributes:
        client: [trials] positions of clients.
        fold: [trials] numbers of their folds.
        train: what each trial trains on.
        held: what it is tried on.
        how: [clients] how each client chooses: ``"holdout"``, ``"kfold"``, ``"train"``, or
            ``"prior"`` if it has too little data to hold anything out. (With a single candidate
            there are no trials, and it is ``"given"``.)
    """

    client: Ints
    fold: Ints
    train: Spans
    held: Spans
    how: npt.NDArray[np.str_]


class Choices(NamedTuple):
    """What there is to choose for a client.

    Attributes:
        cover: the candidates λ; none where the algorithm has no λ, one where there is no choice.
        select: how a client chooses.
    """

    cover: tuple[float, ...] = ()
    select: Select = "holdout"


def as_cover(name: str, cover: Any) -> tuple[float, ...]:
    """The cover in order and without repetitions; refuses one that is empty or not in [0, 1].

    >>> as_cover("Dapper", [1, 0.5, 0.5])
    (0.5, 1.0)
    """
    points = list(cover) if is_list(cover) else [cover]
    if not points:
        raise ConfigError(f"{name}: the cover is empty; give some λ between 0 and 1")
    return tuple(sorted({checked(f"{name}: a λ of the cover", p, Share) for p in points}))


def make_trials(data: ClientData, select: Select, folds: int, seed: int) -> Trials:
    """The trials of every client.

    By hold-out, a client is tried on its validation part, which nothing was trained on. One that
    has none, or chooses by ``"kfold"``, is tried on each of ``folds`` parts of its training part
    after training on the others; with one example it cannot be tried at all. Rows with groups stay
    together. Rows with times are tried on the last two parts, after training on what was before.
    """
    begin, end, after = data.bounds[:, :3].T
    sizes = end - begin
    how = np.where(sizes > 1, "kfold", "prior").astype(object)
    if select == "holdout":
        how[(after > end) & (sizes > 0)] = "holdout"
    if select == "train":
        how[:] = "train"

    # Clients with a single trial: its number is 0.
    once = np.flatnonzero((how == "holdout") | (how == "train"))
    part = "train" if select == "train" else "validation"
    trained, held = positions(data, once, "train"), positions(data, once, part)
    parts = [(once, np.zeros_like(once), sizes[once], trained, data.sizes(part)[once], held)]

    several = np.flatnonzero(how == "kfold")
    rows, owner, block = _blocks(data, several, folds, seed)
    last = np.zeros(len(several), np.int64)
    np.maximum.at(last, owner, block)
    how[several] = "prior"
    for fold in range(int(last.max(initial=-1)) + 1):
        out, trains = block == fold, block != fold
        if data.time is not None:
            out, trains = out & (fold > last - LATEST)[owner], block < fold
        held_sizes, left = (np.bincount(owner[a], minlength=len(several)) for a in (out, trains))
        has = (held_sizes > 0) & (left > 0)
        here, number = several[has], np.full(int(has.sum()), fold)
        trained, held = rows[has[owner] & trains], rows[has[owner] & out]
        parts.append((here, number, left[has], trained, held_sizes[has], held))
        how[here] = "kfold"

    client, number, *pools = (np.concatenate(column) for column in zip(*parts, strict=True))
    train, tried = (Spans(np.cumsum(n) - n, n, pool) for n, pool in (pools[:2], pools[2:]))
    return Trials(client, number, train, tried, how.astype(str))


def _blocks(data: ClientData, clients: Ints, folds: int, seed: int) -> tuple[Ints, Ints, Ints]:
    """The training examples of some clients: position, client by number, and part by number.

    Clients deal their shuffled examples out to the parts in turn; by time, parts follow each other.
    Of groups, the same ones are in the same part for all clients.
    """
    sizes = data.sizes("train")[clients]
    owner, place = ragged(sizes)
    rows = positions(data, clients, "train")
    count = np.minimum(folds, sizes)[owner]
    if data.time is not None:
        rows = rows[np.lexsort((data.time[data.rows[rows]], owner))]
        return rows, owner, place * count // sizes[owner]
    if data.groups is not None:
        block = mix(seed, "folds", data.groups[data.rows[rows]]) % np.uint64(folds)
        return rows, owner, block.astype(np.int64)
    order = shuffles(mix(seed, "folds", data.hashes[clients]), sizes)
    return data.bounds[clients, 0][owner] + order, owner, place % count


def trial_jobs(data: ClientData, trials: Trials, seed: int, cluster: Ints, cover: Floats) -> Jobs:
    """A job for every trial of every candidate λ; all candidates of a client share one stream."""
    which = np.repeat(np.arange(len(trials.client)), len(cover))
    client = trials.client[which]
    words = mix(mix(seed, "personal", data.hashes[client]), "trial", trials.fold[which])
    values = {"lambda": np.tile(cover, len(trials.client)).astype(np.float32)}
    return Jobs(
        client, trials.train.take(which), words, cluster[client], values,
        trials.held.take(which), trials.how[client] == "kfold",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TrialReading:
    """What a cohort's trials of λ read in a round: folds, and inside a fold the candidates.

    Attributes:
        select: how a client chooses.
        folds: how many folds a client makes that has no validation part.
        cover: the candidates, the largest first. Candidates share draws, so the first one has to
            train, and λ = 0 trains nothing.
        parts: on how many folds each candidate is tried.
        whole: whether every trial trains on all that its client would train on in the end.
    """

    select: Select
    folds: int
    cover: tuple[float, ...]
    parts: int
    whole: bool

    @classmethod
    def of(
        cls, data: ClientData, select: Select, folds: int, cover: tuple[float, ...], seed: int
    ) -> TrialReading | None:
        """What clients of a data set would read; ``None`` if no seen one can hold anything out."""
        trials = make_trials(data, select, folds, seed)
        if not data.seen[trials.client].any():
            return None
        held = bool((data.sizes("validation")[data.seen] > 0).all())
        parts = 1 + int(trials.fold.max(initial=0))
        whole = select == "train" or (select == "holdout" and held)
        return cls(select, folds, cover[::-1], parts, whole)

    def spans(self, data: ClientData, seed: int) -> tuple[Spans, Spans | None]:
        """What jobs train on, [clients, parts · candidates], and are tried on, [clients, parts]."""
        trials = make_trials(data, self.select, self.folds, seed)
        tables = np.zeros((4, len(data), self.parts), np.int64)
        tables[:, trials.client, trials.fold] = [*trials.train[:2], *trials.held[:2]]
        first, sizes, held_first, held_sizes = tables
        # With λ = 0 steps change nothing: a single example is enough to hand the trial in.
        trains = np.array(self.cover) > 0
        wide = np.where(trains, sizes[:, :, None], np.minimum(sizes, 1)[:, :, None])
        firsts = np.repeat(first, len(self.cover), axis=1)
        train = Spans(firsts, wide.reshape(firsts.shape), trials.train.pool)
        return train, Spans(held_first, held_sizes, trials.held.pool)


class TrialLosses:
    """The losses of trials as they come in, kept in a file if the fit is to be resumed.

    Args:
        path: the file; ``None`` keeps them in memory.
        identity: the work that they belong to. Losses of other work are discarded.
        jobs: how many trials there are.

    Attributes:
        losses: [jobs, 2] each trial's mean loss on what it held out, and on every second example
            of that; NaN before it has ended.
        ended: how many have ended. Counting them anew after every block would take longer than the
            trials where there are very many.
    """

    def __init__(self, path: Path | None, identity: str, jobs: int) -> None:
        self.path, self.identity = path, identity
        self.losses = np.full((jobs, 2), np.nan)
        self._next_save = time.monotonic() + SAVE_SECONDS
        if path is not None and path.exists() and read_metadata(path).get("identity") == identity:
            found = load_arrays(path, "")["losses"]
            if found.shape == self.losses.shape:  # earlier versions have saved one number
                self.losses = found.copy()
        self.ended = int(self.done.sum())

    @property
    def done(self) -> Bools:
        """[jobs] which trials have ended."""
        return ~np.isnan(self.losses[:, 0])

    def note(self, block: Block) -> None:
        """Note the losses of some trials; a trial that diverged has an infinite loss."""
        held = np.asarray(block.held_loss)
        fine = block.finite & ~np.isnan(held).any(axis=1)
        self.ended += int(np.isnan(self.losses[block.jobs, 0]).sum())
        self.losses[block.jobs] = np.where(fine[:, None], held, np.inf)
        began = time.monotonic()
        if self.path is not None and (began > self._next_save or self.ended == len(self.losses)):
            save_tree(self.path, {"losses": self.losses}, {"identity": self.identity})
            now = time.monotonic()
            self._next_save = now + SAVE_SECONDS * max(1, 10 * (now - began))  # 5% of the time


class HeldOut(NamedTuple):
    """Every client's mean loss on what it held out, on all of it and on both halves.

    Attributes:
        loss: [3, clients, candidates] on all, on every second example, and on the others; NaN where
            there are none, and infinite where training diverged.
        examples: [3, clients] how many there are.
    """

    loss: Floats
    examples: Floats

    @classmethod
    def of(cls, trials: Trials, losses: Floats) -> HeldOut:
        """From the losses of trials: [trials, candidates, 2]."""
        n = trials.held.sizes
        counts = np.stack([n, n // 2, n - n // 2]).astype(np.float64)
        with np.errstate(invalid="ignore"):  # infinite less infinite is cut off below
            whole = losses[:, :, 0] * n[:, None]
            second = np.where(n[:, None] > 1, losses[:, :, 1] * counts[1][:, None], 0.0)
            totals = np.stack([whole, second, whole - second])
        totals[:, ~np.isfinite(losses).all(axis=2)] = np.inf
        # Folds take turns, as one of a single example has only one half.
        odd = trials.fold % 2 == 1
        counts[1:, odd], totals[1:, odd] = counts[:0:-1, odd], totals[:0:-1, odd]
        clients = len(trials.how)
        sums = np.zeros((3, clients, losses.shape[1]))
        examples = np.zeros((3, clients))
        for half in range(3):
            np.add.at(sums[half], trials.client, totals[half])
            np.add.at(examples[half], trials.client, counts[half])
        some = examples[:, :, None] > 0
        return cls(np.where(some, sums / np.maximum(examples, 1)[:, :, None], np.nan), examples)


def lowest(held: HeldOut) -> Ints:
    """Every client takes the candidate with the lowest loss on what it held out.

    The first of equal candidates is taken. A client that could not be tried takes the candidate
    that is best on average over those that could: the cover's prior.
    """
    loss, tried = held.loss[0], held.examples[0] > 0
    prior = int(loss[tried].mean(axis=0).argmin()) if tried.any() else 0
    return np.where(tried, np.where(np.isnan(loss), np.inf, loss).argmin(axis=1), prior)


def pooled(held: HeldOut, size: Ints, central: HeldOut | None, guard: bool) -> tuple[Ints, Bools]:
    """Choose for every client by its own held-out examples and by everybody's.

    A few examples say little of one client. So what each candidate gains over the central model is
    shrunk towards what it gains for clients of that size (:mod:`sartor.evaluation.shrinkage`), and
    a client takes the candidate that is expected to gain most. With a guard, it keeps the central
    model if none is expected to gain, or if it has fewer examples than all that could try them. All
    keep it if what one half of the examples advises does not clearly pay on the other half.

    Args:
        held: the candidates' losses.
        size: [clients] numbers of training examples.
        central: the central model's losses; without it, candidates are compared with the one that
            is best on average.
        guard: whether clients may keep the central model.

    Returns:
        The number of each client's candidate, and whether the client keeps the central model.
    """
    clients, nobody = len(size), np.zeros(len(size), np.bool_)
    tried = held.examples[0] > 0
    if not tried.any():
        return np.zeros(clients, np.int64), nobody | guard
    if central is None:
        usual = int(np.nanmean(np.where(np.isinf(held.loss[0]), 1e30, held.loss[0]), 0).argmin())
        reference = held.loss[:, :, usual : usual + 1]
    else:
        reference = central.loss
    # A client can lose any amount. What counts against a candidate is limited.
    limit = MOST_LOST * float(np.nanmean(np.abs(reference[0][np.isfinite(reference[0])])))
    with np.errstate(invalid="ignore"):
        gain = np.maximum(reference - held.loss, -limit)  # [3, clients, candidates]
    gain = np.where(held.examples[:, :, None] > 0, np.where(np.isnan(gain), -limit, gain), np.nan)
    noise = _noise(gain, held.examples)
    expected = [_expected(gain, held.examples, size, half, noise) for half in range(3)]
    if central is None or not guard:
        return expected[0].argmax(axis=1), nobody
    everyone, paid, chance = np.arange(clients), np.zeros(clients), 0.0
    for half, other in ((1, 2), (2, 1)):
        chosen = expected[half].argmax(axis=1)
        takes = (expected[half][everyone, chosen] > 0) & (held.examples[other] > 0)
        paid[takes] += (gain[other][everyone, chosen] * held.examples[other])[takes]
        chance += float((noise[chosen] * held.examples[other])[takes].sum())
    best = expected[0].argmax(axis=1)
    errors = np.sqrt([(paid**2).sum(), chance])
    if not (paid.sum() > PAYS * errors).any():
        return best, ~nobody
    smaller = ~tried & (size < size[tried].min())
    return best, smaller | ~(expected[0][everyone, best] > 0)


def _noise(gain: Floats, examples: Floats) -> Floats:
    """[candidates] the variance of one example, by how far the halves of all clients differ."""
    both = (examples[1] > 0) & (examples[2] > 0)
    per_example = (1 / np.maximum(examples[1], 1) + 1 / np.maximum(examples[2], 1))[both].sum()
    return ((gain[1, both] - gain[2, both]) ** 2).sum(axis=0) / max(per_example, 1e-12)


def _expected(gain: Floats, examples: Floats, size: Ints, half: int, noise: Floats) -> Floats:
    """[clients, candidates] what each candidate is expected to gain, by one half of the examples.

    A client with very few examples says nothing about itself: its model may be wild, and one
    example does not show it.
    """
    speaks = examples[0] >= SPEAKS
    found = np.empty(gain.shape[1:])
    for c in range(gain.shape[2]):
        mean = gain[half, :, c]
        variance = np.where(examples[half] > 0, noise[c] / np.maximum(examples[half], 1), np.nan)
        usual = posterior(mean, variance, size)
        weight, own = np.zeros((2, len(size)))
        if speaks.sum() >= CROWD:
            between = posterior(mean[speaks], variance[speaks], size[speaks]).between
            weight[speaks] = between / np.maximum(between + variance[speaks], 1e-300)
            own[speaks] = weight[speaks] * (mean - usual.prior)[speaks]
        error = (1 - weight) ** 2 * usual.prior_error**2
        error[speaks] += weight[speaks] ** 2 * variance[speaks]
        found[:, c] = usual.prior + own - CAUTION * np.sqrt(error)
    return found


def warn_of_fallbacks(name: str, select: Select, how: npt.NDArray[np.str_]) -> None:
    """Warn if clients cannot choose as they should."""
    folds, prior = int((how == "kfold").sum()), int((how == "prior").sum())
    if select == "holdout" and folds:
        warn(
            f"{name}: {folds} of {len(how)} clients have no validation part and choose by folds of "
            "their training part. The central model has seen it where the client is a seen one, so "
            "their choices lean towards it. A split with validation = 0.2 avoids that for all "
            "that have enough examples"
        )
    if prior == len(how):
        warn(
            f"{name}: no client has enough data to hold anything out, so nothing can be chosen; "
            "all take the smallest λ there is, and a guard keeps the central model"
        )
    elif prior:
        warn(
            f"{name}: {prior} of {len(how)} clients have too little data to hold anything out, and "
            "take what is best on average for the others"
        )
