"""Files of rows, predicted or learned from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sartor.data import encoding
from sartor.data.preparing import plain
from sartor.errors import ConfigError, DataError, warn
from sartor.estimators.chunks import Columns, as_pandas, labels_for, tables_of
from sartor.estimators.frames import read
from sartor.estimators.models import Models
from sartor.estimators.spelling import Spelling, listed
from sartor.files import writing
from sartor.personal import PersonalModels
from sartor.types import Ints

FORMATS = (".csv", ".parquet")


@dataclasses.dataclass
class Summary:
    """What was predicted.

    Attributes:
        rows: how many rows.
        used: how many of them by which model.
        unknown: how many are of each client that is not known.
        nobody: how many are of no client.
    """

    rows: int = 0
    used: Counter[str] = dataclasses.field(default_factory=Counter)
    unknown: Counter[str] = dataclasses.field(default_factory=Counter)
    nobody: int = 0

    def warn(self, known: Mapping[str, Any]) -> None:
        """Warn of rows that are predicted by the global model for want of a client's own."""
        if self.unknown:
            names = list(self.unknown)
            meant = Spelling(known).meant(names)
            what = "1 client is" if len(names) == 1 else f"{len(names):,} clients are"
            warn(
                f"{what} unknown and predicted by the global model "
                f"({self.unknown.total():,} of {self.rows:,} rows): {listed(names, meant, 10)}"
            )
        if self.nobody:
            what = "1 row has" if self.nobody == 1 else f"{self.nobody:,} rows have"
            warn(f"{what} no client and the global model's prediction")


