"""Reports: tables and pictures of runs and experiments on one self-contained page."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sartor.errors import FileError
from sartor.files import write_atomic
from sartor.report.advice import advice_sections
from sartor.report.compare import comparison
from sartor.report.emnist import emnist_sections
from sartor.report.page import Section, document
from sartor.report.record import Record
from sartor.report.regret import regret_sections
from sartor.report.runs import run_sections
from sartor.report.synthetic import synthetic_sections

__all__ = ["write_report"]

KINDS: dict[str, tuple[str, Callable[[Record], list[Section]]]] = {
    "run": ("Sartor report", run_sections),
    "advice": ("Advice", advice_sections),
    "synthetic": ("The synthetic experiment", synthetic_sections),
    "emnist": ("The EMNIST experiment", emnist_sections),
    "regret": ("The regret of advice", regret_sections),
}
"""What a directory can hold: a title, and what makes the sections."""


def write_report(runs: Sequence[str | Path], target: str | Path) -> None:
    """Write the page about a run or an experiment, or about several, from their directories alone.

    Figures are saved beside each one's results too, in ``figures/``, as PNG and PDF.
    """
    records = [Record.read(Path(run)) for run in runs]
    if not records:
        raise FileError("there is no run to report on; name at least one run directory")
    parts = [_sections(record) for record in records]
    if len(records) == 1:
        title, sections = f"{KINDS[records[0].kind][0]}: {records[0].directory.name}", parts[0]
    else:
        title, sections = "Sartor report", [comparison(records)]
        for record, some in zip(records, parts, strict=True):
            for section in some:
                section.title = f"{record.directory.name}: {section.title}"
            sections += some
    write_atomic(Path(target), document(title, sections))


def _sections(record: Record) -> list[Section]:
    path = record.directory / "results.json"
    if record.kind not in KINDS:
        raise FileError(f"{path} is not the result of a run of this version; run it again")
    try:
        return KINDS[record.kind][1](record)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise FileError(
            f"{path} is not the result of a run of this version ({error!r}); run it again"
        ) from error
