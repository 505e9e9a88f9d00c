"""Runs the benchmarks and prints, or with --write also records, their tables.

`python bench/run.py` runs all of them, `python bench/run.py fedavg-cpu --rounds 3` one of them,
and `--write` rewrites their sections in bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import common
import fedavg_cpu
import population
from contest import warn_if_busy

BENCHMARKS = {"fedavg-cpu": fedavg_cpu, "population": population}
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main() -> int:
    """Run what the command line names; 1 if something of ours did not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--write", action="store_true", help=f"rewrite sections of {RESULTS.name}")
    parser.add_argument("--repetitions", type=common.positive, default=3)
    for name, benchmark in BENCHMARKS.items():
        benchmark.add_arguments(parser.add_argument_group(name))
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")

    complete = True
    for name in options.names or BENCHMARKS:
        print(f"{name}:", file=sys.stderr)
        warn_if_busy()
        text, ours_ran = BENCHMARKS[name].run(options)
        print(f"\n{name}\n\n{text}\n", flush=True)
        complete &= ours_ran
        if options.write and ours_ran:
            RESULTS.write_text(
                with_section(RESULTS.read_text(encoding="utf-8"), name, text), encoding="utf-8"
            )
    return 0 if complete else 1


def with_section(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of that benchmark replaced.

    >>> with_section("<!-- a:begin -->old<!-- a:end -->", "a", "new")
    '<!-- a:begin -->\\nnew\\n<!-- a:end -->'
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{RESULTS} lacks the markers {begin} and {end}; put them back")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", page)


if __name__ == "__main__":
    sys.exit(main())