def predict_file(
    model: Any, path: Path, out: Path, *, client: str | None = None, keep: Sequence[str] = (),
    interval: float | None = None,
) -> Summary:  # fmt: skip
    """Predict the rows of a file, chunk by chunk, and write the predictions to another one.

    Args:
        model: a fitted classifier or regressor of tables, or personal models in JAX.
        path: a CSV or Parquet file.
        out: a file that ends in ``.csv`` or ``.parquet``; it is written as a whole or not at all.
        client: the column with clients, if it has another name than the model knows.
        keep: columns of the file to write beside the predictions.
        interval: the probability of intervals around predictions.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(f"{out} must end in {' or '.join(FORMATS)}; choose another name")
    if out.exists() and path.exists() and out.samefile(path):
        raise ConfigError(f"{out} is the file to be read; choose another one to write")
    columns, summary = Columns.of(model, client), Summary()
    chunk = _chunk_of(model, interval)
    with writing(out) as file:
        writer = None
        for table in tables_of(path, columns, keep):
            said = chunk(columns, table, summary)
            if twice := sorted(set(keep) & set(said)):
                raise ConfigError(
                    f"--keep {twice[0]}: a column of predictions has this name; rename it in {path}"
                )
            found = pa.table({**{name: table[name] for name in keep}, **said})
            if writer is None:
                kind = pa.csv.CSVWriter if out.suffix == ".csv" else pa.parquet.ParquetWriter
                writer = kind(file, found.schema)
            writer.write_table(found)
            summary.rows += len(found)
        if writer is None:
            raise DataError(f"{path} has no rows; at least one is needed")
        writer.close()
    summary.warn(columns.clients)
    return summary


Chunk = Callable[[Columns, Any, Summary], dict[str, Any]]


def _chunk_of(model: Any, interval: float | None) -> Chunk:
    """How a chunk becomes columns of predictions."""
    if interval is not None and not 0 < interval < 1:
        raise ConfigError(f"--interval must be between 0 and 1, such as 0.9 (got {interval})")
    has_intervals = hasattr(model, "models_") and model.models_.intervals is not None
    if interval is not None and not has_intervals:
        raise ConfigError("these models have no intervals; leave out --interval")
    if isinstance(model, PersonalModels):
        return lambda columns, table, summary: _of_jax(model, columns, table, summary)
    return lambda columns, table, summary: _of_table(model, interval, columns, table, summary)


def _of_table(
    model: Any, interval: float | None, columns: Columns, table: Any, summary: Summary
) -> dict[str, Any]:
    """The predictions of a classifier or regressor."""
    models: Models = model.models_
    frame, clients = columns.taken(table)
    if models.view.sees == "frame":
        frame = as_pandas(frame)
    found = read(model, frame, clients, fitting=False)
    rows = models.rows_of(found, warns=False)
    said: dict[str, Any] = {"client": table[columns.client]}
    scores = models.scores(rows)
    if models.task.classes:
        chances = models.task.proba(scores)
        said["prediction"] = pa.array(model.classes_[chances.argmax(axis=1)])
        for label, chance in zip(model.classes_, chances.T, strict=True):
            said[f"probability_{label}"] = chance
    else:
        said["prediction"] = scores[:, 0]
    if interval is not None and models.intervals is not None:
        width = models.intervals.half_width(rows.owner, interval)
        said["lower"], said["upper"] = scores[:, 0] - width, scores[:, 0] + width
    said["model"] = models.used(rows.owner)
    _count(summary, said["model"], found.client, found.ids, models.ids)
    return said


def _of_jax(model: PersonalModels, columns: Columns, table: Any, summary: Summary) -> Any:
    """The predictions of personal models in JAX."""
    frame, clients = columns.taken(table)
    encoding.refuse_missing(plain(clients), columns.client)  # there is no row of nobody
    names = list(map(encoding.text_of, plain(clients).to_pylist()))
    said: dict[str, Any] = {"client": names}
    kind = model.model.kind
    said["prediction"] = np.asarray(model.predict(names, frame))
    if kind == "classification":
        chances = model.predict_proba(names, frame)
        labels = model.label_names or range(chances.shape[1])
        said |= {f"probability_{label}": c for label, c in zip(labels, chances.T, strict=True)}
    ids = tuple(dict.fromkeys(names))
    place = {name: k for k, name in enumerate(ids)}
    said["model"] = np.array(["own" if name in model.clients else "global" for name in names])
    owner = np.array([place[name] for name in names])
    _count(summary, said["model"], owner, ids, model.clients)
    return said


def _count(
    summary: Summary, used: Any, owner: Ints, ids: Sequence[str], known: Mapping[str, Any]
) -> None:
    summary.used.update(dict(zip(*np.unique(used, return_counts=True), strict=True)))
    counts = np.bincount(owner[owner >= 0], minlength=len(ids))
    summary.unknown.update({
        name: int(count) for name, count in zip(ids, counts, strict=True) if name not in known
    })  # fmt: skip
    summary.nobody += int((owner < 0).sum())


def update_from(model: Any, path: Path, label: str, client: str | None = None) -> str:
    """Learn from the rows of a file; see ``model.update``.

    Args:
        model: a fitted classifier or regressor of tables.
        path: a CSV or Parquet file.
        label: the column with labels.
        client: the column with clients, if it has another name than the model knows.

    Returns:
        What was learned from, for people.
    """
    if not hasattr(model, "update"):
        raise ConfigError(
            "models in JAX are not updated: fit them again with all rows, or add new clients by "
            "personalizing them and saving with personal.save"
        )
    columns = Columns.of(model, client)
    table = pa.concat_tables(tables_of(path, columns, [label]))
    there = pc.invert(encoding.missing(plain(table[label])))
    table, left_out = table.filter(there), len(table) - pc.sum(there).as_py()
    if not len(table):
        raise DataError(f"label {label!r}: all values are missing; name another column")
    frame, clients = columns.taken(table)
    before = set(model.models_.ids)
    if model.models_.view.sees == "frame":
        frame = as_pandas(frame)
    model.update(frame, labels_for(model, table[label], label), client=clients)
    named = set(read(model, frame, clients, fitting=False).ids)
    new = sorted(named - before)
    which = f" ({listed(new)})" if new else ""
    known = len(named) - len(new)
    rest = f"; {left_out:,} rows without a label are left out" * bool(left_out)
    return f"{len(table):,} rows of {known:,} known and {len(new):,} new clients{which}{rest}"
