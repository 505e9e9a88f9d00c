"""The few layers that the ready models are made of, written for many models side by side.

A convolution vmapped over models with different weights becomes a grouped convolution, which is
slow on every backend. Written as shifted slices and a matrix product it becomes a batched matrix
product, which is fast on every backend (bench/RESULTS.md has the measurements).
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from sartor.models.base import Params


def glorot(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform Glorot initialisation of a dense or (kernel, kernel, in, out) convolution weight."""
    receptive = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def init_layers(key: jax.Array, shapes: Mapping[str, tuple[int, ...]]) -> Params:
    """Weights of these shapes with Glorot initialisation, and zero biases, by name of the layer."""
    keys = jax.random.split(key, len(shapes))
    return {
        name: {"w": glorot(k, shape), "b": jnp.zeros(shape[-1])}
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def to_float(x: Any, dtype: Any = jnp.float32) -> jax.Array:
    """Inputs as floats; images of bytes, [n, h, w, ...], are scaled to [0, 1]."""
    if x.dtype == jnp.uint8 and x.ndim > 2:
        return x.astype(dtype) / 255
    return jnp.asarray(x).astype(dtype)


def log_softmax(x: jax.Array) -> jax.Array:
    """Log-probabilities of logits, in float32 at least."""
    return jax.nn.log_softmax(x.astype(jnp.promote_types(x.dtype, jnp.float32)))


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
        first, second, x[..., None], cpu=_conv_conv_pool, default=_conv_conv_pool_in_blocks
    )


# With pooling before the bias and ReLU both run on a quarter of the numbers; the results are the
# same, since adding a bias and ReLU never swap the order of two numbers.


def _conv_conv_pool(first: Params, second: Params, x: jax.Array) -> jax.Array:
    """For CPUs, where arithmetic is the bottleneck: no more products than needed."""
    x = jax.nn.relu(conv3x3(first["w"], x) + first["b"])
    return jax.nn.relu(max_pool_in_blocks(in_blocks(conv3x3(second["w"], x))) + second["b"])


def conv3x3(w: jax.Array, x: jax.Array) -> jax.Array:
    """A 3×3 convolution without padding: [n, h, w, c] to [n, h - 2, w - 2, d].

    One product for all nine taps where there is one channel; with more, one for each row of the
    kernel, so that its patches stay in the processor's cache.
    """
    height, width = x.shape[1] - 2, x.shape[2] - 2
    channels, out = w.shape[2:]
    taps = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    groups = [taps] if channels == 1 else [taps[3 * i : 3 * i + 3] for i in range(3)]
    weights = w.reshape(len(groups), -1, out)
    products = [_matrix(group) @ weight for group, weight in zip(groups, weights, strict=True)]
    return sum(products[1:], products[0]).reshape(-1, height, width, out)


def _conv_conv_pool_in_blocks(first: Params, second: Params, x: jax.Array) -> jax.Array:
    """For GPUs, where memory traffic is the bottleneck: everything in blocks of 2×2 pixels.

    With the four pixels of a block side by side on the channel axis, a 3×3 convolution is a 2×2
    convolution of blocks: patches are four slices instead of nine and take less than half the
    memory, products are wider, and pooling is a maximum inside a block. The price is arithmetic
    with zeros, 1.8 times as much in all, which tensor cores do not notice.
    """
    x = jax.nn.relu(conv3x3_in_blocks(first["w"], in_blocks(x)) + jnp.tile(first["b"], 4))
    return jax.nn.relu(max_pool_in_blocks(conv3x3_in_blocks(second["w"], x)) + second["b"])


def in_blocks(x: jax.Array) -> jax.Array:
    """The four pixels of every block side by side: [n, h, w, c] to [n, h/2, w/2, 4 c]."""
    n, height, width, channels = x.shape
    x = x.reshape(n, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, height // 2, width // 2, 4 * channels)


def conv3x3_in_blocks(w: jax.Array, x: jax.Array) -> jax.Array:
    """A 3×3 convolution in blocks: [n, h/2, w/2, 4 c] to [n, h/2 - 1, w/2 - 1, 4 d]."""
    height, width = x.shape[1] - 1, x.shape[2] - 1
    taps = [x[:, i : i + height, j : j + width] for i in range(2) for j in range(2)]
    return (_matrix(taps) @ _block_weight(w)).reshape(-1, height, width, 4 * w.shape[-1])


def _matrix(taps: list[jax.Array]) -> jax.Array:
    """Patches as the rows of a matrix, so that gradients of products need no transposed copy."""
    patches = jnp.concatenate(taps, axis=-1)
    return patches.reshape(-1, patches.shape[-1])


def _block_weight(w: jax.Array) -> jax.Array:
    """The matrix from a 4×4 window of pixels (2×2 blocks) to the 2×2 pixels that it determines."""
    channels, out = w.shape[2:]
    spread = [
        jnp.pad(w, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in range(2) for j in range(2)
    ]
    window = jnp.stack(spread, axis=3)  # [row 4, column 4, channel, pixel 4, out]
    blocks = window.reshape(2, 2, 2, 2, channels, 4 * out).transpose(0, 2, 1, 3, 4, 5)
    return blocks.reshape(16 * channels, 4 * out)


# Pooling remembers which of the four pixels won, the first one where several are equal (a blank
# background makes many equal), and hands the gradient to that pixel alone.


@jax.custom_vjp
def max_pool_in_blocks(x: jax.Array) -> jax.Array:
    """The maximum over the four pixels of every block: [n, h, w, 4 c] to [n, h, w, c]."""
    return _max_pool(x)[0]


def _max_pool(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    a, b, c, d = jnp.split(x, 4, axis=-1)
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    index = jnp.where(bottom > top, 2 + (d > c), 0 + (b > a))
    return jnp.maximum(top, bottom), index.astype(jnp.uint8)


def _max_pool_gradient(index: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    pixel = jnp.arange(4, dtype=jnp.uint8)[:, None]
    spread = jnp.where(index[..., None, :] == pixel, gradient[..., None, :], 0)
    return (spread.reshape(*gradient.shape[:-1], -1),)


max_pool_in_blocks.defvjp(_max_pool, _max_pool_gradient)
