"""Where the examples come from that Dapper mixes with a client's own: Ĉ and its samples Ĉ'."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.engine import Ints, Jobs, in_order, padded, positions
from sartor.errors import ConfigError, DataError
from sartor.models import Model
from sartor.personal.task import Task
from sartor.randomness import Words, key_data, mix, uniforms

Flags = npt.NDArray[np.bool_]


class Sample(NamedTuple):
    """Ĉ, from which every client draws.

    Attributes:
        data: what the positions refer to: the clients' data, with examples that are nobody's at
            its end, if there are such.
        pool: positions in ``data.rows`` of all examples of Ĉ, cluster by cluster.
        first: [clients] where a client's share of it begins: that of its cluster, or its own.
        counts: [clients] how many examples it draws from.
        mine: [clients, 2] where a client's own examples begin and end in the pool; nowhere if it
            has none there.
        own: whether the share is the client's alone, to be used in order and not drawn from.
        sent: whether its examples are sent to clients.
        shared: whether they are examples of other clients.
    """

    data: ClientData
    pool: Ints
    first: Ints
    counts: Ints
    mine: Ints
    own: bool = False
    sent: bool = True
    shared: bool = False

    def draw(
        self, words: Words, client: Ints, slot: Ints, fold: Flags, jobs: Jobs
    ) -> npt.NDArray[Any]:
        """The examples of Ĉ' in some slots of clients; a fold does not draw what it holds out."""
        first, count = self.first[client], self.counts[client]
        if self.own:
            return self.pool[first + slot % count]
        place = first + (uniforms(mix(words, "draw", slot)) * count).astype(int)
        begin, end = self.mine[client, 0], self.mine[client, 1]
        drawn = self.pool[place]
        again = fold & (place >= begin) & (place < end)
        if again.any():
            rest = count - (end - begin)
            toss = uniforms(mix(words, "again", slot))
            other = first + (toss * rest).astype(int)
            other = np.where(other >= begin, other + (end - begin), other)
            # A client that is alone in Ĉ is left with what the trial trains on.
            start, size = (
                padded(a, len(client))[:, None] for a in (jobs.train.first, jobs.train.sizes)
            )
            alone = jobs.train.at(start + (toss * size).astype(int))
            elsewhere = self.pool[np.where(rest > 0, other, place)]
            drawn = np.where(again, np.where(rest > 0, elsewhere, alone), drawn)
        return drawn


class Circles(NamedTuple):
    """Whose examples are in whose Ĉ.

    Attributes:
        of: [clients] the number of each client's Ĉ.
        number: [entries] every Ĉ, with one entry for each seen client in it ...
        client: ... and that client; by their hashes, so that draws do not depend on their order.
        several: how many there are.
    """

    of: Ints
    number: Ints
    client: Ints
    several: int


def circles(data: ClientData, cluster: Ints | None = None, members: Flags | None = None) -> Circles:
    """One Ĉ for everybody, or one for each cluster; a cluster without seen clients has them all.

    Args:
        data: the clients.
        cluster: [clients] the hypothesis of each, if not all share one Ĉ.
        members: [clients, q] to which hypotheses each would belong, one of every clustering, where
            several were trained together.
    """
    seen = in_order(data)
    if not len(seen):
        raise DataError("Dapper: no client is seen, so there is nothing to mix with")
    of = np.zeros(len(data), np.int64) if cluster is None else cluster
    if members is None or cluster is None:
        members = of[:, None] == np.arange(int(of.max()) + 1)
    inside = members[seen].T
    number, place = np.nonzero(inside | ~inside.any(axis=1, keepdims=True))
    return Circles(of, number, seen[place], len(inside))


def clients_sample(
    data: ClientData, cluster: Ints | None = None, members: Flags | None = None
) -> Sample:
    """Ĉ is the training parts of all seen clients, or of those in the client's cluster."""
    of, number, order, several = circles(data, cluster, members)
    sizes = data.sizes("train")[order]
    ends = np.cumsum(sizes)
    counts = np.bincount(number, sizes, several).astype(np.int64)
    firsts = np.cumsum(counts) - counts
    mine = np.zeros((len(data), 2), np.int64)
    own = number == of[order]
    mine[order[own]] = np.stack([ends - sizes, ends], axis=1)[own]
    pool = positions(data, order, "train")
    return Sample(data, pool, firsts[of], counts[of], mine, shared=True)


