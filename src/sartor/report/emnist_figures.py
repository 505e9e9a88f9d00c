"""The EMNIST report's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from sartor.report.emnist_words import TABLES, cell_names, titled
from sartor.report.figures import INK, drawing, legend, look

Row = Mapping[str, Any]


def _float(value: float | None) -> float:
    return np.nan if value is None else 100 * value


def tables_figure(results: Row) -> Figure:
    """Every cell of both tables with its interval, and the paper's number."""
    names, real = cell_names(results), not results["data"]["generated"]
    paper = "the paper" if real else "the paper, real EMNIST"
    with drawing(7.2, 1.5 + 0.36 * len(names)) as (figure, axes):
        for n, (table, group) in enumerate(TABLES.items()):
            colour, marker, place = look(n + 1)[0], "os"[n], np.arange(len(names)) + 0.3 * n - 0.15
            cells = [results[table][row][column] for row, column in names.values()]
            mean, low, high = (np.array([_float(c[k]) for c in cells]) for k in _ESTIMATE)
            error = np.maximum([mean - low, high - mean], 0)
            axes.errorbar(
                mean, place, xerr=error, fmt=marker, color=colour, markersize=5, capsize=2.5,
                linewidth=1.2, label=group,
            )  # fmt: skip
            theirs = [_float(results["paper"][table][r][c]) for r, c in names.values()]
            axes.plot(
                theirs, place, marker, color=colour, markerfacecolor="none", markersize=6.5,
                label=f"{group}, {paper}",
            )  # fmt: skip
        axes.set_yticks(range(len(names)), [titled(name) for name in names])
        axes.invert_yaxis()
        for at, (_, column) in enumerate(names.values()):
            if at and column == "initial":
                axes.axhline(at - 0.5, color=INK, linewidth=0.5, alpha=0.5)
        axes.set_xlabel("test accuracy, %" + ("" if real else ", on generated handwriting"))
        axes.grid(axis="x", linewidth=0.6)
        axes.tick_params(axis="y", length=0)
        legend(axes, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, fontsize=9)
        return figure


_ESTIMATE = ("mean", "low", "high")


def lambda_figure(shares: Mapping[str, Mapping[str, float]], keys: Sequence[str]) -> Figure:
    """What writers choose, as bars: for every method the share of each λ."""
    with drawing(7.2, 0.9 + 0.3 * len(shares)) as (figure, axes):
        left = np.zeros(len(shares))
        colours = LinearSegmentedColormap.from_list("λ", [look(2)[0], "#c4c7cc", look(1)[0]])
        for key in keys:
            width = np.array([of.get(key, 0.0) for of in shares.values()])
            colour = colours(float(key))
            axes.barh(list(shares), width, left=left, color=colour, label=f"λ = {key}")
            left += width
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of writers")
        axes.tick_params(axis="y", length=0)
        legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        return figure


def by_lambda_figure(results: Row) -> Figure:
    """Accuracy by one λ for all, and what choosing comes to."""
    found, chosen = results["lambda"], results["methods"]["fedavg + dapper"]["accuracy"]
    with drawing(6.4, 3.4) as (figure, axes):
        for n, group in enumerate(TABLES.values()):
            colour, line = look(n + 1)[0], "-"
            mean, low, high = (np.array([_float(e[k]) for e in found[group]]) for k in _ESTIMATE)
            axes.plot(found["cover"], mean, "os"[n] + line, color=colour, markersize=4, label=group)
            axes.fill_between(found["cover"], low, high, color=colour, alpha=0.15, linewidth=0)
            own = _float(chosen[group]["mean"])
            axes.axhline(own, color=colour, linestyle="--", linewidth=1, label=f"{group}, chosen")
        axes.set_xlabel("λ, the weight of the writer's own images")
        axes.set_ylabel("test accuracy, %")
        axes.grid(axis="y", linewidth=0.6)
        legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        return figure
