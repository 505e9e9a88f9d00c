"""The paper's synthetic experiment: Table 1 and the plot of section 7.1, with its appendix.

A hundred clients draw symbols from known distributions, so that every loss can be computed exactly,
and compared with the lowest possible loss.
"""

from pathlib import Path
from typing import Any

from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.synthetic.page import PAGE
from sartor.experiments.synthetic.population import SyntheticSettings, population_limit
from sartor.experiments.synthetic.results import as_text, client_table, summarise
from sartor.experiments.synthetic.work import run_all
from sartor.locks import locked

__all__ = ["PAGE", "SyntheticSettings", "as_text", "population_limit", "reproduce"]


def reproduce(
    settings: SyntheticSettings,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Run the synthetic experiment and write its report.

    Args:
        settings: the size of the experiment.
        out: the directory; it will hold ``results.json``, ``per_client.parquet``, ``report.html``,
            ``figures/``, ``events.jsonl`` and in ``checkpoint/`` every finished result.
        resume: continue the experiment in that directory; without it, ``out`` must be new.
        progress: whether to show a progress bar; by default only on a terminal.

    Returns:
        The content of ``results.json``.
    """
    with locked(out):
        directory = ExperimentDirectory(out, "synthetic", PAGE, settings, resume=resume)
        directory.begin()
        results = run_all(settings, directory, progress)
        seconds = {f"{n} {name}": results[n, name].seconds for n, name in sorted(results)}
        return directory.finish(summarise(settings, results), client_table(results), seconds)
