"""Figures for pages and for papers, by matplotlib. They show all clients, not only means."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from sartor.files import write_atomic
from sartor.types import Floats

INK = "#010203"
"""The colour of text and axes; the page replaces it by the colour of the text around."""

COLOURS = ("#8a8f98", "#2a78d6", "#e0662b", "#2c9c69", "#a04fc4", "#c9a227", "#1aa3b8", "#c2446e")
LINES = ("-", "--", "-.", ":")

STYLE: Any = {
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#8888884d",
    "svg.fonttype": "none",
    "svg.hashsalt": "sartor",
    "pdf.fonttype": 42,
    "legend.frameon": False,
}


@contextmanager
def drawing(width: float = 6.4, height: float = 3.4) -> Iterator[tuple[Figure, Any]]:
    """A new figure and its axes, in the common style."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots()


def look(number: int) -> tuple[str, str]:
    """A colour and a line style; a colour repeats only with another line style."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]


def legend(axes: Any, **where: Any) -> None:
    """A legend that shows names literally: a dollar sign in one starts no formula."""
    for text in axes.legend(**where).get_texts():
        text.set_parse_math(False)


def clients_figure(values: Mapping[str, Floats], metric: str) -> Figure:
    """The distribution over clients: for every value, the share of clients at or below it."""
    with drawing() as (figure, axes):
        for number, (method, of_clients) in enumerate(values.items()):
            ordered = _shares(axes, of_clients, method, number)
            if len(ordered):
                axes.axvline(ordered.mean(), color=look(number)[0], linewidth=0.8, linestyle=":")
        xlabel = f"test {metric} of a client (dotted: mean)"
        axes.set(xlabel=xlabel, ylabel="share of clients", ylim=(0, 1))
        legend(axes, loc="upper left" if metric == "accuracy" else "lower right")
        return figure


def change_figure(
    changes: Mapping[str, Floats], against: str, what: str, size: tuple[float, float] = (6.4, 3.4)
) -> Figure:
    """Who gains and who is hurt: for every change, the share of clients at or below it."""
    with drawing(*size) as (figure, axes):
        axes.axvspan(-1e9, 0, color="#d6452a", alpha=0.10, linewidth=0)
        axes.axvline(0, color=INK, linewidth=0.8)
        ends = [0.0]
        for number, (method, of_clients) in enumerate(changes.items(), start=1):
            ordered = _shares(axes, of_clients, method, number)
            ends += [*np.quantile(ordered, [0.002, 0.998])] if len(ordered) else []
        margin = 0.05 * (max(ends) - min(ends)) or 0.01
        axes.set_xlim(min(ends) - margin, max(ends) + margin)
        xlabel = f"gain in {what} over {against} (left of 0: hurt)"
        axes.set(xlabel=xlabel, ylabel="share of clients", ylim=(0, 1))
        legend(axes, loc="upper left", fontsize=8)
        return figure


def _shares(axes: Any, values: Floats, label: str, number: int) -> Floats:
    colour, line = look(number)
    ordered = np.sort(values[np.isfinite(values)])
    share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    axes.step(
        ordered, share, where="post", color=colour, label=label, linewidth=1.8, linestyle=line
    )
    return ordered


def curve(
    axes: Any, x: Sequence[float], rows: Sequence[Mapping[str, Any]], label: str, colour: str,
    *, style: str = "o-", scale: float = 1.0, less: float = 0.0,
    keys: Sequence[str] = ("mean", "low", "high"),
) -> None:  # fmt: skip
    """Means with a band for their intervals.

    Args:
        axes: where to draw.
        x: where the rows are.
        rows: hold the values under ``keys``; None is left out.
        label: for the legend.
        colour: of the line and the band.
        style: matplotlib's marker and line style.
        scale: values are multiplied by it.
        less: is subtracted from the values.
        keys: the mean, and the ends of its interval.
    """
    values = [np.array([row[key] for row in rows], float) for key in keys]  # None becomes NaN
    mean, low, high = (scale * (each - less) for each in values)
    axes.plot(x, mean, style, color=colour, markersize=3.5, linewidth=1.5, label=label)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def log_axis(axes: Any, values: Sequence[float], label: str) -> None:
    """A logarithmic horizontal axis with a tick at every value."""
    axes.set_xscale("log")
    axes.set_xticks(list(values), [f"{value:g}" for value in values])
    axes.minorticks_off()
    axes.set_xlabel(label)


def legend_outside(axes: Any) -> None:
    """A legend to the right of the axes."""
    legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)


def training_figure(loss: Sequence[float | None]) -> Figure:
    """The cohort's training loss in every round."""
    with drawing(6.4, 2.6) as (figure, axes):
        rounds = np.arange(1, len(loss) + 1)
        axes.plot(rounds, np.array(loss, float), color=COLOURS[1], linewidth=1.2)
        axes.set(xlabel="round", ylabel="training loss of the cohort")
        return figure


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element in the page's text colour."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    figure.set_layout_engine("none")  # it need not be laid out again for other formats
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def save_for_papers(figure: Figure, path: Path) -> None:
    """Save the figure as PNG and PDF, on white; ``path`` is the name without an ending."""
    formats: dict[str, Any] = {"png": {"dpi": 160}, "pdf": {"metadata": {"CreationDate": None}}}
    with rc_context(STYLE):
        for kind, settings in formats.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, facecolor="white", **settings)
            write_atomic(path.with_name(f"{path.name}.{kind}"), buffer.getvalue())
