"""Areas of data in memory: frames, ids, labels, shapes."""

from __future__ import annotations

import contextlib
import datetime
import enum
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse
from data_cases import contents
from known import Known, check, known
from outcomes import Case, chance, may_refuse, must_refuse, pick, refuses, same, sure

import sartor
from sartor.data import describe, from_arrays, from_dict, from_frame

Rng = np.random.Generator


def columns_of(table: Known) -> dict[str, Any]:
    """The table as columns by name, in plain Python."""
    features = {f"f{j}": table.x[:, j].tolist() for j in range(table.x.shape[1])}
    return {"who": table.who, **features, "y": table.y, "dom": table.domain,
            "when": table.time.tolist(), "grp": table.groups}  # fmt: skip


ROLES = {"client": "who", "label": "y", "domain": "dom", "time": "when", "groups": "grp"}
"""The roles of these columns; a table has times or groups, not both."""


def as_series(rng: Rng, values: list[Any]) -> Any:
    """A column of pandas, in one of the types that can hold it."""
    series = pd.Series(values)
    if isinstance(values[0], str):
        kinds = ["object", "string", "category", "string[pyarrow]", None]
    elif isinstance(values[0], bool):
        kinds = ["object", "boolean", "bool[pyarrow]", None]
    elif isinstance(values[0], float):
        kinds = ["object", "Float64", "float32", "double[pyarrow]", None]
        if chance(rng, 0.1):
            return pd.Series([Decimal(str(v)) for v in values])
    else:
        kinds = ["object", "Int64", "int16", "int64[pyarrow]", "int32", None]
    kind = pick(rng, kinds)
    return series if kind is None else series.astype(kind)


def as_arrow(rng: Rng, values: list[Any]) -> Any:
    """A column of Arrow, in one of the types that can hold it."""
    array = pa.array(values)
    if isinstance(values[0], str):
        kinds = [pa.string(), pa.large_string(), pa.binary(), pa.string_view()]
        if chance(rng, 0.2):
            return array.dictionary_encode()
    elif isinstance(values[0], bool):
        kinds = [pa.bool_()]
    elif isinstance(values[0], float):
        kinds = [pa.float64(), pa.float32(), pa.decimal128(20, 6)]
    else:
        kinds = [pa.int64(), pa.int32(), pa.int16()]
    array = array.cast(pick(rng, kinds))
    cut = int(rng.integers(0, len(values) + 1))
    return pa.chunked_array([array[:cut], array[cut:]]) if chance(rng, 0.5) else array


def as_frame(rng: Rng, columns: dict[str, Any]) -> Any:
    """A frame of pandas or Arrow, its columns in any order, with any index."""
    order = rng.permutation(list(columns)).tolist()
    if chance(rng, 0.5):
        frame = pd.DataFrame({name: as_series(rng, columns[name]) for name in order})
        if chance(rng, 0.3):
            frame.index = pd.Index(rng.permutation(len(frame)), name=pick(rng, ["who", "y", None]))
        return frame
    if chance(rng, 0.2):
        return pa.RecordBatch.from_pydict({name: pa.array(columns[name]) for name in order})
    return pa.table({name: as_arrow(rng, columns[name]) for name in order})


