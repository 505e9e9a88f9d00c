"""Examples of TensorFlow: what is written is read, and other bytes are refused in words."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.data.example_proto import make_example, parse_example

FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=5)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)


@given(FLOATS, INTEGERS, st.lists(st.binary(max_size=9), max_size=3))
def test_what_is_written_is_read(floats, integers, several):
    wanted = {
        "floats": np.array(floats, np.float32),
        "integers": np.array(integers, np.int64),
        "bytes": several,
    }
    found = parse_example(make_example(wanted))
    np.testing.assert_array_equal(found["floats"], wanted["floats"])
    np.testing.assert_array_equal(found["integers"], wanted["integers"])
    assert found["bytes"] == several


def test_bytes_that_tensorflow_wrote():
    """As protoc encodes it: label = 5 (packed) and pixels = [1.0, 0.5] (not packed)."""
    label = bytes.fromhex("0a05 6c6162656c 1205 1a03 0a01 05".replace(" ", ""))
    pixels = bytes.fromhex("0a06 706978656c73 120c 120a 0d0000803f 0d0000003f".replace(" ", ""))
    features = b"".join(b"\x0a" + bytes([len(entry)]) + entry for entry in (label, pixels))
    found = parse_example(b"\x0a" + bytes([len(features)]) + features)
    assert found["label"].tolist() == [5]
    assert found["pixels"].tolist() == [1.0, 0.5] and found["pixels"].dtype == np.float32


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read(data):
    with contextlib.suppress(ValueError):  # and no other error
        assert isinstance(parse_example(data), dict)


@given(st.data())
def test_damage_is_a_value_error_or_another_example(data):
    good = bytearray(make_example({"label": np.array([3]), "pixels": np.ones(4, np.float32)}))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    with contextlib.suppress(ValueError):  # and no other error
        parse_example(bytes(good[:cut]))


def test_what_is_cut_short_is_named():
    with pytest.raises(ValueError, match="of which"):
        parse_example(make_example({"pixels": np.ones(4, np.float32)})[:-3])
