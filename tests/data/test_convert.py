"""What is written in another format is read as it was; real data too."""

from __future__ import annotations

import sqlite3
import warnings

import numpy as np
import pyarrow as pa
import pytest
from test_sqlite import same, write_hdf5, writers

import sartor
from sartor.data.convert import FORMATS, convert
from sartor.data.dataset import shape_of
from sartor.errors import ConfigError, DataError, FileError


@pytest.fixture
def data(tmp_path):
    (tmp_path / "source").mkdir()
    return sartor.data.open(write_hdf5(tmp_path / "source", writers()))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_read(data, tmp_path, name):
    convert(data, tmp_path / "new", name)
    same(sartor.data.open(tmp_path / "new"), data)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "leaf"])
def test_labels_of_a_regression_stay(tmp_path, name):
    clients = {c: {"x": np.array([[0.1, 2], [7.3, 4]]), "y": np.array([0.25, -1.5])} for c in "ab"}
    data = sartor.data.from_dict(clients)
    convert(data, tmp_path / "new", name)
    same(sartor.data.open(tmp_path / "new"), data)


def test_what_is_lost_is_said(data, tmp_path):
    clients = {c: {"y": np.array(["no", "yes", "yes"])} for c in "abcd"}
    words = sartor.data.from_dict(clients, {"domain": list("xxyy")}).split(unseen=0.5)
    lost = r"hdf5 has no place for 'domain', the labels' names, which clients are unseen: left out"
    with pytest.warns(UserWarning, match=lost):
        convert(words, tmp_path / "hdf5", "hdf5")
    table = pa.table({"who": ["a", "b"], "age": [1, 2], "y": [0, 1]})
    with pytest.warns(UserWarning, match="no place for the features' names"):
        convert(sartor.data.from_frame(table, client="who", label="y"), tmp_path / "named", "hdf5")
    for name in FORMATS:
        for what, facts in {"times": {"time": [3, 1]}, "groups": {"groups": ["u", "v"]}}.items():
            dated = sartor.data.from_arrays([[0.5], [7.5]], [0, 1], ["a", "b"], **facts)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                convert(dated, tmp_path / f"{name}-{what}", name)
            said = " ".join(str(warning.message) for warning in caught)
            assert (f"{name} has no place for the rows' {what}: left out" in said) == (
                name != "sartor"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(words, tmp_path / "sartor", "sartor")
        convert(data, tmp_path / "writers", "hdf5")  # whose domains are in their names
    assert sartor.data.open(tmp_path / "sartor").fingerprint == words.fingerprint


def toy(x, y=(0, 1), ids="ab", **columns):
    clients = {c: {"x": np.asarray(x), "y": np.asarray(y), **columns} for c in ids}
    return sartor.data.from_dict(clients)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "x",
    [
        np.array([[0.1, 2], [7.3, 4]]),
        np.array([[0, 1], [1, 0]], np.float32),
        np.array([[0, 10], [255, 0]], np.uint8),
        np.array([[0, 10], [2**30 + 1, 0]], np.int32),
        np.array([[True, False], [False, True]]),
        np.array([[3.5], [2.5]], np.float32),
        np.array([3.5, 2.5], np.float32),
        np.linspace(0, 9, 2 * 2 * 3).reshape(2, 2, 3),
        np.linspace(0, 9, 2 * 784).reshape(2, 784),
        np.arange(2 * 784).reshape(2, 784) % 256,
    ],
)
def test_what_changes_is_said(tmp_path, name, x, order):
    data = toy(x.astype(x.dtype.newbyteorder(order)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        convert(data, tmp_path / "new", name)
    said = " ".join(str(warning.message) for warning in caught)
    found = sartor.data.open(tmp_path / "new").columns
    for column, values in data.columns.items():
        new = shape_of(found[column])
        if new == shape_of(values):
            np.testing.assert_array_equal(found[column], values)
            assert f"{column!r} is" not in said
        else:
            assert f"from {name}, " in said
            assert f"{column!r} is {new} and not {shape_of(values)}" in said


def test_pixels_of_later_clients_are_looked_at(tmp_path):
    clients = {
        "a": {"x": np.ones((2, 3)), "y": [0, 1]},
        "b": {"x": np.full((2, 3), 9), "y": [0, 1]},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(sartor.data.from_dict(clients), tmp_path / "new", "hdf5")


@pytest.mark.parametrize("name", ["hdf5", "sqlite", "fedjax", "leaf"])
def test_a_column_that_gets_another_name(tmp_path, name):
    arrays = {"pixels": np.linspace(0, 9, 6).reshape(2, 3), "y": np.arange(2, dtype=np.int32)}
    with pytest.warns(UserWarning, match="'pixels' has another name, among 'x', 'y'"):
        convert(sartor.data.from_dict({"a": arrays}), tmp_path / "new", name)
    assert set(sartor.data.open(tmp_path / "new").columns) == {"x", "y"}


def test_images_that_are_alike(data, tmp_path):
    x = np.zeros((2, 28, 28), np.uint8)
    with pytest.warns(UserWarning, match=r"once and not twice, .* 2 clients \('a' is the first\)"):
        convert(toy(x, np.zeros(2, np.int32)), tmp_path / "new", "leaf")
    assert sartor.data.open(tmp_path / "new").sizes().tolist() == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(toy(x, np.arange(2, dtype=np.int32)), tmp_path / "labels differ", "leaf")
        convert(data, tmp_path / "images differ", "leaf")


@pytest.mark.parametrize("name", FORMATS)
def test_labels_beyond_int32(tmp_path, name):
    data = sartor.data.from_dict({c: {"x": 7.3 * np.eye(2), "y": [0, 2**40]} for c in "ab"})
    if name in ("sqlite", "leaf"):
        with pytest.raises(DataError, match=r"client 'a': the label 1099511627776 is .*hdf5"):
            convert(data, tmp_path / "new", name)
        assert not (tmp_path / "new").exists()
    else:
        convert(data, tmp_path / "new", name)
        assert sartor.data.open(tmp_path / "new").columns["y"].max() == 2**40


@pytest.mark.parametrize("client", ["a/b", ".", "a\0b"])
@pytest.mark.parametrize("name", FORMATS)
def test_ids_that_hdf5_cannot_hold(tmp_path, client, name):
    data = toy(np.array([[0.1, 2], [7.3, 4]]), np.arange(2, dtype=np.int32), ["a", client])
    if name == "hdf5":
        with pytest.raises(
            ConfigError, match=r"client .*: HDF5 has no such names; choose .*fedjax"
        ):
            convert(data, tmp_path / "new", name)
        assert not (tmp_path / "new").exists()
    else:
        convert(data, tmp_path / "new", name)
        assert sorted(sartor.data.open(tmp_path / "new").ids) == sorted(["a", client])


@pytest.mark.parametrize("name", ["sqlite", "fedjax", "leaf"])
def test_real_writers(emnist, tmp_path, name):
    some = emnist.select(emnist.ids[:3])
    convert(some, tmp_path / "new", name)
    found = sartor.data.open(tmp_path / "new")
    order = sorted(some.ids) if name == "sqlite" else list(some.ids)
    assert list(found.ids) == order
    for client in order:
        for part in ("train", "test"):
            mine, theirs = found.client(client, part), some.client(client, part)
            for column in theirs:
                np.testing.assert_array_equal(mine[column], theirs[column])


def test_what_cannot_be_written(data, tmp_path):
    with pytest.raises(ConfigError, match=r"format='odd': choose one of hdf5, sqlite"):
        convert(data, tmp_path / "new", "odd")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(FileError, match="nothing was written"):
        convert(data, tmp_path / "full", "leaf")
    with pytest.raises(ConfigError, match="LEAF has one input"):
        convert(sartor.data.synthetic(clients=3), tmp_path / "new", "leaf")
    numbers = sartor.data.from_dict({"a": {"x": np.ones((2, 1)), "y": np.array([0.5, 1.5])}})
    with pytest.raises(ConfigError, match="LEAF has whole numbers as labels"):
        convert(numbers, tmp_path / "new", "leaf")
    with pytest.raises(ConfigError, match="column 'label': in fedjax, 'y' gets this name"):
        convert(toy(np.ones((2, 1)), label=np.ones(2)), tmp_path / "new", "fedjax")
    with pytest.raises(ConfigError, match="column 'a/b': HDF5 has no such names"):
        convert(toy(np.ones((2, 1)), **{"a/b": np.ones(2)}), tmp_path / "new", "hdf5")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_an_error_of_ours(tmp_path, monkeypatch):
    def full(*_args, **_more):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", full)
    for format in ("sqlite", "fedjax"):
        with pytest.raises(FileError, match=r"disk is full; .*free some space"):
            convert(toy(np.ones((2, 1))), tmp_path / format, format)
        assert not (tmp_path / format).exists()
