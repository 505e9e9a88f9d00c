"""Generated handwriting by writers of two populations: EMNIST's shape, for machines without it.

Glyphs are strokes of Hershey fonts, written as each writer's hand would: with a size, a slant, a
pen and an unsteadiness of its own, with a form of its own for every glyph, and with some glyphs in
the shape that other writers give to another glyph. A model that knows the writer reads better, so
personalization helps. The populations differ in all of this, so clustering helps. The data is not
real, and its names say so: clients are ``generated-…``, and their domains ``generated …``.
"""

import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sartor.caching import made_once
from sartor.checking import Count, Part, Share, check_memory, checks_arguments
from sartor.data.dataset import PARTS, ClientData, as_sizes, assemble
from sartor.errors import ConfigError
from sartor.randomness import Words, client_hashes, mix, uniforms
from sartor.types import Bools, Floats, Ints

Singles = npt.NDArray[np.float32]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes, in EMNIST's order."""

_FONTS = {"futural": 1.0, "cursive": 1.0, "scripts": 0.8, "timesi": 0.6}
"""The fonts, and how much ink each needs: less where a font draws strokes twice."""


class Population(NamedTuple):
    """What writers have in common.

    Attributes:
        domain: its name in the metadata.
        fonts: the share of writers who learned to write by each font.
        alike: how often a writer gives the glyphs of a group in `_ALIKE` each other's shapes.
        turn: a glyph gets the shape of the next one of its group (1) or of the one before (-1).
        lean: how far strokes lean to the right.
        pen: how thick they are.
        jitter: how much images of the same glyph differ.
    """

    domain: str
    fonts: tuple[float, ...]
    alike: float
    turn: int
    lean: float
    pen: float
    jitter: float


CENSUS = Population(
    "generated census", (0.8, 0.1, 0.05, 0.05), alike=0.1, turn=1, lean=0.12, pen=1.0, jitter=1.0
)
HIGH_SCHOOL = Population(
    "generated high school",
    (0.2, 0.4, 0.2, 0.2),
    alike=0.6,
    turn=-1,
    lean=0.15,
    pen=1.15,
    jitter=1.2,
)

_ALIKE = "0OoQD 17 IlijJ 2Zz 5Ss 8B 9gq 6bG 4yY cC uUvV nN ad Tt mM wW xX kK pP fF"
_OTHER_FONT = 0.1
"""How often a writer has a glyph from another font."""

_FORM = string.digits * 13 + string.ascii_uppercase + string.ascii_lowercase
_TEXT = """We the People of the United States in order to form a more perfect Union establish
    Justice insure domestic Tranquility provide for the common Defense promote the general Welfare
    and secure the Blessings of Liberty to ourselves and our posterity do ordain and establish this
    CONSTITUTION for the United States of America"""
# EMNIST takes letters for capitals that look the same.
_MERGED = "".join(_TEXT.split()).translate(str.maketrans("cfimopsu", "CFIMOPSU"))
_COPIED = np.array([CHARACTERS.index(c) for c in _FORM + _MERGED])
_TEXT_WRITERS = 0.3
"""What NIST's writers copied: a form, and this share of the first population a text as well."""

_SIDE = 28
_MARGIN = 2
_BLOCK = 256  # images drawn at once: what that needs fits in a processor's cache
_POINTS = 96  # where the pen leaves ink, along all strokes of a glyph: less than a pixel apart


def _spread(shift: float, stretch: float, bend: float, wave: float) -> Singles:
    """Standard deviations of the coefficients of `_features`, relative to a glyph's height."""
    waves = [wave, wave, 0.6 * wave, 0.6 * wave, 0.4 * wave, 0.4 * wave]
    return np.array([shift, *[stretch] * 2, *[bend] * 3, *waves], np.float32)[:, None]


# Tuned so that a small network does about as well as on EMNIST: as one model for all, finetuned,
# and alone on a writer's images.
_HAND = _spread(shift=0, stretch=0.07, bend=0.05, wave=0)  # between writers
_HABIT = _spread(shift=0, stretch=0.05, bend=0.06, wave=0.02)  # between glyphs of a writer
_SLIP = _spread(shift=0.04, stretch=0.07, bend=0.09, wave=0.022)  # between images of a glyph


