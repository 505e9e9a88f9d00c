"""What is written in another format is read as it was; real data too."""

from __future__ import annotations

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
    target = tmp_path / "new"
    same(sartor.data.open(target / "data.sqlite" if name == "sqlite" else target), data)


@pytest.mark.parametrize("name", ["sqlite", "fedjax", "leaf"])
def test_real_writers(real_emnist, tmp_path, name):
    data = sartor.data.open(real_emnist)
    some = data.select(data.ids[:7])
    convert(some, tmp_path / "new", name)
    target = tmp_path / "new"
    found = sartor.data.open(target / "data.sqlite" if name == "sqlite" else target)
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
    assert not (tmp_path / "new").exists()
