"""What a column of a table is, and the numbers that it becomes: for trees, and for linear models.

Trees take gaps, codes of categories and values of any size as they are. Linear models need every
gap filled, a column for each category, and all values on one scale. What is learned of a column is
plain values, so it is saved with a model as JSON.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sartor.data import encoding
from sartor.errors import DataError
from sartor.registry import register
from sartor.types import Floats

MOST_LEVELS = 254
"""Categories of a column that are told apart: those with the most rows."""

MOST_ONE_HOT = 50
"""Categories that have a column of their own in linear models."""

FEWEST_ROWS = 10
"""Rows that a category needs for that."""

FAR = 10.0
"""Scales from the middle beyond which linear models see no difference."""

TAIL = 0.005
"""The share of values at each end that the scale of a column leaves out."""

DAY = 86_400.0

HUGE = 1e100
"""Numbers beyond this, or within its inverse, are scaled before they are squared."""

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that trees are given."""

FEWEST_KEYS = 20
"""Different words that a key has at least."""


@dataclasses.dataclass(frozen=True)
class Kind(abc.ABC):
    """What was learned of a column.

    Attributes:
        name: the column's name.
        rows: the rows that it was learned from.
        gaps: how many of them have no value.
    """

    name: str
    rows: int
    gaps: int

    known: ClassVar[dict[str, type[Kind]]] = {}
    """All kinds by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register(Kind.known, cls.__name__.lower(), cls, "choose another name")

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """What the column is, for people."""

    @property
    def attention(self) -> str:
        """What people should know of it; empty if nothing."""
        return f"{self.gaps / self.rows:.1%} gaps" if self.gaps else ""

    @property
    def categorical(self) -> bool:
        """Whether trees should take its numbers for codes, which have no order."""
        return False

    @property
    @abc.abstractmethod
    def tree_names(self) -> tuple[str, ...]:
        """Names of its columns for trees."""

    @property
    @abc.abstractmethod
    def linear_names(self) -> tuple[str, ...]:
        """Names of its columns for linear models."""

    @abc.abstractmethod
    def for_trees(self, values: Any) -> Floats:
        """Its columns for trees, [rows, columns], where gaps are NaN."""

    @abc.abstractmethod
    def for_linear(self, values: Any) -> Floats:
        """Its columns for linear models, [rows, columns], without gaps and on one scale."""

    def to_dict(self) -> dict[str, Any]:
        """In plain values."""
        plain = dataclasses.asdict(self)
        return {"kind": type(self).__name__.lower(), **plain}

    @staticmethod
    def from_dict(table: dict[str, Any]) -> Kind:
        """Back from plain values."""
        fields: dict[str, Any] = dict(table)
        kind = Kind.known[fields.pop("kind")]
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return kind(**fields)

    def _gap_name(self) -> tuple[str, ...]:
        return (f"{self.name} is missing",) if self.gaps else ()


@dataclasses.dataclass(frozen=True)
class Constant(Kind):
    """One value in all rows, or none: it says nothing."""

    @property
    def words(self) -> str:
        """What the column is."""
        return "the same in all rows"

    @property
    def attention(self) -> str:
        """That it is left out."""
        return "left out: empty" if self.gaps == self.rows else "left out: one value in all rows"

    @property
    def tree_names(self) -> tuple[str, ...]:
        """None."""
        return ()

    linear_names = tree_names

    def for_trees(self, values: Any) -> Floats:
        """No columns."""
        return np.zeros((len(values), 0))

    for_linear = for_trees


@dataclasses.dataclass(frozen=True)
class Key(Constant):
    """Words that hardly ever come twice, such as numbers of orders: new rows have others.

    Attributes:
        different: how many different words there are.
    """

    different: int

    @property
    def words(self) -> str:
        """What the column is."""
        return "a key, or free text"

    @property
    def attention(self) -> str:
        """That it is left out."""
        return f"left out: {self.different:,} different words in {self.rows:,} rows"


@dataclasses.dataclass(frozen=True)
class Number(Kind):
    """Numbers, and booleans as 0 and 1.

    Attributes:
        middle: the mean without the tails.
        scale: the standard deviation without the tails.
        farthest: how many scales the farthest value is from the middle.
    """

    middle: float
    scale: float
    farthest: float

    @classmethod
    def of(cls, name: str, numbers: Floats) -> Number | Constant:
        """Learn from numbers, where gaps are NaN."""
        there = numbers[~np.isnan(numbers)]
        gaps = len(numbers) - len(there)
        if not len(there) or (there == there[0]).all():
            if not len(there) or not gaps:
                return Constant(name, len(numbers), gaps)
            return cls(name, len(numbers), gaps, float(there[0]), 1.0, 0.0)
        most = np.abs(there).max()
        unit = 1.0 if 1 / HUGE < most < HUGE else most  # squares of others are infinite, or 0
        there = there / unit
        low, high = np.quantile(there, [TAIL, 1 - TAIL])
        inside = np.clip(there, low, high)
        middle, scale = float(inside.mean()), float(inside.std())
        if scale <= 1e-12 * max(abs(low), abs(high)):  # all but the tails are the same
            middle, scale = float(there.mean()), float(there.std())
        farthest = float(np.abs(there - middle).max() / scale)
        return cls(name, len(numbers), gaps, middle * unit, scale * unit, farthest)

    @property
    def words(self) -> str:
        """What the column is."""
        return f"numbers around {_short(self.middle)} ± {_short(self.scale)}"

    @property
    def attention(self) -> str:
        """Gaps and outliers."""
        far = (
            f"values up to {self.farthest:,.0f} standard deviations away"
            if self.farthest > FAR
            else ""
        )
        return ", ".join(filter(None, [super().attention, far]))

    @property
    def tree_names(self) -> tuple[str, ...]:
        """Its name."""
        return (self.name,)

    @property
    def linear_names(self) -> tuple[str, ...]:
        """Its name, and whether it is missing."""
        return (self.name, *self._gap_name())

    def for_trees(self, values: Any) -> Floats:
        """The numbers. Many trees know those of 32 bits alone, so others are cut off."""
        return np.clip(as_numbers(values, self.name), -LARGEST, LARGEST)[:, None]

    def for_linear(self, values: Any) -> Floats:
        """Scaled, cut off where they are far out, and 0 where they are missing."""
        return _scaled(as_numbers(values, self.name), self.middle, self.scale, self.gaps > 0)


@dataclasses.dataclass(frozen=True)
class Category(Kind):
    """Words.

    Attributes:
        levels: the words that are told apart, those with the most rows first.
        common: how many of them have enough rows for a column of their own in linear models.
        others: how many different words are not told apart.
    """

    levels: tuple[str, ...]
    common: int
    others: int

    @classmethod
    def of(cls, name: str, values: Any) -> Category | Constant:
        """Learn from an Arrow column of texts. Words that hardly ever come twice are a key."""
        counted = pc.value_counts(values)
        pairs = zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)
        there = sorted((-n, word) for word, n in pairs if word)
        gaps = len(values) + sum(n for n, _ in there)
        if not there or (len(there) == 1 and not gaps):
            return Constant(name, len(values), gaps)
        rows = len(values) - gaps
        if len(there) >= max(FEWEST_KEYS, rows / 2) and -there[0][0] < FEWEST_ROWS:
            return Key(name, len(values), gaps, len(there))
        levels = tuple(word for _, word in there[:MOST_LEVELS])
        common = sum(-n >= FEWEST_ROWS for n, _ in there[:MOST_ONE_HOT])
        return cls(name, len(values), gaps, levels, common, len(there) - len(levels))

    @property
    def words(self) -> str:
        """What the column is."""
        named = ", ".join(word if len(word) < 25 else f"{word[:20]}…" for word in self.levels[:3])
        named += ", …" if len(self.levels) > 3 else ""
        return f"{len(self.levels) + self.others:,} categories ({named})"

    @property
    def attention(self) -> str:
        """Gaps, and rare words."""
        rest = f"{self.others:,} rare categories taken together" if self.others else ""
        return ", ".join(filter(None, [super().attention, rest]))

    @property
    def categorical(self) -> bool:
        """Codes have no order."""
        return True

    @property
    def tree_names(self) -> tuple[str, ...]:
        """Its name."""
        return (self.name,)

    @property
    def linear_names(self) -> tuple[str, ...]:
        """A name for each common word."""
        return (
            *(f"{self.name} = {word}" for word in self.levels[: self.common]),
            *self._gap_name(),
        )

    def for_trees(self, values: Any) -> Floats:
        """The number of each word; the last number is of all that are not told apart, or new."""
        return self._codes(values)[:, None]

    def for_linear(self, values: Any) -> Floats:
        """1 in the column of a word."""
        codes = self._codes(values)
        columns = codes[:, None] == np.arange(self.common)
        if self.gaps:
            columns = np.concatenate([columns, np.isnan(codes)[:, None]], axis=1)
        return columns.astype(np.float64)

    def _codes(self, values: Any) -> Floats:
        found = pc.index_in(values, pa.array(self.levels, values.type))
        codes = _floats(found.fill_null(len(self.levels)))
        empty = pc.or_kleene(pc.is_null(values), pc.equal(values, "")).fill_null(True)
        return np.where(np.asarray(empty.to_numpy(zero_copy_only=False)), np.nan, codes)


_CYCLES = {"month": 12, "day of week": 7, "hour": 24}


@dataclasses.dataclass(frozen=True)
class Date(Kind):
    """Dates and times: how long since the first one, and where in the year, week and day.

    Attributes:
        first: the earliest, in seconds since 1970.
        middle, scale: of the days since then, without the tails.
        parts: what varies, of month, day of week and hour.
    """

    first: float
    middle: float
    scale: float
    parts: tuple[str, ...]

    @classmethod
    def of(cls, name: str, values: Any) -> Date | Constant:
        """Learn from an Arrow column of dates."""
        seconds = _seconds(values)
        first = float(np.min(seconds, initial=np.inf, where=~np.isnan(seconds)))
        days = Number.of(name, (seconds - first) / DAY)
        if isinstance(days, Constant):
            return days
        there = {part: v[~np.isnan(v)] for part, v in _parts(values).items()}
        parts = tuple(part for part, v in there.items() if len(v) and v.min() < v.max())
        return cls(name, days.rows, days.gaps, first, days.middle, days.scale, parts)

    @property
    def words(self) -> str:
        """What the column is."""
        start = np.datetime64(int(self.first), "s").astype("datetime64[D]")
        return f"dates from {start}, by {', '.join(('days since', *self.parts))}"

    @property
    def tree_names(self) -> tuple[str, ...]:
        """Days since the first, and the parts."""
        return (f"{self.name}, days", *(f"{self.name}, {part}" for part in self.parts))

    @property
    def linear_names(self) -> tuple[str, ...]:
        """Days since the first, and the parts as circles."""
        turns = ((f"{self.name}, sin {p}", f"{self.name}, cos {p}") for p in self.parts)
        return (f"{self.name}, days", *itertools.chain(*turns), *self._gap_name())

    def for_trees(self, values: Any) -> Floats:
        """Days, and the parts."""
        parts = _parts(values)
        days = (_seconds(values) - self.first) / DAY
        return np.stack([days, *(parts[name] for name in self.parts)], axis=1)

    def for_linear(self, values: Any) -> Floats:
        """Days, scaled, and the parts as points of a circle."""
        days, *turns = self.for_trees(values).T
        scaled = _scaled(days, self.middle, self.scale, self.gaps > 0)
        columns = [scaled[:, :1]]
        for name, part in zip(self.parts, turns, strict=True):
            angle = 2 * np.pi * np.nan_to_num(part)[:, None] / _CYCLES[name]
            known = ~np.isnan(part)[:, None]
            columns += [known * np.sin(angle), known * np.cos(angle)]
        return np.concatenate([*columns, scaled[:, 1:]], axis=1)


def as_numbers(values: Any, name: str) -> Floats:
    """An Arrow column of numbers, where gaps and infinite values are NaN.

    Spans of time and times of day are seconds.
    """
    kind, unit = values.type, 1.0
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        unit = _UNITS[kind.unit]
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    try:
        numbers = _floats(values.cast(pa.float64(), safe=False)) * unit
    except pa.ArrowException as error:  # an invalid text, or a type that cannot be numbers
        raise DataError(f"column {name!r} was numbers before, and is not now: {error}") from error
    return np.where(np.isfinite(numbers), numbers, np.nan)


_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _short(number: float) -> str:
    """A number for people.

    >>> _short(1344.4), _short(0.009544), _short(1e20)
    ('1,344', '0.0095', '1e+20')
    """
    return f"{number:,.0f}" if 100 <= abs(number) < 1e9 else f"{number:.2g}"


def _scaled(numbers: Floats, middle: float, scale: float, gaps: bool) -> Floats:
    missing = np.isnan(numbers)
    with np.errstate(over="ignore"):  # what is infinite is far
        scaled = np.where(missing, 0.0, np.clip((numbers - middle) / scale, -FAR, FAR))
    return np.stack([scaled, missing], axis=1) if gaps else scaled[:, None]


def _seconds(values: Any) -> Floats:
    """Seconds since 1970, where gaps are NaN."""
    micros = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return _floats(micros.cast(pa.float64(), safe=False)) / 1e6


def _parts(values: Any) -> dict[str, Floats]:
    """Where in the year, week and day dates are: NaN where they are missing."""
    times = values.cast(pa.timestamp("us"), safe=False)
    functions = (pc.month, pc.day_of_week, pc.hour)
    found = (_floats(f(times).cast(pa.float64())) for f in functions)
    return dict(zip(_CYCLES, found, strict=True))


def _floats(values: Any) -> Floats:
    """Arrow's floats, where gaps are NaN."""
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def learn(name: str, values: Any) -> Kind:
    """What an Arrow column is, by its type and its values."""
    kind = values.type
    encoding.refuse_nested(kind, name)
    if pa.types.is_null(kind):
        return Constant(name, len(values), len(values))
    if encoding.is_text(kind):
        return Date.of(name, dates) if (dates := dates_in(values)) else Category.of(name, values)
    if encoding.is_date(kind):
        return Date.of(name, values)
    tests = ("boolean", "integer", "floating", "decimal", "duration", "time")
    if not any(getattr(pa.types, f"is_{test}")(kind) for test in tests):
        raise DataError(
            f"column {name!r} holds {kind}, and numbers, words or dates are needed; make some of "
            "it, or leave the column out"
        )
    return Number.of(name, as_numbers(values, name))


def dates_in(texts: Any) -> Any:
    """Texts such as 2026-11-18 or 2026-11-18 09:30 as dates; ``None`` for other texts.

    Empty texts are gaps.
    """
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    if not len(texts) or not pc.all(pc.match_substring_regex(texts, _ISO)).as_py():
        return None
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without and with a time zone
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    return None


_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$"


def names_of(kinds: Sequence[Kind], *, linear: bool) -> tuple[str, ...]:
    """Names of the columns that some columns become."""
    several = (kind.linear_names if linear else kind.tree_names for kind in kinds)
    return tuple(itertools.chain(*several))
