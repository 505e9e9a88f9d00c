"""Frames, CSV and Parquet: one table, one dataset, whatever the format; and bad tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from data_cases import contents

import sartor.data
from sartor.data import from_arrays, from_frame
from sartor.errors import ConfigError, DataError, FileError

ROLES = {"client": "user", "label": "pet", "domain": "town", "metadata": ["level"]}


def table(n: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 9, n)
    return pa.table(
        {
            "age": rng.integers(18, 90, n),
            "user": [f"0{k}" for k in user],
            "height": rng.normal(size=n),
            "pet": np.array(["dog", "cat", "emu"])[rng.integers(0, 3, n)],
            "member": rng.random(n) < 0.5,
            "town": [["Ulm", "Bonn"][k % 2] for k in user],
            "level": user * 2,
        }
    )


def same(one, other):
    assert one.ids == other.ids and one.label_names == other.label_names
    assert contents(one) == contents(other)
    assert one.fingerprint == other.fingerprint


@pytest.fixture
def files(tmp_path):
    pa.parquet.write_table(table(), tmp_path / "t.parquet", row_group_size=30)
    pa.csv.write_csv(table(), tmp_path / "t.csv")
    return tmp_path


def test_all_formats_give_the_same_data(files):
    t = table()
    base = from_frame(t, **ROLES)
    x = np.stack([t[name].to_numpy() for name in ("age", "height", "member")], axis=1)
    arrays = from_arrays(x, t["pet"].to_pylist(), t["user"].to_pylist(), t["town"].to_pylist())
    assert base.ids == arrays.ids and base.label_names == arrays.label_names
    for name in ("x", "y"):
        np.testing.assert_array_equal(base.columns[name], arrays.columns[name])
        assert base.columns[name].dtype == arrays.columns[name].dtype
    assert base.metadata["domain"].tolist() == arrays.metadata["domain"].tolist()
    assert base.metadata["level"].tolist() == [2 * int(i) for i in base.ids]
    same(base, sartor.data.open(files / "t.parquet", **ROLES))
    same(base, sartor.data.open(files / "t.csv", **ROLES))
    same(base, from_frame(t.slice(0, 0).from_batches(t.to_batches(max_chunksize=7)), **ROLES))


def test_pandas(files):
    pytest.importorskip("pandas")
    frame = table().to_pandas()
    same(from_frame(frame, **ROLES), from_frame(table(), **ROLES))
    frame["pet"] = frame["pet"].astype("category")
    frame["user"] = frame["user"].astype("category")
    same(from_frame(frame.set_index(frame.index + 5), **ROLES), from_frame(table(), **ROLES))
    frame.loc[7, "height"] = np.nan
    with pytest.raises(DataError, match=rf"client '{frame['user'][7]}', column 'height', row 7"):
        from_frame(frame, **ROLES)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_data_beyond_the_memory_limit_is_mapped(files, name):
    base = from_frame(table(), **ROLES)
    for _ in range(2):  # the second time from the cache
        data = sartor.data.open(files / name, **ROLES, memory_limit=10, cache=files / "cache")
        same(base, data)
        assert isinstance(data.columns["x"], np.memmap)
        assert len(list((files / "cache").iterdir())) == 1
    other = ROLES | {"features": ["age"]}
    sartor.data.open(files / name, **other, memory_limit=10, cache=files / "cache")
    assert len(list((files / "cache").iterdir())) == 2


def test_an_unusable_cache(files):
    (files / "cache").write_text("a file")
    with pytest.raises(FileError, match=r"cache.*choose another directory"):
        sartor.data.open(files / "t.csv", **ROLES, memory_limit=10, cache=files / "cache")


def test_a_failed_stream_leaves_nothing(files):
    t = table().set_column(2, "height", pa.array([1.0] * 199 + [None]))
    pa.parquet.write_table(t, files / "bad.parquet")
    with pytest.raises(DataError, match="column 'height', row 199"):
        sartor.data.open(files / "bad.parquet", **ROLES, memory_limit=10, cache=files / "cache")
    assert not (files / "cache").exists()


def test_csv_types_do_not_depend_on_the_first_rows(tmp_path):
    rows = ["user,a,y"] + ["007,1,0"] * 2_000_000 + ["008,1.5,1"]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    data = sartor.data.open(tmp_path / "t.csv", client="user", label="y")
    assert data.ids == ("007", "008") and data.client("008")["x"].tolist() == [[1.5]]


def test_labels():
    t = table(4)
    for y, expected in [
        ([3, 0, 1, 3], [3, 0, 1, 3]),
        ([0.5, -2.0, 1.0, 1.0], [0.5, -2.0, 1.0, 1.0]),
        ([True, False, True, True], [1, 0, 1, 1]),
        (["b", "a", "c", "b"], [1, 0, 2, 1]),
    ]:
        data = from_frame(
            t.append_column("y", pa.array(y)).select(["user", "y"]), client="user", label="y"
        )
        assert data.columns["y"].tolist() == expected and "x" not in data.columns
    coded = t.set_column(3, "pet", t["pet"].dictionary_encode())
    same(from_frame(coded, **ROLES), from_frame(t, **ROLES))


def test_categories_as_polars_exports_them():
    view = pa.array(["ann", "bob"], pa.string_view())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.uint32()), view)
    table = pa.table({"user": coded, "age": [1.0, 2.0, 3.0], "pet": coded})
    found = from_frame(table, client="user", label="pet")
    assert found.ids == found.label_names == ("ann", "bob")


def test_texts_as_polars_exports_them():
    t, views = table(), table()
    for name in ("user", "pet", "town"):
        place = t.schema.get_field_index(name)
        views = views.set_column(place, name, t[name].cast(pa.string_view()))
    same(from_frame(views, **ROLES), from_frame(t, **ROLES))


def changed(name, values):
    t = table(5)
    return t.set_column(t.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("height", list("abcde"), r"column 'height' is not numeric \(string\).*features=\["),
        ("height", [1.0, 2.0, None, 4.0, 5.0], "client '.*', column 'height', row 2: .* missing"),
        ("height", [1.0, 2.0, np.nan, 4.0, 5.0], "client '.*', column 'height', row 2"),
        ("height", [1.0, np.inf, 1.0, 4.0, 5.0], "client '.*', column 'height', row 1: inf"),
        ("height", [1.0, 1e300, 1.0, 4.0, 5.0], r"column 'height', row 1: 1e\+300 is not a finite"),
        ("member", [True, None, True, True, True], "column 'member', row 1: .* missing"),
        ("height", [None] * 5, "column 'height', row 0: .* missing"),
        ("pet", ["a", "b", None, "a", "b"], "client '.*', column 'pet', row 2: .* missing"),
        ("pet", ["a", "b", "", "a", "b"], "client '.*', column 'pet', row 2: .* missing"),
        ("pet", [1, 2, None, 1, 1], "client '.*', column 'pet', row 2: .* missing"),
        ("pet", [1, 2, -1, 1, 1], "column 'y', row .*-1 found"),
        ("pet", [[1], [2], [1], [1], [1]], "column 'pet' cannot be a label"),
        ("user", ["a", "b", None, "a", "b"], "column 'user', row 2: .* missing"),
        ("user", ["a"] * 5, "client 'a', column 'level': .* in row 0 but .* in row"),
        ("town", ["u", "v", None, "a", "b"], "column 'town', row 2: .* missing"),
    ],
)
def test_wrong_values(name, values, message):
    with pytest.raises(DataError, match=message):
        from_frame(changed(name, values), **ROLES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "usr"}, "client='usr': no such column; did you mean 'user'"),
        ({"label": "pets"}, "label='pets'.*'pet'"),
        ({"features": ["hight"]}, "features='hight'.*'height'"),
        ({"domain": "twn"}, "domain='twn'.*'town'"),
        ({"metadata": ["lvl"]}, "metadata='lvl'.*'level'"),
        ({"features": "height"}, "features='height': a list"),
        ({"label": "user"}, "must be two columns"),
        ({"features": ["pet"]}, "neither a feature"),
    ],
)
def test_wrong_columns(change, message):
    with pytest.raises(ConfigError, match=message):
        from_frame(table(5), **(ROLES | change))


def test_wrong_frames():
    with pytest.raises(DataError, match="got list"):
        from_frame([1, 2], client="a", label="b")
    with pytest.raises(DataError, match="no rows"):
        from_frame(table(5).slice(0, 0), **ROLES)
    with pytest.raises(DataError, match="must be unique"):
        from_frame(pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), client="a", label="a")


def test_wrong_files(files):
    with pytest.raises(FileError, match=r"nothing.csv: there is no such file; understood are"):
        sartor.data.open(files / "nothing.csv", **ROLES)
    (files / "t.txt").write_text("user,age\n")
    with pytest.raises(FileError, match="the format is not known; understood are"):
        sartor.data.open(files / "t.txt")
    (files / "folder").mkdir()
    with pytest.raises(FileError, match="folder: it is empty; understood are"):
        sartor.data.open(files / "folder")
    with pytest.raises(ConfigError, match="client: name the column"):
        sartor.data.open(files / "t.csv", label="pet")
    with pytest.raises(ConfigError, match="label: name the column"):
        sartor.data.open(files / "t.parquet", client="user")
    (files / "empty.csv").write_text("")
    (files / "head.csv").write_text("user,pet\n")
    (files / "ragged.csv").write_text("user,pet\na,1\nb\n")
    (files / "binary.csv").write_bytes(b"user,pet\na,\xff\xfe\n")
    (files / "cut.parquet").write_bytes((files / "t.parquet").read_bytes()[:-50])
    for name in ("empty.csv", "ragged.csv", "cut.parquet"):
        with pytest.raises(FileError, match=name):
            sartor.data.open(files / name, client="user", label="pet")
    with pytest.raises(DataError, match="no rows"):
        sartor.data.open(files / "head.csv", client="user", label="pet")
    with pytest.raises((DataError, FileError), match=r"pet|binary"):
        sartor.data.open(files / "binary.csv", client="user", label="pet")
