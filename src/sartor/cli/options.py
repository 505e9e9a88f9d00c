"""What several commands share: options, where things go, and being stopped."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sartor.errors import InterruptedRun

RUNS = Path("runs")
"""Where runs go if nothing else is said."""

SeedOption = Annotated[int, typer.Option(help="Seed of all randomness.")]
ClientColumn = Annotated[str | None, typer.Option(help="The client column, for tables.")]
LabelColumn = Annotated[str | None, typer.Option(help="The label column, for tables.")]
DomainColumn = Annotated[str | None, typer.Option(help="The domain column, for tables.")]
FeatureColumns = Annotated[
    list[str] | None, typer.Option(help="A feature column; repeat it. (default: all others)")
]


def say_if_new(directory: Path, resume: bool) -> None:
    """Say that there is nothing to resume, if so."""
    if resume and not directory.exists():
        typer.echo(f"{directory} holds no run yet: starting a new one", err=True)


@contextlib.contextmanager
def stoppable(resume: bool) -> Iterator[None]:
    """Say how to go on, if the user stops it."""
    try:
        yield
    except (InterruptedRun, KeyboardInterrupt) as stopped:
        what = str(stopped) or "stopped"
        again = ["sartor", *sys.argv[1:], *([] if resume else ["--resume"])]
        typer.echo(
            f"{what}. Everything so far is kept; go on with\n  {shlex.join(again)}", err=True
        )
        raise typer.Exit(130) from stopped
