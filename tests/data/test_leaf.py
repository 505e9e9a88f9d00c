"""LEAF's JSON gives what the same data in HDF5 gives, without the image that it has doubled."""

from __future__ import annotations

import json

import numpy as np
import pytest
from data_cases import open_damaged
from hypothesis import given
from hypothesis import strategies as st
from test_sqlite import same, write_hdf5, writers

import sartor
from sartor.errors import SartorError


def write_leaf(folder, data, doubled=True, shards=2):
    """Two shards for each part, as LEAF has them."""
    for part, clients in data.items():
        (folder / part).mkdir(parents=True)
        for n in range(shards):
            content = {"users": [], "num_samples": [], "user_data": {}}
            for client in sorted(clients)[n::shards]:
                x = (np.rint(clients[client]["pixels"] * 255) / 255).reshape(-1, 784).tolist()
                y = clients[client]["label"].tolist()
                if doubled:
                    x, y = [x[0], *x], [y[0], *y]
                content["users"].append(client)
                content["num_samples"].append(len(y))
                content["user_data"][client] = {"x": x, "y": y}
            (folder / part / f"all_data_{n}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("doubled", [True, False])
def test_the_same_data_as_in_hdf5(tmp_path, doubled):
    data = writers()
    (tmp_path / "hdf5").mkdir()
    expected = sartor.data.open(write_hdf5(tmp_path / "hdf5", data))
    folder = write_leaf(tmp_path / "leaf", data, doubled, shards=1)
    same(sartor.data.open(folder), expected)
    mapped = sartor.data.open(folder, memory_limit=10, cache=tmp_path / "cache")
    same(mapped, expected)


def test_shards_and_single_files(tmp_path):
    folder = write_leaf(tmp_path / "leaf", writers())
    assert sorted(sartor.data.open(folder).ids) == ["f0001_01", "f0439_08", "f2100_07"]
    assert len(sartor.data.open(folder / "train")) == 3
    assert len(sartor.data.open(folder / "train" / "all_data_1.json")) == 1


def change(folder, edit):
    path = folder / "train" / "all_data_0.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda c: c.pop("users"), "all_data_0.json: cannot be read"),
        (lambda c: c["user_data"].pop("f0001_01"), "client 'f0001_01': cannot be read"),
        (lambda c: c["user_data"]["f0001_01"]["y"].pop(), "where there should be"),
        (lambda c: c["user_data"]["f0001_01"].update(x=[["a"]] * 4), "numbers are needed"),
        (lambda c: c["num_samples"].pop(), "all_data_0.json: cannot be read"),
        (lambda c: c["users"].append("f0001_01"), "cannot be read"),
        (
            lambda c: c["user_data"]["f0001_01"]["y"].__setitem__(1, 2**40),
            r"all_data_0.json, client 'f0001_01': the label 1099511627776 is beyond 2147483647",
        ),
        (
            lambda c: c["user_data"]["f0001_01"].update(x=[], y=[]),
            r"all_data_0.json, client 'f0001_01': it is empty; remove it or add samples",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, edit, message):
    folder = write_leaf(tmp_path / "leaf", writers())
    change(folder, edit)
    with pytest.raises(SartorError, match=message):
        sartor.data.open(folder)


def test_json_that_is_cut(tmp_path):
    folder = write_leaf(tmp_path / "leaf", writers())
    path = folder / "train" / "all_data_1.json"
    path.write_text(path.read_text()[:5000])
    with pytest.raises(SartorError, match=r"all_data_1\.json: cannot be read .*download it again"):
        sartor.data.open(folder)


@given(st.data())
def test_damage_is_an_error_of_ours_or_harmless(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("leaf")
    source = {"train": writers(clients=("f0001_01",))["train"]}
    path = write_leaf(folder / "leaf", source, shards=1) / "train" / "all_data_0.json"
    open_damaged(path, data)
