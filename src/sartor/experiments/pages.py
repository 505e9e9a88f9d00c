"""Reports on everything that this version can run: runs, advice and experiments."""

from collections.abc import Sequence
from pathlib import Path

from sartor import report
from sartor.experiments import emnist, regret, synthetic

PAGES = {**report.PAGES, "synthetic": synthetic.PAGE, "emnist": emnist.PAGE, "regret": regret.PAGE}
"""How to report on each kind of results, by the name in ``results.json``."""


def write_report(directories: Sequence[str | Path], target: str | Path) -> None:
    """Write a page about runs and experiments, from their directories alone."""
    report.write_report(directories, target, PAGES)
