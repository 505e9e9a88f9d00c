"""A page: one self-contained HTML file, built from sections of text, tables and figures."""

import html
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sartor.report.figures import save_for_papers, to_svg

CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8")

Row = Mapping[str, Any]
"""A part of ``results.json`` that a row of a table shows."""


class Section:
    """A part of the page under a heading; all text in it is escaped."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def text(self, words: str) -> None:
        """A paragraph."""
        self.parts.append(f"<p>{html.escape(words)}</p>")

    def note(self, words: str) -> None:
        """A paragraph in small print."""
        self.parts.append(f'<p class="note">{html.escape(words)}</p>')

    def lead(self, sentences: Sequence[str]) -> None:
        """The main findings."""
        inside = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
        self.parts.append(f'<div class="lead">{inside}</div>')

    def heading(self, words: str) -> None:
        """A heading inside the section."""
        self.parts.append(f"<h3>{html.escape(words)}</h3>")

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        caption: str = "",
        *,
        kinds: Mapping[str, str] | None = None,
        best: Sequence[Sequence[str]] = (),
    ) -> None:
        """A table.

        Args:
            headings: of the columns.
            rows: the cells.
            caption: stands above the table.
            kinds: headings of columns with names (``"left"``) or sentences (``"text"``).
            best: for each row, the headings of the cells that stand out.
        """

        def line(tag: str, cells: Sequence[str], bold: Sequence[str] = ()) -> str:
            found = ""
            for heading, words in zip(headings, cells, strict=True):
                kind = " ".join([(kinds or {}).get(heading, ""), "best" * (heading in bold)])
                marked = f' class="{kind.strip()}"' if kind.strip() else ""
                found += f"<{tag}{marked}>{html.escape(words)}</{tag}>"
            return f"<tr>{found}</tr>"

        title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
        body = "".join(
            line("td", row, bold) for row, bold in itertools.zip_longest(rows, best, fillvalue=())
        )
        self.parts.append(
            f'<div class="wide"><table>{title}<thead>{line("th", headings)}</thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figure(self, figure: Figure, caption: str, save: Path) -> None:
        """A figure; it is saved for papers as well, as ``save`` with the endings of formats."""
        self.parts.append(_figure(figure, caption, save))

    def figures(self, several: Sequence[tuple[Figure, str, Path]]) -> None:
        """Figures, next to each other where there is room."""
        inside = "".join(_figure(*one) for one in several)
        self.parts.append(f'<div class="grid">{inside}</div>')

    def code(self, text: str) -> None:
        """Text with its spaces and line breaks."""
        self.parts.append(f"<pre>{html.escape(text)}</pre>")

    def folded(self, title: str, text: str, *, opened: bool = False) -> None:
        """The same, to open and to close."""
        self.parts.append(
            f"<details{' open' * opened}><summary>{html.escape(title)}</summary>"
            f"<pre>{html.escape(text)}</pre></details>"
        )


def document(title: str, sections: Sequence[Section]) -> str:
    """The page. The first section has no heading but the page's own."""
    name, links, body = html.escape(title), "", ""
    for n, section in enumerate(sections):
        heading = html.escape(section.title)
        links += f'<a href="#part-{n}">{heading}</a>' if n else ""
        top = f"<h2>{heading}</h2>" if n else ""
        body += f'<section id="part-{n}">{top}{"".join(section.parts)}</section>'
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{CSS}</style></head><body><h1>{name}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def _figure(figure: Figure, caption: str, save: Path) -> str:
    words = html.escape(caption)
    picture = to_svg(figure).replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    save_for_papers(figure, save)
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"
