"""Runs scripts that do the same work alternately, and puts their times side by side.

Each run is a process of its own, and the contestants take turns (A B C A B C ...), so that a
machine that grows slower or busier meanwhile is unjust to nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import common

TIME_LIMIT = 1800  # seconds for one run of one contestant
BENCH = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Contestant:
    """A script with the interpreter and the arguments to run it with."""

    label: str
    python: str
    script: str
    arguments: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a contestant did: the timed rounds of each repetition, or why there are none."""

    label: str
    repetitions: list[list[float]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def rounds(self) -> list[float]:
        """All timed rounds."""
        return [seconds for repetition in self.repetitions for seconds in repetition]


@dataclass(frozen=True)
class Contest:
    """The outcomes of one benchmark, the reference first, and how quiet the machine was."""

    outcomes: list[Outcome]
    stolen: float

    @property
    def complete(self) -> bool:
        """Whether the reference, which all others are compared with, has run."""
        return not self.outcomes[0].failure


def compete(contestants: list[Contestant], repetitions: int) -> Contest:
    """Run everybody in turn, several times; one that fails is not run again."""
    outcomes = {contestant: Outcome(contestant.label) for contestant in contestants}
    before = _processor_ticks()
    for repetition in range(repetitions):
        for contestant, outcome in outcomes.items():
            if outcome.failure:
                continue
            print(f"  {repetition + 1}/{repetitions} {contestant.label} ...", file=sys.stderr)
            try:
                line = _run(contestant)
            except RuntimeError as error:
                outcome.failure = str(error)
                print(f"      {error}", file=sys.stderr)
                continue
            outcome.repetitions.append(line["seconds"])
            outcome.versions = line["versions"]
    return Contest(list(outcomes.values()), _stolen(before, _processor_ticks()))


def _run(contestant: Contestant) -> dict:
    command = [contestant.python, str(BENCH / contestant.script), *contestant.arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"failed: {error}") from error
    if done.returncode:
        raise RuntimeError(f"failed: {last_line(done.stderr) or f'exit {done.returncode}'}")
    return json.loads(last_line(done.stdout))


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def table(contest: Contest, heading: str) -> str:
    """A Markdown table, aligned to be read as it is, of medians, spreads and ratios."""
    reference = contest.outcomes[0]
    rows = [(heading, "seconds per round", "spread", f"ratio to {reference.label}", "versions")]
    rows += [_row(outcome, reference) for outcome in contest.outcomes]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*lines, "", *_conditions(contest)])


def _row(outcome: Outcome, reference: Outcome) -> tuple[str, ...]:
    if outcome.failure:
        return outcome.label, "-", "-", "-", outcome.failure
    rounds = outcome.rounds
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    return (
        outcome.label,
        f"{common.median(rounds):.3g}",
        f"{min(rounds):.3g} - {max(rounds):.3g}",
        _ratio(outcome, reference),
        versions,
    )


def _ratio(outcome: Outcome, reference: Outcome) -> str:
    if reference.failure:
        return "-"
    ratio = common.median(outcome.rounds) / common.median(reference.rounds)
    if outcome is reference:
        return f"{ratio:.2f}"
    pairs = zip(outcome.repetitions, reference.repetitions, strict=False)
    ratios = [common.median(theirs) / common.median(ours) for theirs, ours in pairs]
    return f"{ratio:.2f} ({min(ratios):.2f} - {max(ratios):.2f})"


def _conditions(contest: Contest) -> list[str]:
    machine = common.machine()
    lines = [
        "Median over all timed rounds, their smallest and largest, and the ratio of the medians"
        " (in brackets: of each repetition).",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}, {date.today().isoformat()}.",
    ]
    if contest.stolen > 0.02:
        lines.append(
            f"Not a quiet machine: {contest.stolen:.0%} of the processor time went to other guests"
            " of its host. Do not publish these numbers."
        )
    return lines


def _processor_ticks() -> list[int]:
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    except OSError:
        return []
    return [int(word) for word in first.split()[1:9]]


def _stolen(before: list[int], after: list[int]) -> float:
    """The share of processor time that the hypervisor gave to others, of all that was wanted."""
    if not before:
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = (
        b - a for a, b in zip(before, after, strict=True)
    )
    return steal / max(1, user + nice + system + irq + softirq + steal)


def warn_if_busy() -> None:
    """Say so when other programs are running: they disturb some contestants more than others."""
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        print(
            f"warning: the load average is {os.getloadavg()[0]:.1f}; close other programs for "
            "numbers that can be trusted",
            file=sys.stderr,
        )
