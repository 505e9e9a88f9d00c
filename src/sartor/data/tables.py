"""Client data out of data frames, CSV and Parquet.

Tables are read batch by batch, so a file may be larger than memory when its features go to a
native directory.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sartor.checking import is_list, shown
from sartor.data import encoding
from sartor.data.dataset import ClientData, Column, assemble
from sartor.data.federated import reading
from sartor.data.preparing import plain
from sartor.data.rounding import Rounding
from sartor.data.store import column_file, joined, through_store
from sartor.errors import ConfigError, DataError, nearest


def from_frame(
    frame: Any,
    *,
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    domain: str | None = None,
    metadata: Sequence[str] = (),
    time: str | None = None,
    groups: str | None = None,
) -> ClientData:
    """Client data from a pandas DataFrame, a pyarrow Table, or anything that exports Arrow.

    Args:
        frame: a table with one row for each example.
        client: the column that says whose row it is; ids are texts, in order of first appearance.
        label: the column with the label: integers from 0 (kept), words (numbered in sorted
            order), or floats, which are always a regression target.
        features: the feature columns, stacked to "x" (float32); None for all others. All must
            be numbers or booleans.
        domain: the column with the client's domain.
        metadata: other columns with one value for each client.
        time: the column that says when a row was observed: a date, a time or a number. Texts such
            as 2026-11-18 or 2026-11-18 09:30:00 are dates. Splits and folds can then hold out what
            comes later.
        groups: the column that says which rows belong together, such as the rows of one hour.
            Splits and folds keep them together.

    >>> table = pa.table({"user": ["ann", "bob"], "age": [30, 40], "bought": [True, False]})
    >>> from_frame(table, client="user", label="bought")
    ClientData(2 clients, 2 examples: x float32[1], y uint8)
    """
    table = as_table(frame)
    roles = {"client": client, "label": label, "features": features, "domain": domain}
    roles |= {"metadata": metadata, "time": time, "groups": groups}
    return _collect(table.to_batches(), _plan(table.schema, roles))


def as_table(frame: Any) -> Any:
    """A data frame of whatever library, as an Arrow table."""
    pandas = hasattr(frame, "iloc") and hasattr(frame, "columns")  # which is not imported here
    arrow = isinstance(frame, pa.RecordBatch) or hasattr(frame, "__arrow_c_stream__")
    if not pandas and not arrow:
        raise DataError(
            f"a pandas DataFrame or a pyarrow Table is needed, got {type(frame).__name__}"
        )
    try:
        return pa.Table.from_pandas(frame, preserve_index=False) if pandas else _table(frame)
    except Exception as error:  # of Arrow's, and whatever the frame does
        what = _culprit(frame) if pandas else ""
        raise DataError(f"the frame cannot be converted to Arrow: {what}{error}") from error


def _table(frame: Any) -> Any:
    """An Arrow table, with views of texts (as polars has) as texts, which can be taken apart."""
    table = pa.table(frame)
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(kinds.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)) if fields != list(table.schema) else table


def read_table(path: Path, store: Path | None, roles: Mapping[str, Any]) -> ClientData:
    """Client data from a CSV or Parquet file, in the roles that are arguments of `from_frame`.

    With `store`, the features are written to that native directory while reading and
    memory-mapped from there.
    """
    with reading(path):
        plan, batches = (_parquet if is_parquet(path) else _csv)(path, roles)
        return through_store(store, lambda folder: _collect(batches, plan, folder))


PARQUET = b"PAR1"
"""What Parquet files begin with."""


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with path.open("rb") as handle:
        return handle.read(len(PARQUET)) == PARQUET


def table_bytes(path: Path) -> int:
    """An upper bound of a table's features in memory as float32."""
    if not is_parquet(path):
        return path.stat().st_size * 2  # two characters, a digit and a comma, for four bytes
    with reading(path):
        facts = pa.parquet.read_metadata(path)
    return int(facts.num_rows) * int(facts.num_columns) * 4


@dataclass(frozen=True)
class _Plan:
    """Which column of a table is what."""

    client: str
    label: str
    features: tuple[str, ...]
    metadata: Mapping[str, str]
    time: str | None
    groups: str | None

    @property
    def others(self) -> list[str]:
        """The columns that are no features, each of them once."""
        named = [self.client, self.label, *self.metadata.values(), self.time, self.groups]
        return list(dict.fromkeys(name for name in named if name is not None))


