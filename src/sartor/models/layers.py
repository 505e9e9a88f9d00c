"""The few layers that the ready models are made of, written for many models side by side.

A convolution vmapped over models with different weights becomes a grouped convolution, which is
slow on every backend. Written as shifted slices and a matrix product it becomes a batched matrix
product, which is fast on every backend (bench/RESULTS.md has the measurements).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sartor.models.base import Params


def glorot(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform Glorot initialisation of a dense or (kernel, kernel, in, out) convolution weight."""
    receptive = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def to_float(x: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Inputs as floats; ``uint8`` means pixels, scaled to [0, 1]."""
    if x.dtype == jnp.uint8:
        return x.astype(dtype) / 255
    return jnp.asarray(x).astype(dtype)


def dense(params: Params, x: jax.Array) -> jax.Array:
    """An affine map."""
    return x @ params["w"] + params["b"]


def dropout(x: jax.Array, keep: float, key: jax.Array | None) -> jax.Array:
    """Keep each unit with probability ``keep`` (a multiple of 1/256) and rescale; off without key.

    Eight random bits decide a unit, and a 32-bit word is cut into four of them: asking JAX for
    bytes would draw a whole word for each.
    """
    if key is None:
        return x
    words = jax.random.bits(key, (-(-x.size // 4),), jnp.uint32)
    bits = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(-1)[: x.size].reshape(x.shape)
    return jnp.where(bits < round(keep * 256), x / keep, 0).astype(x.dtype)


def conv_conv_pool(first: Params, second: Params, x: jax.Array) -> jax.Array:
    """Two 3×3 convolutions with ReLU and 2×2 max-pooling: [n, h, w] to [n, h/2 - 2, w/2 - 2, d].

    One function in two forms, chosen by the platform when the program is compiled.
    """
    return jax.lax.platform_dependent(
        first, second, x[..., None], cpu=_conv_conv_pool_by_rows, default=_conv_conv_pool_by_blocks
    )


def _conv_conv_pool_by_rows(first: Params, second: Params, x: jax.Array) -> jax.Array:
    """For CPUs, where arithmetic is dear: no operation more than needed."""
    for layer in (first, second):
        x = jax.nn.relu(conv3x3_by_rows(layer, x))
    pairs = jnp.maximum(x[:, 0::2], x[:, 1::2])
    return jnp.maximum(pairs[:, :, 0::2], pairs[:, :, 1::2])


def conv3x3_by_rows(params: Params, x: jax.Array) -> jax.Array:
    """A 3×3 convolution without padding of [n, h, w, c]: three products, one for each kernel row.

    Patches of one kernel row at a time stay in a CPU's cache.
    """
    w = params["w"]
    height, width = x.shape[1] - 2, x.shape[2] - 2
    out = params["b"]
    for i in range(3):
        row = [x[:, i : i + height, j : j + width] for j in range(3)]
        out = out + jnp.concatenate(row, axis=-1) @ w[i].reshape(-1, w.shape[-1])
    return out


def _conv_conv_pool_by_blocks(first: Params, second: Params, x: jax.Array) -> jax.Array:
    """For GPUs, where bytes are dear: everything in blocks of 2×2 pixels.

    With the four pixels of a block side by side on the channel axis, a 3×3 convolution is a 2×2
    convolution of blocks: patches are four slices instead of nine and take less than half the
    memory, products are eight times wider, and pooling is a maximum inside a block. The price is
    arithmetic with zeros, 1.8 times as much in all, which tensor cores do not notice.
    """
    n, height, width, channels = x.shape
    x = x.reshape(n, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(n, height // 2, width // 2, 4 * channels)
    for layer in (first, second):
        x = jax.nn.relu(conv3x3_of_blocks(layer, x))
    return x.reshape(*x.shape[:-1], 4, -1).max(axis=-2)


def conv3x3_of_blocks(params: Params, x: jax.Array) -> jax.Array:
    """A 3×3 convolution in blocks: [n, h/2, w/2, 4 c] to [n, h/2 - 1, w/2 - 1, 4 d]."""
    height, width = x.shape[1] - 1, x.shape[2] - 1
    slices = [x[:, i : i + height, j : j + width] for i in range(2) for j in range(2)]
    patches = jnp.concatenate(slices, axis=-1)
    return patches @ _block_weight(params["w"]) + jnp.tile(params["b"], 4)


def _block_weight(w: jax.Array) -> jax.Array:
    """The matrix from a 4×4 window of pixels (2×2 blocks) to the 2×2 pixels that it determines."""
    channels, out = w.shape[2:]
    spread = [
        jnp.pad(w, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in range(2) for j in range(2)
    ]
    window = jnp.stack(spread, axis=3)  # [row 4, column 4, channel, pixel 4, out]
    blocks = window.reshape(2, 2, 2, 2, channels, 4 * out).transpose(0, 2, 1, 3, 4, 5)
    return blocks.reshape(16 * channels, 4 * out)
