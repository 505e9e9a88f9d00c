"""The figures of the EMNIST page."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sartor.experiments.emnist.words import TABLES, table_methods, titled
from sartor.report.figures import INK, Values, curve, drawing, legend, legend_outside, look
from sartor.report.page import Row


def _percents(values: list[float | None]) -> Values:
    return np.array([np.nan if value is None else 100 * value for value in values])


def tables_figure(results: Row) -> Figure:
    """Every cell of both tables with its interval, and the paper's number."""
    names, real = table_methods(results), not results["data"]["generated"]
    paper = "the paper" if real else "the paper, real EMNIST"
    with drawing(7.2, 1.5 + 0.36 * len(names)) as (figure, axes):
        for n, (table, group) in enumerate(TABLES.items()):
            colour, marker, y = look(n + 1)[0], "os"[n], np.arange(len(names)) + 0.3 * n - 0.15
            cells = [results[table][row][column] for row, column in names.values()]
            mean, low, high = (_percents([c[k] for c in cells]) for k in ("mean", "low", "high"))
            error = np.maximum([mean - low, high - mean], 0)
            axes.errorbar(
                mean, y, xerr=error, fmt=marker, color=colour, markersize=5, capsize=2.5,
                linewidth=1.2, label=group,
            )  # fmt: skip
            theirs = _percents([results["paper"][table][r][c] for r, c in names.values()])
            axes.plot(
                theirs, y, marker, color=colour, markerfacecolor="none", markersize=6.5,
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


def one_lambda_figure(results: Row) -> Figure:
    """Accuracy with one λ for all, and with the λ that writers choose."""
    found, chosen = results["lambda"], results["methods"]["fedavg + dapper"]["accuracy"]
    with drawing(6.4, 3.4) as (figure, axes):
        for n, group in enumerate(TABLES.values()):
            colour = look(n + 1)[0]
            style = f"{'os'[n]}-"
            curve(axes, found["cover"], found[group], group, colour, style=style, scale=100)
            own = _percents([chosen[group]["mean"]])[0]
            axes.axhline(own, color=colour, linestyle="--", linewidth=1, label=f"{group}, chosen")
        axes.set_xlabel("λ, the weight of the writer's own images")
        axes.set_ylabel("test accuracy, %")
        axes.grid(axis="y", linewidth=0.6)
        legend_outside(axes)
        return figure
