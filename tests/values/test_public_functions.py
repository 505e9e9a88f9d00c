"""No public function answers an odd value with somebody else's error."""

import zlib

import pytest
from value_cases import ODD, attempt, places

EACH = 4
"""Odd values for each argument in `make test`; `make soak` tries all."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Some odd values are names of files that can be written."""
    monkeypatch.chdir(tmp_path)


def walk(values):
    crashes = [
        f"{place.name}({argument}={value}): {outcome}"
        for place in places()
        for argument in place.arguments
        for value in values(place, argument)
        if (outcome := attempt(place, argument, value)) not in ("fine", "refused")
    ]
    assert not crashes, "\n".join(crashes)


def test_some_odd_values():
    def some(place, argument):
        first = zlib.crc32(f"{place.name} {argument}".encode())
        names = list(ODD)
        return {"None", *(names[(first + 7 * n) % len(names)] for n in range(EACH))}

    walk(some)


@pytest.mark.soak
def test_all_odd_values():
    walk(lambda place, argument: ODD)
