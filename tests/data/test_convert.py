"""What is written in another format is read as it was; real data too."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from test_sqlite import same, write_hdf5, writers

import sartor
from sartor.data.convert import FORMATS, convert
from sartor.errors import ConfigError, FileError


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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(words, tmp_path / "sartor", "sartor")
        convert(data, tmp_path / "writers", "hdf5")  # whose domains are in their names
    assert sartor.data.open(tmp_path / "sartor").fingerprint == words.fingerprint


@pytest.mark.parametrize("name", ["sqlite", "fedjax", "leaf"])
def test_real_writers(real_emnist, tmp_path, name):
    data = sartor.data.open(real_emnist)
    some = data.select(data.ids[:7])
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
    with pytest.raises(FileError, match="left untouched"):
        convert(data, tmp_path / "full", "leaf")
    with pytest.raises(ConfigError, match="LEAF has one input"):
        convert(sartor.data.synthetic(clients=3), tmp_path / "new", "leaf")
    numbers = sartor.data.from_dict({"a": {"x": np.ones((2, 1)), "y": np.array([0.5, 1.5])}})
    with pytest.raises(ConfigError, match="LEAF has whole numbers as labels"):
        convert(numbers, tmp_path / "new", "leaf")
    assert not (tmp_path / "new").exists()
