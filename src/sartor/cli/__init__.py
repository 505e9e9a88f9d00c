"""The command line: thin, every command is a call of the library."""

from __future__ import annotations

import inspect
import sys
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

import sartor
from sartor.central import ALGORITHMS as CENTRAL
from sartor.cli.data import data_app
from sartor.cli.options import (
    RUNS,
    ClientColumn,
    DomainColumn,
    FeatureColumns,
    LabelColumn,
    say_if_new,
    stoppable,
)
from sartor.cli.reproduce import reproduce_app
from sartor.data import ClientData
from sartor.errors import ConfigError, SartorError
from sartor.experiments.pages import write_report
from sartor.models import FACTORIES
from sartor.personal import ALGORITHMS as PERSONAL
from sartor.runs import advice_config, advise_run, read_config, run
from sartor.runs.advised import OPTIONS
from sartor.runs.config import GENERATORS

app = typer.Typer(
    name="sartor",
    help="Sartor gives every client a model of its own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce_app, name="reproduce")
app.add_typer(data_app, name="data")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"sartor {sartor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    config: Annotated[Path, typer.Argument(help="The configuration, a TOML file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The run directory. (default: runs/ and the configuration's name)"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in that directory.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: central.rounds=50."),
    ] = None,
) -> None:
    """Train, personalize, evaluate and report, as a configuration says."""
    settings = read_config(config, overrides or [])
    directory = out or RUNS / config.stem
    say_if_new(directory, resume)
    with stoppable(resume):
        finished = run(settings, directory, resume=resume)
    for scores in finished.scores:
        typer.echo(str(scores.summary(seed=settings.seed)))
        typer.echo("")
    typer.echo(f"Models:  {directory / 'models'}")
    typer.echo(f"Report:  {directory / 'report.html'}")


@app.command("advise")
def advise_command(
    source: Annotated[Path, typer.Argument(help="A run directory, or clients' data.")],
    out: Annotated[Path | None, typer.Option(help="The directory. (default: runs/advice)")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A ready model. (default: the run's, or one that fits the labels)"),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            help="The largest loss that the bounds reckon with. (default: that of a tenth of the "
            "uniform probability; of a squared error 4 y² of the largest label)"
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the bounds, how often they may fail. (default: 0.05)")
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Folds of the experiment. (default: 5)")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all randomness. (default: the run's, or 0)")
    ] = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    domain: DomainColumn = None,
    features: FeatureColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE",
            help="Change a setting: central.rounds=50; also of cluster, local, interpolation, "
            "advice, engine.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Should a client join, be clustered, interpolate or stay alone? By experiment and by bounds.

    Models are trained on parts of the clients' training examples and scored on the others.
    """
    given = {"client": client, "label": label, "domain": domain, "features": features or None}
    columns = {key: value for key, value in given.items() if value is not None}
    options = {"bound": bound, "delta": delta, "folds": folds}
    more = [f"advice.{key}={value}" for key, value in options.items() if value is not None]
    config = advice_config(
        source, overrides=[*(overrides or []), *more], columns=columns, model=model, seed=seed
    )
    directory = out or RUNS / "advice"
    told = ", ".join(f"{name} by {algorithm}" for name, algorithm in config.algorithms().items())
    typer.echo(f"Candidates: {told}", err=True)
    try:
        advice, results = advise_run(config, directory)
    except KeyboardInterrupt as stopped:
        typer.echo("stopped; nothing was written", err=True)
        raise typer.Exit(130) from stopped
    typer.echo(f"{advice.summary()}\nLosses: {results['loss']}\n")
    typer.echo(f"Table:   {directory / 'per_client.parquet'}")
    typer.echo(f"Report:  {directory / 'report.html'}")


@app.command("settings")
def settings_command(
    name: Annotated[
        str | None,
        typer.Argument(help="An algorithm, a ready model, or a table. (default: a list)"),
    ] = None,
) -> None:
    """Show what an algorithm can be told: the keys of its table in a configuration."""
    tables = {"data": sartor.data.open, "split": ClientData.split, "engine": sartor.Engine}
    tables["advice"] = sartor.advise
    known: dict[str, Any] = {**CENTRAL, **PERSONAL, **FACTORIES, **tables}
    if name is None:
        kinds: dict[str, Any] = {"central": CENTRAL, "personal": PERSONAL}
        kinds |= {"model": FACTORIES, "tables": tables}
        for title, several in kinds.items():
            typer.echo(f"{title}: {', '.join(several)}")
        return
    same = [key for key in known if key.lower() == name.lower()]
    name = same[0] if len(same) == 1 else name
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}"
        raise ConfigError(f"there is nothing named {name!r}; {hint}")
    typer.echo(inspect.getdoc(known[name]))
    typer.echo("\nDefaults:")
    for key, parameter in inspect.signature(known[name]).parameters.items():
        if key == "self" or (name == "advice" and key not in OPTIONS):
            continue  # what a table of a configuration has not
        needed = "(as the data has, if not given)" if name in FACTORIES else "(needed)"
        given = needed if parameter.default is parameter.empty else repr(parameter.default)
        if (name, key) == ("split", "seed"):
            given = "(the run's, if not given)"
        typer.echo(f"  {key} = {given}")
    if name == "data":
        made = ", ".join(map(repr, GENERATORS))
        typer.echo(f"\nInstead of path: generator = {made}, with its keys")


@app.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(help="The page. (default: report.html in the first run)")
    ] = None,
) -> None:
    """Build the report of a run or an experiment again, or one page that compares several."""
    target = out or runs[0] / "report.html"
    write_report(runs, target)
    typer.echo(f"Report:  {target}")


def main() -> None:
    """Run the command line; errors and warnings are one line, without a traceback."""
    said = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            typer.echo(f"warning: {message}", err=True)

    warnings.showwarning = warn
    try:
        app(prog_name="sartor")
    except (SartorError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
