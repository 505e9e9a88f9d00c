"""The fuzzer finds nothing wrong; and it would, if something were."""

from __future__ import annotations

from campaign import AREAS, campaign, failures

SEEDS = (0, 1, 2)
CASES = 10_000
SLICE = 150


def find_nothing(seed, cases, areas=()):
    outcomes = list(campaign(seed, cases, areas))
    assert len(outcomes) == cases
    assert not failures(outcomes, seed), "\n".join(failures(outcomes, seed))
    return outcomes


def test_a_slice():
    outcomes = find_nothing(0, SLICE)
    assert {one.area for one in outcomes} == set(AREAS)
    assert {one.outcome for one in outcomes} == {"fine", "refused"}
