"""The command line: every command is a thin call of the library."""

import importlib
import inspect
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import sartor
from sartor.central import ALGORITHMS as CENTRAL
from sartor.cli import options
from sartor.cli.data import data_app
from sartor.cli.reproduce import reproduce_app
from sartor.cli.tables import predict_command, update_command
from sartor.data import ClientData
from sartor.errors import ConfigError, SartorError, nearest
from sartor.estimators import CANDIDATES
from sartor.experiments.pages import PAGES
from sartor.models import FACTORIES
from sartor.personal import ALGORITHMS as PERSONAL
from sartor.report import write_report
from sartor.runs import TableConfig, advice_config, advise_run, named, run
from sartor.runs.advised import OPTIONS
from sartor.runs.asked import advice_asked, run_asked
from sartor.runs.config import GENERATORS, IMPORT
from sartor.runs.tabled import advise_table
from sartor.runs.told import lines_about

app = typer.Typer(
    name="sartor",
    help="Personalized federated learning: a model for every client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce_app, name="reproduce")
app.add_typer(data_app, name="data")
app.command("predict")(predict_command)
app.command("update")(update_command)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"sartor {sartor.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a Python module with algorithms of your own; repeat for several.",
        ),
    ] = None,
) -> None:
    for module in modules or []:
        if os.getcwd() not in sys.path:  # where `python -m` looks, too
            sys.path.insert(0, os.getcwd())
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the module does
            raise ConfigError(
                f"--import {module}: {type(error).__name__}: {error}; for the whole traceback, "
                f'run python -c "import {module}"'
            ) from error


