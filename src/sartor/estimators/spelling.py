"""Clients that are unknown because their names are misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NAMES = 20
"""Unknown names that are compared with known ones letter by letter."""

MOST_KNOWN = 5_000
"""Known names that they are compared with."""

SIMILAR = 0.8
"""How similar letters must be, from 0 to 1."""


class Spelling:
    """Known names, and what others were probably meant to be.

    Names with other numbers are other names: a shop 12 is no misspelt shop 11.

    >>> meant = Spelling(["shop 3", "shop 12"]).meant
    >>> meant(["Shop-3", "Shpo 12", "shop 13", "kiosk"])
    {'Shop-3': 'shop 3', 'Shpo 12': 'shop 12'}
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._plain: dict[str, str] = {}
        self._numbers: dict[tuple[str, ...], dict[str, str]] = {}
        for name in known:
            self._plain.setdefault(_plain(name), name)
            self._numbers.setdefault(_numbers(name), {})[name.casefold()] = name

    def meant(self, unknown: Iterable[str]) -> dict[str, str]:
        """The known name that each unknown one was probably meant to be, where there is one."""
        found: dict[str, str] = {}
        compared = 0
        for name in unknown:
            if same := self._plain.get(_plain(name)):
                found[name] = same
            elif compared < MOST_NAMES:
                compared += 1
                near = self._numbers.get(_numbers(name), {})
                if len(near) > MOST_KNOWN:
                    continue
                if best := get_close_matches(name.casefold(), near, 1, SIMILAR):
                    found[name] = near[best[0]]
        return found


def _plain(name: str) -> str:
    """A name without case, spaces, punctuation and leading zeros."""
    return re.sub(r"\b0+(?=\d)|[\W_]", "", name).casefold()


def _numbers(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", name))


def listed(names: Sequence[str], meant: dict[str, str] | None = None, most: int = 5) -> str:
    """Some names, and what each was probably meant to be.

    >>> listed(["shpo 3", "kiosk"], {"shpo 3": "shop 3"})
    "'shpo 3' (did you mean 'shop 3'?), 'kiosk'"
    """
    meant = meant or {}
    first = sorted(names, key=lambda name: name not in meant)[:most]
    said = [f"{n!r} (did you mean {meant[n]!r}?)" if n in meant else repr(n) for n in first]
    return ", ".join(said) + (" …" if len(names) > most else "")
