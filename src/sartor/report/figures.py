"""Figures of a run, by matplotlib: clients, not only means."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.figure import Figure

INK = "#010203"
"""The colour of text and axes; on the page it becomes that of the surrounding text."""

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
    "svg.fonttype": "none",
    "svg.hashsalt": "sartor",
    "legend.frameon": False,
}

Values = npt.NDArray[np.float64]


def clients_figure(values: Mapping[str, Values], metric: str) -> Figure:
    """The distribution over clients: for every value, the share of clients at or below it."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, (method, of_clients) in enumerate(values.items()):
            colour, line = _look(number)
            ordered = np.sort(of_clients[np.isfinite(of_clients)])
            share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
            axes.step(
                ordered, share, where="post", color=colour, label=method, linewidth=1.8,
                linestyle=line,
            )  # fmt: skip
            if len(ordered):
                axes.axvline(ordered.mean(), color=colour, linewidth=0.8, linestyle=":")
        axes.set_xlabel(f"test {metric} of a client (dotted: mean)")
        axes.set_ylabel("share of clients")
        axes.set_ylim(0, 1)
        legend = axes.legend(loc="upper left" if metric == "accuracy" else "lower right")
        for text in legend.get_texts():
            text.set_parse_math(False)  # a dollar in a name is a dollar
        return figure


def training_figure(loss: Sequence[float | None]) -> Figure:
    """The cohort's training loss in every round."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 2.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(
            np.arange(1, len(loss) + 1), np.array(loss, float), color=COLOURS[1], linewidth=1.2
        )
        axes.set_xlabel("round")
        axes.set_ylabel("training loss of the cohort")
        return figure


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element that takes the page's text colour."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")


def to_png(figure: Figure) -> bytes:
    """The figure as PNG on white."""
    buffer = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=160, facecolor="white")
    return buffer.getvalue()


def _look(number: int) -> tuple[str, str]:
    """A colour and a kind of line; the first repeats only with another of the second."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]
