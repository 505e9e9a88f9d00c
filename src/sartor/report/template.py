r"""Pages written as Markdown: prose, tables and figures stand in the file as on the page.

Blocks are separated by blank lines, and ``{path:show}`` stands for a value:

- ``# Title`` begins a section and ``## Title`` a heading in it; ``> words`` is small print.
- ``[rows] caption`` before a table names its rows. The table has one row with placeholders, which
  is filled in for each of them. ``*name`` in a cell stands for as many cells as the list has.
  ``:--`` under a heading aligns names, ``:-:`` sentences. A row's ``best`` lists bold headings.
- ``![caption](name)`` is a figure, ``!figures name`` a list of ``(figure, caption, path)``.
- ``- words`` is a main finding; one of a list may begin with a condition, ``- ?name words``.
- ``!lead name`` and ``!texts name`` show a list of main findings, or of paragraphs.
- A first line ``?name`` shows the block only if that value is true. ``# Title ?name`` does so for
  a section, and ``# Title *name`` repeats it for each item of a list.

A path is made of keys, with dots between them. With ``?`` at its end it may lead to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sartor.report import numbers
from sartor.report.page import Row, Section
from sartor.report.record import Record

Show = Callable[..., str]

SHOWS: Mapping[str, Show] = {
    **{
        name: getattr(numbers, name)
        for name in (
            "number", "signed", "percent", "points", "share", "interval", "spread", "p_value",
            "amount", "traffic", "duration",
        )
    },
    "number1": partial(numbers.number, digits=1),
    "signed3": partial(numbers.signed, digits=3),
    "percent1": partial(numbers.percent, digits=1),
    "verdict": lambda holds: {True: "yes", False: "no", None: "undecided"}[holds],
    "join": lambda values, show="{:g}".format: ", ".join(map(show, values)),
}  # fmt: skip
"""How a value can be shown, by the word behind the colon; otherwise that is a format of Python."""

ALIGNED = {":--": "left", ":-:": "text"}


class Template:
    r"""A page, or a part of one.

    Args:
        path: the Markdown file; what stands before its first section is a comment.
        shows: more ways to show values.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "page.md"
    >>> _ = path.write_text("# Losses\n\n[rows]\n| who | loss |\n|---|---|\n| {name} | {loss:g} |")
    >>> (section,) = Template(path).sections({"rows": {"Ann": {"loss": 0.50}}})
    >>> section.title, "<td>Ann</td><td>0.5</td>" in section.parts[0]
    ('Losses', True)
    """

    def __init__(self, path: Path, shows: Mapping[str, Show] | None = None) -> None:
        text = path.read_text(encoding="utf-8")
        self._sections = re.split("^# ", text, flags=re.MULTILINE)[1:]
        self._shows = {**SHOWS, **(shows or {})}

    def sections(self, values: Row, record: Record | None = None) -> list[Section]:
        """The sections that have something to show.

        Args:
            values: what the placeholders stand for.
            record: where figures are saved.
        """
        found = []
        for text in self._sections:
            head, _, body = text.partition("\n")
            title, mark, name = [*re.split(r" ([?*])(?=\S+$)", head), "", ""][:3]
            value: Any = self._value(name, values) if mark else True
            for item in value if mark == "*" else [{}] * bool(value):
                here = {**values, **item}
                section = Section(self._fill(title, here))
                for block in re.split(r"\n\s*\n", body.strip()):
                    self._add(section, block.strip(), here, record)
                found.append(section)
        return [section for section in found if section.parts]

    def _add(self, section: Section, block: str, values: Row, record: Record | None) -> None:
        if block.startswith("?"):
            needed, _, block = block[1:].partition("\n")
            if not self._value(needed, values):
                return
        if block.startswith("["):
            self._add_table(section, block, values)
        elif block.startswith("## "):
            section.heading(self._fill(block[3:], values))
        elif block.startswith("!"):
            self._add_values(section, block, values, record)
        elif block.startswith("- "):
            section.lead(list(self._findings(block, values)))
        elif words := self._fill(" ".join(block.split()), values):
            section.note(words[2:]) if words.startswith("> ") else section.text(words)

    def _findings(self, block: str, values: Row) -> Iterator[str]:
        for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:]:
            _, needed, words = [*re.split(r"^\?(\S+)\s", item), "", item][:3]
            if not needed or self._value(needed, values):
                yield self._fill(" ".join((words if needed else item).split()), values)

    def _add_values(self, section: Section, block: str, values: Row, record: Record | None) -> None:
        """Figures, or paragraphs that the values hold."""
        picture = re.fullmatch(r"!\[(.*)\]\((.*)\)", block, flags=re.DOTALL)
        kind, _, name = block[1:].partition(" ")
        if picture and record is not None:
            caption, name = (
                self._fill(" ".join(part.split()), values) for part in picture.groups()
            )
            section.figure(self._value(name, values), caption, record.figure(name))
        elif kind == "figures":
            section.figures(self._value(name, values))
        elif kind == "lead":
            section.lead(self._value(name, values))
        else:
            for words in self._value(name, values):
                section.text(words)

    def _add_table(self, section: Section, block: str, values: Row) -> None:
        caption, head, rule, body = re.split(r"\n(?=\|)", block)
        name, _, caption = caption[1:].partition("]")
        rows = self._value(name, values)
        if isinstance(rows, Mapping):
            rows = [{"name": name, **row} for name, row in rows.items()]
        if not rows:
            return
        kinds = {
            heading: ALIGNED[mark]
            for cell, mark in zip(_split(head), _split(rule), strict=True)
            for heading in self._cells(cell, values)
            if mark in ALIGNED
        }
        section.table(
            list(self._cells(head, values)),
            [list(self._cells(body, {**values, **row})) for row in rows],
            self._fill(" ".join(caption.split()), values),
            kinds=kinds,
            best=[row.get("best", ()) for row in rows],
        )

    def _cells(self, line: str, values: Row) -> Iterator[str]:
        for cell in _split(line):
            if cell.startswith("*"):
                path, _, how = cell[1:].partition(":")
                yield from (self._show(value, how) for value in self._value(path, values))
            else:
                yield self._fill(cell, values)

    def _fill(self, text: str, values: Row) -> str:
        def shown(found: re.Match[str]) -> str:
            return self._show(self._value(found[1], values), found[2] or "")

        return re.sub(r"\{([^{}:]+)(?::([^{}]*))?\}", shown, text)

    def _show(self, value: Any, how: str) -> str:
        name, *inner = how.split() or [""]
        if name in self._shows:
            return self._shows[name](value, *(self._shows[word] for word in inner))
        return format(value, how)

    @staticmethod
    def _value(path: str, values: Row) -> Any:
        value: Any = values
        for key in path.removesuffix("?").split("."):
            if path.endswith("?") and (value is None or key not in value):
                return None
            value = value[key]
        return value


def _split(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
