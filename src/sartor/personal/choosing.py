"""How a client chooses: every candidate is tried on examples that it has not trained on.

Trials are jobs like any others, (client, candidate, fold), and go through the lanes together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.engine.blocks import Block, Jobs
from sartor.engine.schedule import Ints, Spans, ragged
from sartor.randomness import mix, shuffles

Floats = npt.NDArray[np.float64]

Select = Literal["holdout", "kfold", "train"]


class Trials(NamedTuple):
    """Who is tried on what; a client has one entry for each of its folds.

    Attributes:
        client: [trials] positions of clients.
        fold: [trials] numbers of their folds.
        train: what each trial trains on.
        held: what it is tried on.
        how: [clients] how each client chooses: ``"holdout"``, ``"kfold"``, ``"train"``, or
            ``"prior"`` if it has too little data to hold anything out.
    """

    client: Ints
    fold: Ints
    train: Spans
    held: Spans
    how: npt.NDArray[np.str_]


class Choice(NamedTuple):
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
    values = {
        "cluster": cluster[client].astype(np.int32),
        "place": client.astype(np.int32),
        "size": trials.train.sizes[which].astype(np.float32),
        "lambda": np.tile(cover, len(trials.client)).astype(np.float32),
        "folds": trials.how[client] == "kfold",
    }
    return Jobs(client, trials.train.take(which), words, values, trials.held.take(which))


def choose(
    data: ClientData,
    trials: Trials,
    candidates: int,
    run: Iterator[Block],
    note: Callable[[int], None],
) -> Choice:
    """Run the trials, and let every client take the candidate with the lowest loss.

    Of candidates that are equal the first is taken. A client that could not be tried takes the
    one that is best on average over those that could: the cover's prior.
    """
    sums = np.zeros((len(data), candidates))
    counts = np.zeros((len(data), candidates))
    for block in run:
        trial, candidate = np.divmod(block.jobs, candidates)
        client, size = trials.client[trial], trials.held.sizes[trial]
        loss = np.where(block.finite, np.asarray(block.held_loss), np.inf)
        np.add.at(sums, (client, candidate), loss * size)
        np.add.at(counts, (client, candidate), size)
        note(len(block.jobs))
    loss = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    tried = ~np.isnan(loss).any(axis=1)
    prior = int(loss[tried].mean(axis=0).argmin()) if tried.any() else 0
    best = np.where(tried, np.where(np.isnan(loss), np.inf, loss).argmin(axis=1), prior)
    return Choice(best.astype(np.int64), loss, trials.how)


def warn_of_fallbacks(name: str, select: Select, how: npt.NDArray[np.str_]) -> None:
    """Say so where clients could not choose as they should."""
    folds, prior = int((how == "kfold").sum()), int((how == "prior").sum())
    if select == "holdout" and folds:
        warnings.warn(
            f"{name}: {folds} of {len(how)} clients have no validation part and choose by folds of "
            "their training part. The central model has seen it where the client is a seen one, so "
            "their choices lean towards it; data.split(validation=0.2, seed=0) avoids that",
            stacklevel=4,
        )
    if prior:
        warnings.warn(
            f"{name}: {prior} of {len(how)} clients have too little data to hold anything out, and "
            "take what is best on average for the others",
            stacklevel=4,
        )
