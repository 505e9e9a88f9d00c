"""The examples that Dapper mixes with a client's own: Ĉ and its samples Ĉ'."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sartor.checking import shown
from sartor.data import ClientData
from sartor.data.names import check_names
from sartor.engine import Jobs, in_order, padded, positions
from sartor.errors import ConfigError, DataError, warn
from sartor.personal.task import Task
from sartor.randomness import Words, key_data, mix, uniforms
from sartor.types import Bools, Ints


class Sample(NamedTuple):
    """Ĉ, from which every client draws.

    Attributes:
        data: what the positions refer to: the clients' data, followed by examples that belong to
            no client, if any.
        pool: positions in ``data.rows`` of all examples of Ĉ, cluster by cluster.
        first: [clients] where a client's share of it begins: that of its cluster, or its own.
        counts: [clients] how many examples it draws from.
        mine: [clients, 2] where a client's own examples begin and end in the pool; the same place
            if it has none there.
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

    def draw(self, words: Words, slot: Ints, jobs: Jobs) -> npt.NDArray[Any]:
        """The examples of Ĉ' in slots [steps, lanes, ...] of jobs, with the clients' randomness.

        A trial on a fold does not draw what it holds out.
        """

        def by_lane(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return padded(values, slot.shape[1])[:, None]

        client = by_lane(jobs.client)
        first, count = self.first[client], self.counts[client]
        if self.own:
            return self.pool[first + slot % count]
        place = first + (uniforms(mix(words[client], "draw", slot)) * count).astype(int)
        drawn = self.pool[place]
        if jobs.fold is None or not jobs.fold.any():
            return drawn
        inside = (place >= self.mine[client, 0]) & (place < self.mine[client, 1])
        again = np.nonzero(by_lane(jobs.fold) & inside)  # few, where there are many clients
        job = again[1]
        client = jobs.client[job]
        begin, end = self.mine[client].T
        rest = self.counts[client] - (end - begin)
        toss = uniforms(mix(words[client], "again", np.broadcast_to(slot, place.shape)[again]))
        other = self.first[client] + (toss * rest).astype(int)
        other = np.where(other >= begin, other + (end - begin), other)
        elsewhere = self.pool[np.where(rest > 0, other, begin)]
        # A client that is alone in Ĉ is left with what the trial trains on.
        own = jobs.train.first[job] + (toss * jobs.train.sizes[job]).astype(int)
        drawn[again] = np.where(rest > 0, elsewhere, jobs.train.at(own))
        return drawn


def circles(
    data: ClientData, cluster: Ints | None = None, members: Bools | None = None
) -> tuple[Ints, Ints, Ints, int]:
    """One Ĉ for everybody, or one for each cluster; a cluster without seen clients has them all.

    Args:
        data: the clients.
        cluster: [clients] the hypothesis of each, if not all share one Ĉ.
        members: [clients, q] to which hypotheses each would belong, one of every clustering, where
            several were trained together.

    Returns:
        [clients] the number of each client's Ĉ; the seen clients in every Ĉ as two lists, the
        number of the Ĉ and the client, sorted by hashes so that draws do not depend on the order of
        clients; and how many Ĉ there are.
    """
    seen = in_order(data)
    if not len(seen):
        raise DataError("Dapper: no client is seen, so there is nothing to mix with")
    of = np.zeros(len(data), np.int64) if cluster is None else cluster
    if members is None or cluster is None:
        members = of[:, None] == np.arange(int(of.max()) + 1)
    inside = members[seen].T
    number, place = np.nonzero(inside | ~inside.any(axis=1, keepdims=True))
    return of, number, seen[place], len(inside)


def check_company(
    data: ClientData, cluster: Ints | None = None, members: Bools | None = None
) -> None:
    """Warn of clients that are alone in their Ĉ; refuse data where all are."""
    of, number, order, several = circles(data, cluster, members)
    sizes = data.sizes("train")
    alone = data.seen & (np.bincount(number, sizes[order], several)[of] == sizes)
    if not alone.any():
        return
    named = ", ".join(repr(data.ids[k]) for k in np.flatnonzero(alone)[:3])
    where = "the data" if cluster is None else "their clusters"
    if alone.all():
        raise DataError(
            f"Dapper: nobody else is in {where} ({named}), so there is nothing to mix with; "
            + "give fit the other clients' data too, or as public=data with source='public'"
            + ", or set mixture to 'all'" * (cluster is not None)
        )
    warn(
        f"Dapper: {alone.sum()} of {len(data)} clients have no other seen client in {where} "
        f"({named}); all that they mix with is their own examples"
    )


def clients_sample(
    data: ClientData, cluster: Ints | None = None, members: Bools | None = None
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


def generated(task: Task, r: int, sampler: Any) -> Sample:
    """Ĉ' is drawn from the central hypothesis itself, r · m_k examples for every client.

    Nothing but the model, which clients have anyway, has to leave a client for this.
    """
    data, model = task.data, task.model
    order = np.lexsort((data.hashes, task.cluster))  # whatever the order of clients
    # In the end clients train on their validation parts, too.
    counts = r * (data.bounds[:, 2] - data.bounds[:, 0])[order]
    parts: list[dict[str, npt.NDArray[Any]]] = []
    for cluster in np.unique(task.cluster):
        count = int(counts[task.cluster[order] == cluster].sum())
        word = key_data(mix(task.seed, "generated", int(cluster)))
        key = jax.random.wrap_key_data(jnp.asarray(word), impl="threefry2x32")
        if sampler is not None:
            made = _sampled(sampler, key, count, int(cluster))
        else:
            assert task.central is not None
            params = jax.tree.map(lambda a, c=cluster: a[c], task.central.hypotheses)
            logits = model.apply(params, None, None)
            made = {"y": np.asarray(jax.random.categorical(key, logits, shape=(count,)))}
        if set(made) != set(data.columns) or any(v.shape[:1] != (count,) for v in made.values()):
            shapes = {name: v.shape for name, v in made.items()}
            raise DataError(
                f"the sampler was asked for {count} examples with the columns "
                f"{sorted(data.columns)} and gave {shapes}"
            )
        parts.append(made)
    columns = {name: np.concatenate([made[name] for made in parts]) for name in data.columns}
    sample = _appended(data, columns, "the sampler")
    first, mine = np.zeros((2, len(data)), np.int64)
    first[order], mine[order] = np.cumsum(counts) - counts, counts
    return sample._replace(first=first, counts=mine, own=True, sent=False)


def _sampled(sampler: Any, key: Any, count: int, cluster: int) -> dict[str, npt.NDArray[Any]]:
    """The columns that a sampler of the user's own makes."""
    try:
        found = sampler(key, count, cluster)
        if isinstance(found, Mapping):
            return {name: np.asarray(values) for name, values in found.items()}
    except Exception as error:  # whatever the user's function does
        raise ConfigError(
            f"Dapper: sampler(key, count, cluster) raised {type(error).__name__}: {error}; correct "
            "the function"
        ) from error
    raise DataError(
        "Dapper: sampler(key, count, cluster) must return a dict of columns, such as "
        f"{{'x': ..., 'y': ...}} (got {shown(found)})"
    )


def _appended(data: ClientData, columns: dict[str, npt.NDArray[Any]], what: str) -> Sample:
    """The clients' data with more examples at its end, which belong to no client."""
    there = len(columns["y"])
    if not there:
        raise DataError(f"Dapper: {what} has no examples, so there is nothing to mix with")
    merged = {}
    for name, column in data.columns.items():
        new = columns[name]
        if new.shape[1:] != column.shape[1:]:
            raise DataError(
                f"{what} has the shape {new.shape[1:]} in column {name!r}, and the clients' data "
                f"{column.shape[1:]}"
            )
        same = new.astype(column.dtype)
        if new.dtype.kind != column.dtype.kind or not (same == new).all():
            raise DataError(
                f"{what} has {new.dtype} in column {name!r}, which does not fit the clients' "
                f"{column.dtype}; give it in the same form"
            )
        merged[name] = np.concatenate([np.asarray(column), same])
    # They belong to a client of their own at the end, so the others' positions do not change.
    end, clients = len(data.rows), len(data)
    nobody = end + np.array([[0, there, there, there]])
    whole = ClientData(
        merged,
        np.append(data.rows, len(data.columns["y"]) + np.arange(there)),
        np.concatenate([data.bounds, nobody]),
        (*data.ids, f"({what})"),
        np.append(data.seen, False),
        label_names=data.label_names,
        scaling=data.scaling,
    )
    first, mine = np.zeros(clients, np.int64), np.zeros((clients, 2), np.int64)
    return Sample(whole, end + np.arange(there), first, np.full(clients, there), mine)