@app.command("run")
def run_command(
    config: Annotated[
        Path, typer.Argument(help="Table (CSV, Parquet), or configuration (a TOML file).")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Output directory. (default: runs/ plus the file's name)"),
    ] = None,
    client: options.ClientColumn = None,
    label: options.LabelColumn = None,
    features: options.FeatureColumns = None,
    second: options.SecondColumn = None,
    time: options.TimeColumn = None,
    groups: options.GroupColumn = None,
    model: options.TableModel = None,
    approach: options.Approach = None,
    task: options.Task = None,
    test: Annotated[
        float | None, typer.Option(help="Share of rows held out (tables only). (default: 0.2)")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. (default: 0)")] = None,
    resume: options.Resume = False,
    overrides: options.Set = None,
) -> None:
    """Train, personalize, evaluate and report: a table, or what a configuration says.

    The directory of a table's run holds a config.toml, which does the same again.
    """
    columns = options.given(
        client=client, label=label, features=features, second=second, time=time, groups=groups,
        task=task,
    )  # fmt: skip
    given = options.given(model=model, approach=approach, test=test, seed=seed)
    settings = run_asked(config, columns, given, overrides or [])
    directory = out or options.RUNS / config.stem
    options.say_if_new(directory, resume)
    if isinstance(settings, TableConfig):
        with options.stoppable(resume=True, kept=options.NOTHING_KEPT):
            finished = run(settings, directory, resume=resume)
        typer.echo("\n".join(lines_about(finished.results, directory)))
        return
    with options.stoppable(resume):
        finished = run(settings, directory, resume=resume)
    for scores in finished.scores:
        typer.echo(f"{scores.summary()}\n")
    typer.echo(f"Models:  {directory / 'models'}")
    typer.echo(f"Report:  {directory / 'report.html'}")


@app.command("advise")
def advise_command(
    source: Annotated[Path, typer.Argument(help="Table, run directory, or client data.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output directory. (default: runs/advice, and for tables a dash and the name)"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Estimator for a table: boosting, linear, lightgbm, xgboost, or a class; or a "
            "ready model in JAX. (default: the run's, or one that fits the data)"
        ),
    ] = None,
    approach: options.Approach = None,
    task: options.Task = None,
    second: options.SecondColumn = None,
    bound: Annotated[
        float | None,
        typer.Option(
            help="Largest loss the bounds assume. (default: log(10 · classes); 4 · max y² for "
            "squared error)"
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ, the probability that a bound fails. (default: 0.05)")
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Cross-validation folds. (default: 5)")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed. (default: the run's, or 0)")
    ] = None,
    client: options.ClientColumn = None,
    label: options.LabelColumn = None,
    domain: options.DomainColumn = None,
    features: options.FeatureColumns = None,
    time: options.TimeColumn = None,
    groups: options.GroupColumn = None,
    overrides: options.Set = None,
) -> None:
    """Advise each client: whether to personalize, how, and what that should gain.

    The advice comes from an experiment. Models are trained on part of each client's training
    examples and scored on the rest. For tables, these are estimators with an approach around them.
    For other data, and with a model in JAX (--model logistic, --set central.rounds=50, --bound),
    clients are advised to join the global model, join a cluster, interpolate, or stay local, and
    the paper's bounds are shown next to it. --set then takes the tables model, central, cluster,
    local, interpolation, advice and engine; otherwise model, approach and split.
    """
    columns = options.given(
        client=client, label=label, domain=domain, features=features, time=time, groups=groups
    )
    rules = options.given(bound=bound, delta=delta, folds=folds)
    more = options.given(second=second, task=task)
    given = options.given(model=model, approach=approach, seed=seed) | rules
    asked = advice_asked(source, columns | more, given, overrides or [])
    if asked is not None:
        out = out or options.RUNS / f"advice-{source.stem}"
        with options.stoppable(resume=True, kept=options.NOTHING_KEPT):
            found = advise_table(asked, out)
        typer.echo("\n".join(lines_about(found, out)))
        return
    for name in more | options.given(approach=approach):
        raise ConfigError(f"--{name} is for estimators of tables, and not for models in JAX")
    out = out or options.RUNS / "advice"
    changes = [*(overrides or []), *(f"advice.{key}={value}" for key, value in rules.items())]
    config = advice_config(source, overrides=changes, columns=columns, model=model, seed=seed)
    names = ", ".join(f"{name} by {algorithm}" for name, algorithm in config.algorithms().items())
    typer.echo(f"Candidates: {names}", err=True)
    with options.stoppable(resume=True, kept=options.NOTHING_KEPT):
        advice, results = advise_run(config, out)
    typer.echo(f"{advice.summary()}\nLosses: {results['loss']}\n")
    typer.echo(f"Table:   {out / 'per_client.parquet'}")
    typer.echo(f"Report:  {out / 'report.html'}")


@app.command("settings")
def settings_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Algorithm, ready model, step size or table. (default: list all names)"
        ),
    ] = None,
) -> None:
    """List the settings of an algorithm, a model, a step size or a configuration table."""
    tables: dict[str, Any] = {"data": sartor.data.open, "split": ClientData.split}
    tables |= {"engine": sartor.Engine, "advice": sartor.advise}
    steps: dict[str, Any] = {"Automatic": sartor.Automatic, "Searched": sartor.Searched}
    known: dict[str, Any] = {**CENTRAL, **PERSONAL, **FACTORIES, **steps, **tables}
    if name is None:
        typer.echo(f"central: {', '.join(CENTRAL)}\npersonal: {', '.join(PERSONAL)}")
        typer.echo(f"model: {', '.join(FACTORIES)}\nlearning_rate: {', '.join(steps)}")
        typer.echo(f"model, for tables: {', '.join(named.NAMES)} {named.OTHERS}")
        typer.echo(f"approach: auto, {'; '.join(CANDIDATES)}")
        typer.echo(f"tables: {', '.join(tables)}")
        return
    same = [key for key in known if key.lower() == name.lower()]
    name = same[0] if len(same) == 1 else name
    if name not in known:
        near = nearest(name, known, "known are")
        raise ConfigError(f"no algorithm, model or table is named {name!r}; {near} {IMPORT}")
    typer.echo(inspect.getdoc(known[name]))
    typer.echo("\nDefaults:")
    for key, parameter in inspect.signature(known[name]).parameters.items():
        if key == "self" or (name == "advice" and key not in OPTIONS):
            continue  # not a key of a configuration
        needed = "(taken from the data if not given)" if name in FACTORIES else "(required)"
        default = needed if parameter.default is parameter.empty else repr(parameter.default)
        if (name, key) == ("split", "seed"):
            default = "(the run's seed if not given)"
        typer.echo(f"  {key} = {default}")
    if name == "data":
        made = ", ".join(map(repr, GENERATORS))
        typer.echo(f"\nInstead of path: generator = {made}, with the generator's keys")


@app.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(help="Output page. (default: report.html in the first run)")
    ] = None,
) -> None:
    """Rebuild the report of a run or experiment, or compare several on one page."""
    target = out or runs[0] / "report.html"
    write_report(runs, target, PAGES)
    typer.echo(f"Report:  {target}")


def main() -> None:
    """Run the command line. Errors and warnings are one line, without a traceback."""
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