@checks_arguments
def handwriting(
    writers: Count = 548,
    images: Count | Sequence[Count] | None = None,
    second: Share = 0.19,
    test: Part = 0.1,
    seed: int = 0,
) -> ClientData:
    """Images of generated writers: "x" as bytes (255 is paper), "y" of 62 classes, and "domain".

    A writer depends only on the seed and its number: more writers do not change the first ones.

    Args:
        writers: the number of clients.
        images: the number of images of a writer, one number or one for each writer (default: like
            EMNIST's, from about 40 to about 450).
        second: the share of writers of the second population, the high school's.
        test: the share of each writer's images in the test part, but at least one; 0 for none.
        seed: any integer.

    >>> handwriting(writers=3, images=20)
    ClientData(3 clients, 60 examples: x uint8[28, 28], y int32; train 54, test 6)
    """
    check_memory(f"{writers:,} writers", 40.0 * writers * _SIDE**2, "choose fewer")
    ids = tuple(f"generated-{k:05d}" for k in range(writers))
    keys = mix(seed, "handwriting", client_hashes(ids))
    at_school = uniforms(mix(keys, "population")) < second
    populations = [HIGH_SCHOOL if school else CENSUS for school in at_school]
    sizes = _sizes(keys, at_school) if images is None else as_sizes("images", images, writers)
    if test and sizes.min() < 2:
        raise ConfigError(
            f"images={images!r}: a writer needs two, one to train on and one to test on; give more,"
            " or test=0"
        )
    total = int(sizes.sum())
    check_memory(f"{total:,} images", float(total * _SIDE**2), "choose fewer")
    x = np.empty((total, _SIDE, _SIDE), np.uint8)
    y = np.empty(len(x), np.int32)
    part = np.zeros(len(x), np.int64)
    ends = np.cumsum(sizes)
    for key, population, start, end in zip(keys, populations, ends - sizes, ends, strict=True):
        y[start:end] = _labels(key, end - start)
        _write(key, population, y[start:end], x[start:end])
        if test:
            held = min(max(1, int(test * (end - start) + 0.5)), end - start - 1)
            draws = mix(key, "test", np.arange(end - start))
            part[start + np.argsort(draws)[:held]] = PARTS.index("test")
    owner = np.repeat(np.arange(writers), sizes)
    domain = [population.domain for population in populations]
    return assemble({"x": x, "y": y}, owner, ids, part=part, metadata={"domain": domain})


def _sizes(keys: Words, at_school: Bools) -> Ints:
    """Most of the form, with a long tail of writers who left out much, and for some a text."""
    u, v = uniforms(mix(keys, "left out")), uniforms(mix(keys, "text"))
    left_out = np.minimum(9 * (u / (1 - u)) ** 0.6, 140)
    wrote = (v < _TEXT_WRITERS) & ~at_school
    text = np.where(wrote, v / _TEXT_WRITERS, 0) * (len(_COPIED) - len(_FORM))
    return (len(_FORM) - left_out + text).astype(np.int64)


def _labels(key: np.uint64, images: int) -> Ints:
    """The classes of a writer's images: the form in random order, the text, and over again."""
    place = np.arange(len(_COPIED))
    order = np.lexsort((mix(key, "labels", place), place >= len(_FORM)))
    return np.resize(_COPIED[order], images)


def _normal(*words: npt.ArrayLike) -> Singles:
    """Nearly normal draws: sums of four uniform ones, exact on every machine, without outliers."""
    quarters = mix(*words)[..., None].view(np.uint16)
    sums = quarters.sum(axis=-1, dtype=np.uint32).astype(np.float32)
    return (sums / np.float32(2**16) - np.float32(2)) * np.float32(3**0.5)


def _write(
    key: np.uint64, population: Population, y: npt.NDArray[np.int32], out: npt.NDArray[np.uint8]
) -> None:
    """Draw what one writer writes."""
    glyphs = _glyphs()
    labels, feature, xy = np.arange(62), np.arange(len(_HAND))[:, None], np.arange(2)

    # Which glyph of which font each class is written as, at the class's own height.
    fonts = np.searchsorted(np.cumsum(population.fonts)[:-1], uniforms(mix(key, "font", range(63))))
    other = uniforms(mix(key, "other font", labels)) < _OTHER_FONT
    font = np.where(other, fonts[labels], fonts[62])
    exchanged = uniforms(mix(key, "alike", glyphs.group)) < population.alike
    shape = np.where(exchanged, glyphs.neighbour[population.turn], labels)
    hand = _normal(key, "hand", range(3))
    size = 11 * np.exp(0.1 * hand[0])
    sizes = size * glyphs.height[font, labels] / glyphs.height[font, shape]

    # How points move from where the font has them: by the writer, by the class, by the image.
    warp = np.zeros((len(_HAND), 2), np.float32)
    warp[1:3] = np.array([[1, 0], [-population.lean, 1]])
    warp = warp + _HAND * _normal(key, "warp", feature, xy)
    warps = warp + _HABIT * _normal(key, "habit", labels[:, None, None], feature, xy)
    warps *= sizes[:, None, None]
    slip = _SLIP * (size * population.jitter * np.exp(0.2 * hand[1]))
    pen = population.pen * np.exp(0.1 * hand[2])

    for start in range(0, len(y), _BLOCK):
        block = slice(start, start + _BLOCK)
        i, label = np.arange(len(y))[block], y[block]
        slips = slip * _normal(key, "slip", i[:, None, None], feature, xy)
        points = glyphs.features[font[label], shape[label]] @ (warps[label] + slips)
        step = glyphs.length[font[label], shape[label]] * sizes[label] / _POINTS
        thick = pen * np.exp(0.05 * _normal(key, "pen", i))
        out[block] = _draw(points, (step * thick).astype(np.float32))


