"""What users give: a frame or an array, whose columns have roles, and labels beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import validate_data

from sartor.data import encoding
from sartor.data.preparing import plain
from sartor.data.tables import as_table
from sartor.errors import ConfigError, DataError, nearest
from sartor.types import Floats, Ints

UNKNOWN = -1
"""The number of a client that is not known."""

ROLES = ("client", "second", "time", "groups")
"""Settings that name columns."""


class Table(NamedTuple):
    """A table, taken apart.

    Attributes:
        features: the columns to learn from, as an Arrow table.
        frame: the same columns, in the type that they were given.
        client: [rows] the number of each row's client among ``ids``, and −1 for none.
        ids: the clients, as texts; none if there are no clients.
        time: [rows] when rows were seen; ``None`` if unknown.
        groups: [rows] numbers of what belongs together; ``None`` if unknown.
        second: [rows] the number of each row's level of a second grouping among ``levels``, and −1
            for none; ``None`` if there is no second grouping.
        levels: the levels, as texts.
    """

    features: Any
    frame: Any
    client: Ints
    ids: tuple[str, ...]
    time: Floats | None
    groups: Ints | None
    second: Ints | None = None
    levels: tuple[str, ...] = ()

    def take(self, which: Ints) -> Table:
        """Some rows, by their numbers. Clients of whom there are none are not known."""
        client, ids = _used(self.client[which], self.ids)
        second, levels = self.second, self.levels
        if second is not None:
            second, levels = _used(second[which], levels)
        return Table(
            self.features.take(pa.array(which)), _safe_indexing(self.frame, which), client, ids,
            None if self.time is None else self.time[which],
            None if self.groups is None else self.groups[which], second, levels,
        )  # fmt: skip


def _used(number: Ints, names: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Clients by number, and the names of those of whom there are rows."""
    there = np.unique(number[number >= 0])
    place = np.full(len(names) + 1, UNKNOWN)
    place[there] = np.arange(len(there))
    return place[number], tuple(names[k] for k in there)


def read(estimator: Any, x: Any, client: Any = None, *, fitting: bool) -> Table:
    """Take a table apart, as the settings of an estimator that name columns say.

    Args:
        estimator: it learns the names of the columns while it is fitted, and compares them later.
        x: a frame, or an array, whose columns are named by their positions.
        client: the client of each row, if it is no column.
        fitting: whether rows are to be fitted to. For others, times and groups do not matter.
    """
    x = pa.table(x) if isinstance(x, pa.RecordBatch) else x
    if hasattr(x, "columns"):
        names = _names(x)
        if not names:
            raise DataError("0 feature(s): the frame has no columns; give some to learn from")
        if len({isinstance(name, str) for name in names}) > 1:
            raise DataError(
                f"some names of columns are texts and others are not ({names[:20]}); make them all "
                "texts: X.columns = X.columns.astype(str)"
            )
        if twice := [name for name in names if names.count(name) > 1]:
            raise DataError(f"two columns are called {twice[0]!r}; rename one")
        roles = _roles(estimator, names, client, fitting)
        unused = [roles[role] for role in ("time", "groups") if role in roles]
        kept = _without(x, unused)
        validate_data(estimator, kept, reset=fitting, skip_check_array=True)
        columns = as_table(x)
        frame = _without(kept, [roles[role] for role in ("client", "second") if role in roles])
        features = columns.select([str(name) for name in _names(frame)])
    else:
        x = validate_data(estimator, x, reset=fitting, dtype=None, ensure_all_finite="allow-nan")
        roles = _roles(estimator, list(range(x.shape[1])), client, fitting)
        named = {f"x{j}": encoding.as_arrow(x[:, j], f"column {j}") for j in range(x.shape[1])}
        columns, roles = pa.table(named), {role: f"x{j}" for role, j in roles.items()}
        left = [j for j in range(x.shape[1]) if f"x{j}" not in roles.values()]
        features, frame = columns.select([f"x{j}" for j in left]), x[:, left]
    if "client" in roles:
        owner, ids = _clients(columns[str(roles["client"])], f"client={roles['client']!r}")
    elif client is not None:
        owner, ids = _clients(encoding.as_arrow(client, "client"), "client")
    else:
        owner, ids = np.full(len(columns), UNKNOWN), ()
    if len(owner) != len(columns):
        raise DataError(
            f"client has {len(owner)} values for {len(columns)} rows; give one for each"
        )
    time = groups = None
    if fitting and "time" in roles:
        time = encoding.as_times(columns[str(roles["time"])], str(roles["time"]))
    if fitting and "groups" in roles:
        groups, _ = encoding.numbered(columns[str(roles["groups"])], str(roles["groups"]))
    second: Ints | None = None
    levels: tuple[str, ...] = ()
    if "second" in roles:
        second, levels = _clients(columns[str(roles["second"])], f"second={roles['second']!r}")
    return Table(features, frame, owner, ids, time, groups, second, levels)


def _roles(estimator: Any, names: list[Any], client: Any, fitting: bool) -> dict[str, Any]:
    """The columns that have a role."""
    asked = {role: getattr(estimator, role) for role in ROLES}
    if client is not None:
        del asked["client"]
    found = {role: name for role, name in asked.items() if name in names}
    for role, name in asked.items():
        if name is None or name in names or not (fitting or role in ("client", "second")):
            continue
        if isinstance(names[0], int):
            raise ConfigError(
                f"{role}={name!r}: an array has no names; pass a frame, or the position of a "
                "column, or clients beside it: fit(X, y, client=...), predict(X, client=...)"
            )
        raise ConfigError(f"{role}={name!r}: no such column; {nearest(str(name), map(str, names))}")
    if len(set(found.values())) < len(found):
        raise ConfigError(f"one column has two roles: {found}; name each once")
    return found


def _names(frame: Any) -> list[Any]:
    """The names of the columns of a frame of pandas or polars, or of an Arrow table."""
    return list(frame.column_names if isinstance(frame, pa.Table) else frame.columns)


def _without(frame: Any, names: list[Any]) -> Any:
    """A frame without some columns."""
    if isinstance(frame, pa.Table):
        return frame.drop_columns([name for name in frame.column_names if name in names])
    return frame[[name for name in frame.columns if name not in names]] if names else frame


def _clients(values: Any, what: str) -> tuple[Ints, tuple[str, ...]]:
    """Clients by number, and their ids as texts. Rows without a client belong to nobody."""
    values = plain(values)
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    encoding.refuse_nested(values.type, what)
    gaps = pc.is_null(values, nan_is_null=True)
    if encoding.is_text(values.type):
        gaps = pc.or_kleene(gaps, pc.equal(values, ""))
    coded = pc.if_else(gaps, pa.scalar(None, values.type), values).dictionary_encode()
    codes = coded.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, tuple(map(encoding.text_of, coded.dictionary.to_pylist()))
