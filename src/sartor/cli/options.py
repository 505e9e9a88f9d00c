"""Shared by several commands: options, default directories, and interruption."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.errors import InterruptedRun
from sartor.interrupts import terminable

NOTHING_KEPT = "Nothing was written. Start again with"
"""What there is to say about work that does not resume."""

RUNS = Path("runs")
"""Default parent directory of runs."""

Out = Annotated[Path, typer.Option(help="Output directory.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a smaller, faster version.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume what the output directory holds.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: central.rounds=50."),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
ClientColumn = Annotated[str | None, typer.Option(help="Client column (tables only).")]
LabelColumn = Annotated[str | None, typer.Option(help="Label column (tables only).")]
DomainColumn = Annotated[str | None, typer.Option(help="Domain column (tables only).")]
TimeColumn = Annotated[
    str | None, typer.Option(help="Column with dates or times: hold out what comes later.")
]
GroupColumn = Annotated[
    str | None, typer.Option(help="Column with groups of rows that stay together.")
]
SecondColumn = Annotated[
    str | None,
    typer.Option(help="Second client column, such as the region (tables, regression only)."),
]
TableModel = Annotated[
    str | None,
    typer.Option(
        help="boosting, linear, lightgbm, xgboost, a class such as "
        "sklearn.ensemble.RandomForestClassifier, or a ready model in JAX (tables only). "
        "(default: boosting)"
    ),
]
Approach = Annotated[
    str | None,
    typer.Option(
        help="What is fitted to each client beside the estimator (tables only). "
        "(default: auto, what pays on held-out rows)"
    ),
]
Task = Annotated[
    str | None,
    typer.Option(help="classification or regression (tables only). (default: what the label says)"),
]
FeatureColumns = Annotated[
    list[str] | None,
    typer.Option(help="Feature column; repeat for several. (default: all other columns)"),
]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: not None, and not an empty list."""
    return {key: value for key, value in options.items() if value not in (None, [], ())}


def say_if_new(directory: Path, resume: bool) -> None:
    """Say so if there is nothing to resume."""
    if resume and not directory.exists():
        typer.echo(f"{directory} holds no run yet: starting a new one", err=True)


@contextlib.contextmanager
def stoppable(resume: bool, kept: str = "Everything so far is kept. Resume with") -> Iterator[None]:
    """If the user or the system interrupts, say what is kept, and the command to go on with.

    Args:
        resume: whether the same command resumes.
        kept: what to say about what there is so far.
    """
    try:
        with terminable():
            yield
    except (InterruptedRun, KeyboardInterrupt) as stopped:
        what = str(stopped) or "stopped"
        again = ["sartor", *sys.argv[1:], *([] if resume else ["--resume"])]
        typer.echo(f"{what}. {kept}\n  {shlex.join(again)}", err=True)
        raise typer.Exit(130) from stopped
