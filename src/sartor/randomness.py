"""Counter-based randomness: a client's draws depend on who it is, never on where it stands.

Every random number of a client is a function of (seed, purpose, round, a stable hash of the
client's id) and of a counter. No generator object is passed around, so results do not depend on
how many clients run side by side, on which device, or in which order; and everything is
vectorised over clients. The mixing function is SplitMix64's finaliser.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sartor.types import Floats, Ints

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stable_hash(text: str) -> int:
    """64 bits of a text that are the same on every machine and in every Python process.

    >>> stable_hash("client-17") == stable_hash("client-17") != stable_hash("client-18")
    True
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def client_hashes(ids: Iterable[str]) -> Words:
    """The stable hashes of client ids, as one array."""
    return np.fromiter((stable_hash(i) for i in ids), dtype=np.uint64)


def _finalise(z: Words) -> Words:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mix(*words: int | str | npt.ArrayLike) -> Words:
    """Hash words (integers, texts or arrays, broadcast together) into 64 well-mixed bits.

    >>> mix(0, "shuffle", [1, 2, 3]).shape
    (3,)
    >>> bool(mix(0, "shuffle", 1) == mix(0, "shuffle", [3, 2, 1])[2])
    True
    """
    state = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            if isinstance(word, str):
                word = stable_hash(word)
            if isinstance(word, int):
                word = word % 2**64  # negative seeds are as good as others
            state = _finalise(
                (state + _GOLDEN) ^ _finalise(np.asarray(word).astype(np.uint64) + _GOLDEN)
            )
    return state


def uniforms(bits: Words) -> Floats:
    """Turn 64-bit words into floats in [0, 1).

    >>> u = uniforms(mix(0, "doc", np.arange(100_000)))
    >>> bool(abs(u.mean() - 0.5) < 0.01 and u.min() >= 0 and u.max() < 1)
    True
    """
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def shuffles(keys: Words, sizes: Ints) -> Ints:
    """Independent permutations of range(sizes[j]), one for each key, end to end.

    >>> order = shuffles(mix(0, "doc", [7, 8]), np.array([3, 2]))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [0, 1])
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(owner)) - starts[owner]
    draws = mix(keys[owner], place)
    # By owner, then by draw. One word for both is sorted twelve times as fast as the two; where
    # the bits that this cuts off would have decided, the two are compared after all.
    bits = np.uint64(max(len(sizes) - 1, 1).bit_length())
    words = (owner.astype(np.uint64) << (np.uint64(64) - bits)) | (draws >> bits)
    order = np.argsort(words)
    if (words[order][1:] == words[order][:-1]).any():
        order = np.lexsort((draws, owner))
    return place[order]


def key_data(bits: Words) -> npt.NDArray[np.uint32]:
    """Split 64-bit words into the two halves that a JAX threefry key is made of.

    >>> key_data(mix(0, "doc", [1, 2])).shape
    (2, 2)
    """
    return np.stack([bits >> np.uint64(32), bits], axis=-1).astype(np.uint32)  # high and low
