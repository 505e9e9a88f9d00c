r"""Pages written as Markdown: prose, tables and figures stand in the file as on the page.

Blocks are separated by blank lines, and ``{path:show}`` stands for a value:

- ``# Title`` begins a section and ``## Title`` a heading in it; ``> words`` is small print.
- ``[rows] caption`` before a table names its rows. The table has one row with placeholders, which
  is filled in for each of them. ``*name:show`` in a heading makes a column for each item of a list.
  Below it, ``*name:show`` is a list with the cells of these columns, or a mapping by the heading's
  items. Instead of ``show`` there can be a text with placeholders for values of the item.
  ``:--`` under a heading aligns names, ``:-:`` sentences. A row's ``best`` lists bold headings.
- ``![caption](name)`` is a figure, ``!figures name`` a list of ``(figure, caption, path)``.
- ``- words`` is a main finding. ``!warnings`` shows warnings.
- ``?name`` at the start of a title, a block or a finding shows it only if that value is true,
  ``?name=word`` if it is that word, and ``?!`` if it is not. ``[?name:words]`` does so for words
  inside a text. ``*name`` at the start shows it for each item of a list.

A path is made of keys, with dots between them. With ``?`` at its end it may lead to nothing. The
path ``this`` leads to all values together: ``{this:spread}`` shows a row's ``low`` and ``high``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
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

SEVERAL = re.compile(r"(.*)\*([\w.]+):?(.*)")
"""A cell that stands for several: words before each, the path, and how to show it."""


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
        parts = re.split("^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        self._sections = {head: body for head, _, body in (part.partition("\n") for part in parts)}
        self._shows = {**SHOWS, **(shows or {})}

    def sections(self, values: Row, record: Record | None = None) -> list[Section]:
        """The sections that have something to show.

        Args:
            values: what the placeholders stand for.
            record: where figures are saved.
        """
        found = []
        for head, body in self._sections.items():
            for title, here in self._each(head, values):
                section = Section(self._fill(title, here))
                for block in re.split(r"\n\s*\n", body.strip()):
                    for words, inside in self._each(block.strip(), here):
                        self._add(section, words, inside, record)
                found.append(section)
        return [section for section in found if section.parts]

    def text(self, title: str, **values: Any) -> str:
        """The words of the section of that title, as one paragraph."""
        return self._fill(" ".join(self._sections[title].split()), values)

    def _add(self, section: Section, block: str, values: Row, record: Record | None) -> None:
        if block.startswith("["):
            self._add_table(section, block, values)
        elif block.startswith("## "):
            section.heading(self._fill(block[3:], values))
        elif block.startswith("!"):
            self._add_values(section, block, values, record)
        elif block.startswith("- "):
            items = re.split("^- ", block, flags=re.MULTILINE)[1:]
            found = chain.from_iterable(self._each(item, values) for item in items)
            section.lead([self._fill(" ".join(words.split()), row) for words, row in found])
        elif words := self._fill(" ".join(block.split()), values):
            section.note(words[2:]) if words.startswith("> ") else section.text(words)

    def _each(self, text: str, values: Row) -> Iterator[tuple[str, Row]]:
        """A text without its marks and the values for it, as often as it is shown."""
        rows: Sequence[Row] = [{}]
        if text.startswith("?"):
            condition, text = text[1:].split(maxsplit=1)
            rows = rows if self._holds(condition, values) else []
        elif text.startswith("*"):
            name, text = text[1:].split(maxsplit=1)
            rows = self._value(name, values)
        yield from ((text, {**values, **row}) for row in rows)

    def _add_values(self, section: Section, block: str, values: Row, record: Record | None) -> None:
        """Figures or warnings that the values hold."""
        picture = re.fullmatch(r"!\[(.*)\]\((.*)\)", block, flags=re.DOTALL)
        kind, _, name = block[1:].partition(" ")
        if picture and record is not None:
            caption, name = (
                self._fill(" ".join(part.split()), values) for part in picture.groups()
            )
            section.figure(self._value(name, values), caption, record.figure(name))
        elif kind == "figures":
            section.figures(self._value(name, values))
        else:
            for warning in values.get("warnings", ()):
                section.text(f"Warning: {warning}")

    def _add_table(self, section: Section, block: str, values: Row) -> None:
        caption, *lines = re.split(r"\n(?=\|)", block)
        name, _, caption = caption[1:].partition("]")
        rows = self._value(name, values)
        if isinstance(rows, Mapping):
            rows = [{"name": name, **row} for name, row in rows.items()]
        if not rows:
            return
        head, rule, body = (
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines
        )
        several = [SEVERAL.fullmatch(cell) for cell in head]
        keys = [self._value(found[2], values) if found else [""] for found in several]

        def line(cells: list[str], values: Row) -> list[list[str]]:
            return [self._cells(*pair, values) for pair in zip(cells, keys, strict=True)]

        headings = line(head, values)
        section.table(
            list(chain(*headings)),
            [list(chain(*line(body, {**values, **row}))) for row in rows],
            self._fill(" ".join(caption.split()), values),
            kinds={
                heading: ALIGNED[mark]
                for some, mark in zip(headings, rule, strict=True)
                for heading in some
                if mark in ALIGNED
            },
            best=[row.get("best", ()) for row in rows],
        )

    def _cells(self, cell: str, keys: Sequence[Any], values: Row) -> list[str]:
        """The text of a cell; or a text for each key, empty at the end of a shorter list."""
        several = SEVERAL.fullmatch(cell)
        if several is None:
            return [self._fill(cell, values)]
        before, path, how = several.groups()
        found = self._value(path, values)
        if isinstance(found, Mapping):
            found = [found.get(key, 0) for key in keys]
        shown = [before + self._show(value, how) for value in found]
        return shown + [""] * (len(keys) - len(shown))

    def _fill(self, text: str, values: Row) -> str:
        def shown(found: re.Match[str]) -> str:
            return self._show(self._value(found[1], values), found[2] or "")

        text = re.sub(r"\[\?([^:\]]+):([^\]]*)\]", lambda m: m[2] * self._holds(m[1], values), text)
        return re.sub(r"\{([^{}:]+)(?::([^{}]*))?\}", shown, text)

    def _holds(self, condition: str, values: Row) -> bool:
        path, _, word = condition.removeprefix("!").partition("=")
        value = self._value(path, values)
        return bool(value == word if word else value) != condition.startswith("!")

    def _show(self, value: Any, how: str) -> str:
        if "{" in how:
            return self._fill(how, value)
        name, *inner = how.split() or [""]
        if name in self._shows:
            return self._shows[name](value, *(self._shows[word] for word in inner))
        return format(value, how)

    @staticmethod
    def _value(path: str, values: Row) -> Any:
        value: Any = values
        if path == "this":
            return value
        for key in path.removesuffix("?").split("."):
            if path.endswith("?") and (value is None or key not in value):
                return None
            value = value[key]
        return value
