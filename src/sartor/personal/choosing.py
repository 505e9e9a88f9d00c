"""How a client chooses: every candidate is tried on examples that it has not trained on.

Trials are jobs like any others, (client, candidate, fold), and go through the lanes together.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.engine import Block, Ints, Jobs, Spans, ragged
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.randomness import mix, shuffles

Floats = npt.NDArray[np.float64]

Select = Literal["holdout", "kfold", "train"]

TRIALS = "trials.safetensors"
"""The file, beside the clients' models, that the losses of their trials are kept in."""

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
            ``"prior"`` if it has too little data to hold anything out. (A client that had one
            candidate only says ``"given"``.)
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


class Chosen(NamedTuple):
    """What the clients have chosen.

    Attributes:
        candidate: [clients] the number of the candidate.
        loss: [clients, candidates] the plain loss of each on what was held out; NaN where a client
            could hold nothing out.
        how: [clients] how it was chosen, as in :class:`Trials`.
    """

    candidate: Ints
    loss: Floats
    how: npt.NDArray[np.str_]


def make_trials(data: ClientData, select: Select, folds: int, seed: int) -> Trials:
    """The trials of every client.

    By hold-out, a client is tried on its validation part, which nothing was trained on. One that
    has none, or chooses by ``"kfold"``, is tried on each of ``folds`` parts of its training part
    after training on the others; with one example it cannot be tried at all.
    """
    begin, end, after = (data.bounds[:, i] for i in range(3))
    sizes = end - begin
    everyone = np.arange(len(data))
    how = np.where(sizes > 1, "kfold", "prior").astype(object)
    if select == "holdout":
        how[(after > end) & (sizes > 0)] = "holdout"
    if select == "train":
        how[:] = "train"
    pool: list[Ints] = []
    parts: list[tuple[Ints, int, Ints, Ints]] = []  # clients, fold, training and held-out sizes

    def stretch(clients: Ints, first: Ints, lengths: Ints) -> Ints:
        owner, place = ragged(lengths)
        return np.asarray(first[owner] + place)

    whole = everyone[(how == "holdout") | (how == "train")]
    if len(whole):
        tried = select == "train"
        held_first = begin[whole] if tried else end[whole]
        held_size = sizes[whole] if tried else after[whole] - end[whole]
        pool += [stretch(whole, begin[whole], sizes[whole]), stretch(whole, held_first, held_size)]
        parts.append((whole, 0, sizes[whole], held_size))
    several = everyone[how == "kfold"]
    if len(several):
        order = shuffles(mix(seed, "folds", data.hashes[several]), sizes[several])
        owner, place = ragged(sizes[several])
        rows = begin[several][owner] + order
        count = np.minimum(folds, sizes[several])
        for fold in range(int(count.max())):
            mine = fold < count[owner]
            out = place % count[owner] == fold
            here = several[fold < count]
            held_sizes = np.bincount(owner[mine & out], minlength=len(several))[fold < count]
            pool += [rows[mine & ~out], rows[mine & out]]
            parts.append((here, fold, sizes[here] - held_sizes, held_sizes))
    if not parts:
        none = np.zeros(0, np.int64)
        return Trials(none, none, Spans(none, none), Spans(none, none), how.astype(str))
    flat = np.concatenate(pool)
    lengths = np.concatenate([part for _, _, train, held in parts for part in (train, held)])
    firsts = np.cumsum(lengths) - lengths
    train_at, held_at, at = [], [], 0
    for clients, _, _, _ in parts:
        train_at.append(np.arange(at, at + len(clients)))
        held_at.append(np.arange(at + len(clients), at + 2 * len(clients)))
        at += 2 * len(clients)
    train, held = np.concatenate(train_at), np.concatenate(held_at)
    return Trials(
        np.concatenate([clients for clients, _, _, _ in parts]),
        np.concatenate([np.full(len(clients), fold) for clients, fold, _, _ in parts]),
        Spans(firsts[train], lengths[train], flat),
        Spans(firsts[held], lengths[held], flat),
        how.astype(str),
    )


