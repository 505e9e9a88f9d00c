"""Pages about runs and comparisons of them, and the building blocks for pages of other kinds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sartor.errors import FileError
from sartor.files import write_atomic
from sartor.report.advice import advice_sections
from sartor.report.compare import compare_runs, compare_settings
from sartor.report.page import Section, document
from sartor.report.record import Record
from sartor.report.runs import run_sections
from sartor.report.tables import compare_tables, table_sections

__all__ = ["PAGES", "PageKind", "write_report"]


class PageKind(NamedTuple):
    """How to report on one kind of results.

    Attributes:
        title: of a page about one directory.
        sections: makes the parts of that page.
        compare: adds tables that compare several directories, if there are any to add.
        settings: the key of the settings in ``results.json``.
    """

    title: str
    sections: Callable[[Record], list[Section]]
    compare: Callable[[Section, Sequence[Record]], None] | None = None
    settings: str = "settings"


PAGES: Mapping[str, PageKind] = {
    "run": PageKind("Sartor report", run_sections, compare_runs, "config"),
    "advice": PageKind("Advice", advice_sections),
    "table": PageKind("Sartor report", table_sections, compare_tables, "config"),
    "table advice": PageKind("Advice", table_sections),
}
"""By the kind that ``results.json`` names. Experiments bring pages of their own."""


def write_report(
    directories: Sequence[str | Path], target: str | Path, pages: Mapping[str, PageKind] = PAGES
) -> None:
    """Write a page about one or several directories, from their files alone.

    Figures are also saved as PNG and PDF in each directory's ``figures/``.

    Args:
        directories: finished runs or experiments.
        target: the page.
        pages: how to report on each kind of results.
    """
    records = [Record.read(Path(directory)) for directory in directories]
    if not records:
        raise FileError("there is no run to report on; name at least one run directory")
    parts = [_sections(record, pages) for record in records]
    if len(records) == 1:
        title, sections = f"{pages[records[0].kind].title}: {records[0].name}", parts[0]
    else:
        title, sections = "Sartor report", [_comparison(records, pages)]
        for record, some in zip(records, parts, strict=True):
            for section in some:
                section.title = f"{record.name}: {section.title}"
            sections += some
    write_atomic(Path(target), document(title, sections))


def _comparison(records: Sequence[Record], pages: Mapping[str, PageKind]) -> Section:
    section = Section("Summary")
    for kind, page in pages.items():
        alike = [record for record in records if record.kind == kind]
        if alike and page.compare is not None:
            page.compare(section, alike)
            compare_settings(section, alike, page.settings)
    return section


def _sections(record: Record, pages: Mapping[str, PageKind]) -> list[Section]:
    path = record.directory / "results.json"
    if record.kind not in pages:
        raise FileError(f"{path} is not the result of a run of this version; run it again")
    try:
        return pages[record.kind].sections(record)
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise FileError(
            f"{path} is not the result of a run of this version ({error!r}); run it again"
        ) from error