def _draw(points: Singles, ink: Singles) -> npt.NDArray[np.uint8]:
    """Images [n, 28, 28] with this much ink at points [n, points, xy] around the centre.

    A point wets the four pixels around it, the ink runs a little, and little ink is not seen.
    """
    # No ink runs over the margin, so that images can be treated as one long row of pixels.
    at = (points + np.float32((_SIDE - 1) / 2)).clip(_MARGIN, _SIDE - _MARGIN - 1.01)
    corner = at.astype(np.int64)
    right, down = np.moveaxis(at - corner.astype(np.float32), -1, 0)
    first = corner[..., 0] + _SIDE * corner[..., 1] + _SIDE**2 * np.arange(len(points))[:, None]
    above, below = ink[:, None] * (1 - down), ink[:, None] * down
    pixels = np.stack([first, first + 1, first + _SIDE, first + _SIDE + 1])
    wet = np.stack([above * (1 - right), above * right, below * (1 - right), below * right])
    page = np.bincount(pixels.ravel(), wet.ravel(), len(points) * _SIDE**2).astype(np.float32)
    for step in (1, _SIDE):
        run = np.float32(0.2) * page
        page *= np.float32(0.6)
        page[step:] += run[:-step]
        page[:-step] += run[step:]
    seen = (np.float32(2.7) * page - np.float32(0.45)).clip(0, 1)
    return np.rint(255 - 255 * seen).astype(np.uint8).reshape(-1, _SIDE, _SIDE)


class _Glyphs(NamedTuple):
    """The fonts: where points lie on the strokes of [fonts, 62] glyphs, and what is alike."""

    features: Singles  # [fonts, 62, points, features], relative to the height of capitals
    length: Singles
    height: Singles
    group: Ints  # of glyphs that look alike, and each one's neighbours there
    neighbour: dict[int, Ints]


@made_once(maxsize=1)
def _glyphs() -> _Glyphs:
    from HersheyFonts import HersheyFonts

    features = np.empty((len(_FONTS), 62, _POINTS, len(_HAND)), np.float32)
    length, height = np.empty((2, len(_FONTS), 62), np.float32)
    t = (np.arange(_POINTS) + 0.5) / _POINTS
    for f, (font, ink) in enumerate(_FONTS.items()):
        source = HersheyFonts()
        source.load_default_font(font)
        for label, character in enumerate(CHARACTERS):
            lines = np.array(list(source.lines_for_text(character))) / 21  # as high as capitals
            lines -= (lines.min(axis=(0, 1)) + lines.max(axis=(0, 1))) / 2
            lines *= np.ptp(lines[..., 1]) ** -0.35  # small letters are higher by hand
            start, along = lines[:, 0], lines[:, 1] - lines[:, 0]
            ends = np.cumsum(np.hypot(*along.T))
            line = np.searchsorted(ends, t * ends[-1])
            left = (ends[line] - t * ends[-1]) / np.hypot(*along[line].T)
            features[f, label] = _features(start[line] + (1 - left[:, None]) * along[line], t)
            length[f, label], height[f, label] = ink * ends[-1], np.ptp(lines[..., 1])
    group, after, before = np.full(62, -1), np.arange(62), np.arange(62)
    for g, alike in enumerate(_ALIKE.split()):
        members = np.array([CHARACTERS.index(c) for c in alike])
        group[members] = g
        after[members], before[members] = np.roll(members, -1), np.roll(members, 1)
    return _Glyphs(features, length, height, group, {1: after, -1: before})


def _features(points: Floats, t: Floats) -> Singles:
    """The terms of a warp: a point's place, its squares, and waves along the strokes."""
    x, y = points.T
    waves = [wave(2 * np.pi * n * t) for n in (1, 2, 3) for wave in (np.cos, np.sin)]
    columns = [np.ones_like(t), x, y, x * x, x * y, y * y, *waves]
    return np.stack(columns, axis=1).astype(np.float32)
