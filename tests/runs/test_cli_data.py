"""The commands that get and convert data: what they write, and what they say."""

from __future__ import annotations

import socket
from typing import get_args

import h5py
import numpy as np
import pytest
from run_cases import table, write

import sartor as library
from sartor import cli
from sartor.data.convert import FORMATS
from sartor.data.download import SOURCES, Source


@pytest.fixture
def images(tmp_path):
    """Images of some writers in a directory, as TensorFlow Federated has them."""
    draw = np.random.default_rng(0)
    (tmp_path / "source").mkdir()
    for part, rows in {"train": 4, "test": 2}.items():
        with h5py.File(tmp_path / "source" / f"fed_emnist_{part}.h5", "w") as file:
            for writer in ("f0001_01", "f0439_08", "f2100_07"):
                pixels = draw.integers(0, 256, (rows, 28, 28)) / np.float32(255)
                file[f"examples/{writer}/pixels"] = pixels.astype(np.float32)
                file[f"examples/{writer}/label"] = draw.integers(0, 62, rows).astype(np.int32)
    return tmp_path / "source"


def test_from_format_to_format_and_back(sartor, images, tmp_path):
    """One after the other: all hold the same arrays, and those of the start."""
    assert set(get_args(cli.data.Format)) == set(FORMATS)
    expected, path = library.data.open(images), images
    for name in (*FORMATS, *reversed(FORMATS)):
        target = path.parent / f"{path.name}-{name}"
        code, out, err = sartor("data", "convert", path, target, "--to", name)
        assert (code, err) == (0, "")
        assert out == f"Data:  {target}, {name} of 3 clients, 18 examples\n"
        found = library.data.open(target)
        assert found.fingerprint == expected.fingerprint and found.ids == expected.ids
        for client in expected.ids:
            for part in ("train", "test"):
                for column, values in expected.client(client, part).items():
                    mine = found.client(client, part)[column]
                    assert mine.dtype == values.dtype
                    np.testing.assert_array_equal(mine, values)
        path = target


def test_a_table(sartor, tmp_path):
    path = write(tmp_path / "people.csv", table())
    columns = ["--client", "user", "--label", "label", "--domain", "region", "--features", "age"]
    code, out, err = sartor("data", "convert", path, tmp_path / "own", "--to", "sartor", *columns)
    assert (code, err) == (0, "") and "sartor of 6 clients, 72 examples" in out
    expected = library.data.open(
        path, client="user", label="label", domain="region", features=["age"]
    )
    assert library.data.open(tmp_path / "own").fingerprint == expected.fingerprint
    code, _, err = sartor("data", "convert", path, tmp_path / "h5", "--to", "hdf5", *columns)
    assert code == 0 and err == (
        "warning: hdf5 has no place for 'domain', the labels' names, the features' names: left "
        "out; the format sartor keeps all\n"
    )


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["absent", "new", "--to", "leaf"], 1, "error: absent: there is no such file"),
        (["people.csv", "new", "--to", "leaf"], 1, "error: client: name the column of people.csv"),
        (
            ["source", "full", "--to", "leaf"],
            1,
            "full already exists and contains other files",
        ),
        (["source", "new", "--to", "leaf", "--client", "a"], 1, "error: client='a': only for CSV"),
        (["source", "new", "--to", "odd"], 2, "odd"),
        (["source", "new"], 2, "--to"),
    ],
)
def test_what_cannot_be_converted(sartor, images, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.csv", table())
    write(tmp_path / "full" / "mine", "")
    found, out, err = sartor("data", "convert", *words)
    assert (found, out) == (code, "") and message in err
    assert code == 2 or (err.startswith("error: ") and err.count("\n") == 1)
    assert not (tmp_path / "new").exists() and (tmp_path / "full" / "mine").exists()


@pytest.fixture
def no_server(monkeypatch):
    """An address where nobody listens, as the source of EMNIST."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/fed_emnist.tar.bz2"
        files = ("fed_emnist_train.h5", "fed_emnist_test.h5")
        monkeypatch.setitem(SOURCES, "emnist", Source(url, "0" * 64, files, clients=3))
        yield url


def test_downloading_without_a_network(sartor, no_server, images, tmp_path):
    code, out, err = sartor("data", "download", "--cache", tmp_path / "cache")
    assert (code, out) == (1, "") and err.startswith("error: cannot download emnist: <urlopen")
    assert all(word in err for word in (no_server, str(tmp_path / "cache"), "--data generated"))
    assert err.count("\n") == 1
    (tmp_path / "cache" / "fed_emnist").rmdir()  # nothing is in it
    images.rename(tmp_path / "cache" / "fed_emnist")
    code, out, err = sartor("data", "download", "--cache", tmp_path / "cache")
    assert (code, out, err) == (0, f"Data:  {tmp_path / 'cache' / 'fed_emnist'}\n", "")


def test_ctrl_c_while_downloading_is_130(sartor, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(library.data, "download", interrupted)
    code, out, err = sartor("data", "download")
    assert (code, out) == (130, "")
    assert err == "stopped. Everything so far is kept. Resume with\n  sartor data download\n"


def test_examples_are_written_and_described(sartor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = sartor("data", "example")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(library.data.example_names())
    code, out, err = sartor("data", "example", "calls", "--out", "c.parquet")
    assert (code, err) == (0, "") and out.startswith(
        "Data:  c.parquet, 5,000 rows, 7 columns. Made"
    )
    assert out.endswith("Next:  sartor data info c.parquet --client agent --label again\n")
    code, out, err = sartor(*out.splitlines()[-1].split()[2:])
    assert (code, err) == (0, "") and "attention: waited" in out and "clients" in out
    code, out, err = sartor("data", "example", "calls", "--out", "c.parquet")
    assert (code, out) == (1, "") and "c.parquet is there already" in err
    code, out, err = sartor("data", "example", "cals")
    assert (code, out) == (1, "") and "did you mean 'calls'" in err


def test_words_gaps_and_dates_are_described(sartor, tmp_path):
    rows = ["shop,day,kind,size,sold"]
    rows += [f"0{k % 9},2026-01-{k % 28 + 1:02d},{'ab'[k % 2]},{k if k % 5 else ''},{k % 3}"
             for k in range(300)]  # fmt: skip
    path = write(tmp_path / "t.csv", "\n".join(rows) + "\n")
    code, out, err = sartor("data", "info", path, "--client", "shop", "--label", "sold")
    assert (code, err) == (0, "")
    facts = {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in out.splitlines()}
    assert facts["clients"].startswith("9 (") and facts["column kind"] == "2 categories (a, b)"
    assert facts["column day"].startswith("dates from 2026-01-01")
    assert facts["attention: size"] == "20.0% gaps"
    assert facts["labels"] == "3 different: 0 100, 1 100, 2 100"