def _plan(schema: Any, roles: Mapping[str, Any]) -> _Plan:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise DataError(f"column names must be unique, got {names}; rename one")
    asked = {role: _asked(role, value) for role, value in roles.items()}
    for role, columns in asked.items():
        for name in columns:
            if name not in names:
                raise ConfigError(f"{role}={name!r}: no such column; {nearest(name, names)}")
            if columns.count(name) > 1:
                raise ConfigError(f"{role}: {name!r} is named twice; name it once")
    (client,), (label,), features = asked["client"], asked["label"], asked["features"]
    if client == label or {client, label} & set(features):
        raise ConfigError(
            f"client={client!r}, label={label!r}, features={features!r}: the client and the label "
            "must be two columns, and neither a feature"
        )
    if roles["features"] is None:
        taken = {name for columns in asked.values() for name in columns}
        features = [name for name in names if name not in taken]
    for name in features:
        kind = schema.field(name).type
        if not _numeric(kind):
            what = encoding.DATES if pa.types.is_temporal(kind) else "encode it as numbers"
            if encoding.is_date(kind) and not asked["time"]:
                option = f"time={name!r}, --time {shlex.quote(name)}"
                what += f"; or say that rows were observed then: {option}"
            raise DataError(
                f"column {name!r} is not numeric ({kind}): {what}; or name the "
                "columns to use: features=[...], on the command line --features COLUMN"
            )
    kind = schema.field(label).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (_numeric(kind) or encoding.is_text(kind) or pa.types.is_binary(kind)):
        what = f"; {encoding.DATES}" if pa.types.is_temporal(kind) else ""
        raise DataError(
            f"column {label!r} cannot be a label ({kind}): numbers or words are needed{what}"
        )
    encoding.refuse_nested(schema.field(client).type, client)
    by_name = {name: name for name in asked["metadata"]}
    if asked["domain"]:
        (by_name["domain"],) = asked["domain"]
    time, groups = (next(iter(asked[role]), None) for role in ("time", "groups"))
    if time is not None:
        _check_time(time, schema.field(time).type)
    return _Plan(client, label, tuple(features), by_name, time, groups)


