"""Numbers as pages show them: means, intervals, shares, counts, bytes and times."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Show = Callable[[float | None], str]


def number(value: float | None, sign: str = "", digits: int = 4, scale: float = 1.0) -> str:
    """A number with a fixed count of digits; a dash for a missing one.

    >>> number(0.5), number(-0.00001, "+"), number(None)
    ('0.5000', '+0.0000', '–')
    """
    # Adding 0.0 turns the -0.0 of rounding into 0.0.
    return "–" if value is None else f"{round(scale * value, digits) + 0.0:{sign}.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """A difference, with its sign."""
    return number(value, "+", digits)


def percent(value: float | None, digits: int = 2) -> str:
    """A share in per cent, without the sign.

    >>> percent(0.84321)
    '84.32'
    """
    return number(value, digits=digits, scale=100)


def points(value: float | None) -> str:
    """A difference of shares in percentage points.

    >>> points(-0.0101)
    '-1.01'
    """
    return number(value, "+", 2, 100)


def share(value: float | None) -> str:
    """A share, with the per cent sign."""
    return "–" if value is None else f"{value:.1%}"


def interval(bounds: Sequence[float | None] | None, show: Show = number) -> str:
    """An interval, both ends shown in the same way; a dash if there is none.

    >>> interval([0.25, 0.5]), interval([None, None])
    ('0.2500 to 0.5000', '–')
    """
    low, high = bounds or (None, None)
    return "–" if low is None and high is None else f"{show(low)} to {show(high)}"


def spread(estimate: Mapping[str, Any] | None, show: Show = number) -> str:
    """The interval of an estimate, which has ``low`` and ``high``, and may be ``rough``.

    >>> spread({"low": 0.25, "high": 0.5, "rough": True})
    '0.2500 to 0.5000 (rough)'
    """
    if not estimate:
        return "–"
    rough = " (rough)" if estimate.get("rough") else ""
    return interval((estimate["low"], estimate["high"]), show) + rough


def p_value(value: float | None) -> str:
    """A p-value; very small ones have no digits worth showing."""
    return "–" if value is None else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def amount(count: float) -> str:
    """A count."""
    return f"{count:,.0f}"


def traffic(count: float) -> str:
    """A number of bytes.

    >>> [traffic(n) for n in (900, 20_000, 3e9)]
    ['900 B', '20.0 kB', '3.0 GB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A time.

    >>> duration(12.34), duration(200)
    ('12.3 s', '3 min 20 s')
    """
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60} s"


def edge(value: float, tried: Sequence[float]) -> str:
    """Which end of the values that were tried was chosen, if any: a better one may lie beyond.

    >>> edge(4, (1, 2, 4)), edge(1, (1, 2, 4)), edge(2, (1, 2, 4)), edge(3, (3,))
    ('largest', 'smallest', '', '')
    """
    low, high = min(tried), max(tried)
    return "" if low == high else {high: "largest", low: "smallest"}.get(value, "")
