"""What users may give as data, and what they are told about everything else."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.data import from_arrays, from_dict, from_frame
from sartor.data.rounding import Rounding
from sartor.errors import ConfigError, DataError
from sartor.runs.config import parse_config

WHO = ["ann", "bob", "ann"]
SOON = datetime.datetime(2026, 1, 1)
MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
FIELDS = np.zeros(3, [("a", float), ("b", int)])


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (scipy.sparse.eye(3), "column 'x' is sparse; make it dense"),
        (MASKED, "column 'x' has masked values"),
        ([[1.0], [1.0, 2.0], [3.0]], "column 'x' has rows of different lengths"),
        ([SOON] * 3, "column 'x' holds .*days since a date"),
        (np.array([SOON] * 3, "datetime64[s]"), "column 'x' holds datetime64.*days since"),
        (np.array([1, 2, 3], "timedelta64[s]"), "spans of time are no numbers"),
        ([1j, 2, 3], "real and the imaginary part"),
        (FIELDS, "named fields"),
        ([2**70, 1, 2], "column 'x' holds 1180591620717411303424, which does not fit 64 bits"),
        (["a", "b", "c"], "column 'x' holds words"),
        ([{1}, {2}, {3}], "of type set"),
        (np.zeros((3, 0)), r"no values in a row .*\(3, 0\)"),
        ("abc", "equal lengths"),
        (3.0, "equal lengths"),
        ([1.0, None, 2.0], "client 'bob', column 'x', row 0 .*nan found"),
    ],
)
def test_features_that_are_none(x, words):
    with pytest.raises(DataError, match=words):
        from_arrays(x, [0, 1, 0], WHO)


@pytest.mark.parametrize(
    "x",
    [
        [Decimal("0.5"), Decimal(2), Decimal(3)],
        np.array([0.5, 2, 3], ">f8"),
        np.array([0.5, 2, 3], np.float16),
        np.array([0.5, 2, 3], np.longdouble),
        np.array([[0.5, 2, 3]] * 2)[0][::1],
        np.ma.array([0.5, 2, 3]),
        pd.array([0.5, 2, 3], dtype="Float64"),
        pd.Series([0.5, 2, 3], dtype="Sparse[float]"),
        np.array([9.0, 0.5, 9, 2, 9, 3])[1::2],
    ],
)
def test_features_of_many_types(x):
    found = from_arrays(x, [0, 1, 0], WHO).columns["x"]
    assert found.dtype == np.float32 and found.dtype.isnative
    assert found.tolist() == [0.5, 2.0, 3.0]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([("a", 1), ("b", 2), ("a", 1)], "one type|one value for each row"),
        ([["a"], ["b"], ["a"]], "one value for each row"),
        ([{"a": 1}, {"b": 2}, {"a": 1}], "one text or number for each row"),
        (["1", 1, "1"], "values of one type"),
        (["a", "", "a"], "row 1: the value is missing"),
        (["a", None, "a"], "row 1: the value is missing"),
        ([b"a", b"\xff", b"a"], "is not UTF-8"),
        (pd.arrays.IntervalArray.from_breaks(range(4)), "one type|one text or number"),
        (None, "one value for each row"),
        ("ann", "one value for each row"),
    ],
)
def test_ids_that_are_none(ids, words):
    with pytest.raises(DataError, match=words):
        from_arrays([[1.0]] * 3, [0, 1, 0], ids)


@pytest.mark.parametrize("key", [("a", 1), None, float("nan"), "", b"\xff", pd.Interval(0, 1)])
def test_keys_that_are_no_ids(key):
    with pytest.raises(DataError, match=r"id must be a text or a number|empty text|UTF-8"):
        from_dict({key: {"y": [1]}})
    with pytest.raises(DataError, match="read the same"):
        from_dict({1: {"y": [1]}, "1": {"y": [1]}})


def test_ids_that_numpy_or_arrow_would_change():
    x, y = [[1.0]] * 3, [0, 1, 0]
    for ids in ([b"a", 1j, b"a"], [np.str_("a"), np.nan, np.str_("a")]):
        with pytest.raises(DataError, match="values of one type"):
            from_arrays(x, y, ids)
    day = SOON.date()
    with pytest.raises(DataError, match="row 1: the value is missing"):
        from_arrays(x, y, [day, pd.NaT, day])
    assert from_arrays(x, y, ["a", "a\0", "a"]).ids == ("a", "a\0")
    exact = from_arrays(x, y, [Decimal("0.5"), Decimal("1.25"), Decimal(3)])
    assert exact.ids == ("0.5", "1.25", "3") and exact.position(Decimal("1.250")) == 1
    with pytest.raises(DataError, match="UTF-8"):
        from_dict({"\ud800": {"y": [1]}})
    with pytest.raises(DataError, match="a text or a number"):
        exact.position(Decimal("sNaN"))


def test_labels_have_one_type():
    with pytest.raises(DataError, match=r"column 'y': values of one type .*\(got int, str\)"):
        from_arrays([[1.0]] * 3, ["a", 1, 1], WHO)
    frame = pa.table({"who": WHO, "x": [1.0, 2, 3], "y": [b"no", b"yes", b"no"]})
    assert from_frame(frame, client="who", label="y").label_names == ("no", "yes")


def test_ids_may_be_numbers_everywhere():
    data = from_dict({1: {"y": [1]}, 2: {"y": [0]}}, {"domain": {1: "u", 2: "v"}})
    assert data.ids == ("1", "2") and data.metadata["domain"].tolist() == ["u", "v"]
    assert data.client(1)["y"] == data.client("1")["y"] == data.client(1.0)["y"]
    assert data.select([2]).ids == ("2",) and data.select(2).ids == ("2",)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.arrays.SparseArray([1.0, 0, 0]), "column 'x' is sparse; make it dense by"),
        (np.array([2**70, 1, 2], object), r"column 'x' \(object"),
        (np.array([1j, 2, 3]), "real and the imaginary part as two columns"),
        (pd.date_range("2026-01-01", periods=3), "days since a date"),
        (["a", 1, 2.5], "give it one type"),
        ([[1], [1, 2], [3]], "not numeric"),
    ],
)
def test_columns_of_frames_that_are_none(column, words):
    frame = pd.DataFrame({"who": WHO, "y": [0, 1, 0]})
    frame["x"] = pd.Series(column)
    with pytest.raises(DataError, match=words):
        from_frame(frame, client="who", label="y")


def test_frames_with_odd_ids_labels_and_roles():
    frame = pd.DataFrame({"who": WHO, "x": [1.0, 2, 3], "y": [0, 1, 0]})
    frame["bin"] = pd.cut(frame["x"], 3)
    frame["when"] = SOON
    frame["both"] = [["a"], ["b"], ["a"]]
    for client in ("both", "bin"):
        with pytest.raises(DataError, match=r"one text or number for each row|Arrow"):
            from_frame(frame[["x", "y", client]], client=client, label="y")
    with pytest.raises(DataError, match=r"cannot be a label \(timestamp.*days since"):
        from_frame(frame[["who", "x", "when"]], client="who", label="when")
    for wrong in ({"client": None}, {"label": None}, {"features": 5}, {"metadata": 3.5}):
        (role,) = wrong
        with pytest.raises(ConfigError, match=role):
            from_frame(frame, **{"client": "who", "label": "y", "features": ["x"], **wrong})
    assert from_frame(frame, client="who", label="y", features=frame.columns[1:2]).ids == (
        "ann", "bob",
    )  # fmt: skip


def test_categories_that_nobody_has_are_no_classes():
    words = pd.Categorical(["b", "a", "b"], categories=["a", "b", "c"])
    frame = pd.DataFrame({"who": WHO, "x": [1.0, 2, 3], "y": words})
    assert from_frame(frame, client="who", label="y").label_names == ("a", "b")


TIMES = 1_700_000_000 + 60 * np.arange(24)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("role", ["x", "y"])
def test_times_that_would_run_together(tmp_path, kind, role):
    times, who = TIMES.astype(kind), [f"c{k % 2}" for k in range(24)]
    other = np.arange(24.0)
    x, y = (times, other) if role == "x" else (other, times)
    name = {"x": "time", "y": "y"}[role]
    words = r"client 'c\d', column '{}': 17000\d+\.?0? and 17000\d+\.?0? become one number.*offset"
    with pytest.raises(DataError, match=words.format(role)):
        from_arrays(x[:, None], y, who)
    with pytest.raises(DataError, match=words.format(role)):
        from_dict({"c0": (x, y)})
    table = pa.table({"who": who, "time": x, "y": y})
    with pytest.raises(DataError, match=words.format(name)):
        from_frame(table, client="who", label="y")
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=5)
    table.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    for file in ("t.parquet", "t.csv"):
        with pytest.raises(DataError, match=words.format(name)):
            sartor.data.open(tmp_path / file, client="who", label="y")
    assert len(set(from_arrays(TIMES - TIMES[0], other, who).columns["x"].tolist())) == 24


@pytest.mark.parametrize("exponent", [50, 100, 160, 162, 170, 200, 300, 310])
def test_numbers_too_small_for_32_bits(exponent):
    """However small: neither the numbers nor their squares may run together silently."""
    draw = np.random.default_rng(0)
    tiny, who = 10.0**-exponent * draw.normal(size=50), ["a", "b"] * 25
    message = r"client '.', column '.': .* in 32 bits.* scale the column up first.* 1e\d+"
    for x, y in ((tiny, np.arange(50.0)), (np.arange(50.0), tiny)):
        with pytest.raises(DataError, match=message):
            from_arrays(x[:, None], y, who)
    frame = pd.DataFrame({"who": who, "x": tiny, "y": 0.5})
    with pytest.raises(DataError, match=message):
        from_frame(frame, client="who", label="y")


MAGNITUDES = st.sampled_from([-300, -250, -170, -160, -100, -60, -30, -10, 0, 20])


def test_frames_and_columns_are_not_shown_whole():
    frame = pd.DataFrame({"who": WHO, "x": [1.0, 2, 3], "y": [0, 1, 0]})
    for role in ("client", "label", "domain", "time"):
        roles = {"client": "who", "label": "y", role: frame.x}
        words = rf"^{role}: the name of a column is needed, such as 'x' \(got a Series of 3 rows\)$"
        with pytest.raises(ConfigError, match=words):
            from_frame(frame, **roles)
    with pytest.raises(
        ConfigError, match=r"^features: the name of a column is needed, such as 'x'"
    ):
        from_frame(frame, client="who", label="y", features=[frame.x])
    with pytest.raises(
        ConfigError, match=r"^client: the name of a column is needed \(got \['who'\]"
    ):
        from_frame(frame, client=["who"], label="y")
    tuples = frame.rename(columns={"x": ("x", "1")})  # a name in pandas
    roles = {"client": "who", "label": "y", "features": [("x", "1")]}
    assert from_frame(tuples, **roles).feature_names == ("('x', '1')",)
    for table, what in ((frame, "a DataFrame"), (pa.Table.from_pandas(frame), "a Table")):
        with pytest.raises(
            ConfigError, match=rf"^data must be .*ClientData.*got {what} of 3 rows\)"
        ):
            sartor.data.describe(table)


@given(st.lists(MAGNITUDES, min_size=1, max_size=6), st.integers(0, 99))
def test_blocks_of_any_size_of_numbers(exponents, seed):
    """What is found in blocks is what is found in one."""
    draw = np.random.default_rng(seed)
    blocks = [10.0**e * draw.normal(size=(9, 1)) for e in exponents]
    found = []
    for several in (blocks, [np.concatenate(blocks)]):
        rounding = Rounding(["x"])
        for block in several:
            rounding.add(block, str)
        try:
            found.append(rounding.refuse())
        except DataError:
            found.append("refused")
    assert found[0] == found[1] == ("refused" if max(exponents) < -45 else None)


def test_numbers_that_run_together_only_in_the_end():
    """The spread of all numbers is smaller than that of the block with the largest error."""
    rounding = Rounding(["x"])
    rounding.add(2**24 + 1 + 2 * np.arange(-900, 900, 2)[:, None], str)
    rounding.refuse()
    rounding.add(np.full((900_000, 1), 2**24), str)
    with pytest.raises(DataError, match=r"column 'x': numbers are off by up to 1 in 32 bits"):
        rounding.refuse()


def test_numbers_that_32_bits_hold_well_enough():
    draw = np.random.default_rng(0)
    noise = 1 + 1e-16 * draw.normal(size=50)
    columns = {
        "a constant": np.full(50, 0.1),
        "a constant but for noise": noise,
        "years": np.arange(2000.0, 2050),
        "small numbers": 1e-20 * draw.normal(size=50),
        "an outlier": np.append(draw.normal(size=49), 1e12),
        "bytes": np.arange(50) % 2,
        "large and spread": 1e15 * draw.normal(size=50),
    }
    found = from_arrays(columns, draw.normal(size=50), ["a"] * 50)
    assert len(found.rows) == 50


def test_whole_numbers_may_be_classes_or_numbers():
    draw = np.random.default_rng(0)
    data = from_arrays(draw.normal(size=(300, 2)), np.arange(300), ["a", "b"] * 150)
    table = {"data": {"path": "x"}, "model": {"name": "logistic"}, "central": {"name": "FedAvg"}}
    with pytest.raises(ConfigError, match=r"'linear', .* floats.* model.classes=300"):
        parse_config(table).make_model(data)
    table["model"] = {"name": "mlp"}
    with pytest.raises(ConfigError, match=r"For numbers, say model.outputs=1, choose .*'linear'"):
        parse_config(table).make_model(data)
    table["model"]["outputs"] = 1
    sartor.models.check(parse_config(table).make_model(data), data)
    table["model"] = {"name": "logistic", "classes": 300}
    assert parse_config(table).make_model(data).classes == 300
    few = from_arrays(draw.normal(size=(300, 2)), np.arange(300) % 100, ["a", "b"] * 150)
    table["model"] = {"name": "logistic"}
    assert parse_config(table).make_model(few).classes == 100


@pytest.mark.parametrize("x", [None, "abc", {}, [[1.0], [1.0, 2.0]], MASKED, 1j, 2**70, object()])
def test_examples_to_predict_that_are_none(x):
    data = from_arrays(np.eye(3), [0, 1, 0], WHO)
    central = sartor.FedAvg(rounds=1).fit(sartor.models.logistic(3, 2), data, progress=False)
    with pytest.raises((DataError, ConfigError), match=r"x|knows no clients"):
        central.predict(x)
