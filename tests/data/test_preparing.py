"""Any table becomes numbers, the same way for new rows and after saving."""

from __future__ import annotations

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.data.kinds import FAR, MOST_LEVELS, Category, Constant, Date, Number, learn
from sartor.data.preparing import Preparation
from sartor.errors import DataError

DAY = datetime.date(2026, 11, 19)


def a_table():
    """Something of everything, with gaps."""
    draw = np.random.default_rng(0)
    rows = 200
    frame = pd.DataFrame({
        "amount": draw.lognormal(5, 1, rows),
        "count": draw.integers(0, 9, rows),
        "member": draw.random(rows) < 0.3,
        "city": draw.choice(["Rome", "Oslo", "Lima"], rows, p=[0.6, 0.37, 0.03]),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(draw.integers(0, 700, rows), "D"),
        "since": ["2025-03-01 08:30:00"] * 100 + ["2025-03-09 21:00:00"] * 100,
        "price": [decimal.Decimal("1.50"), decimal.Decimal("2.25")] * 100,
        "wait": pd.to_timedelta(draw.random(rows), "h"),
        "nothing": None,
        "shop": "same",
    })  # fmt: skip
    frame["size"] = pd.Categorical(draw.choice(["s", "m"], rows))
    for name in ("amount", "city", "day"):
        frame.loc[draw.random(rows) < 0.1, name] = None
    return pa.Table.from_pandas(frame, preserve_index=False)


def test_every_column_becomes_numbers():
    table = a_table()
    found = Preparation.of(table)
    kinds = {kind.name: type(kind) for kind in found.kinds}
    assert kinds == {
        "amount": Number, "count": Number, "member": Number, "city": Category, "day": Date,
        "since": Date, "price": Number, "wait": Number, "nothing": Constant, "shop": Constant,
        "size": Category,
    }  # fmt: skip
    trees, linear = found.for_trees(table), found.for_linear(table)
    assert trees.shape == (200, len(found.tree_names))
    assert linear.shape == (200, len(found.linear_names))
    assert len(found.categorical) == trees.shape[1]
    assert np.isfinite(linear).all() and np.abs(linear).max() <= FAR
    columns = dict(zip(found.tree_names, trees.T, strict=True))
    plain = table.to_pandas()
    np.testing.assert_array_equal(columns["amount"], plain["amount"])
    np.testing.assert_array_equal(columns["member"], plain["member"].astype(float))
    np.testing.assert_array_equal(columns["price"], plain["price"].astype(float))
    np.testing.assert_allclose(columns["day, month"], plain["day"].dt.month)
    np.testing.assert_allclose(columns["day, day of week"], plain["day"].dt.day_of_week)
    elapsed = (plain["day"] - plain["day"].min()) / pd.Timedelta(days=1)
    np.testing.assert_allclose(columns["day, days"], elapsed)
    assert set(columns["since, hour"]) == {8.0, 21.0}
    city = plain["city"].map({"Rome": 0.0, "Oslo": 1.0, "Lima": 2.0})
    np.testing.assert_array_equal(columns["city"], city)
    columns = dict(zip(found.linear_names, linear.T, strict=True))
    np.testing.assert_array_equal(columns["city = Rome"], plain["city"] == "Rome")
    np.testing.assert_array_equal(columns["city is missing"], plain["city"].isna())
    assert "city = Lima" not in columns  # too few rows
    there = columns["amount"][~plain["amount"].isna()]
    assert abs(there.mean()) < 0.1 and 0.9 < there.std() < 1.3


def test_what_people_should_know():
    table = a_table()
    said = dict(Preparation.of(table).attention())
    assert said["nothing"] == "left out: empty"
    assert said["shop"] == "left out: one value in all rows"
    assert said["city"].endswith("% gaps") and said["amount"].endswith("% gaps")
    assert "count" not in said
    far = learn("x", pa.array([*np.linspace(-1, 1, 999), 500.0]))
    assert "standard deviations away" in far.attention
    many = learn("town", pa.array([str(i % 600) for i in range(10_000)]))
    assert many.attention == f"{600 - MOST_LEVELS} rare categories taken together"


