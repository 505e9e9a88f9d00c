"""Check what users give, in Python and in files alike, against type hints.

Settings, arguments of public functions and tables of configurations are all checked here, so that
the same mistake gets the same words everywhere. A hint that is not known here is not checked.
"""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from sartor.errors import ConfigError, nearest

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "dict": "a table",
    "Mapping": "a dict",
    "list": "an array of tables, written [[personal]]",
    "Path": "a path",
    "PathLike": "a path",
    "ndarray": "an array",
    "Callable": "a function",
    "Model": "a model such as sartor.models.logistic(...), or in a configuration a table such as "
    '{name = "logistic", features = 4, classes = 2}',
    "Optimizer": "a sartor.Optimizer, or in a configuration a table such as "
    '{name = "adam", learning_rate = 0.01}',
    "CentralModel": "a central model, as FedAvg().fit(...) and models.central give",
    "PersonalModels": "personal models, as Finetune().fit(...) gives",
    "Automatic": "sartor.engine.Automatic(...)",
    "Searched": "sartor.engine.Searched(...)",
    "GradientTransformation": "an optax transformation",
    "ClientData": "sartor's ClientData, made with sartor.data.from_frame, from_arrays, from_dict "
    "or open",
}
"""Types in the words of error messages, by name: those of higher layers cannot be imported here."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that an annotation allows: ``Annotated[int, Range(2, 1000)]``.

    Attributes:
        least: the least one.
        most: the greatest one.
        without: those of the two that are left out.
    """

    least: float = -math.inf
    most: float = math.inf
    without: tuple[float, ...] = (-math.inf, math.inf)

    def holds(self, value: float) -> bool:
        """Whether a number is in the range."""
        return self.least <= value <= self.most and value not in self.without

    def words(self, kind: str) -> str:
        """The range, after the words of a type."""
        if self.least == 0 and 0 in self.without and self.most == math.inf:
            return kind.replace("a ", "a positive ", 1)
        if self.least == -math.inf:
            return kind if self.most == math.inf else f"{kind} of at most {self.most:,}"
        if self.most == math.inf:
            return f"{kind} {'above' if self.least in self.without else 'of at least'} {self.least}"
        ends = f"{self.least:,}", f"{self.most:,}"
        match self.least in self.without, self.most in self.without:
            case True, True:
                return f"{kind} between {ends[0]} and {ends[1]}"
            case False, False:
                return f"{kind} from {ends[0]} to {ends[1]}"
            case above, _:
                return f"{kind} in {'[('[above]}{', '.join(ends)}{')]'[above]}"


class Bits32:
    """Numbers that compiled programs can hold: of 32 bits, and not rounded to 0."""

    def holds(self, value: float) -> bool:
        """Whether a number fits."""
        if isinstance(value, int):
            return -(2**31) <= value < 2**31
        largest, smallest = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
        return value == 0 or smallest <= abs(value) <= largest

    def words(self, kind: str) -> str:
        """In the words of an error."""
        return f"{kind} that fits 32 bits"


BITS32 = Bits32()

Count = Annotated[int, Range(1), BITS32]
"""1, 2, 3, ..."""

Whole = Annotated[int, Range(0), BITS32]
"""0, 1, 2, ..."""

Finite = Annotated[float, Range(), BITS32]
"""Any number but NaN and infinity."""

Positive = Annotated[float, Range(0, without=(0, math.inf)), BITS32]
"""A finite number above 0."""

NotNegative = Annotated[float, Range(0), BITS32]
"""A finite number of at least 0."""

Share = Annotated[float, Range(0, 1)]
"""From 0 to 1."""

Part = Annotated[float, Range(0, 1, without=(1,))]
"""From 0 to 1, and not all of it."""

Probability = Annotated[float, Range(0, 1, without=(0, 1))]
"""Between 0 and 1."""


class Named:
    """Texts that can name something: not empty, and such as files can have."""

    def holds(self, value: Any) -> bool:
        """Whether a text or path names something."""
        try:
            raw = os.fsencode(value)
        except UnicodeError:
            return False
        parts = raw.split(b"/")
        return bool(raw) and b"\0" not in raw and len(raw) < 4096 and max(map(len, parts)) < 256

    def words(self, kind: str) -> str:
        """In the words of an error."""
        return f"{kind} that is not empty, nor longer than files can have it"


