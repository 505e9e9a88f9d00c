"""Client data out of Python dicts and arrays."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sartor.checking import checked
from sartor.data.dataset import ClientData, Column, equal_length, shape_of
from sartor.data.encoding import (
    as_arrow,
    as_column,
    as_times,
    constant,
    finish,
    numbered,
    refuse_missing,
    text_of,
)
from sartor.errors import DataError, nearest


def from_dict(
    clients: Mapping[str, Mapping[str, npt.ArrayLike] | tuple[npt.ArrayLike | None, npt.ArrayLike]],
    metadata: Mapping[str, Mapping[str, Any] | Sequence[Any]] | None = None,
) -> ClientData:
    """Client data from a dict of clients.

    Args:
        clients: for each client id its columns, {"x": ..., "y": ...}, or the pair (x, y). Labels
            are integers from 0, words (numbered in sorted order) or floats (regression). Floats
            of 64 bits become floats of 32.
        metadata: for each name the clients' values, as a dict by client id or in order.

    >>> from_dict({"ann": {"y": ["cat", "dog"]}, "bob": {"y": ["cat"]}}).label_names
    ('cat', 'dog')
    """
    if not isinstance(clients, Mapping) or not clients:
        raise DataError(f"a dict with at least one client is needed, got {type(clients).__name__}")
    tables = {
        text_of(client): _client_columns(client, values) for client, values in clients.items()
    }
    if len(tables) < len(clients):
        raise DataError("client ids must be unique as texts, but two of the keys read the same")
    if "" in tables:
        raise DataError("a client's id is an empty text; give it a name")
    first_id, first = next(iter(tables.items()))
    for client, table in tables.items():
        for name in table.keys() ^ first.keys():
            raise DataError(
                f"column {name!r}: either client {client!r} or client {first_id!r} does not have "
                "it; all clients need the same columns"
            )
        for name, column in table.items():
            like = first[name]
            if column.shape[1:] != like.shape[1:] or (name == "y" and _kind(column) != _kind(like)):
                raise DataError(
                    f"client {client!r}, column {name!r}: {shape_of(column)} differs from "
                    f"{shape_of(like)} of client {first_id!r}"
                )
    columns = {name: np.concatenate([t[name] for t in tables.values()]) for name in first}
    owner = np.repeat(np.arange(len(tables)), [len(t["y"]) for t in tables.values()])
    about = checked("metadata", metadata, Mapping | None) or {}
    by_name = {str(n): _by_client(n, values, list(tables)) for n, values in about.items()}
    return finish(columns, owner, list(tables), by_name)


def from_arrays(
    x: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None,
    y: npt.ArrayLike,
    client: npt.ArrayLike,
    domain: npt.ArrayLike | None = None,
    time: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
) -> ClientData:
    """Client data from arrays with one entry for each example.

    Args:
        x: features [n, ...], a dict of named feature arrays, or None where there are none.
        y: labels [n]: integers from 0, words (numbered in sorted order) or floats (regression).
        client: the client of each example; ids are texts, in the order of first appearance.
        domain: the domain of each example, the same for all examples of a client.
        time: when each example was observed, as a date or a number; see `from_frame`.
        groups: which examples belong together; see `from_frame`.

    >>> from_arrays([[0.5], [1.5], [2.5]], [0, 1, 1], ["ann", "bob", "ann"])
    ClientData(2 clients, 3 examples: x float32[1], y int64)
    """
    features = {} if x is None else dict(x) if isinstance(x, Mapping) else {"x": x}
    if "y" in features:
        raise DataError("x: a feature must not be named 'y', which is the labels' name")
    columns = {str(name): as_column(values, name) for name, values in {**features, "y": y}.items()}
    clients, metadata = as_arrow(client, "client"), {}
    owner, found = numbered(clients, "client")
    equal_length({**columns, "client": owner})
    if domain is not None:
        domains = as_arrow(domain, "domain")
        equal_length({"client": owner, "domain": domains.to_numpy()})
        metadata["domain"] = constant(domains, "domain", owner, clients)
    data = finish(columns, owner, [text_of(value) for value in found], metadata)
    when = None if time is None else as_times(as_arrow(time, "time"), "time", clients)
    which = None if groups is None else numbered(as_arrow(groups, "groups"), "groups")[0]
    for name, values in (("time", when), ("groups", which)):
        if values is not None:
            equal_length({"client": owner, name: values})
    return dataclasses.replace(data, time=when, groups=which)


def _client_columns(client: str, values: Any) -> dict[str, Column]:
    if isinstance(values, tuple) and len(values) == 2:
        values = {"y": values[1]} if values[0] is None else {"x": values[0], "y": values[1]}
    if not isinstance(values, Mapping):
        raise DataError(
            f"client {client!r}: a dict of columns or a pair (x, y) is needed, "
            f"got {type(values).__name__}"
        )
    try:
        columns = {str(name): as_column(column, name) for name, column in values.items()}
    except DataError as error:
        raise DataError(f"client {client!r}: {error}") from error
    if "y" not in columns:
        raise DataError(f"client {client!r} has no column 'y'; {nearest('y', columns)}")
    if not equal_length(columns, f"client {client!r}: "):
        raise DataError(f"client {client!r} has no training rows: leave it out")
    return columns


def _kind(column: Column) -> str:
    return {"u": "i", "b": "i"}.get(column.dtype.kind, column.dtype.kind)


def _by_client(name: str, values: Any, ids: Sequence[str]) -> list[Any]:
    """The clients' metadata of one name, in the order of the clients."""
    if isinstance(values, Mapping):
        by_id = {text_of(client): value for client, value in values.items()}
        for client in ids:
            if client not in by_id:
                raise DataError(f"metadata {name!r} has no value for client {client!r}; give one")
        values = [by_id[client] for client in ids]
    found = as_arrow(values, f"metadata {name!r}")
    refuse_missing(found, name, pa.array(ids) if len(found) == len(ids) else None)
    return list(found.to_pylist())