def public_sample(data: ClientData, public: ClientData) -> Sample:
    """Ĉ is public data: the training parts of its clients."""
    if set(public.columns) != set(data.columns):
        raise DataError(
            f"the public data has the columns {sorted(public.columns)} and the clients' has "
            f"{sorted(data.columns)}; make them the same"
        )
    check_names(data.label_names, data.feature_names, public, "the clients' data has")
    rows = public.rows[positions(public, np.arange(len(public)), "train")]
    columns = {name: np.asarray(column[rows]) for name, column in public.columns.items()}
    return _appended(data, columns, "the public data")


def used_sizes(data: ClientData) -> Ints:
    """How many examples a client trains on in the end, with those that it has chosen by."""
    return np.asarray(data.bounds[:, 2] - data.bounds[:, 0])


def generated(task: Task, r: int, sampler: Any) -> Sample:
    """Ĉ' is drawn from the central hypothesis itself, r · m_k examples for every client.

    Nothing but the model, which clients have anyway, has to leave a client for this.
    """
    data, model = task.data, task.model
    order = np.lexsort((data.hashes, task.cluster))  # whatever the order of clients
    counts = (r * used_sizes(data))[order]
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in data.columns}
    for cluster in np.unique(task.cluster):
        count = int(counts[task.cluster[order] == cluster].sum())
        word = key_data(mix(task.seed, "generated", int(cluster)))
        key = jax.random.wrap_key_data(jnp.asarray(word), impl="threefry2x32")
        if sampler is not None:
            made = {name: np.asarray(v) for name, v in sampler(key, count, int(cluster)).items()}
        else:
            assert task.central is not None
            params = jax.tree.map(lambda a, c=cluster: a[c], task.central.hypotheses)
            logits = model.apply(params, None, None)
            made = {"y": np.asarray(jax.random.categorical(key, logits, shape=(count,)))}
        if set(made) != set(data.columns) or any(len(v) != count for v in made.values()):
            shapes = {name: v.shape for name, v in made.items()}
            raise DataError(
                f"the sampler was asked for {count} examples with the columns "
                f"{sorted(data.columns)} and gave {shapes}"
            )
        for name, values in made.items():
            columns[name].append(values)
    sample = _appended(data, {n: np.concatenate(v) for n, v in columns.items()}, "the sampler")
    first, mine = np.zeros((2, len(data)), np.int64)
    first[order], mine[order] = np.cumsum(counts) - counts, counts
    return sample._replace(first=first, counts=mine, own=True, sent=False)


def check_density(model: Model, sampler: Any) -> None:
    """Only a density can be drawn from."""
    if sampler is None and model.kind != "density":
        raise ConfigError(
            f"Dapper: source='generated' draws from density models, and this is a {model.kind} "
            "model; give fit a sampler(key, count, cluster) that makes examples"
        )


def _appended(data: ClientData, columns: dict[str, npt.NDArray[Any]], what: str) -> Sample:
    """The clients' data with more examples at its end, that are nobody's."""
    there = len(columns["y"])
    if not there:
        raise DataError(f"Dapper: {what} has no examples, so there is nothing to mix with")
    before = len(data.columns["y"])
    merged = {}
    for name, column in data.columns.items():
        if columns[name].shape[1:] != column.shape[1:]:
            raise DataError(
                f"{what} has the shape {columns[name].shape[1:]} in column {name!r}, and the "
                f"clients' data {column.shape[1:]}"
            )
        new = columns[name]
        same = new.astype(column.dtype)
        if new.dtype.kind != column.dtype.kind or not (same == new).all():
            raise DataError(
                f"{what} has {new.dtype} in column {name!r}, which does not fit the clients' "
                f"{column.dtype}; give it in the same form"
            )
        merged[name] = np.concatenate([np.asarray(column), same])
    # A client that nobody asks for holds them; the others' positions stay what they were.
    end = len(data.rows)
    nobody = np.array([[end, end + there, end + there, end + there]])
    whole = ClientData(
        merged,
        np.concatenate([data.rows, before + np.arange(there)]),
        np.concatenate([data.bounds, nobody]),
        (*data.ids, f"({what})"),
        np.append(data.seen, False),
        label_names=data.label_names,
    )
    everyone = len(data)
    return Sample(
        whole,
        len(data.rows) + np.arange(there),
        np.zeros(everyone, np.int64),
        np.full(everyone, there),
        np.zeros((everyone, 2), np.int64),
    )
