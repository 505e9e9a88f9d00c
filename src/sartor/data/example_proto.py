"""``tf.train.Example`` without TensorFlow: the few fields of Protocol Buffers that it is made of.

An Example is a map from names to lists of bytes, floats or integers:

    Example  { Features features = 1 }
    Features { map<string, Feature> feature = 1 }
    Feature  { BytesList bytes_list = 1 | FloatList float_list = 2 | Int64List int64_list = 3 }

and each list has one repeated field, ``value = 1``, packed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Feature = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_BYTES = 10
"""Of a variable-length integer of 64 bits."""


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of an Example; a ``ValueError`` says what is wrong with other bytes.

    >>> parse_example(make_example({"label": np.array([7]), "pixels": np.ones(2, np.float32)}))
    {'label': array([7]), 'pixels': array([1., 1.], dtype=float32)}
    """
    found: dict[str, Feature] = {}
    for features in _messages(data, 1):
        for entry in _messages(features, 1):
            parts = {number: part for number, kind, part in _fields(entry) if kind == _BYTES}
            found[bytes(parts.get(1, b"")).decode("utf-8")] = _feature(parts.get(2, b""))
    return found


def make_example(features: Mapping[str, Any]) -> bytes:
    """The bytes of an Example with these features: bytes, lists of them, or arrays of numbers."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, (bytes, list)):
            several = [value] if isinstance(value, bytes) else value
            feature = _message(1, b"".join(_message(1, item) for item in several))
        elif np.asarray(value).dtype.kind == "f":
            feature = _message(2, _message(1, np.asarray(value, "<f4").tobytes()))
        else:
            packed = b"".join(_varint(int(v) % 2**64) for v in np.asarray(value).reshape(-1))
            feature = _message(3, _message(1, packed))
        entries += _message(1, _message(1, name.encode()) + _message(2, feature))
    return _message(1, entries)


def _feature(data: bytes) -> Feature:
    lists: dict[int, Callable[[bytes], Feature]] = {1: _texts, 2: _floats, 3: _integers}
    found: Feature = []
    for number, kind, part in _fields(data):
        if kind == _BYTES and number in lists:
            found = lists[number](part)
    return found


def _texts(data: bytes) -> list[bytes]:
    return [bytes(value) for value in _messages(data, 1)]


def _floats(data: bytes) -> npt.NDArray[np.float32]:
    parts = []
    for number, kind, part in _fields(data):
        if number == 1 and kind in (_BYTES, _FIXED32):
            if len(part) % 4:
                raise ValueError("floats of a length that is no multiple of four bytes")
            parts.append(np.frombuffer(part, "<f4"))
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def _integers(data: bytes) -> npt.NDArray[np.int64]:
    values: list[int] = []
    for number, kind, part in _fields(data):
        if number == 1 and kind == _VARINT:
            values.append(part)
        elif number == 1 and kind == _BYTES:
            at = 0
            while at < len(part):
                value, at = _read_varint(part, at)
                values.append(value)
    return np.array(values, np.uint64).astype(np.int64)


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, kind, part in _fields(data):
        if number == wanted and kind == _BYTES:
            yield part


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, kind, and the value (an integer, or bytes)."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field without a number")
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes, of which {len(data) - at} are there")
        yield number, kind, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MOST_BYTES):
        if at >= len(data):
            raise ValueError("an integer that is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at
    raise ValueError("an integer of more than 64 bits")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content
