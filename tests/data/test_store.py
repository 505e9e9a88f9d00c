"""The native directory: what is saved is what is opened, atomically, or an error says why not."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os

import numpy as np
import pytest
from data_cases import contents, ragged
from hypothesis import example, given
from hypothesis import strategies as st

import sartor.data
from sartor.data import from_arrays, from_dict
from sartor.data.store import joined
from sartor.errors import ConfigError, FileError


@pytest.fixture
def saved(tmp_path):
    data = from_arrays(
        {"x": np.arange(60, dtype=np.uint8).reshape(20, 3), "a/b": np.linspace(0, 1, 20)},
        np.array(["yes", "no"])[np.arange(20) % 2],
        [f"é {k % 5}" for k in range(20)],
        np.arange(20) % 5,
    )
    data = data.split(unseen=0.4, validation=0.25, test=0.25)
    data.save(tmp_path / "toy")
    return data, tmp_path / "toy"


def test_roundtrip(saved):
    data, path = saved
    again = sartor.data.open(path)
    assert contents(again) == contents(data) and again.fingerprint == data.fingerprint
    assert again.label_names == data.label_names
    assert all(isinstance(column, np.memmap) for column in again.columns.values())
    again.save(path)  # onto itself
    assert contents(again) == contents(data) == contents(sartor.data.open(path))
    assert os.listdir(path.parent) == ["toy"]


def test_other_data_is_replaced_only_on_request(saved):
    data, path = saved
    some = data.select(data.ids[:2])
    y = 1 - data.columns["y"]
    for other in (
        some, data.merge_parts(), dataclasses.replace(data, columns={**data.columns, "y": y}),
        dataclasses.replace(data, time=np.arange(20)),
    ):  # fmt: skip
        with pytest.raises(FileError, match=r"toy holds other data.*replace=True"):
            other.save(path)
    assert contents(sartor.data.open(path)) == contents(data)
    some.save(path, replace=True)
    assert sartor.data.open(path).ids == data.ids[:2]
    with pytest.raises(FileError, match="holds other data"):
        sartor.data.open(path).select(data.ids[:1]).save(path)  # of which it is a part
    (path / "rows.npy").write_bytes(b"damaged")
    some.save(path, replace=True)
    assert contents(sartor.data.open(path)) == contents(some)
    assert os.listdir(path.parent) == ["toy"]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(0, 9))
def test_roundtrip_of_any_sizes(tmp_path_factory, sizes, seed):
    data = from_dict(ragged(sizes)).split(test=0.3, seed=seed)
    path = tmp_path_factory.mktemp("store") / "toy"
    data.save(path)
    assert sartor.data.open(path).fingerprint == data.fingerprint


def test_a_column_grows_on_disk(tmp_path):
    blocks = [
        np.random.default_rng(k).normal(size=(k, 2, 3)).astype(np.float32) for k in (1, 9, 5000)
    ]
    result = joined(iter(blocks), tmp_path / "x.npy")
    assert isinstance(result, np.memmap) and result.dtype == np.float32
    np.testing.assert_array_equal(result, np.concatenate(blocks))


def test_other_things_are_not_overwritten(saved, tmp_path):
    data, path = saved
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (path / "notes.txt").write_text("mine")
    for target in (tmp_path / "file", tmp_path / "folder", path):
        for replace in (False, True):
            with pytest.raises(FileError, match="nothing was written"):
                data.save(target, replace=replace)
    assert (path / "notes.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_a_failed_save_leaves_the_old_one(saved, monkeypatch):
    data, path = saved
    monkeypatch.setattr(np, "save", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(FileError, match=r"No space.*free some space"):
        data.select(data.ids[:1]).save(path, replace=True)
    monkeypatch.undo()
    assert contents(sartor.data.open(path)) == contents(data)
    assert os.listdir(path.parent) == ["toy"]


def damage(path, **changes):
    """Change the manifest, and take away its checksums: earlier versions wrote none."""
    manifest = json.loads((path / "data.json").read_text())
    manifest = {k: v for k, v in manifest.items() if k not in ("files", "digest")}
    (path / "data.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "other", "not a manifest"),
        ("version", 99, "version 99.*upgrade"),
        ("ids", ["a"], "damaged"),
        ("ids", None, "damaged"),
        ("columns", ["x"], "damaged.*'y'"),
        ("columns", ["x", "a/b", "y", "z"], r"column-3.npy: missing or damaged"),
        ("metadata", {"domain": {"dtype": "O", "values": [1]}}, "damaged"),
        ("metadata", {"domain": {"dtype": "<i8", "values": [1]}}, "damaged.*domain"),
        ("metadata", [], "damaged"),
    ],
)
def test_damaged_manifests(saved, key, value, message):
    damage(saved[1], **{key: value})
    with pytest.raises(FileError, match=message):
        sartor.data.open(saved[1])


def test_damaged_files(saved):
    path = saved[1]
    damage(path)
    whole = (path / "column-0.npy").read_bytes()
    pickled = (
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (20,), }"
    )
    for content in (whole[:-1], whole[:5], b"", b"something else", pickled.ljust(128) + b"\n"):
        (path / "column-0.npy").write_bytes(content)
        with pytest.raises(FileError, match=r"column-0.npy: missing or damaged.*make"):
            sartor.data.open(path)
    (path / "column-0.npy").write_bytes(whole)
    np.save(path / "rows.npy", np.arange(20) + 5)
    with pytest.raises(FileError, match=r"damaged.*rows must be"):
        sartor.data.open(path)
    (path / "data.json").write_text("{")
    with pytest.raises(FileError, match=r"data.json is not readable JSON"):
        sartor.data.open(path)


@given(st.lists(st.tuples(st.integers(6, 127), st.integers(0, 255)), max_size=3))
@example([(69, ord("("))])
@example([(68, ord("["))])
@example([(11, ord(" "))])
def test_a_damaged_header_is_an_error_of_ours_or_harmless(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("store") / "toy"
    from_dict(ragged([3, 2])).save(path)
    damage(path)
    content = bytearray((path / "column-0.npy").read_bytes())
    for at, byte in changes:
        content[at] = byte
    (path / "column-0.npy").write_bytes(content)
    with contextlib.suppress(FileError):  # and no other error
        sartor.data.open(path)


def test_a_header_that_is_no_python(saved):
    damage(saved[1])
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (20, 3), \n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (saved[1] / "column-0.npy").write_bytes(content + b"\0" * 240)
    with pytest.raises(FileError, match=r"column-0.npy: missing or damaged.*make"):
        sartor.data.open(saved[1])


def test_roles_are_for_tables(saved):
    with pytest.raises(ConfigError, match="client='a': only for CSV and Parquet"):
        sartor.data.open(saved[1], client="a")
