"""The paper's EMNIST experiment: Tables 2 and 3 (section 7.2 and its appendix), and beyond.

Test accuracy of clients that took part in central training and of others, for three central
algorithms alone and with three personal ones.
"""

from pathlib import Path
from typing import Any

from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.emnist.methods import families
from sartor.experiments.emnist.page import PAGE
from sartor.experiments.emnist.results import as_text, client_table, most_memory, summarise
from sartor.experiments.emnist.settings import EmnistSettings
from sartor.experiments.emnist.work import run_all
from sartor.locks import locked
from sartor.models import check
from sartor.runs.record import noted

__all__ = ["PAGE", "EmnistSettings", "as_text", "reproduce"]


def reproduce(
    settings: EmnistSettings, out: str | Path, *, resume: bool = False, progress: bool | None = None
) -> dict[str, Any]:
    """Run the EMNIST experiment and write its report.

    Args:
        settings: the size of the experiment, and its data.
        out: the directory; it will hold ``results.json``, ``per_client.parquet``, ``report.html``,
            ``figures/``, ``events.jsonl`` and in ``checkpoint/`` every finished result.
        resume: continue the experiment in that directory, perhaps with more seeds or parts;
            without it, ``out`` must be new.
        progress: whether to show a progress bar; by default only on a terminal.

    Returns:
        The content of ``results.json``.
    """
    may_grow = ("seeds", "parts", "rows")
    with locked(out):
        directory = ExperimentDirectory(
            out, "emnist", PAGE, settings, resume=resume, may_grow=may_grow
        )
        with noted() as warned:
            data = settings.open(progress)
            check(settings.model, data)
            for family in families(settings):
                if family.central is not None:
                    family.central.check(settings.model, data)
            directory.begin()
            results = run_all(settings, data, directory, progress)
        found = {**summarise(settings, data, results), "memory": most_memory(results.values())}
        found["warnings"] = warned
        seconds = {f"{n} {name}": result.facts["seconds"] for (n, name), result in results.items()}
        return directory.finish(found, client_table(results), seconds)
