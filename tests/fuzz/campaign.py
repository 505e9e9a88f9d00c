"""The project's own fuzzer: cases by seed, area and number, each of which can be repeated.

python tests/fuzz/campaign.py --seed 0 --cases 10000
python tests/fuzz/campaign.py --seed 0 --area frames --case 17
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from outcomes import OUTCOMES, Case, Outcome, attempt

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("", "data", "runs", "values")]  # what tests share

AREAS: dict[str, tuple[int, Case]] = {}
"""The areas: how many of about 10,000 cases they get, and what a case is."""

for module in (
    "fuzz_data",
    "fuzz_splits",
    "fuzz_settings",
    "fuzz_models",
    "fuzz_files",
    "fuzz_commands",
    "fuzz_serving",
    "fuzz_tabled",
    "fuzz_estimators",
):
    AREAS |= importlib.import_module(module).AREAS

QUICK = {
    "jax_disable_most_optimizations": True,
    "jax_compilation_cache_dir": str(TESTS.parent / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.05,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""How JAX compiles, which is most of the time of the fits: quickly, and once for all campaigns."""

COMPILED = 1500
"""Programs after which JAX forgets all: each takes maps of memory, which Linux counts."""


def sizes(cases: int, areas: Sequence[str]) -> dict[str, int]:
    """How many cases each area gets, so that all of them together are as many as were asked for."""
    total = sum(AREAS[area][0] for area in areas)
    ends, begun, found = 0, 0, {}
    for area in areas:
        ends += AREAS[area][0]
        found[area] = ends * cases // total - begun
        begun += found[area]
    return found


def campaign(seed: int, cases: int, areas: Sequence[str] = ()) -> Iterator[Outcome]:
    """Run cases, area by area."""
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    for area, count in sizes(cases, areas or list(AREAS)).items():
        for number in range(count):
            yield attempt(AREAS[area][1], seed, area, number)
            if len(compiled) > COMPILED:
                jax.clear_caches()
                compiled.clear()


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts by area and outcome, as Markdown."""
    counts = Counter((one.area, one.outcome) for one in outcomes)
    rows = [("area", "cases", *OUTCOMES), ("---",) * (2 + len(OUTCOMES))]
    for area in [*dict.fromkeys(one.area for one in outcomes), "all"]:
        found = [sum(n for (a, o), n in counts.items() if area in (a, "all") and o == outcome)
                 for outcome in OUTCOMES]  # fmt: skip
        rows.append((area, *(f"{n:,}" for n in (sum(found), *found))))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def failures(outcomes: Sequence[Outcome], seed: int) -> list[str]:
    """A line for each case that should not have ended so, and how to repeat it."""
    return [
        f"{one.outcome}: {one.words:.400}\n    python tests/fuzz/campaign.py --seed {seed} "
        f"--area {one.area} --case {one.number}"
        for one in outcomes
        if one.outcome not in ("fine", "refused")
    ]


def main() -> int:
    """Run a campaign, or one case of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--area", action="append", choices=AREAS)
    parser.add_argument("--case", type=int, help="repeat this case of an area, with its traceback")
    parser.add_argument("--words", action="store_true", help="also print the errors of refusals")
    given = parser.parse_args()
    for name, value in QUICK.items():
        jax.config.update(name, value)
    if given.case is not None:
        (area,) = given.area or parser.error("--case needs one --area")
        outcome = attempt(AREAS[area][1], given.seed, area, given.case, whole=True)
        print(f"{outcome.outcome} ({outcome.seconds:.2f} s) {outcome.words}")
        return outcome.outcome not in ("fine", "refused")
    began, outcomes = time.perf_counter(), []
    for outcome in campaign(given.seed, given.cases, given.area or ()):
        outcomes.append(outcome)
        for line in failures([outcome], given.seed):
            print(line, flush=True)
        if given.words and outcome.outcome == "refused":
            print(f"{outcome.area} {outcome.number}: {outcome.words}")
    print(table(outcomes))
    spent: Counter[str] = Counter()
    for outcome in outcomes:
        spent[outcome.area] += outcome.seconds
    print(f"{time.perf_counter() - began:.0f} s; " + ", ".join(
        f"{area} {seconds:.0f} s" for area, seconds in spent.most_common()))  # fmt: skip
    return bool(failures(outcomes, given.seed))


if __name__ == "__main__":
    sys.exit(main())