def frames(rng: Rng, scratch: Path) -> None:
    """A table in any frame gives every client its rows; one with a defect is refused."""
    table = known(rng)
    columns, roles = columns_of(table), dict(ROLES)
    if chance(rng, 0.95):
        del columns[roles.pop(pick(rng, ["time", "groups"]))]
    else:
        with must_refuse("time and groups"):
            from_frame(as_frame(rng, columns), **roles)
    if "time" in roles and chance(rng, 0.3):  # as texts, which say the same times
        zone = pick(rng, ["", "Z", "+00:00"])
        whole = table.time.astype("datetime64[s]")
        columns["when"] = [text.replace("T", pick(rng, "T ")) + zone for text in whole.astype(str)]
    features = [name for name in columns if name.startswith("f")]
    if chance(rng, 0.5):
        features = rng.permutation(features).tolist()[: int(rng.integers(1, len(features) + 1))]
        roles["features"] = features
    if chance(rng, 0.4):
        frame, roles, what = defect(rng, columns, roles)
        with must_refuse(what):
            from_frame(frame, **roles)
    frame = as_frame(rng, columns)
    if "features" not in roles:
        features = [name for name in frame_columns(frame) if name.startswith("f")]
    data = from_frame(frame, **roles)
    table.x = table.x[:, [int(name[1:]) for name in features]]
    check(data, table)
    same("feature names", data.feature_names, tuple(features))
    by_id = dict(zip(table.ids, table.domain, strict=True))
    same("domains", data.metadata["domain"].tolist(), [by_id[client] for client in data.ids])
    if "time" in roles:
        same("times", data.time, table.time)
    else:
        together = Counter(zip(table.groups, data.groups.tolist(), strict=True))
        same("groups", len(together), len(set(table.groups)))
    again = from_frame(frame, **roles)
    same("the fingerprint of the same frame", again.fingerprint, data.fingerprint)


def frame_columns(frame: Any) -> list[str]:
    """The names of a frame's columns."""
    return list(frame.columns if isinstance(frame, pd.DataFrame) else frame.schema.names)


def defect(rng: Rng, columns: dict[str, Any], roles: dict[str, Any]) -> tuple[Any, Any, str]:
    """A frame with something wrong in it, the roles of its columns, and what is wrong."""
    columns = {name: list(values) for name, values in columns.items()}
    row = int(rng.integers(len(columns["who"])))
    feature = pick(rng, roles.get("features") or [n for n in columns if n.startswith("f")])
    if chance(rng, 0.5):
        holes = {
            feature: [None, np.nan, np.inf, -np.inf, 1e300, "x", "", [1.0], 1j, object(), b"\xff",
                      datetime.datetime(2026, 1, 1), 2**70, {"a": 1}, (1, 2)],
            "who": [None, np.nan, "", [1], {"a": 1}, (1, 2), b"\xff", object()],
            "y": [None, np.nan, "", [1], -1, np.inf, datetime.date(2026, 1, 1), object(), 1j],
            "dom": [None, np.nan, "", [1], object()],
            "when": [None, "soon", np.nan, [1.0]],
            "grp": [None, np.nan, "", [1]],
        }  # fmt: skip
        name = pick(rng, [name for name in holes if name in columns])
        value = pick(rng, holes[name])
        if value == -1 and not isinstance(columns["y"][0], int):
            value = None  # a float may be negative
        columns[name][row] = value
        frame = pd.DataFrame({n: pd.Series(v, dtype=object) if n == name else v
                              for n, v in columns.items()})  # fmt: skip
        return frame, roles, f"{value!r} in column {name}"
    frame = pd.DataFrame(columns)
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("no rows", frame[:0], {}),
        ("no columns", frame[[]], {}),
        ("a column twice", pd.concat([frame, frame[[feature]]], axis=1), {}),
        ("no such client column", frame, {"client": "whose"}),
        ("no such label column", frame, {"label": pick(rng, ["Y", "", "label", 7])}),
        ("no such feature", frame, {"features": [feature, "g0"]}),
        ("a feature twice", frame, {"features": [feature, feature]}),
        ("features that are a text", frame, {"features": feature}),
        ("the client as label", frame, {"label": "who"}),
        ("the label as feature", frame, {"features": ["y"]}),
        ("the client as feature", frame, {"features": ["who", feature]}),
        ("a client of None", frame, {"client": None}),
        ("a domain that is not there", frame, {"domain": "region"}),
        ("metadata that is no list", frame, {"metadata": 3}),
        ("words as features", frame, {"features": ["grp"]}),
        ("words as times", frame, {"time": "grp"}),
        ("a dict instead of a frame", columns, {}),
        ("a list instead of a frame", [columns], {}),
        ("nothing instead of a frame", None, {}),
        ("sparse columns", frame.assign(**{feature: pd.arrays.SparseArray(frame[feature])}), {}),
        ("dates", frame.assign(**{feature: pd.Timestamp("2026-01-01")}), {}),
        ("Unix times", frame.assign(**{feature: 1.7e9 + np.arange(len(frame)) / 7}), {}),
        ("several levels of columns", pd.concat({"a": frame}, axis=1), {}),
    ]  # fmt: skip
    what, frame, changed = pick(rng, wrong)
    if what == "Unix times" and len(columns["who"]) < 3:
        return None, roles, "nothing"
    return frame, {**roles, **changed}, what


