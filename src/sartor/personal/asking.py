"""Whose model a prediction asks for: one client's for all examples, or one for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sartor.data.encoding import text_of
from sartor.errors import DataError
from sartor.types import Ints


def clients_of(client: Any, examples: int | None) -> tuple[list[str], Ints]:
    """The clients that are asked for, and for each example which of them it is.

    Args:
        client: an id, or a list, an array or a column of a frame with an id for each example.
        examples: how many there are; ``None`` if the model has no inputs.

    >>> clients_of(7, 3)
    (['7'], array([0, 0, 0]))
    >>> clients_of(["b", "a", "b"], 3)
    (['b', 'a'], array([0, 1, 0]))
    """
    values = _listed(client)
    if values is None:
        return [id_of(client)], np.zeros(() if examples is None else examples, np.int64)
    if examples is not None and len(values) != examples:
        raise DataError(
            f"client has {len(values)} ids and x has {examples} examples; give an id for each, "
            "or a single one for all"
        )
    if not values:
        raise DataError("client is empty; give one id for each example, or a single one for all")
    try:
        names = {value: id_of(value) for value in dict.fromkeys(values)}
    except TypeError as error:  # lists, and others that no dictionary takes
        raise DataError(f"client must hold texts or numbers, a client's ids ({error})") from error
    place = {name: k for k, name in enumerate(dict.fromkeys(names.values()))}
    number = {value: place[name] for value, name in names.items()}
    return list(place), np.array([number[value] for value in values])


def check_index(client: Any, x: Any) -> None:
    """Refuse a series and a frame of pandas with different indexes: ids go with rows by position.

    >>> import pandas as pd
    >>> check_index(pd.Series(["a", "b"])[::-1], pd.DataFrame({"x": [0.5, 1.5]}))
    Traceback (most recent call last):
        ...
    sartor.errors.DataError: client and x have different indexes...
    """
    if not (hasattr(client, "iloc") and hasattr(x, "iloc")) or len(client) != len(x):
        return
    if not client.index.equals(x.index):
        raise DataError(
            "client and x have different indexes, and ids go with rows by their position; give "
            "client.reindex(x.index), or client.to_numpy() if the order is right"
        )


def _listed(client: Any) -> list[Any] | None:
    """The values of a list, an array or a column; ``None`` of anything else."""
    if isinstance(client, list):
        return client
    if getattr(client, "shape", None) == ():  # an array of one id
        return None
    for name in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and polars; numpy and JAX
        if hasattr(client, name) and not isinstance(client, np.generic):
            values = getattr(client, name)()
            return values if isinstance(values, list) else None
    return None


def id_of(value: Any) -> str:
    """A client's id as a text; refuses what is no id.

    >>> id_of(3.0)
    '3'
    """
    single = isinstance(value, np.ndarray) and value.shape == ()
    return text_of(value.item() if single else value)
