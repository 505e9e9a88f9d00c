"""TensorFlow Federated's HDF5 layout: real and made-up files, and damaged ones."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from data_cases import contents

import sartor.data
from sartor.data import from_dict, order_shift
from sartor.errors import DataError, FileError


def write(file, clients):
    with h5py.File(file, "w") as h5:
        for client, columns in clients.items():
            for name, values in columns.items():
                h5[f"examples/{client}/{name}"] = values
    return file


def images(m, seed=0, scale=255):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (m, 4, 4)).astype(np.float32) / np.float32(scale)
    return {"pixels": pixels, "label": rng.integers(0, 5, m).astype(np.int32)}


def test_one_file_and_two_parts(tmp_path):
    train = {"f0001_01": images(5), "f2100_02": images(3, 1), "f2600_03": images(2, 2)}
    test = {"f2100_02": images(4, 3), "f0001_01": images(1, 4)}
    one = sartor.data.open(write(tmp_path / "a_train.h5", train))
    assert one.sizes().tolist() == [5, 3, 2] and one.columns["x"].dtype == np.uint8
    write(tmp_path / "a_test.h5", test)
    both = sartor.data.open(tmp_path)
    assert both.sizes("train").tolist() == [5, 3, 2] and both.sizes("test").tolist() == [1, 4, 0]
    assert both.metadata["domain"].tolist() == ["census", "high school", "census"]
    for part, clients in (("train", train), ("test", test)):
        for client, columns in clients.items():
            got = both.client(client, part)
            np.testing.assert_array_equal(
                got["x"].astype(np.float32) / np.float32(255), columns["pixels"]
            )
            np.testing.assert_array_equal(got["y"], columns["label"])


@pytest.mark.parametrize("scale", [255, 254])
def test_pixels_become_bytes_only_if_nothing_is_lost(tmp_path, scale):
    a, b = images(5), images(5, 1, scale)
    b["pixels"][0, 0, 0] = 1.0
    file = write(tmp_path / "t.h5", {"a": a, "b": b})
    for limit in (None, 1):
        data = sartor.data.open(file, memory_limit=limit, cache=tmp_path / "cache")
        assert data.columns["x"].dtype == (np.uint8 if scale == 255 else np.float32)
        pixels = np.concatenate([a["pixels"], b["pixels"]])
        expected = np.rint(pixels * 255) if scale == 255 else pixels
        np.testing.assert_array_equal(data.columns["x"], expected)
        assert isinstance(data.columns["x"], np.memmap) == (limit is not None)


@pytest.mark.parametrize("value", [-1 / 255, 256 / 255, 0.5, np.nan])
def test_one_pixel_out_of_range_keeps_floats(tmp_path, value):
    a = images(3)
    a["pixels"][1, 2, 3] = value
    file = write(tmp_path / "t.h5", {"a": a})
    if np.isnan(value):
        with pytest.raises(DataError, match=r"t.h5: client 'a', column 'x', row 1"):
            sartor.data.open(file)
    else:
        assert sartor.data.open(file).columns["x"].dtype == np.float32


def test_other_columns_keep_their_names(tmp_path):
    clients = {
        "0123456789abcdef:f0439_08": {"image": np.zeros((2, 3), np.uint8), "label": [0, 1]},
        "0123456789abcdef:f2599_08": {"image": np.ones((1, 3), np.uint8), "label": [1]},
    }
    data = sartor.data.open(write(tmp_path / "t.h5", clients))
    renamed = {c: {"image": v["image"], "y": np.asarray(v["label"])} for c, v in clients.items()}
    assert contents(data) == contents(from_dict(renamed, {"domain": ["census", "high school"]}))
    plain = write(tmp_path / "u.h5", {"ann": {"label": [0]}, "f0439_08": {"label": [0]}})
    assert "domain" not in sartor.data.open(plain).metadata


def test_wrong_layouts(tmp_path):
    def opened(clients):
        return sartor.data.open(write(tmp_path / "t.h5", clients))

    with pytest.raises(DataError, match=r"t.h5, column 'snippets': text.*from_dict"):
        opened({"a": {"snippets": np.array([b"to be"], object), "label": [1]}})
    with pytest.raises(DataError, match="no column 'y'"):
        opened({"a": {"pixels": [1.0]}})
    with pytest.raises(DataError, match="client 'a': columns must have equal lengths"):
        opened({"a": {"pixels": [1.0, 2.0], "label": [1]}})
    with pytest.raises(DataError, match=r"client 'b': columns .* differ .* of client 'a'"):
        opened({"a": images(2), "b": {"label": [1]}})
    with pytest.raises(DataError, match=r"t.h5: client 'b' has no training rows"):
        opened({"a": images(2), "b": images(0)})
    with h5py.File(tmp_path / "t.h5", "w") as h5:
        h5["other/stuff"] = [1]
    with pytest.raises(DataError, match=r"no group 'examples' but \['other'\]"):
        sartor.data.open(tmp_path / "t.h5")
    with h5py.File(tmp_path / "t.h5", "w") as h5:
        h5["examples/a"] = [1]
    with pytest.raises(DataError, match="client 'a': a group of columns"):
        sartor.data.open(tmp_path / "t.h5")
    with h5py.File(tmp_path / "t.h5", "w") as h5:
        h5["examples/a/b/label"] = [1]
    with pytest.raises(FileError, match=r"t.h5, client 'a'"):
        sartor.data.open(tmp_path / "t.h5")
    with h5py.File(tmp_path / "t.h5", "w") as h5:
        h5.create_group("examples")
    with pytest.raises(DataError, match="no clients"):
        sartor.data.open(tmp_path / "t.h5")


def test_wrong_directories(tmp_path):
    write(tmp_path / "a_test.h5", {"a": images(2), "b": images(1)})
    with pytest.raises(FileError, match=r"no file .*_train.h5"):
        sartor.data.open(tmp_path)
    write(tmp_path / "a_train.h5", {"a": images(2)})
    with pytest.raises(DataError, match=r"a_test.h5, client 'b': it has no training rows"):
        sartor.data.open(tmp_path)
    write(tmp_path / "a_test.h5", {"a": {"label": [1]}})
    with pytest.raises(DataError, match=r"a_test.h5: columns .* differ"):
        sartor.data.open(tmp_path)
    write(tmp_path / "b_train.h5", {"a": images(2)})
    with pytest.raises(FileError, match=r"several datasets \(a_train.h5, b_train.h5, "):
        sartor.data.open(tmp_path)


def test_damaged_files(tmp_path):
    file = write(tmp_path / "t.h5", {f"c{k}": images(200, k) for k in range(3)})
    whole = file.read_bytes()
    for share in (0.1, 0.5, 0.99):
        file.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(FileError, match=r"t.h5.*damaged, cut short.*again"):
            sartor.data.open(file)
    with h5py.File(file, "w") as h5:
        for k in range(3):
            for name, values in images(500, k).items():
                h5.create_dataset(f"examples/c{k}/{name}", data=values, compression="gzip")
    with h5py.File(file) as h5:
        chunk = h5["examples/c1/pixels"].id.get_chunk_info(0)
    broken = bytearray(file.read_bytes())
    broken[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\x00" * chunk.size
    file.write_bytes(broken)
    with pytest.raises(FileError, match=r"t.h5, client 'c1': cannot be read"):
        sartor.data.open(file)


def test_sizes_that_the_file_cannot_hold(tmp_path):
    file = write(tmp_path / "t.h5", {"a": images(5)})
    with h5py.File(file, "a") as h5:
        for name, shape in (("pixels", (2**40, 4, 4)), ("label", (2**40,))):
            kind = np.float32 if name == "pixels" else np.int32
            h5.create_dataset(f"examples/b/{name}", shape, kind, chunks=(1, *shape[1:]))
    with pytest.raises(FileError, match=r"t.h5, client 'b': 1,099,.* cannot hold; it is damaged"):
        sartor.data.open(file, cache=tmp_path / "cache")
    zeros = {"pixels": np.zeros((3000, 28, 28), np.float32), "label": np.zeros(3000, np.int32)}
    with h5py.File(file, "w") as h5:  # data that compresses as well as data can
        for name, values in zeros.items():
            h5.create_dataset(f"examples/a/{name}", data=values, compression=9, chunks=values.shape)
    assert sartor.data.open(file).sizes().tolist() == [3000]


@pytest.mark.parametrize("name", ["somebody", "label"])
def test_names_that_are_no_text(tmp_path, name):
    file = write(tmp_path / "t.h5", {"somebody": images(5)})
    file.write_bytes(file.read_bytes().replace(name.encode(), b"\xff" * len(name)))
    with pytest.raises(
        FileError, match=r"t.h5, client .*: cannot be read \(a name that is no text"
    ):
        sartor.data.open(file)


def test_another_byte_order(tmp_path):
    clients = {"a": images(5), "b": images(3, 1, 254)}
    expected = sartor.data.open(write(tmp_path / "t.h5", clients))
    big = {c: {n: v.astype(v.dtype.newbyteorder(">")) for n, v in clients[c].items()} for c in "ab"}
    found = sartor.data.open(write(tmp_path / "u.h5", big))
    assert found.fingerprint == expected.fingerprint
    assert all(column.dtype.isnative for column in found.columns.values())


def test_real_emnist(emnist):
    data = emnist
    assert len(data) == 548 and data.columns["x"].dtype == np.uint8
    assert data.sizes("train").sum() == 101_222 and data.sizes("test").sum() == 11_258
    assert (data.metadata["domain"] == "high school").sum() == 102
    assert data.columns["y"].max() == 61


def test_high_school_last_is_a_shift(emnist):
    order = np.random.default_rng(0).permutation(len(emnist))
    assert order_shift(emnist.select([emnist.ids[k] for k in order])).message is None
    school = emnist.metadata["domain"][order] == "high school"
    last = emnist.select([emnist.ids[k] for k in order[np.argsort(school, kind="stable")]])
    found = order_shift(last)
    assert found.message is not None and abs(found.split - 446) < 20
    # The file's own order carries a shift too: its first census writers wrote fewer digits.
    assert order_shift(emnist).message is not None
