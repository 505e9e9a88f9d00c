"""Generated handwriting by writers of two populations: EMNIST's shape, for machines without it.

Glyphs are strokes of Hershey fonts, drawn as each writer's hand would: with a slant, a width, a pen
and an unsteadiness of its own, and with habits for glyphs that others may mistake. It is no real
data, and says so: clients are called ``generated-…``.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.caching import made_once
from sartor.data.dataset import ClientData, assemble
from sartor.errors import ConfigError
from sartor.randomness import mix

Floats = npt.NDArray[np.float32]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes, in EMNIST's order."""

POPULATIONS = ("census", "high school")
"""Of whom the second has other fonts, a thicker pen and less steady hands."""

_FONTS = (("futural", "timesi", "scripts"), ("rowmans", "cursive", "scripts"))
_AMBIGUOUS = "01245689BCDGIJKLMOPQSTUVWXYZabcdfghijklmnopqrstuvwxyz"
"""Glyphs for which some writers have a form of another font."""

_SIDE = 28
_SEGMENTS = 64
"""More than any glyph has."""


def handwriting(
    writers: int = 548,
    images: int | Sequence[int] | None = None,
    second: float = 0.2,
    seed: int = 0,
) -> ClientData:
    """Images of generated writers: "x" as bytes (255 is paper), "y" of 62 classes, and "domain".

    Args:
        writers: how many clients.
        images: how many each has, one number or one for each writer; like EMNIST's if not given,
            from about 40 to about 450.
        second: the share of writers of the second population.
        seed: any integer.
    """
    if writers < 1:
        raise ConfigError(f"writers={writers}: at least one is needed")
    if not 0 <= second <= 1:
        raise ConfigError(f"second={second}: a share is needed, from 0 to 1")
    random = _generator(seed, "writers")
    population = (random.permutation(writers) < round(second * writers)).astype(np.int64)
    if images is None:
        sizes = np.clip(random.lognormal(5.2, 0.42, writers), 40, 450).astype(np.int64)
    else:
        sizes = np.broadcast_to(np.asarray(images, np.int64), writers)
    if sizes.min() < 1:
        raise ConfigError(f"images={images!r}: every writer needs at least one")
    x = np.empty((int(sizes.sum()), _SIDE, _SIDE), np.uint8)
    y = np.empty(len(x), np.int32)
    at = 0
    for k in range(writers):
        some = slice(at, at + int(sizes[k]))
        x[some], y[some] = _write(int(population[k]), int(sizes[k]), _generator(seed, "writer", k))
        at = some.stop
    ids = tuple(f"generated-{k:05d}" for k in range(writers))
    owner = np.repeat(np.arange(writers), sizes)
    domain = [POPULATIONS[p] for p in population]
    return assemble({"x": x, "y": y}, owner, ids, metadata={"domain": domain})


def _generator(seed: int, *purpose: Any) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(int(mix(seed, "handwriting", *purpose))))


def _write(
    population: int, images: int, random: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """What one writer writes."""
    fonts = _FONTS[population]
    font = random.choice(len(fonts), p=(0.6, 0.25, 0.15))
    habits = np.full(62, font)
    for label, character in enumerate(CHARACTERS):
        if character in _AMBIGUOUS and random.random() < 0.15:
            habits[label] = random.integers(len(fonts))
    slant = random.normal(0.1 + 0.1 * population, 0.18)
    wide = random.lognormal(-0.05, 0.15)
    pen = random.lognormal(0.05 + 0.25 * population, 0.2)
    unsteady = random.gamma(2.0, 0.12 + 0.1 * population)
    y = random.choice(62, images, p=_FREQUENCIES)
    strokes = np.stack([_glyphs(fonts[habits[label]])[label] for label in y])  # [n, S, 2, 2]
    lean = slant + random.normal(0, 0.06, images)
    turn = random.normal(0, 0.05 + 0.03 * population, images)
    size = random.normal(1.0, 0.06, (images, 2)) * (wide, 1.0)
    shift = random.normal(0, 0.6, (images, 2))
    warp = np.stack(
        [
            np.stack([size[:, 0], -lean * size[:, 1] - turn], axis=-1),
            np.stack([turn, size[:, 1]], axis=-1),
        ],
        axis=1,
    )  # [n, 2, 2]
    points = np.einsum("nij,nsej->nsei", warp, strokes) + shift[:, None, None] + _SIDE / 2
    points += random.normal(0, unsteady, points.shape)
    width = pen * random.lognormal(0, 0.1, images)
    return _draw(points.astype(np.float32), width.astype(np.float32)), y.astype(np.int32)


_FREQUENCIES = np.array([2.4] * 10 + [0.7] * 26 + [0.75] * 26)
_FREQUENCIES /= _FREQUENCIES.sum()


def _draw(points: Floats, width: Floats) -> npt.NDArray[np.uint8]:
    """Images of strokes [n, segments, ends, xy]; where there is no segment, points are not finite.

    A pixel is as dark as its distance from the nearest segment says: ink within half the pen's
    width, and an edge one pixel wide.
    """
    pixel = np.arange(_SIDE, dtype=np.float32) + 0.5
    out = np.empty((len(points), _SIDE, _SIDE), np.uint8)
    for n, (strokes, pen) in enumerate(zip(points, width, strict=True)):
        ends = strokes[np.isfinite(strokes).all(axis=(1, 2))]
        start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
        length = np.maximum((along**2).sum(axis=1), np.float32(1e-6))
        dx = pixel[None, None, :] - start[:, 0, None, None]
        dy = pixel[None, :, None] - start[:, 1, None, None]
        t = (dx * along[:, 0, None, None] + dy * along[:, 1, None, None]) / length[:, None, None]
        t = t.clip(0, 1)
        far = (dx - t * along[:, 0, None, None]) ** 2 + (dy - t * along[:, 1, None, None]) ** 2
        ink = (np.float32(0.5) + pen - np.sqrt(far.min(axis=0))).clip(0, 1)
        out[n] = np.rint(255 * (1 - ink))
    return out


@made_once(maxsize=16)
def _glyphs(font: str) -> Floats:
    """The strokes of all classes: [62, segments, ends, xy] about the origin, 20 pixels high."""
    from HersheyFonts import HersheyFonts

    source = HersheyFonts()
    source.load_default_font(font)
    found = np.full((62, _SEGMENTS, 2, 2), np.nan, np.float32)
    for label, character in enumerate(CHARACTERS):
        lines = np.array(list(source.lines_for_text(character)), np.float32)
        low, high = lines.min(axis=(0, 1)), lines.max(axis=(0, 1))
        lines = (lines - (low + high) / 2) * (18 / max(float((high - low).max()), 1.0))
        found[label, : len(lines)] = lines
    return found
