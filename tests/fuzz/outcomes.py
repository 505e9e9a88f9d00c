"""What a fuzzed case ends as, and the words in which cases say what must hold.

A case is a function of a random generator and an empty directory. It makes something that is right
or wrong by construction, hands it to Sartor, and compares what comes back with what plain numpy
says. It ends as

- **fine**: no error, and all that was checked holds;
- **refused**: with an error of Sartor's that says what to do, where that is allowed;
- **wrong**: a result that contradicts what is known, something wrong accepted, or something right
  refused;
- **crash**: any other exception, or a warning of numpy's out of Sartor's code;
- **slow**: above a generous limit.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sartor.errors import SartorError

OUTCOMES = ("fine", "refused", "crash", "wrong", "slow")

LIMIT = 60.0
"""Seconds that a case may take, compiling included; most take milliseconds."""

REMEDY = re.compile(
    r"\b(must|need(s|ed)?|give|choose|use|make|say|name|did you mean|there (is|are)|leave|lower|"
    r"correct|fill|drop|restore|copy|delete|remove|rename|fit|pass|scale|encode|subtract|import|set|"
    r"run|only|train|known are|takes|keep|add|free|understood are|wait|lists?|does not fit|"
    r"hypotheses|upgrade|number|install|smaller|no clients|convert|decode|sum|fewer)\b",
    re.IGNORECASE,
)
"""What an error that says what to do has a word of."""

Case = Callable[[np.random.Generator, Path], None]


class Wrong(AssertionError):
    """A result contradicts what is known by construction."""


class Refused(Exception):
    """Sartor has refused something, where that is allowed."""


class Slow(Exception):
    """A case was stopped."""


class Outcome(NamedTuple):
    """How a case has ended."""

    area: str
    number: int
    outcome: str
    words: str
    seconds: float


@contextlib.contextmanager
def may_refuse() -> Iterator[None]:
    """Whatever is inside may be refused, which ends the case."""
    try:
        yield
    except SartorError as error:
        words = str(error)
        sure(REMEDY.search(words), f"the error says not what to do: {words!r}")
        raise Refused(words) from error


@contextlib.contextmanager
def must_refuse(what: object) -> Iterator[None]:
    """Whatever is inside must be refused, which ends the case."""
    with may_refuse():
        yield
    raise Wrong(f"accepted: {what}")


@contextlib.contextmanager
def refuses(what: object) -> Iterator[None]:
    """Whatever is inside must be refused, and the case goes on."""
    with contextlib.suppress(Refused), must_refuse(what):
        yield


def sure(holds: object, what: object) -> None:
    """What must hold."""
    if not holds:
        raise Wrong(str(what))


def same(what: str, found: Any, expected: Any) -> None:
    """Two values must be equal; arrays with their shapes, whatever their types."""
    if isinstance(found, np.ndarray) or isinstance(expected, np.ndarray):
        found, expected = np.asarray(found), np.asarray(expected)
        holds = found.shape == expected.shape and bool((found == expected).all())
    else:
        holds = found == expected
    sure(holds, f"{what}: {found!r:.300} instead of {expected!r:.300}")


def near(what: str, found: Any, expected: Any, error: float = 2e-5) -> None:
    """Two arrays of numbers must be equal but for rounding, relative to 1 or the larger one."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    sure(found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}")
    away = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    sure((away <= error).all(), f"{what}: {found!r:.200} instead of {expected!r:.200}")


def chance(rng: np.random.Generator, share: float) -> bool:
    """True in this share of the cases."""
    return bool(rng.random() < share)


def pick(rng: np.random.Generator, several: Any) -> Any:
    """One of several, as it is: numpy would make arrays of lists."""
    several = list(several)
    return several[int(rng.integers(len(several)))]


def generator(seed: int, area: str, number: int) -> np.random.Generator:
    """The randomness of a case, from its name alone."""
    return np.random.default_rng([seed, zlib.crc32(area.encode()), number])


def attempt(case: Case, seed: int, area: str, number: int, whole: bool = False) -> Outcome:
    """Run a case; with ``whole``, print the traceback of its error."""
    scratch = Path(tempfile.mkdtemp(prefix="fuzz-"))
    began, error = time.perf_counter(), None
    try:
        with warnings.catch_warnings(), stopped_after(3 * LIMIT), contextlib.chdir(scratch):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", category=RuntimeWarning, module=r"sartor\b")
            case(generator(seed, area, number), scratch)
    except Exception as raised:
        error = raised
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if whole and error is not None:
        traceback.print_exception(error)
    seconds = time.perf_counter() - began
    return Outcome(area, number, *ending(error, seconds), seconds)


def ending(error: Exception | None, seconds: float) -> tuple[str, str]:
    """The outcome of a case that ended so, in a word and in words."""
    if isinstance(error, Wrong):
        return "wrong", str(error)
    if isinstance(error, SartorError):
        return "wrong", f"refused what is right: {type(error).__name__}: {error}"
    if isinstance(error, Slow) or seconds > LIMIT:
        return "slow", f"{seconds:.0f} s"
    if isinstance(error, Refused):
        return "refused", str(error)
    if error is not None:
        places = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" at {Path(p.filename).name}:{p.lineno}" for p in places)
        return "crash", f"{type(error).__name__}{where}: {error}"
    return "fine", ""


@contextlib.contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Stop what is inside if it hangs; in the main thread, where signals arrive."""

    def stop(*_: Any) -> None:
        raise Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
