"""Files of rows in chunks, in the columns and types that a fitted model takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sartor.data import encoding
from sartor.data.federated import reading
from sartor.data.kinds import Kind, Number
from sartor.data.preparing import plain
from sartor.data.tables import is_parquet
from sartor.errors import ConfigError, DataError, FileError, nearest
from sartor.personal import PersonalModels

MOST_ROWS = 65_536
"""Rows of a chunk."""

MOST_CELLS = 1 << 22
"""Values of a chunk, where there are many columns."""

BLOCK = 1 << 24
"""Bytes of CSV that are read at once."""

MISSING = ("NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
"""Words in CSV that stand for nothing, unless the model knows them."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file that a model takes.

    Attributes:
        client: the column with clients in the file.
        called: its name in the model; ``None`` if clients were given beside the table.
        features: all columns that the model was fitted to, with that of clients if it is one.
        kinds: what is known of them, by name.
        clients: the clients that are known.
    """

    client: str
    called: str | None
    features: tuple[str, ...]
    kinds: Mapping[str, Kind]
    clients: Mapping[str, Any]

    @classmethod
    def of(cls, model: Any, client: str | None) -> Columns:
        """Of a fitted model, with the name that the column of clients has in files."""
        if isinstance(model, PersonalModels):
            names, called, kinds = model.feature_names, None, {}
            clients: Mapping[str, Any] = model.clients
        elif hasattr(model, "models_"):
            found = getattr(model, "feature_names_in_", None)
            names, called = found if found is None else tuple(map(str, found)), model.client
            kinds = {kind.name: kind for kind in model.models_.view.preparation.kinds}
            clients = model.models_.ids
        else:
            raise ConfigError(
                "these are no models of clients: a central model predicts the same for all; load "
                "it by sartor.load, and use its predict"
            )
        if names is None:
            raise ConfigError(
                "these models were fitted to an array, whose columns have no names, so no file has "
                "them; fit them to a frame, or use sartor.load(...).predict"
            )
        called = None if called is None else str(called)
        if client is not None and client != called and client in names:
            raise ConfigError(
                f"--client {client}: the models learned from a column of this name; name the "
                f"column that says whose row it is{f', such as {called!r}' if called else ''}"
            )
        if (client := client or called) is None:
            raise ConfigError("which column says whose row it is? Say --client COLUMN")
        return cls(client, called, names, kinds, clients)

    @property
    def wanted(self) -> list[str]:
        """The columns of a file that are read."""
        return [self.client if name == self.called else name for name in self.features] + (
            [] if self.called else [self.client]
        )

    def taken(self, table: Any) -> tuple[Any, Any]:
        """What the model takes, and the clients if they are given beside it."""
        if self.called is None:
            return table.select(list(self.features)), table[self.client]
        names = [self.called if name == self.client else name for name in table.column_names]
        return table.rename_columns(names).select(list(self.features)), None

    def of_words(self, table: Any) -> Any:
        """A table of CSV, whose words become what the model knows."""
        for place, name in enumerate(table.column_names):
            values = table[name]
            if name == self.client:
                values = _recognised(plain(values), self.clients)
            elif encoding.is_text(values.type):
                known = getattr(self.kinds.get(name), "levels", ())
                missing = pa.array([word for word in MISSING if word not in known] + [""])
                gaps = pc.is_in(values, missing)
                values = pc.if_else(gaps, pa.scalar(None, values.type), values)
            table = table.set_column(place, name, values)
        return table


def _recognised(values: Any, known: Mapping[str, Any]) -> Any:
    """Clients as texts. Numbers that are written in another way are the same, as 7.0 and 07 are 7.

    >>> _recognised(pa.array(["7.0", "07", "x", None]), {"7": 0, "07": 1}).to_pylist()
    ['7', '07', 'x', None]
    """
    coded = values.dictionary_encode()
    words: list[str] = []
    for word in coded.dictionary.to_pylist():
        said = word
        if word not in known:
            try:
                number = encoding.text_of(float(word))
            except (ValueError, DataError):  # no number, or not a finite one
                number = word
            said = number if number in known else word
        words.append(said)
    return pa.array(words, pa.string()).take(coded.indices)


def tables_of(path: Path, columns: Columns, others: Sequence[str] = ()) -> Iterator[Any]:
    """The rows of a CSV or Parquet file, as Arrow tables of limited size.

    Args:
        path: the file.
        columns: what the model takes.
        others: further columns to read; those of CSV stay texts.
    """
    if not path.is_file():
        raise FileError(f"{path} is no file; name a CSV or Parquet file")
    wanted = list(dict.fromkeys([*columns.wanted, *others]))
    most = max(1, min(MOST_ROWS, MOST_CELLS // len(wanted)))
    words = not is_parquet(path)
    for table in (_csv if words else _parquet)(path, columns, wanted, others, most):
        yield columns.of_words(table) if words else table


def _parquet(
    path: Path, columns: Columns, wanted: list[str], others: Sequence[str], most: int
) -> Iterator[Any]:
    with reading(path):
        file = pa.parquet.ParquetFile(path, pre_buffer=False)
        _refuse_missing(path, wanted, file.schema_arrow.names)
        for batch in file.iter_batches(most, columns=wanted):
            yield pa.table(batch).select(wanted)


def _csv(
    path: Path, columns: Columns, wanted: list[str], others: Sequence[str], most: int
) -> Iterator[Any]:
    blocks = pa.csv.ReadOptions(block_size=BLOCK)
    with reading(path):
        schema = pa.csv.open_csv(path, read_options=blocks).schema
        _refuse_missing(path, wanted, schema.names)
        types = {name: _type(columns.kinds.get(name), schema.field(name).type) for name in wanted}
        types |= {name: pa.string() for name in (columns.client, *others)}
        options = pa.csv.ConvertOptions(include_columns=wanted, column_types=types)
        for batch in pa.csv.open_csv(path, read_options=blocks, convert_options=options):
            for begin in range(0, len(batch), most):
                yield pa.table(batch.slice(begin, most))


def _type(kind: Kind | None, guessed: Any) -> Any:
    """The type to read a column of CSV in. The first rows, which the guess is from, may mislead."""
    numbers = pa.types.is_integer(guessed) or pa.types.is_floating(guessed)
    if (kind is None or isinstance(kind, Number)) and (numbers or pa.types.is_null(guessed)):
        return pa.float64()
    return guessed if kind is None or isinstance(kind, Number) else pa.string()


def _refuse_missing(path: Path, wanted: Sequence[str], there: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in there]:
        raise DataError(
            f"{path} has no column {', '.join(map(repr, missing[:10]))}"
            f"{' …' if len(missing) > 10 else ''}; {nearest(missing[0], there)}"
        )
    if twice := [name for name in wanted if list(there).count(name) > 1]:
        raise DataError(f"{path}: two columns are called {twice[0]!r}; rename one")


def as_pandas(table: Any) -> Any:
    """An Arrow table as a frame of pandas, for pipelines."""
    try:
        return table.to_pandas()
    except ImportError as error:
        raise ConfigError(
            "these models are pipelines that take frames, which need pandas; run pip install pandas"
        ) from error


def labels_for(model: Any, values: Any, name: str) -> Any:
    """The labels in an Arrow column, as a fitted classifier or regressor knows them.

    >>> class Model: classes_ = np.array([False, True])
    >>> labels_for(Model(), pa.array(["true", "False"]), "returned").tolist()
    [True, False]
    """
    values = plain(values)
    if not hasattr(model, "classes_"):
        try:
            return np.asarray(values.cast(pa.float64(), safe=False), np.float64)
        except pa.ArrowInvalid as error:
            raise DataError(f"label {name!r}: numbers are needed ({error})") from error
    known = {_word(label): label for label in model.classes_.tolist()}
    words = list(map(_word, values.to_pylist()))
    if new := sorted(set(words) - set(known)):
        raise DataError(
            f"label {name!r}: {new[0]!r} is new, and the models know {', '.join(known)}; fit again "
            "with rows of all classes"
        )
    return np.array([known[word] for word in words], model.classes_.dtype)


def _word(label: Any) -> str:
    """A label as a text, which is the same in whatever type and file it is."""
    if isinstance(label, bool) or str(label).lower() in ("true", "false"):
        return str(label).lower()
    try:
        return encoding.text_of(float(label))
    except (ValueError, DataError):  # a word
        return str(label)
