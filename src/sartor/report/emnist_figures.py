"""The EMNIST report's figures, and how it writes names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from sartor.report.figures import INK, drawing, legend, look
from sartor.report.page import interval, number

Row = Mapping[str, Any]

TABLES = {"table2": "seen", "table3": "unseen"}
"""Which writers a table is about."""

NAMES = {
    "fedavg": "FedAvg", "agnostic": "Agnostic", "hypcluster": "HypCluster",
    "finetune": "Finetune", "dapper": "Dapper", "mapper": "Mapper", "local": "Local",
    "adam": "Adam", "adagrad": "Adagrad", "kmeans": "k-means",
}  # fmt: skip


def titled(name: str) -> str:
    """A method as it is called.

    >>> titled("fedavg with adam + finetune")
    'FedAvg with Adam + Finetune'
    """
    return re.sub("[a-z]+", lambda word: NAMES.get(word[0], word[0]), name)


def cell_names(results: Row) -> dict[str, tuple[str, str]]:
    """The cells of the tables, by name: their rows and columns."""
    return {
        row if column == "initial" else f"{row} + {column}": (row, column)
        for row, cells in results["table2"].items()
        for column in cells
    }


def percent(value: float | None, digits: int = 2) -> str:
    """A share in per cent, without the sign; a dash where there is none."""
    return number(_hundred(value), digits=digits)


def points(value: float | None) -> str:
    """A difference of shares in percentage points."""
    return number(_hundred(value), "+", 2)


def percents(estimate: Row) -> str:
    """The interval of a share in per cent."""
    return interval([_hundred(estimate["low"]), _hundred(estimate["high"])], digits=2)


def all_points(estimate: Row) -> str:
    """The interval of a difference in percentage points."""
    return interval([_hundred(estimate["low"]), _hundred(estimate["high"])], "+", 2)


def seeds_apart(estimate: Row) -> str:
    """The standard deviation between seeds, in percentage points."""
    return percent(estimate["seed_deviation"])


def each_seed(values: Sequence[float | None]) -> str:
    """The differences that seeds have found."""
    return ", ".join(points(value) for value in values)


def on_what(results: Row, paper: bool = False) -> str:
    """A reminder for captions where the handwriting is not real."""
    if not results["data"]["generated"]:
        return ""
    theirs = " The paper's numbers are of real EMNIST."
    return f" Generated handwriting, not real EMNIST.{theirs * paper}"


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


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