class Colour(enum.Enum):
    """No id, though it can be compared and hashed."""

    RED = 1


DAY = datetime.date(2026, 11, 18)
GOOD_IDS: dict[str, Any] = {
    "texts": lambda k: f"c{k}", "numbers": int, "numpy's numbers": np.int16,
    "floats": lambda k: k + 0.5, "whole floats": float, "yes or no": lambda k: bool(k % 2),
    "dates": lambda k: DAY + datetime.timedelta(k), "uuids": lambda k: uuid.UUID(int=k),
    "decimals": lambda k: Decimal(k) / 4, "bytes": lambda k: f"b{k}é".encode(),
    "numpy's texts": lambda k: np.str_(f"n{k}"), "large": lambda k: 2**60 + k,
    "odd": lambda k: ("Ü", " ", "a/b", "..", "\n", "\0", "😀", "x" * 500, "NaN", "-", "'", '"')[k],
}  # fmt: skip
BAD_IDS: dict[str, Any] = {
    "missing": None, "nan": float("nan"), "an infinity": float("inf"), "empty": "",
    "a list": [1], "a tuple": ("a", 1), "a dict": {"a": 1}, "a set": {1}, "an object": object(),
    "bytes": b"\xff", "an interval": pd.Interval(0, 1), "complex": 1j, "an enum": Colour.RED,
    "half a character": "\ud800", "NaT": pd.NaT, "NA": pd.NA, "a function": len, "a type": int,
    "a signal": Decimal("sNaN"), "too large": Decimal("Infinity"),
}  # fmt: skip


def text(value: Any) -> str:
    """An id as a text, as the documentation has it."""
    value = value.decode() if isinstance(value, bytes) else value
    value = float(value) if isinstance(value, Decimal) else value
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def ids(rng: Rng, scratch: Path) -> None:
    """Ids are texts or numbers: found again by what was given, and after saving."""
    clients = int(rng.integers(1, 12))
    make = GOOD_IDS[pick(rng, GOOD_IDS)]
    number = np.concatenate([np.arange(clients), rng.integers(0, clients, 20 - clients)])
    number = rng.permutation(number).tolist()
    who = [make(k) for k in number]
    x = np.arange(20.0)[:, None]
    if chance(rng, 0.35):
        bad = pick(rng, BAD_IDS)
        who[int(rng.integers(20))] = BAD_IDS[bad]
        with must_refuse(f"an id that is {bad} among {who[:3]}"):
            hand_in(rng, x, number, who)
    with may_refuse() if isinstance(who[0], uuid.UUID) else contextlib.nullcontext():
        data = hand_in(rng, x, number, who)
    expected: dict[str, list[float]] = {}
    for value, one in zip(x[:, 0], who, strict=True):
        expected.setdefault(text(one), []).append(value)
    same("ids", set(data.ids), set(expected))
    again = data
    if chance(rng, 0.3):
        data.save(scratch / "saved")
        again = sartor.data.open(scratch / "saved")
    for one in who:
        found = again.client(one)
        same(f"rows of {one!r}", found["x"][:, 0].tolist(), expected[text(one)])
        same(f"rows of {text(one)!r}", again.client(text(one))["y"], found["y"])
    chosen = [text(one) if isinstance(one, bool) else one  # a list of these is a mask
              for one in dict.fromkeys(who) if chance(rng, 0.5)] or [text(who[0])]  # fmt: skip
    same("selected", again.select(chosen).ids, tuple(dict.fromkeys(map(text, chosen))))
    with refuses("an id that nobody has"):
        again.client("nobody at all")


