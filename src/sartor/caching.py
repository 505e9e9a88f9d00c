"""A cache that makes each thing once, even if several threads ask."""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def made_once(maxsize: int) -> Callable[[Function], Function]:
    """Like ``functools.lru_cache``, which may make a thing twice if two threads ask at once.

    >>> @made_once(maxsize=8)
    ... def make(name): return [name]
    >>> make("a") is make("a")
    True
    """

    def decorate(function: Function) -> Function:
        lock = threading.RLock()
        cached = functools.lru_cache(maxsize=maxsize)(function)

        @functools.wraps(function)
        def locked(*args: Any) -> Any:
            with lock:
                return cached(*args)

        return locked  # type: ignore[return-value]

    return decorate