def trial_jobs(data: ClientData, trials: Trials, seed: int, cluster: Ints, cover: Floats) -> Jobs:
    """A job for every trial of every candidate λ; all candidates of a client share one stream."""
    copies = len(cover)
    which = np.repeat(np.arange(len(trials.client)), copies)
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
        cover: the candidates, from the largest on: those that share draws need one that trains
            first, and with λ = 0 nothing is trained.
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
    ) -> TrialReading:
        """What seen clients of a data set would read."""
        trials = make_trials(data, select, folds, seed)
        held = bool((data.sizes("validation")[data.seen] > 0).all())
        parts = int(trials.fold.max()) + 1 if len(trials.fold) else 1
        whole = select == "train" or (select == "holdout" and held)
        return cls(select, folds, cover[::-1], parts, whole)

    def spans(self, data: ClientData, seed: int) -> tuple[Spans, Spans | None]:
        """What jobs train on, [clients, parts · candidates]; and are tried on, [clients, parts]."""
        trials = make_trials(data, self.select, self.folds, seed)
        tables = np.zeros((4, len(data), self.parts), np.int64)
        at = (trials.client, trials.fold)
        for table, values in zip(tables, (*trials.train[:2], *trials.held[:2]), strict=True):
            table[at] = values
        first, sizes, held_first, held_sizes = tables
        # With λ = 0 no step changes anything; one that is as short as can be hands the trial in.
        trains = np.array(self.cover) > 0
        wide = np.where(trains, sizes[:, :, None], np.minimum(sizes, 1)[:, :, None])
        firsts = np.repeat(first, len(self.cover), axis=1)
        train = Spans(firsts, wide.reshape(firsts.shape), trials.train.pool)
        return train, Spans(held_first, held_sizes, trials.held.pool)


class TrialLosses:
    """The losses of trials as they come in; in a file too, if there is one to go on from later.

    Args:
        path: the file; ``None`` keeps them in memory.
        identity: the work that they belong to. Those of other work make way.
        jobs: how many trials there are.
    """

    def __init__(self, path: Path | None, identity: str, jobs: int) -> None:
        self.path, self.identity = path, identity
        self.losses = np.full(jobs, np.nan)
        self._saved = time.monotonic()
        if path is not None and path.exists() and read_metadata(path).get("identity") == identity:
            self.losses = load_arrays(path, "")["losses"].copy()

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """[jobs] which trials have ended."""
        return ~np.isnan(self.losses)

    def note(self, block: Block) -> None:
        """Write down what became of some trials; one that diverged loses against any other."""
        held = np.asarray(block.held_loss)
        self.losses[block.jobs] = np.where(block.finite & ~np.isnan(held), held, np.inf)
        if time.monotonic() - self._saved > SAVE_SECONDS or self.done.all():
            self.save()

    def save(self) -> None:
        """Write the file."""
        if self.path is not None:
            save_tree(self.path, {"losses": self.losses}, {"identity": self.identity})
        self._saved = time.monotonic()


def choose(data: ClientData, trials: Trials, losses: Floats, candidates: int) -> Chosen:
    """Every client takes the candidate with the lowest loss in its trials: [trials · candidates].

    Of candidates that are equal the first is taken. A client that could not be tried takes the
    one that is best on average over those that could: the cover's prior.
    """
    sizes = trials.held.sizes[:, None]
    sums, counts = np.zeros((len(data), candidates)), np.zeros((len(data), 1))
    np.add.at(sums, trials.client, losses.reshape(-1, candidates) * sizes)
    np.add.at(counts, trials.client, sizes)
    loss = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    tried = counts[:, 0] > 0
    prior = int(loss[tried].mean(axis=0).argmin()) if tried.any() else 0
    best = np.where(tried, np.where(np.isnan(loss), np.inf, loss).argmin(axis=1), prior)
    return Chosen(best.astype(np.int64), loss, trials.how)


def warn_of_fallbacks(name: str, select: Select, how: npt.NDArray[np.str_]) -> None:
    """Say so where clients could not choose as they should."""
    folds, prior = int((how == "kfold").sum()), int((how == "prior").sum())
    if select == "holdout" and folds:
        warnings.warn(
            f"{name}: {folds} of {len(how)} clients have no validation part and choose by folds of "
            "their training part. The central model has seen it where the client is a seen one, so "
            "their choices lean towards it. A split with validation = 0.2 avoids that for all "
            "that have enough examples",
            stacklevel=5,
        )
    if prior:
        warnings.warn(
            f"{name}: {prior} of {len(how)} clients have too little data to hold anything out, and "
            "take what is best on average for the others",
            stacklevel=5,
        )