def test_saved_and_loaded_it_is_the_same():
    table = a_table()
    found = Preparation.of(table)
    again = Preparation.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    np.testing.assert_array_equal(again.for_trees(table), found.for_trees(table))


@given(st.integers(0, 1000))
def test_rows_do_not_depend_on_the_rows_beside_them(seed):
    table, draw = a_table(), np.random.default_rng(seed)
    found = Preparation.of(table)
    some = draw.choice(200, 5)
    order = [*draw.permutation(table.column_names), "more"]
    part = table.take(some).append_column("more", pa.array(range(5))).select(order)
    np.testing.assert_array_equal(found.for_trees(part), found.for_trees(table)[some])
    np.testing.assert_array_equal(found.for_linear(part), found.for_linear(table)[some])


def test_new_rows_may_hold_anything():
    found = Preparation.of(pa.table({
        "pet": ["cat", "dog"] * 20, "age": list(range(40)),
        "day": [DAY] * 20 + [DAY.replace(day=1)] * 20,
    }))  # fmt: skip
    new = pa.table({
        "age": ["7", None, "1e300"], "pet": ["eel", "", None],
        "day": ["2027-01-01", None, "2026-11-19 10:00"],
    })  # fmt: skip
    trees = dict(zip(found.tree_names, found.for_trees(new).T, strict=True))
    assert trees["pet"].tolist()[0] == 2.0 and np.isnan(trees["pet"][1:]).all()
    assert trees["age"][0] == 7.0 and np.isnan(trees["age"][1])
    assert np.isnan(trees["day, days"][1])
    linear = found.for_linear(new)
    assert np.isfinite(linear).all() and np.abs(linear).max() <= FAR


@pytest.mark.parametrize(
    "new, said",
    [
        ({"pet": ["cat"]}, "columns .* are missing: age"),
        ({"pet": ["cat"], "agge": [3]}, "did you mean 'agge'"),
        ({"pet": ["cat"], "age": ["old"]}, "column 'age' was numbers before"),
    ],
)
def test_tables_that_do_not_fit_are_refused(new, said):
    found = Preparation.of(pa.table({"pet": ["cat", "dog"], "age": [1, 2]}))
    with pytest.raises(DataError, match=said):
        found.for_trees(pa.table(new))


@pytest.mark.parametrize("empty", [None, ""])
def test_gaps_of_dates_may_be_texts(empty):
    found = Preparation.of(table := pa.table({"day": ["2026-01-01", empty, "2026-01-03"]}))
    assert isinstance(found.kinds[0], Date) and found.kinds[0].gaps == 1
    new = pa.table({"day": pa.array([empty] * 2, pa.string())})
    np.testing.assert_array_equal(found.for_trees(new), found.for_trees(table)[[1, 1]])
    number = Preparation.of(pa.table({"x": [1.0, 2.0]}))
    assert np.isnan(number.for_trees(pa.table({"x": pa.array([empty], pa.string())}))).all()


def test_dates_do_not_become_something_else():
    found = Preparation.of(pa.table({"day": [DAY, DAY.replace(day=2)]}))
    with pytest.raises(DataError, match="column 'day' was dates before"):
        found.for_trees(pa.table({"day": [3, 4]}))


def test_lists_are_refused():
    with pytest.raises(DataError, match="column 'tags' holds list"):
        Preparation.of(pa.table({"tags": [["a"], ["b"]]}))