def _check_time(name: str, kind: Any) -> None:
    """Refuse a column of times whose type says that it holds none; texts are read later."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (_numeric, encoding.is_date, encoding.is_text, pa.types.is_binary)
    if not any(test(value) for test in tests):
        raise DataError(
            f"time={name!r} ({kind}): a date, a time or a number is needed; write dates as "
            "2026-11-18 or 2026-11-18 09:30:00"
        )


def _asked(role: str, value: Any) -> list[str]:
    """The columns for a role, as texts: pandas takes anything for a name, and Arrow does not."""
    if role not in ("features", "metadata"):
        if value is None and role not in ("domain", "time", "groups"):
            raise ConfigError(f"{role}: name the column that holds the {role} (got None)")
        return [] if value is None else [_name(role, value)]
    if value is not None and not is_list(value):
        raise ConfigError(f"{role}={shown(value)}: a list of column names is needed")
    return [] if value is None else [_name(role, name) for name in value]


def _name(role: str, value: Any) -> str:
    """The name of a column, which in pandas may be a number or a tuple; a column is none."""
    if is_list(value) and not isinstance(value, tuple):
        known = getattr(value, "name", None)
        such = f", such as {known!r}" if isinstance(known, str) else ""
        raise ConfigError(f"{role}: the name of a column is needed{such} (got {shown(value)})")
    return str(value)


def _numeric(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests) or pa.types.is_null(kind)


def _parquet(path: Path, roles: Mapping[str, Any]) -> tuple[_Plan, Iterable[Any]]:
    # Pre-buffering would hold the whole file in memory while its batches are read.
    file = pa.parquet.ParquetFile(path, pre_buffer=False)
    plan = _plan(file.schema_arrow, roles)
    return plan, file.iter_batches(columns=[*plan.others, *plan.features])


def _csv(path: Path, roles: Mapping[str, Any]) -> tuple[_Plan, Iterable[Any]]:
    blocks = pa.csv.ReadOptions(block_size=1 << 24)
    schema = pa.csv.open_csv(path, read_options=blocks).schema
    plan = _plan(schema, roles)
    # Types are guessed from the first block: whole numbers there may be followed by others, and
    # ids such as 007 are texts.
    numbers = [n for n in plan.features if not pa.types.is_boolean(schema.field(n).type)]
    types = dict.fromkeys(numbers, pa.float64()) | {plan.client: pa.string()}
    options = pa.csv.ConvertOptions(column_types=types)
    return plan, pa.csv.open_csv(path, read_options=blocks, convert_options=options)


def _collect(batches: Iterable[Any], plan: _Plan, folder: Path | None = None) -> ClientData:
    """Read batches one after another. The features may go to a folder, all else is in memory."""
    kept, rounding = [], Rounding(plan.features)

    def blocks() -> Iterator[Column]:
        row = 0
        for batch in filter(len, batches):
            kept.append(batch.select(plan.others))
            yield _stack(batch, plan, row, rounding)
            row += len(batch)
        if not row:
            raise DataError("the table has no rows; at least one is needed")
        rounding.refuse()

    x = joined(blocks(), folder / column_file(0) if folder and plan.features else None)
    table = pa.Table.from_batches(kept)
    clients, labels = _decoded(table, plan.client), _decoded(table, plan.label)
    owner, found = encoding.numbered(clients, plan.client)
    if encoding.is_text(labels.type):
        y, label_names = encoding.numbered_words(labels, plan.label, clients)
    else:
        encoding.refuse_missing(labels, plan.label, clients)
        y, label_names = encoding.as_column(_numbers(labels), plan.label), None
    data = assemble(
        {"x": x, "y": y} if plan.features else {"y": y},
        owner,
        [encoding.text_of(client) for client in found],
        metadata={
            name: encoding.constant(_decoded(table, source), source, owner, clients)
            for name, source in plan.metadata.items()
        },
        label_names=label_names,
        feature_names=plan.features or None,
        time=None
        if plan.time is None
        else encoding.as_times(_decoded(table, plan.time), plan.time, clients),
        groups=None
        if plan.groups is None
        else encoding.numbered(_decoded(table, plan.groups), plan.groups, clients)[0],
    )
    return encoding.narrowed(data)


def _stack(batch: Any, plan: _Plan, row: int, rounding: Rounding) -> Column:
    """The features of a batch that begins at a row of its table."""
    clients = batch.column(plan.client)
    for name in plan.features:
        encoding.refuse_missing(batch.column(name), name, clients, row)
    arrays = [_numbers(batch.column(name)) for name in plan.features]
    wide = np.empty((len(batch), len(arrays)))
    for j, values in enumerate(arrays):
        wide[:, j] = values
    with np.errstate(over="ignore"):  # what overflows float32 is refused below
        x = wide.astype(np.float32)
    if not np.isfinite(x).all():
        i, j = map(int, np.argwhere(~np.isfinite(x))[0])
        where = encoding.place(i, plan.features[j], clients, row)
        raise DataError(f"{where}: {arrays[j][i]} is not a finite float32; correct or drop the row")
    rounding.add(wide, lambda i: encoding.text_of(clients[i].as_py()))
    return x


def _culprit(frame: Any) -> str:
    """The column of a pandas frame that Arrow cannot hold, and what to do about it."""
    if not frame.columns.is_unique:
        return "rename columns, so that no two have the same name. "
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if hasattr(column, "sparse"):
            return f"column {name!r} is sparse; make it dense by frame.sparse.to_dense(). "
        try:
            pa.Array.from_pandas(column)
        except Exception as error:  # of Arrow's, and whatever the values do
            kind = column.dtype.kind
            what = encoding.REMEDIES.get(kind, "give it one type, or leave the column out")
            return f"column {name!r} ({column.dtype}, {type(error).__name__}): {what}. "
    return ""


def _numbers(values: Any) -> Column:
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    return np.asarray(values)


def _decoded(table: Any, name: str) -> Any:
    """A column with dictionaries looked up, bytes decoded, and views (as polars has) copied."""
    values = table[name]
    if pa.types.is_dictionary(values.type):
        values = pa.chunked_array([plain(values, name)])
    if pa.types.is_binary(values.type) or pa.types.is_string_view(values.type):
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {name!r} has texts that are not UTF-8 ({error}); convert the table, for "
                "instance by iconv -f latin1 -t utf-8"
            ) from error
    return values
