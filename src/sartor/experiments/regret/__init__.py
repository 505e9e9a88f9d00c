"""The regret of advice on the paper's synthetic clients, whose losses are exact.

A client's regret is the expected loss of the model that it was advised to take, minus the expected
loss of the best of Local, FedAvg and HypCluster for it. Advice is compared with each of these for
everybody, and with the choice of the bounds alone.
"""

from pathlib import Path
from typing import Any

from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.regret.page import PAGE
from sartor.experiments.regret.results import as_text, client_table, summarise
from sartor.experiments.regret.work import RegretSettings, run_all
from sartor.locks import locked

__all__ = ["PAGE", "RegretSettings", "as_text", "reproduce"]


def reproduce(
    settings: RegretSettings, out: str | Path, *, resume: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the experiment and write its report.

    Args:
        settings: the size of the experiment.
        out: the directory; its ``checkpoint/`` holds every finished population.
        resume: continue the experiment in that directory; without it, ``out`` must be new.
        progress: whether to show a progress bar; by default only on a terminal.

    Returns:
        The content of ``results.json``.
    """
    with locked(out):
        directory = ExperimentDirectory(out, "regret", PAGE, settings, resume=resume)
        directory.begin()
        results, seconds = run_all(settings, directory, progress)
        return directory.finish(summarise(settings, results), client_table(results), seconds)
