"""The page itself: one self-contained HTML file, from sections that others write."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sartor.report.figures import save_for_papers, to_svg

CSS = """
:root { color-scheme: light dark; --line: #8885; --soft: #8881; --accent: #2a78d6; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; margin: 0 auto;
  max-width: 62rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p { max-width: 46rem; }
.lead { font-size: 1.08rem; border-left: .25rem solid var(--accent); padding: .7rem 1rem;
  background: var(--soft); border-radius: 0 .4rem .4rem 0; max-width: none; }
.lead p { margin: .3rem 0; max-width: 52rem; }
.wide { overflow-x: auto; margin: .6rem 0; padding-bottom: .2rem;
  /* a shadow at the side where a table goes on */
  background: linear-gradient(90deg, Canvas 2rem, #0000) 0 0 / 4rem 100% no-repeat local,
    linear-gradient(-90deg, Canvas 2rem, #0000) 100% 0 / 4rem 100% no-repeat local,
    linear-gradient(90deg, #8886, #0000) 0 0 / .8rem 100% no-repeat scroll,
    linear-gradient(-90deg, #8886, #0000) 100% 0 / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .92rem; }
caption { text-align: left; opacity: .75; padding-bottom: .3rem; max-width: calc(100vw - 2rem); }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th { font-weight: 600; }
th:first-child, td:first-child, .text { text-align: left; }
.text { white-space: normal; min-width: 11rem; }
.left { text-align: left; }
tbody tr:hover { background: var(--soft); }
.best { font-weight: 700; }
figure { margin: 1.2rem 0; }
svg { max-width: 100%; height: auto; display: block; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr));
  gap: .5rem 1.2rem; }
.grid figure { margin: .4rem 0; }
figcaption, .note { opacity: .75; font-size: .88rem; max-width: 46rem; }
code, pre { font: .88em/1.45 ui-monospace, SFMono-Regular, Menlo, monospace; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); border-radius: .4rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
nav { font-size: .9rem; }
nav a { color: inherit; margin-right: 1rem; display: inline-block; padding: .25rem 0; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; }
  figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .wide { overflow: visible; }
  table { font-size: 8.5pt; }
  th, td { padding: .15rem .35rem; white-space: normal; }
}
"""


class Section:
    """A part of the page under a heading; everything put into it is escaped."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def text(self, words: str, kind: str = "") -> None:
        """A paragraph; ``kind`` may be "note"."""
        self.parts.append(f"<p{_class(kind)}>{html.escape(words)}</p>")

    def lead(self, sentences: Sequence[str]) -> None:
        """What to remember."""
        inside = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
        self.parts.append(f'<div class="lead">{inside}</div>')

    def warned(self, results: Mapping[str, Any]) -> None:
        """What a run has warned of."""
        for warning in results.get("warnings", ()):
            self.text(f"Warning: {warning}")

    def heading(self, words: str) -> None:
        """A heading inside the section."""
        self.parts.append(f"<h3>{html.escape(words)}</h3>")

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        caption: str = "",
        *,
        words: Sequence[int] = (),
        left: Sequence[int] = (),
        best: Sequence[tuple[int, int]] = (),
    ) -> None:
        """A table.

        ``words`` are columns of running text, ``left`` of names, ``best`` are cells to stand out.
        """

        def cell(tag: str, text: str, row: int, column: int) -> str:
            kinds = ["text"] * (column in words) + ["left"] * (column in left)
            kinds += ["best"] * ((row, column) in best)
            return f"<{tag}{_class(' '.join(kinds))}>{html.escape(text)}</{tag}>"

        top = "".join(cell("th", text, -1, n) for n, text in enumerate(head))
        body = "".join(
            f"<tr>{''.join(cell('td', text, r, c) for c, text in enumerate(row))}</tr>"
            for r, row in enumerate(rows)
        )
        named = f"<caption>{html.escape(caption)}</caption>" if caption else ""
        self.parts.append(
            f'<div class="wide"><table>{named}<thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figure(self, figure: Figure, caption: str, save: Path | None = None) -> None:
        """A figure; where a path is given, it is saved there for papers as well."""
        self.parts.append(_figure(figure, caption, save))

    def figures(self, several: Sequence[tuple[Figure, str, Path]]) -> None:
        """Figures beside each other where there is room."""
        inside = "".join(_figure(*one) for one in several)
        self.parts.append(f'<div class="grid">{inside}</div>')

    def code(self, text: str) -> None:
        """Text as it is."""
        self.parts.append(f"<pre>{html.escape(text)}</pre>")

    def folded(self, title: str, text: str, *, opened: bool = False) -> None:
        """Text as it is, to open and to close."""
        self.parts.append(
            f"<details{' open' * opened}><summary>{html.escape(title)}</summary>"
            f"<pre>{html.escape(text)}</pre></details>"
        )

    def render(self, number: int, bare: bool) -> str:
        """The section as HTML; without its heading if it is bare."""
        inside = "".join(self.parts)
        title = "" if bare else f"<h2>{html.escape(self.title)}</h2>"
        return f'<section id="part-{number}">{title}{inside}</section>'


def document(title: str, sections: Sequence[Section]) -> str:
    """The page. The first section has no heading but the page's own."""
    links = "".join(
        f'<a href="#part-{n}">{html.escape(section.title)}</a>'
        for n, section in enumerate(sections)
        if n
    )
    body = "".join(section.render(n, bare=n == 0) for n, section in enumerate(sections))
    name = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{CSS}</style></head><body><h1>{name}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def number(value: float | None, sign: str = "", digits: int = 4) -> str:
    """A number as it is shown; what rounds to 0 has no sign but the usual one."""
    return "–" if value is None else f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def interval(bounds: Sequence[float | None] | None, sign: str = "", digits: int = 4) -> str:
    """An interval as it is shown."""
    low, high = bounds or (None, None)
    return f"{number(low, sign, digits)} to {number(high, sign, digits)}"


def share(value: float | None) -> str:
    """A share as it is shown."""
    return "–" if value is None else f"{value:.1%}"


def p_value(value: float | None) -> str:
    """A p-value as it is shown: the least ones have few digits to say."""
    return "–" if value is None else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def amount(count: float) -> str:
    """A count as it is shown."""
    return f"{count:,.0f}"


def traffic(count: float) -> str:
    """Bytes as they are shown.

    >>> [traffic(n) for n in (900, 20_000, 3e9)]
    ['900 B', '20.0 kB', '3.0 GB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A time as it is shown.

    >>> duration(12.34), duration(200)
    ('12.3 s', '3 min 20 s')
    """
    whole = round(seconds)
    return f"{seconds:.1f} s" if seconds < 60 else f"{whole // 60} min {whole % 60} s"


def edge(value: float, tried: Sequence[float]) -> str:
    """Which end of all that was tried a choice is at, if any: better ones may be beyond.

    >>> edge(4, (1, 2, 4)), edge(1, (1, 2, 4)), edge(2, (1, 2, 4)), edge(3, (3,))
    ('largest', 'smallest', '', '')
    """
    low, high = min(tried), max(tried)
    return "" if low == high else {high: "largest", low: "smallest"}.get(value, "")


def _figure(figure: Figure, caption: str, save: Path | None = None) -> str:
    words = html.escape(caption)
    picture = to_svg(figure).replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
    if save is not None:
        save_for_papers(figure, save)
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>"


def _class(kinds: str) -> str:
    return f' class="{kinds}"' if kinds else ""