def hand_in(rng: Rng, x: Any, number: list[int], who: list[Any]) -> Any:
    """The same clients by one of three doors."""
    y = np.arange(len(who)) % 2
    door = int(rng.integers(3))
    if door == 0:
        return from_arrays(x, y, who if chance(rng, 0.5) else as_objects(who))
    if door == 1:
        frame = pd.DataFrame({"x": x[:, 0], "y": y})
        frame["who"] = pd.Series(as_objects(who), dtype=object)
        return from_frame(frame, client="who", label="y")
    clients: dict[Any, Any] = {}
    for i, one in enumerate(who):
        try:
            clients.setdefault(one, []).append(i)
        except TypeError:  # no key of a dict
            clients.setdefault((type(one), "no key"), []).append(i)
    return from_dict({one: (x[rows], y[rows]) for one, rows in clients.items()})


def as_objects(values: list[Any]) -> np.ndarray:
    """An array of Python's objects, tuples and lists among them."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def labels(rng: Rng, scratch: Path) -> None:
    """Labels are classes from 0, words or numbers, and models refuse those that do not fit."""
    rows = int(rng.integers(2, 30))
    who = [f"c{k}" for k in rng.integers(0, 3, rows)]
    numbers = rng.integers(0, 4, rows)
    words = np.array(["cat", "Dog", "äpfel", "1"])
    good: dict[str, tuple[Any, Any]] = {
        "numbers": (numbers, numbers), "a list": (numbers.tolist(), numbers),
        "small": (numbers.astype(np.uint8), numbers), "objects": (numbers.astype(object), numbers),
        "unsigned": (numbers.astype(np.uint64), numbers),
        "yes or no": (numbers > 1, numbers > 1), "floats": (numbers / 2, numbers / 2),
        "words": (words[numbers], None), "lists of words": (words[numbers].tolist(), None),
        "bytes": ([w.encode() for w in words[numbers]], None),
        "two numbers": (np.stack([numbers / 2, numbers], 1), np.stack([numbers / 2, numbers], 1)),
        "a series": (pd.Series(words[numbers], dtype="category"), None),
    }  # fmt: skip
    bad: list[Any] = [
        np.where(np.arange(rows) == 1, -1, numbers), np.where(np.arange(rows) == 1, np.nan, 1.0),
        numbers * 1j, np.full(rows, np.inf), [None] * rows, ["a"] + [1] * (rows - 1), numbers[:-1],
        [datetime.datetime(2026, 1, 1)] * rows, np.full(rows, 1e300), [["a"]] * rows, 3, "abc",
        [{}] * rows, np.full(rows, 2**63, np.uint64), np.zeros((rows, 0)), None,
        [b"\xff"] * rows, ["\ud800"] * rows, scipy.sparse.eye(rows),
    ]  # fmt: skip
    x = rng.normal(size=(rows, 3)).round(2)
    if chance(rng, 0.3):
        y = pick(rng, bad)
        with must_refuse(f"labels {y!r:.80}"):
            from_arrays(x, y, who)
            sartor.models.check(sartor.models.logistic(3, 4), from_arrays(x, y, who))
    kind = pick(rng, good)
    y, expected = good[kind]
    data = from_arrays(x, y, who)
    if expected is None:
        there = sorted(set(words[numbers].tolist()))
        same("label names", data.label_names, tuple(there))
        expected = np.array([there.index(word) for word in words[numbers]])
    found = data.columns["y"]
    same(f"labels that were {kind}", found, np.asarray(expected).astype(found.dtype))
    facts = dict(describe(data).rows())
    sure(f"{rows}" in facts["examples"], facts)
    outputs = 2 if found.ndim > 1 else 1
    for model in (sartor.models.logistic(3, 4), sartor.models.linear(3, outputs)):
        fits = found.dtype.kind != "f" if model.classes else data.label_names is None
        with contextlib.nullcontext() if fits else refuses(f"{model.kind} of labels {kind}"):
            sartor.models.check(model, data)
    most = int(np.max(expected))
    if found.dtype.kind != "f" and most:
        with refuses(f"label {most} of {most} classes"):
            sartor.models.check(sartor.models.logistic(3, most), data)


def shapes(rng: Rng, scratch: Path) -> None:
    """Features of any shape and layout arrive as they are, by each door; others are refused."""
    rows, clients = int(rng.integers(2, 25)), int(rng.integers(1, 5))
    number = np.concatenate([np.arange(clients), rng.integers(0, clients, rows)])[:rows]
    who = [f"c{k}" for k in number]
    shape = pick(rng, [(), (1,), (3,), (2, 2), (1, 1, 3), (4, 1)])
    x = np.round(rng.normal(size=(rows, *shape)) * 8) / 4
    y = rng.integers(0, 2, rows)
    if chance(rng, 0.35):
        bad = pick(rng, bad_shapes(x))
        with must_refuse(f"features {bad!r:.100}"):
            from_arrays(bad, y, who)
    given = pick(rng, layouts(x))
    data = from_arrays(given, y, who)
    same("features", data.columns["x"][data.rows], x[np.argsort(number, kind="stable")])
    parts = {f"c{k}": np.flatnonzero(number == k) for k in dict.fromkeys(number.tolist())}
    by_dict = from_dict({
        client: {"x": x[of], "y": y[of]} if chance(rng, 0.5) else (x[of].tolist(), y[of].tolist())
        for client, of in parts.items()
    })  # fmt: skip
    same("by arrays and by a dict", plain_rows(data), plain_rows(by_dict))
    if shape:
        width = shape[0] if len(shape) == 1 else shape
        sartor.models.check(sartor.models.logistic(width, 2), data)
        with refuses("features of another shape"):
            sartor.models.check(sartor.models.logistic((*shape, 2), 2), data)
    several = from_arrays({"a": x, "b": y.astype(np.float32)}, y, who)
    same("columns", set(several.columns), {"a", "b", "y"})
    same("one of several columns", several.client("c0")["a"], data.client("c0")["x"])


def plain_rows(data: Any) -> dict[str, Any]:
    """The columns of every client as lists, whatever their types."""
    return {
        client: {name: values for name, (_, values) in parts["train"].items()}
        for client, (_, _, parts) in contents(data).items()
    }


def layouts(x: np.ndarray) -> list[Any]:
    """The same numbers in other places and types."""
    wide = np.zeros((2 * len(x), *x.shape[1:]))
    wide[::2] = x
    return [
        x, x.tolist(), x.astype(np.float32), x.astype(">f8"), x.astype(np.float16), wide[::2],
        np.asfortranarray(x), x[::-1][::-1], x.astype(object), np.ma.array(x), jnp.asarray(x),
        x.astype(np.longdouble), list(x), tuple(x.tolist()), np.matrix(x) if x.ndim == 2 else x,
        pd.Series(x) if x.ndim == 1 else x, pd.DataFrame(x) if x.ndim == 2 else x,
        pa.array(x) if x.ndim == 1 else x,
    ]  # fmt: skip


def bad_shapes(x: np.ndarray) -> list[Any]:
    """What is no column of as many numbers."""
    hole = x.astype(np.float64).copy()
    hole.reshape(-1)[-1] = np.nan
    return [
        x[:-1], x[:0], x[..., None][..., :0], 3.0, "abc", b"abc", {"x": x[1:]}, {"y": x},
        hole, np.where(np.isnan(hole), np.inf, hole), [x.tolist(), [1]], object(), len, 1j * x,
        scipy.sparse.csr_matrix(np.eye(len(x))), np.ma.array(x, mask=np.isnan(hole)),
        iter(x.tolist()), (v for v in x), x.astype(str), x.astype("datetime64[s]"),
        np.zeros(len(x), [("a", float)]), [None] * len(x), [2**70] * len(x), x * 1e300 + 1e200,
        set(range(len(x))), range(len(x) + 1), [[1.0], [1.0, 2.0]] * len(x),
    ]  # fmt: skip


AREAS: dict[str, tuple[int, Case]] = {
    "frames": (1500, frames), "ids": (1000, ids), "labels": (800, labels), "shapes": (1000, shapes),
}  # fmt: skip
