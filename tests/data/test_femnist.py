"""Parquet with images as PNG gives what the same data in HDF5 gives."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_sqlite import same, write_hdf5, writers

import sartor
from sartor.errors import SartorError


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(np.rint(pixels * 255).astype(np.uint8), "L").save(buffer, "PNG")
    return buffer.getvalue()


def write_femnist(folder, clients, shards=2):
    """Rows of all writers in turn, in some shards."""
    rows = [
        {"image": {"bytes": png(x), "path": None}, "writer_id": c, "hsf_id": 0, "character": int(y)}
        for c, arrays in clients.items()
        for x, y in zip(arrays["pixels"], arrays["label"], strict=True)
    ]
    folder.mkdir()
    for n in range(shards):
        part = rows[n * len(rows) // shards : (n + 1) * len(rows) // shards]
        pq.write_table(pa.Table.from_pylist(part), folder / f"train-{n}.parquet")
    return folder


def test_the_same_data_as_in_hdf5(tmp_path):
    train = writers()["train"]
    (tmp_path / "hdf5").mkdir()
    write_hdf5(tmp_path / "hdf5", {"train": train})
    expected = sartor.data.open(tmp_path / "hdf5" / "toy_train.h5")
    folder = write_femnist(tmp_path / "femnist", train)
    same(sartor.data.open(folder), expected)
    same(sartor.data.open(folder, memory_limit=10, cache=tmp_path / "cache"), expected)
    assert len(sartor.data.open(folder / "train-0.parquet")) >= 1


@pytest.mark.parametrize(
    "image, message",
    [
        (b"no image", "client 'f0001_01': cannot be read"),
        (None, "client 'f0001_01': cannot be read"),
        (png(np.zeros((9, 28))), r"an image of \(28, 9\) pixels"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, image, message):
    folder = write_femnist(tmp_path / "femnist", writers()["train"], shards=1)
    path = folder / "train-0.parquet"
    rows = pq.read_table(path).to_pylist()
    next(row for row in rows if row["writer_id"] == "f0001_01")["image"]["bytes"] = image
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(SartorError, match=message):
        sartor.data.open(folder)


def test_a_file_that_is_cut(tmp_path):
    folder = write_femnist(tmp_path / "femnist", writers()["train"])
    path = folder / "train-1.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SartorError, match=r"train-1\.parquet: cannot be read"):
        sartor.data.open(folder)


def test_json_beside_parquet_is_not_leaf(tmp_path):
    folder = write_femnist(tmp_path / "femnist", writers()["train"])
    expected = sartor.data.open(folder)
    (folder / "dataset_infos.json").write_text('{"default": {"features": {}}}')
    same(sartor.data.open(folder), expected)
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(pa.table({"a": [1]}), other / "train.parquet")
    (other / "dataset_infos.json").write_text("{}")
    with pytest.raises(SartorError, match="the format is not known"):
        sartor.data.open(other)


def test_columns_whose_names_are_damaged(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"writer_id": ["a"], "y": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"writer_id", b"writer_\xff\xfe"))
    with pytest.raises(SartorError, match=r"t.parquet"):
        sartor.data.open(path)
    with pytest.raises(SartorError, match=r"t.parquet: cannot be read"):
        sartor.data.open(path, client="writer_id", label="y")
    with pytest.raises(SartorError, match="the format is not known"):
        sartor.data.open(tmp_path)


@pytest.mark.parametrize(
    "label, message",
    [
        (2**40, r"client 'f0001_01': the label 1099511627776 is beyond 2147483647"),
        (0.5, "column 'character': whole numbers are needed, got double"),
    ],
)
def test_labels_that_are_none(tmp_path, label, message):
    folder = write_femnist(tmp_path / "femnist", writers(clients=["f0001_01"])["train"], shards=1)
    path = folder / "train-0.parquet"
    rows = [row | {"character": label} for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(SartorError, match=message):
        sartor.data.open(folder)
