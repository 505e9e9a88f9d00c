"""What people should know of a table's columns: of each of them alone, and beside the label."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sartor.data import encoding
from sartor.data.kinds import Category, Constant, Date, Key, Kind
from sartor.data.preparing import plain
from sartor.errors import DataError
from sartor.randomness import mix
from sartor.types import Bools, Floats, Ints

MOST_CLASSES = 100
"""Whole numbers with more different values than this are numbers to predict."""

SAMPLE = 20_000
"""Rows that tell whether a column says what the label is."""

FEWEST_WORDS, MOST_WORDS = 10, 1000
"""How many different words tell whether they are numbers or dates."""

FEWEST_ROWS = 50
"""Rows that this needs."""

ALMOST = 0.02
"""The share of errors that is left, where a column says almost perfectly what the label is."""


def notes_on(
    table: Any, kinds: Sequence[Kind], columns: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What people should know of columns to learn from."""
    truth = None
    with contextlib.suppress(DataError):  # which is said of the label
        truth = truth_of(columns["label"]) if "label" in columns else None
    owner = codes_of(columns["client"]) if "client" in columns else None
    for kind in kinds:
        if kind.attention:
            yield kind.name, kind.attention
        if isinstance(kind, Constant) and not isinstance(kind, Key):
            continue
        values = plain(table[kind.name], kind.name)
        if isinstance(kind, Category | Key) and (what := no_words(values)):
            yield kind.name, what
        whole = pa.types.is_integer(values.type) and len(values) >= FEWEST_ROWS
        if whole and pc.count_distinct(values).as_py() == len(values):
            yield kind.name, "a different value in each row: if it is a key, leave it out"
        if owner is not None and not isinstance(kind, Date) and _same(codes_of(values), owner):
            yield kind.name, "it stands for the client: each has one value, which no other has"
        if truth is not None and kind.tree_names and _says(kind.for_trees(values), truth):
            yield kind.name, "says almost perfectly what the label is; is it known beforehand?"


_PATTERNS = {
    "dates": re.compile(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b.*"),
    "numbers": re.compile(r"\s*[-+]?\d[\d.,'\s]*([eE][-+]?\d+)?\s*%?"),
}


def no_words(values: Any) -> str:
    """What most words of a column are, if they are something else."""
    if not encoding.is_text(values.type):
        return ""
    words = [word for word in pc.unique(values)[:MOST_WORDS].to_pylist() if word]
    for what, pattern in _PATTERNS.items():
        others = [word for word in words if not pattern.fullmatch(word)]
        if len(words) >= FEWEST_WORDS and len(others) <= len(words) / 10:
            example = ", as in 2026-11-18" if what == "dates" else ", unless they are codes"
            remedy = f"correct others, such as {others[0]!r}" if others else f"make {what}{example}"
            return f"words, but most are {what}: {remedy}"
    return ""


def notes_on_role(role: str, values: Any) -> Iterator[str]:
    """What people should know of a column that is not learned from."""
    gaps = int(_missing(values).sum())
    if gaps:
        what = {
            "client": "these rows have no client, and get the model of everybody",
            "label": "these rows are left out",
        }.get(role, "fill them, or drop the rows")
        yield f"{gaps:,} gaps ({gaps / len(values):.1%}); {what}"
    if role == "label":
        try:
            truth_of(values)
        except DataError as error:
            yield str(error)
    if role == "time":
        try:
            encoding.as_times(values.filter(pa.array(~_missing(values))), "time")
        except DataError as error:
            yield str(error)


def _missing(values: Any) -> Bools:
    """Which values of a column are missing."""
    missing = pc.is_null(values, nan_is_null=True)
    if encoding.is_text(values.type):
        missing = pc.or_kleene(missing, pc.equal(values, "")).fill_null(True)
    return np.asarray(missing.to_numpy(zero_copy_only=False), np.bool_)


@dataclass(frozen=True)
class Truth:
    """Labels as numbers.

    Attributes:
        y: [rows] numbers, or the numbers of classes; NaN where labels are missing.
        names: the classes; none for numbers.
    """

    y: Floats
    names: tuple[str, ...]


def truth_of(values: Any) -> Truth:
    """Labels as numbers; whole numbers are classes if there are few different ones."""
    kind, missing = values.type, _missing(values)
    encoding.refuse_nested(kind, "label")
    if encoding.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise DataError("labels are times: make numbers of them, such as days, or classes")
    whole = pa.types.is_integer(kind) and pc.count_distinct(values).as_py() <= MOST_CLASSES
    if encoding.is_text(kind) or pa.types.is_boolean(kind) or whole:
        found = values.filter(pa.array(~missing)).to_pylist()
        names, codes = np.unique(np.array(found), return_inverse=True)
        y = np.full(len(values), np.nan)
        y[~missing] = codes
        return Truth(y, tuple(map(str, names.tolist())))
    y = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if np.isinf(y).any():
        raise DataError("infinite labels: correct them, or drop the rows")
    return Truth(y, ())


def _says(x: Floats, truth: Truth) -> bool:
    """Whether a column alone predicts almost all labels, of rows that it was not learned from."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    rows = np.flatnonzero(np.isfinite(truth.y))
    rows = rows[mix("rows that tell", rows).argsort(kind="stable")[:SAMPLE]]
    if len(rows) < max(FEWEST_ROWS, 4 * len(truth.names)):
        return False
    x, y, half = x[rows], truth.y[rows], len(rows) // 2
    if not truth.names:
        y = y / (np.abs(y).max() or 1.0)  # whose squares are finite
    tree = (DecisionTreeClassifier if truth.names else DecisionTreeRegressor)(
        max_leaf_nodes=min(254, half // 2), random_state=0
    ).fit(x[:half], y[:half])
    wrong = tree.predict(x[half:]) - y[half:]
    if truth.names:
        _, counts = np.unique(y[half:], return_counts=True)
        guess = 1 - counts.max() / len(wrong)
        return bool(0 < ALMOST * guess >= (wrong != 0).mean())
    return bool(0 < y[half:].var() * ALMOST / 2 >= np.square(wrong).mean())


def codes_of(values: Any) -> Ints:
    """The number of each value, in the order of their first appearance; −1 for missing ones."""
    if pa.types.is_null(values.type):
        return np.full(len(values), -1)
    codes = values.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(_missing(values), -1, codes.astype(np.int64))


def _same(values: Ints, owner: Ints) -> bool:
    """Whether each client has a value of its own."""
    both = (values >= 0) & (owner >= 0)
    values, owner = values[both], owner[both]
    clients = len(np.unique(owner))
    pairs = len(np.unique(values * (owner.max(initial=0) + 1) + owner))
    return 1 < clients < len(owner) and pairs == clients == len(np.unique(values))
