"""``tf.train.Example`` without TensorFlow: the few fields of Protocol Buffers that it is made of.

An Example is a map from names to lists of bytes, floats or integers:

    Example  { Features features = 1 }
    Features { map<string, Feature> feature = 1 }
    Feature  { BytesList bytes_list = 1 | FloatList float_list = 2 | Int64List int64_list = 3 }

and each list has one repeated field, ``value = 1``, packed or not.
"""

import io
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.types import Ints

Feature = list[bytes] | npt.NDArray[np.float32] | Ints

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_LISTS = {1: (_BYTES,), 2: (_BYTES, _FIXED32), 3: (_BYTES, _VARINT)}
"""The fields of a Feature, and the kinds of their values: bytes are several numbers, packed."""
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
    """The bytes of an Example with these features: lists of bytes, or arrays of numbers."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, list):
            feature = _message(1, b"".join(_message(1, item) for item in value))
        elif np.asarray(value).dtype.kind == "f":
            feature = _message(2, _message(1, np.asarray(value, "<f4").tobytes()))
        else:
            packed = b"".join(_varint(int(v) % 2**64) for v in np.asarray(value).reshape(-1))
            feature = _message(3, _message(1, packed))
        entries += _message(1, _message(1, name.encode()) + _message(2, feature))
    return _message(1, entries)


def _feature(data: bytes) -> Feature:
    found: Feature = []
    for number, kind, content in _fields(data):
        if kind != _BYTES or number not in _LISTS:
            continue
        values = [v for name, kind, v in _fields(content) if name == 1 and kind in _LISTS[number]]
        if number == 1:
            found = values
        elif number == 2:
            found = np.frombuffer(b"".join(values), "<f4")
        else:
            several = (_varints(v) if isinstance(v, bytes) else [v] for v in values)
            found = np.array([*chain.from_iterable(several)], np.uint64).astype(np.int64)
    return found


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, kind, value in _fields(data) if (number, kind) == (wanted, _BYTES))


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a message: number, kind, and the value (an integer, or bytes)."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        number, kind = divmod(_read_varint(stream), 8)
        if number == 0:
            raise ValueError("a field without a number")
        if kind == _VARINT:
            yield number, kind, _read_varint(stream)
            continue
        if kind not in (_BYTES, *_SIZES):
            raise ValueError(f"a field of the unknown kind {kind}")
        size = _read_varint(stream) if kind == _BYTES else _SIZES[kind]
        left = len(data) - stream.tell()
        if size > left:
            raise ValueError(f"a field of {size} bytes, of which {left} are there")
        yield number, kind, stream.read(size)


def _varints(data: bytes) -> Iterator[int]:
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        yield _read_varint(stream)


def _read_varint(stream: io.BytesIO) -> int:
    """An integer in groups of 7 bits, the lowest first; the eighth bit says that more follow."""
    value = 0
    for place in range(_MOST_BYTES):
        byte = stream.read(1)
        if not byte:
            raise ValueError("an integer that is cut short")
        value |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80 and value < 2**64:
            return value
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
