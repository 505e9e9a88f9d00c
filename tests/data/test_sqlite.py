"""SQLite files of TensorFlow Federated and FedJAX give what the same data in HDF5 gives."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib

import h5py
import msgpack
import numpy as np
import pytest
from data_cases import open_damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sartor
from sartor.data.example_proto import make_example
from sartor.errors import DataError, SartorError


def writers(seed=0, clients=("f0001_01", "f2100_07", "f0439_08")):
    """Images of some writers, by part."""
    draw = np.random.default_rng(seed)
    return {
        part: {
            client: {
                "pixels": (draw.integers(0, 256, (m + k, 28, 28)) / 255).astype(np.float32),
                "label": draw.integers(0, 62, m + k).astype(np.int32),
            }
            for k, client in enumerate(sorted(clients))
        }
        for part, m in (("train", 3), ("test", 1))
    }


def write_hdf5(folder, data):
    for part, clients in data.items():
        with h5py.File(folder / f"toy_{part}.h5", "w") as file:
            for client, arrays in clients.items():
                for name, values in arrays.items():
                    file[f"examples/{client}/{name}"] = values
    return folder


def write_tff(path, data, prefix="all_"):
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE examples (split_name, client_id, serialized_example_proto)")
        file.execute("CREATE TABLE client_metadata (client_id, split_name, num_examples)")
        for part, clients in data.items():
            for client, arrays in clients.items():
                rows = list(zip(arrays["pixels"], arrays["label"], strict=True))
                file.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)",
                    [client, prefix + part, len(rows)],
                )
                for pixels, label in rows:
                    proto = make_example({"pixels": pixels.reshape(-1), "label": np.array([label])})
                    file.execute(
                        "INSERT INTO examples VALUES (?, ?, ?)", [prefix + part, client, proto]
                    )
    return path


def packed(arrays):
    def pack(a):
        return msgpack.ExtType(1, msgpack.packb((a.shape, a.dtype.name, a.tobytes())))

    return zlib.compress(msgpack.packb({name: pack(a) for name, a in arrays.items()}))


def write_fedjax(folder, data):
    for part, clients in data.items():
        path = folder / f"toy_{part}.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            file.execute(
                "CREATE TABLE federated_data (client_id BLOB, data BLOB, num_examples INTEGER)"
            )
            for client, arrays in clients.items():
                row = [client.encode(), packed(arrays), len(arrays["label"])]
                file.execute("INSERT INTO federated_data VALUES (?, ?, ?)", row)
    return folder


@pytest.fixture
def formats(tmp_path):
    data = writers()
    for name in ("hdf5", "fedjax"):
        (tmp_path / name).mkdir()
    return {
        "hdf5": write_hdf5(tmp_path / "hdf5", data),
        "tff": write_tff(tmp_path / "toy.sqlite", data),
        "fedjax": write_fedjax(tmp_path / "fedjax", data),
    }


def same(a, b):
    assert a.ids == b.ids and a.fingerprint == b.fingerprint
    for name in a.columns:
        assert a.columns[name].dtype == b.columns[name].dtype
        np.testing.assert_array_equal(a.columns[name], b.columns[name])
    np.testing.assert_array_equal(a.bounds, b.bounds)
    assert {k: list(v) for k, v in a.metadata.items()} == {
        k: list(v) for k, v in b.metadata.items()
    }


@pytest.mark.parametrize("name", ["tff", "fedjax"])
def test_the_same_data_in_other_formats(formats, name, tmp_path):
    expected = sartor.data.open(formats["hdf5"])
    found = sartor.data.open(formats[name])
    same(found, expected)
    assert found.columns["x"].dtype == np.uint8
    assert list(found.metadata["domain"]) == ["census", "census", "high school"]
    mapped = sartor.data.open(formats[name], memory_limit=10, cache=tmp_path / "cache")
    same(mapped, expected)


def broken(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute(statement, values)


@pytest.mark.parametrize(
    "statement, values, message",
    [
        ("DROP TABLE client_metadata", [], r"has the tables \['examples'\]; needed are"),
        (
            "UPDATE client_metadata SET split_name = 'odd'",
            [],
            r"has the splits \['odd'\]; one for each part",
        ),
        (
            "UPDATE examples SET serialized_example_proto = ? WHERE client_id = 'f2100_07'",
            [b"\x0a\xff"],
            r"client 'f2100_07': cannot be read .*download it again",
        ),
        (
            "UPDATE client_metadata SET num_examples = 99 WHERE client_id = 'f0439_08'",
            [],
            r"client 'f0439_08': columns of .* but it should have 99",
        ),
        ("DELETE FROM examples WHERE client_id = 'f0001_01'", [], r"'f0001_01': .*no examples"),
        (
            "UPDATE client_metadata SET num_examples = 9e999 WHERE client_id = 'f0439_08'",
            [],
            r"toy.sqlite: cannot be read .*infinity",
        ),
        (
            "UPDATE client_metadata SET num_examples = 1 << 40 WHERE client_id = 'f0439_08'",
            [],
            r"toy.sqlite, client 'f0439_08': 1,099,511,627,776 examples .* cannot hold; .*again",
        ),
        (
            "INSERT INTO client_metadata VALUES (?, 'all_train', 3)",
            ["f0439_08"],
            r"toy.sqlite, client 'f0439_08': it is there twice; remove one",
        ),
        (
            "INSERT INTO client_metadata VALUES (?, 'all_train', 3)",
            [b"f0439_08"],
            r"toy.sqlite, client 'f0439_08': it is there twice; remove one",
        ),
        (
            "UPDATE examples SET serialized_example_proto = ? WHERE client_id = 'f0439_08'",
            [make_example({"pixels": np.zeros(784, np.float32), "label": np.array([2**40])})],
            r"toy.sqlite, client 'f0439_08': the label 1099511627776 is beyond 2147483647",
        ),
        (
            "UPDATE examples SET serialized_example_proto = ? WHERE rowid = 2",
            [make_example({"pixels": np.zeros(784, np.float32), "label": np.ones(1)})],
            r"client 'f0001_01': .*'label' is whole numbers in some examples, floats in others",
        ),
        (
            "UPDATE examples SET serialized_example_proto = ? WHERE rowid = 2",
            [make_example({"pixels": np.zeros(784, np.float32), "label": [b"two"]})],
            r"client 'f0001_01': .*'label' is text",
        ),
    ],
)
def test_what_is_wrong_is_named(formats, statement, values, message):
    broken(formats["tff"], statement, *values)
    with pytest.raises(SartorError, match=message):
        sartor.data.open(formats["tff"])


@pytest.mark.parametrize(
    "content, message",
    [
        (b"no zlib", "cannot be read"),
        (zlib.compress(b"\xc1"), "cannot be read"),
        (zlib.compress(msgpack.packb([1, 2])), "a dictionary of arrays is needed"),
        (zlib.compress(msgpack.packb({"x": msgpack.ExtType(9, b"")})), "unknown kind 9"),
        (packed({"label": np.zeros(3, np.int32)}), "differ from|columns of"),
        (packed({"label": np.int32(1)}), "a row for each example"),
        (
            zlib.compress(
                msgpack.packb({"y": msgpack.ExtType(1, msgpack.packb(((1,), "i4,,", b"\0" * 4)))})
            ),
            "cannot be read",
        ),
    ],
)
def test_what_is_wrong_with_a_client_of_fedjax(formats, content, message):
    path = formats["fedjax"] / "toy_train.sqlite"
    broken(path, "UPDATE federated_data SET data = ? WHERE client_id = ?", content, b"f2100_07")
    with pytest.raises(SartorError, match=message) as caught:
        sartor.data.open(formats["fedjax"])
    assert "f2100_07" in str(caught.value) or isinstance(caught.value, DataError)


@pytest.mark.parametrize("client", [b"f2100_07", "f2100_07"])
def test_a_client_of_fedjax_that_is_there_twice(formats, client):
    path = formats["fedjax"] / "toy_train.sqlite"
    arrays = writers()["train"]["f2100_07"]
    row = client, packed(arrays), len(arrays["label"])
    broken(path, "INSERT INTO federated_data VALUES (?, ?, ?)", *row)
    with pytest.raises(DataError, match=r"toy_train.sqlite, client 'f2100_07': it is there twice"):
        sartor.data.open(formats["fedjax"])


def test_a_client_of_fedjax_that_would_fill_the_memory(formats, monkeypatch):
    path = formats["fedjax"] / "toy_train.sqlite"
    monkeypatch.setattr("sartor.data.sqlite._MOST", 1 << 20)
    assert len(sartor.data.open(formats["fedjax"])) == 3
    bomb = zlib.compress(b"\0" * (1 << 21))
    short = packed(writers()["train"]["f2100_07"])[:-3]
    for content, message in ((bomb, "more than 1,048,576 bytes"), (short, "cut short")):
        broken(path, "UPDATE federated_data SET data = ? WHERE client_id = ?", content, b"f2100_07")
        with pytest.raises(SartorError, match=f"toy_train.sqlite, client 'f2100_07': .*{message}"):
            sartor.data.open(formats["fedjax"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.parametrize("name", ["tff", "fedjax"])
def test_damage_is_an_error_of_ours_or_harmless(tmp_path_factory, name, data):
    folder = tmp_path_factory.mktemp(name)
    source = writers(clients=("f0001_01",))
    path = write_tff(folder / "toy.sqlite", source)
    if name == "fedjax":
        path.unlink()
        path = write_fedjax(folder, {"train": source["train"]}) / "toy_train.sqlite"
    open_damaged(path, data)