Name = Annotated[str, Named()]
"""A text that is not empty."""


class OfNumbers:
    """Arrays, or what numpy makes arrays of, that hold numbers."""

    def holds(self, value: Any) -> bool:
        """Whether it is one."""
        with contextlib.suppress(Exception):  # whatever the object does
            return np.asarray(value).dtype.kind in "biuf"
        return False

    def words(self, kind: str) -> str:
        """In the words of an error."""
        return "an array of numbers"


Numbers = Annotated[npt.ArrayLike, OfNumbers()]
"""An array of numbers, or lists that are one."""

AnyPath = Annotated[str | os.PathLike[str], Named()]
"""Where a file or directory is."""

Function = TypeVar("Function", bound=Callable[..., Any])


def check_table(where: str, table: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Refuse keys that have no type hint, and values that do not fit theirs.

    >>> check_table("engine", {"lane": 4}, {"lanes": int})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: engine.lane does not exist; did you mean 'lanes'?
    >>> check_table("engine", {"lanes": "many"}, {"lanes": int | None})
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: engine.lanes must be a whole number (got 'many')
    """
    for key, value in table.items():
        name = f"{where}.{key}" if where else key
        if key not in hints:
            raise ConfigError(f"{name} does not exist; {nearest(key, hints)}")
        if not (isinstance(value, dict) and _dataclasses_in(hints[key])):  # made of it later on
            checked(name, value, hints[key])


def checked(name: str, value: Any, hint: Any) -> Any:
    """A value that fits a type hint, in plain Python; refuses one that does not.

    Numbers of numpy become Python's.

    >>> checked("rounds", np.int64(5), Count), checked("smoothing", 0, Part)
    (5, 0.0)
    >>> checked("rounds", 0, Count)
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: rounds must be a whole number of at least 1 (got 0)
    """
    try:
        return _reader(hint)(value)
    except _Misfit:
        raise ConfigError(f"{name} must be {_wanted(value, hint)} (got {shown(value)})") from None


def shown(value: Any, most: int = 200) -> str:
    """A value in an error message: in a few words, whatever it is."""
    try:
        if hasattr(value, "iloc") or hasattr(value, "__arrow_c_stream__"):  # frames, and columns
            return f"a {type(value).__name__} of {len(value):,} rows"
        text = repr(value)
    except Exception:  # whatever the object does
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())  # arrays and frames have lines
    if len(text) > most:
        text = f"{text[:most]}..."
    return f"{type(value).__name__} {text}" if isinstance(value, np.ndarray) else text


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits a type hint.

    >>> fits(3, float), fits(True, int), fits(["a"], tuple[str, ...] | None), fits([1], list[str])
    (True, False, True, False)
    >>> fits([["dense_1", 0.5]], tuple[tuple[str, float], ...]), fits([0.5], tuple[str, float])
    (True, False)
    """
    return not misfit(value, hint)


def misfit(value: Any, hint: Any) -> str:
    """What a value must be and is not, in words; empty if it fits the hint.

    >>> misfit(2**70, Count), misfit("1", Share)
    ('a whole number that fits 32 bits', 'a number from 0 to 1')
    """
    try:
        _reader(hint)(value)
    except _Misfit:
        return _wanted(value, hint)
    return ""


def _wanted(value: Any, hint: Any) -> str:
    """What a value that does not fit should have been: of several limits, the one it breaks."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated and not misfit(value, arguments[0]):
        number = _reader(arguments[0])(value)
        broken = [limit for limit in filter(_is_limit, arguments[1:]) if not limit.holds(number)]
        return str(broken[0].words(_words(arguments[0])))
    if origin in (Union, types.UnionType):
        found = [_wanted(value, one) for one in arguments if one is not types.NoneType]
        return " or ".join(dict.fromkeys(found))
    return _words(hint)


class _Misfit(Exception):
    """A value does not fit a hint."""


@functools.lru_cache(maxsize=1024)
def _reader(hint: Any) -> Callable[[Any], Any]:
    """A function that returns a value that fits a hint, in plain Python, and raises for others."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(_reader(arguments[0]), tuple(filter(_is_limit, arguments[1:])))
    if origin in (Union, types.UnionType):
        return _first(tuple(map(_reader, arguments)), types.NoneType in arguments)
    if origin is Literal:
        return functools.partial(_known, arguments)
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if origin in (tuple, list, Sequence) and arguments:
        each = tuple(map(_reader, arguments if _is_fixed(hint) else arguments[:1]))
        return functools.partial(_several, each, _is_fixed(hint))
    kind = origin or hint
    if not isinstance(kind, type) or kind is Any or getattr(kind, "_is_protocol", False):
        return lambda value: value  # not known here, so not checked
    return functools.partial(_instance, kind)


def _limited(read: Callable[[Any], Any], limits: tuple[Any, ...]) -> Callable[[Any], Any]:
    def limited(value: Any) -> Any:
        value = read(value)
        for limit in limits:
            if not limit.holds(value):
                raise _Misfit
        return value

    return limited


def _first(readers: tuple[Callable[[Any], Any], ...], none: bool) -> Callable[[Any], Any]:
    def first(value: Any) -> Any:
        if value is None and none:
            return None
        for read in readers:
            with contextlib.suppress(_Misfit):
                return read(value)
        raise _Misfit

    return first


def _known(words: tuple[Any, ...], value: Any) -> Any:
    for word in words:
        if isinstance(value, type(word)) and value == word:
            return word
    raise _Misfit


def _several(each: tuple[Callable[[Any], Any], ...], fixed: bool, value: Any) -> Any:
    if isinstance(value, range) or (hasattr(value, "tolist") and np.ndim(value) == 1):
        value = list(value)  # so may be an array, or an index of pandas
    if not isinstance(value, list | tuple) or (fixed and len(value) != len(each)):
        raise _Misfit
    found = [read(v) for read, v in zip(each if fixed else each * len(value), value, strict=True)]
    return found if isinstance(value, list) else tuple(found) if type(value) is tuple else value


def _instance(kind: type, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is Iterable and not is_list(value)):
        raise _Misfit
    return value.item() if isinstance(value, np.generic) else value


def is_list(value: Any) -> bool:
    """Whether something holds several values, and is not a text.

    >>> is_list(["a"]), is_list("a"), is_list(np.array(1.0))
    (True, False, False)
    """
    single = isinstance(value, str | bytes) or (isinstance(value, np.ndarray) and not value.ndim)
    return isinstance(value, Iterable) and not single


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise _Misfit
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise _Misfit
    try:
        return float(value)
    except OverflowError:  # a whole number of many digits
        raise _Misfit from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise _Misfit
    return bool(value)


_NUMBERS: dict[Any, Callable[[Any], Any]] = {int: _int, float: _float, bool: _bool}
"""How numbers are read: a whole number will do for a float, and true is no number."""


def _is_fixed(hint: Any) -> bool:
    """Whether it is a tuple whose every entry has a type of its own."""
    return get_origin(hint) is tuple and Ellipsis not in get_args(hint)


def _is_limit(limit: Any) -> bool:
    """Whether the author of an annotation means it for these checks."""
    return hasattr(limit, "holds") and hasattr(limit, "words")


def _words(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, *limits = arguments
        first = next(filter(_is_limit, limits), None)
        return first.words(_words(base)) if first else _words(base)
    if origin in (Union, types.UnionType):
        found = [_words(one) for one in arguments if one is not types.NoneType]
        return " or ".join(dict.fromkeys(words for words in found if words))
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if arguments == (Any, Any):
        return "a pair"
    if _is_fixed(hint):
        return f"a list of {' and '.join(map(_words, arguments))}"
    if origin in (tuple, list, Sequence):
        return f"a list, each entry {_words(arguments[0])}"
    name = getattr(origin or hint, "__name__", str(hint))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and name not in WORDS:
        return f"a {name}({', '.join(field.name for field in dataclasses.fields(hint))})"
    return WORDS.get(name, f"a {name}")


def hints_of(takes: Any) -> dict[str, Any]:
    """The type hints of a function's parameters, or of a class's fields; those that can be read.

    A hint may name what is not there when the program runs, as hints are for type checkers.
    """
    hints: dict[str, Any] = {}
    for owner in reversed(takes.__mro__) if isinstance(takes, type) else [takes]:
        for name, hint in inspect.get_annotations(owner).items():
            one = types.SimpleNamespace(__annotations__={name: hint})
            space = dict(vars(sys.modules[owner.__module__])) if owner.__module__ else {}
            with contextlib.suppress(Exception):  # whatever stands in the hint
                found = get_type_hints(one, space, include_extras=True)[name]
                hash(found)  # readers are found by it
                hints[name] = found
    hints.pop("return", None)
    return {n: h.type if isinstance(h, dataclasses.InitVar) else h for n, h in hints.items()}


@functools.lru_cache(maxsize=1024)
def _hints_once(kind: Any) -> dict[str, Any]:
    return hints_of(kind)


def check_fields(settings: Any) -> None:
    """Check every field of a dataclass by its annotation.

    Numbers of numpy become Python's, lists tuples, and tables what the annotation asks for.
    Numbers that compiled programs take (``traced``) must fit 32 bits.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Settings:
    ...     rounds: Count = 5
    ...     def __post_init__(self): check_fields(self)
    >>> Settings(rounds=True)
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: Settings: rounds must be a whole number of at least 1 (got True)
    """
    kind: Any = type(settings)
    hints = _hints_once(kind)
    for field in dataclasses.fields(settings):
        value, hint = getattr(settings, field.name), hints.get(field.name, Any)
        name = f"{kind.__name__}: {field.name}"
        if isinstance(value, dict):
            value = _made(name, value, hint)
        value = checked(name, value, hint)
        if field.metadata.get("traced") and isinstance(value, int | float):
            checked(name, value, Annotated[type(value), BITS32])
        object.__setattr__(settings, field.name, as_tuples(value))


def as_tuples(value: Any) -> Any:
    """A list as a tuple, because settings are hashed; lists inside it, too.

    >>> as_tuples([["dense_1", 0.5], ["dense_2", 2.0]])
    (('dense_1', 0.5), ('dense_2', 2.0))
    """
    return tuple(map(as_tuples, value)) if type(value) in (list, tuple) else value


def _dataclasses_in(hint: Any) -> list[Any]:
    """The dataclasses that a hint allows."""
    several = get_args(hint) or [hint]
    return [one for one in several if isinstance(one, type) and dataclasses.is_dataclass(one)]


def _made(name: str, table: dict[str, Any], hint: Any) -> Any:
    """The dataclass that a hint asks for and a configuration gives as a table.

    It is made by its class method ``of``, if it has one.
    """
    kinds = _dataclasses_in(hint)
    kinds = [one for one in kinds if len(kinds) == 1 or one.__name__ == table.get("name")]
    if len(kinds) != 1:
        return table
    kind: Any = kinds[0]
    try:
        if isinstance(inspect.getattr_static(kind, "of", None), classmethod):
            return kind.of(table)
        values = {key: value for key, value in table.items() if key != "name"}
        check_table("", values, _hints_once(kind))
        for field in dataclasses.fields(kind):
            if field.name not in values and field.default is dataclasses.MISSING:
                raise ConfigError(f"{field.name} is missing; give it")
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def checks_arguments(function: Function) -> Function:
    """Check a function's arguments by their annotations, before it starts.

    >>> @checks_arguments
    ... def half(share: Share) -> float: return share / 2
    >>> half(np.float32(0.5))
    0.25
    >>> half("all")
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: share must be a number from 0 to 1 (got 'all')
    """
    signature = inspect.signature(function)
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    single = {name for name, p in signature.parameters.items() if p.kind not in several}
    order = list(signature.parameters)

    @functools.cache  # on the first call: a hint may name what is defined later
    def hints() -> dict[str, Any]:
        return {name: hint for name, hint in hints_of(function).items() if name in single}

    @functools.wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        known = hints()
        given = [
            checked(n, v, known[n]) if n in known else v
            for n, v in itertools.zip_longest(order[: len(args)], args)
        ]
        named = {n: checked(n, v, known[n]) if n in known else v for n, v in kwargs.items()}
        return function(*given, **named)

    return checking  # type: ignore[return-value]


def check_memory(what: str, size: float, remedy: str) -> None:
    """Refuse work that needs more bytes than the machine has, before it begins.

    >>> check_memory("q=1e9 models", 1e15, "choose fewer")
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: q=1e9 models would take 1,000,000,000,000,000 bytes...
    """
    there = machine_memory()
    if size > there:
        raise ConfigError(
            f"{what} would take {int(size):,} bytes, and this machine has {there:,}; {remedy}"
        )


def machine_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