def test_a_constant_with_gaps_says_whether_it_is_there():
    found = Preparation.of(pa.table({"x": [3.0, None, 3.0]}))
    assert found.for_linear(pa.table({"x": [3.0, None]})).tolist() == [[0.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("repeated", [0, 30])
def test_keys_are_left_out(repeated):
    """Words that hardly ever come twice could only be remembered."""
    words = [f"order {i}" for i in range(400 - repeated)] + [f"order {i}" for i in range(repeated)]
    found = Preparation.of(table := pa.table({"order": words, "x": range(400)}))
    assert found.tree_names == ("x",) and found.for_trees(table).shape == (400, 1)
    said = f"left out: {400 - repeated} different words in 400 rows"
    assert found.attention() == [("order", said)]
    assert Preparation.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    # One word that is often there says something of the rows that have it.
    comments = ["none"] * 100 + [f"comment {i}" for i in range(300)]
    assert isinstance(learn("comment", pa.array(comments)), Category)
    assert isinstance(learn("few", pa.array([f"{i}" for i in range(10)])), Category)


@pytest.mark.parametrize("unit", [1e300, 8e307, 1e-310, 1e-300])
def test_numbers_of_any_size_are_scaled(unit):
    values = np.array([1.0, -1.0, 2.0, 0.5]) * unit
    found = Preparation.of(table := pa.table({"x": values}))
    linear, trees = found.for_linear(table)[:, 0], found.for_trees(table)[:, 0]
    same = Preparation.of(small := pa.table({"x": values / unit})).for_linear(small)[:, 0]
    np.testing.assert_allclose(linear, same, rtol=1e-6 if unit > 1e-308 else 1e-3)
    assert (np.argsort(trees, kind="stable") == np.argsort(values)).all() or unit > 1e38
    assert np.isfinite(trees.astype(np.float32)).all()
    new = found.for_linear(pa.table({"x": [1.7e308, -1.7e308, 0.0]}))
    assert np.isfinite(new).all() and np.abs(new).max() <= FAR


NEVER = [None] * 3
ODD = {
    "no dates": pa.array(NEVER, pa.timestamp("us")),
    "no numbers": pa.array(NEVER, pa.float64()),
    "no words": pa.array(NEVER, pa.string()),
    "early dates": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    "nanoseconds": pa.array([1, 2**62, None], pa.timestamp("ns")),
    "zones": pa.array([1, 2, None], pa.timestamp("ms", "Europe/Zurich")),
    "long spans": pa.array([1, 2**62, None], pa.duration("s")),
    "times of day": pa.array([datetime.time(1), None, datetime.time(2)]),
    "decimals": pa.array([1, None, 3], pa.decimal256(60, 5)),
    "unsigned": pa.array([2**64 - 1, None, 3], pa.uint64()),
    "halves": pa.array(np.array([1, 2, 3], np.float16)),
    "views": pa.array(["a", "b", None], pa.string_view()),
    "bytes": pa.array([b"a", b"b", None], pa.binary_view()),
    "categories of polars": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    ),
    "categories of numbers": pa.array([1, 2, None]).dictionary_encode(),
    "periods": pa.array(pd.Series(pd.PeriodIndex(["2026-01", "2026-05", None], freq="M"))),
    "infinite": pa.array([np.inf, -np.inf, np.inf]),
    "dates with zones": pa.array(["2026-01-01T10:00Z", "2026-01-02T10:00+02:00", None]),
    "nearly dates": pa.array(["2026-02-31", "2026-01-02", None]),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("error")
def test_columns_of_odd_types(kind):
    table = pa.table({"x": ODD[kind]})
    found = Preparation.of(table)
    trees, linear = found.for_trees(table), found.for_linear(table)
    assert trees.shape == (3, len(found.tree_names)) and np.isfinite(linear).all()
    assert np.isfinite(trees).sum() >= 2 * trees.shape[1] > 0 or kind in (
        "no dates", "no numbers", "no words", "infinite"
    )  # fmt: skip
    assert Preparation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_spans_and_times_are_seconds():
    table = pa.table({"span": pa.array([1500, 90_000], pa.duration("ms")),
                      "at": [datetime.time(0, 1), datetime.time(1)]})  # fmt: skip
    assert Preparation.of(table).for_trees(table).tolist() == [[1.5, 60.0], [90.0, 3600.0]]


@pytest.mark.parametrize(
    "values, said",
    [
        ([b"\xff", b"a"], "column 'x' has texts that are not UTF-8"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "column 'x' holds month_day_nano"),
        (pa.array(pd.Series(pd.cut([1.0, 2.0], 2))), "column 'x' holds extension<pandas.interval"),
        ([{"a": 1}], "column 'x' holds struct"),
    ],
)
def test_columns_that_are_refused(values, said):
    with pytest.raises(DataError, match=said):
        Preparation.of(pa.table({"x": values}))


def test_infinite_numbers_are_gaps():
    found = Preparation.of(pa.table({"x": [1.0, np.inf, 3.0]}))
    assert found.kinds[0].gaps == 1
    assert np.isnan(found.for_trees(pa.table({"x": [-np.inf]}))).all()
