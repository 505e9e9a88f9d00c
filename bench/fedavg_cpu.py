"""The benchmark `fedavg-cpu`: one round of FedAvg on the paper's EMNIST network, on the processor.

Ours against pfl-research and FedJAX, each through its own API and in the two ways it offers to
use several cores; nobody knows beforehand which of the two is the faster.
"""

from __future__ import annotations

import argparse
import sys

import common
from contest import Contest, Contestant, Outcome, compete, table
from environments import FEDJAX, PFL, PeerUnavailableError, interpreter

PFL_SCRIPT, FEDJAX_SCRIPT = "peers/pfl_round.py", "peers/fedjax_round.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options are those of the workload."""
    common.add_workload_arguments(parser)


def run(options: argparse.Namespace) -> tuple[str, bool]:
    """The table, and whether ours has run."""
    workload = common.workload_of(options)
    words = tuple(workload.arguments())
    contestants = [Contestant("sartor", sys.executable, "ours_round.py", words)]
    missing = []
    for environment, script, ways in (
        (PFL, PFL_SCRIPT, {"one process": (), "process per core": _processes(workload)}),
        (FEDJAX, FEDJAX_SCRIPT, {"jit": (), "pmap": ("--backend", "pmap")}),
    ):
        try:
            python = interpreter(environment)
        except PeerUnavailableError as error:
            missing.append(Outcome(environment.name, failure=str(error)))
            continue
        contestants += [
            Contestant(f"{environment.name}, {way}", python, script, words + extra)
            for way, extra in ways.items()
        ]
    contest = compete(contestants, options.repetitions)
    contest = Contest(contest.outcomes + missing, contest.stolen)
    heading = (
        f"{workload.clients} clients x {workload.examples} examples, batch {workload.batch}, "
        f"{workload.threads} cores"
    )
    return table(contest, heading), contest.complete


def _processes(workload: common.Workload) -> tuple[str, ...]:
    return ("--processes", str(workload.threads))
