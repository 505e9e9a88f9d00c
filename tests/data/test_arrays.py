"""Dicts and arrays as client data, and the errors for those that are not."""

from __future__ import annotations

import numpy as np
import pytest
from data_cases import contents

from sartor.data import from_arrays, from_dict
from sartor.errors import DataError


def test_dict_and_arrays_agree():
    one = from_dict(
        {"7": ([[1.5, 2], [3, 4]], ["no", "yes"]), "3": {"x": [[5, 6.5]], "y": ["no"]}},
        {"domain": {"3": "u", "7": "v"}},
    )
    other = from_arrays(
        np.array([[1.5, 2], [5, 6.5], [3, 4]]), ["no", "no", "yes"], [7, 3, 7], ["v", "u", "v"]
    )
    assert contents(one) == contents(other)
    assert one.ids == other.ids == ("7", "3")
    assert one.label_names == other.label_names == ("no", "yes")
    assert one.columns["x"].dtype == np.float32 and one.columns["y"].dtype == np.int32


def test_labels_keep_their_type():
    for y, dtype in [([0, 1], np.int64), (np.uint8([0, 1]), np.uint8), ([0.5, 1.0], np.float32)]:
        assert from_arrays(None, y, ["a", "b"]).columns["y"].dtype == dtype
    assert from_arrays(None, [True, False], ["a", "b"]).columns["y"].tolist() == [1, 0]


def test_named_features_and_images():
    data = from_arrays({"u": np.zeros((2, 3, 3), np.uint8), "v": [1, 2]}, [0, 1], ["a", "b"])
    assert {n: c.shape for n, c in data.columns.items()} == {"u": (2, 3, 3), "v": (2,), "y": (2,)}


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([1, 2], "a dict with at least one client is needed"),
        ({}, "a dict with at least one client is needed"),
        ({"ann": 3}, "client 'ann': a dict of columns"),
        ({"ann": {"x": [1.0]}}, "client 'ann' has no column 'y'"),
        ({"ann": {"y": []}}, "client 'ann' has no training rows"),
        ({"ann": {"x": [1.0], "y": [1, 2]}}, "client 'ann': columns must have equal lengths"),
        ({"ann": {"x": 1.0, "y": [1]}}, "client 'ann': columns must have equal lengths"),
        (
            {"ann": {"x": [[1.0], [1, 2]], "y": [1, 2]}},
            "column 'x' has rows of different",
        ),
        ({"ann": {"y": [1]}, "bob": {"x": [1], "y": [1]}}, "column 'x'.*'bob'.*'ann'"),
        ({"ann": ([[1]], [1]), "bob": ([[1, 2]], [1])}, "client 'bob', column 'x'"),
        ({"ann": {"y": [1]}, "bob": {"y": [0.5]}}, "client 'bob', column 'y'"),
        ({"ann": {"y": [1]}, "bob": {"y": ["a"]}}, "client 'bob', column 'y'"),
        ({1: {"y": [1]}, "1": {"y": [1]}}, "unique as texts"),
        ({"ann": {"y": ["a", ""]}}, "client 'ann', column 'y', row 1: the value is missing"),
        ({"ann": {"x": ["a"], "y": [1]}}, "column 'x' holds words"),
    ],
)
def test_wrong_dicts(clients, message):
    with pytest.raises(DataError, match=message):
        from_dict(clients)


def test_wrong_metadata():
    clients = {"ann": {"y": [1]}, "bob": {"y": [1]}}
    with pytest.raises(DataError, match="metadata 'domain' has no value for client 'bob'"):
        from_dict(clients, {"domain": {"ann": "u"}})
    with pytest.raises(DataError, match="'domain' needs one value for each of 2 clients"):
        from_dict(clients, {"domain": ["u"]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [0, 1], ["a", "b"]), "equal lengths, got {'x': 1, 'y': 2, 'client': 2"),
        ((None, [0, 1], ["a"]), "equal lengths, got {'y': 2, 'client': 1"),
        ((None, 3, ["a", "b"]), "equal lengths, got {'y': 'a single value', 'client': 2"),
        ((None, [0, 1], [["a", "b"]]), "client: one value for each row"),
        ((None, [0, 1], ["a", None]), "column 'client', row 1: the value is missing"),
        ((None, [0, 1], [1.0, np.nan]), "column 'client', row 1: the value is missing"),
        ((None, [0, 1], np.array([1, "a"], object)), "client: values of one type"),
        ((None, np.array(["a", None]), ["a", "b"]), "client 'b', column 'y', row 1"),
        ((None, np.array([b"a", b"\xff"], object), ["a", "b"]), "is not UTF-8"),
        ((None, np.array([{1}, {2}], object), ["a", "b"]), "'y' holds .1., of type set"),
        (({"y": [1, 2]}, [0, 1], ["a", "b"]), "must not be named 'y'"),
        ((None, [0, 1], ["a", "a"], ["u", "v"]), "client 'a', column 'domain': 'u' in row 0 but"),
        ((None, [0, 1], ["a", "a"], ["u"]), "equal lengths, got {'client': 2, 'domain': 1"),
        (([1e300, 1], [0, 1], ["a", "b"]), "client 'a', column 'x', row 0 .*1e.300 found"),
        ((None, [], []), "no clients"),
    ],
)
def test_wrong_arrays(arguments, message):
    with pytest.raises(DataError, match=message):
        from_arrays(*arguments)
