"""The command line: thin, every command is a call of the library."""

from __future__ import annotations

import contextlib
import inspect
import shlex
import sys
import warnings
from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import sartor
from sartor.central import ALGORITHMS as CENTRAL
from sartor.errors import ConfigError, InterruptedRun, SartorError
from sartor.experiments import coverage, emnist, regret, synthetic
from sartor.experiments.examples import EXAMPLES
from sartor.models import FACTORIES
from sartor.personal import ALGORITHMS as PERSONAL
from sartor.report import write_report
from sartor.runs import advice_config, advise_run, read_config, run

app = typer.Typer(
    name="sartor",
    help="Sartor gives every client a model of its own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Get data, look at it, convert it.", no_args_is_help=True)
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


RUNS = Path("runs")
"""Where runs go if nothing else is said."""

SeedOption = Annotated[int, typer.Option(help="Seed of all randomness.")]

reproduce_app = typer.Typer(help="Run what the paper shows.", no_args_is_help=True)
app.add_typer(reproduce_app, name="reproduce")


@reproduce_app.command("examples")
def examples_command(
    seed: SeedOption = 0,
) -> None:
    """The paper's three examples, through the public classes; takes about a minute."""
    failed = False
    for title, example in EXAMPLES.items():
        typer.echo(title)
        for finding in example(seed):
            mark = "as expected" if finding.holds else "NOT as expected"
            line = f"  {finding.what}: {finding.value:.3f} (expected: {finding.expected}), {mark}"
            typer.echo(line)
            failed |= not finding.holds
    if failed:
        raise typer.Exit(1)


class ConstantsOf(StrEnum):
    """Of the bounds."""

    derived = "derived"
    paper = "paper"


@reproduce_app.command("bounds")
def bounds_command(
    constants: Annotated[
        ConstantsOf, typer.Option(help="As proved with all constants, or as printed in the paper.")
    ] = ConstantsOf.derived,
    draws: Annotated[int, typer.Option(help="How often samples are drawn.", min=100)] = 1000,
    seed: SeedOption = 0,
) -> None:
    """The paper's bounds against what they bound, on a class where that is exact; takes seconds."""
    for line in coverage.as_text(coverage.coverage(draws, seed, constants.value)):
        typer.echo(line)


class Layout(StrEnum):
    """How the synthetic clients' own symbols are placed."""

    literal = "literal"
    shifted = "shifted"


class Loss(StrEnum):
    """The training loss of the synthetic experiment."""

    plain = "plain"
    smoothed = "smoothed"


@reproduce_app.command("synthetic")
def synthetic_command(
    out: Annotated[
        Path | None, typer.Option(help="The directory. (default: runs/synthetic)")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version, in less than a minute.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Populations to average over. (default: 20; quick: 6)")
    ] = None,
    samples: Annotated[
        list[int] | None,
        typer.Option(help="Samples per client; repeat it. (default: from 5 to 1000)"),
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="Own symbols as printed in the paper, or apart from clusters'.")
    ] = Layout.literal,
    loss: Annotated[
        Loss, typer.Option(help="The training loss: plain, or with the paper's label smoothing.")
    ] = Loss.plain,
    seed: SeedOption = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the experiment in that directory.")
    ] = False,
) -> None:
    """Table 1 and Figure 1 of the paper, beside what is possible; takes about ten minutes."""
    _reproduce(
        synthetic, out or RUNS / "synthetic", quick, resume,
        seeds=seeds, samples=tuple(samples) if samples else None, layout=layout.value,
        loss=loss.value, seed=seed,
    )  # fmt: skip


@reproduce_app.command("advice")
def regret_command(
    out: Annotated[Path | None, typer.Option(help="The directory. (default: runs/regret)")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller version, in about a minute.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Populations to average over. (default: 10; quick: 2)")
    ] = None,
    samples: Annotated[
        list[int] | None,
        typer.Option(help="Samples per client; repeat it. (default: from 5 to 1000)"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of all randomness; advice was settled on seed 0.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the experiment in that directory.")
    ] = False,
) -> None:
    """What advice is worth: its regret on the paper's synthetic clients, beside the bounds'."""
    _reproduce(
        regret, out or RUNS / "regret", quick, resume,
        seeds=seeds, samples=tuple(samples) if samples else None, seed=seed,
    )  # fmt: skip


class Row(StrEnum):
    """A row of the EMNIST tables."""

    fedavg = "fedavg"
    agnostic = "agnostic"
    hypcluster = "hypcluster"


class Part(StrEnum):
    """A part of the EMNIST experiment."""

    tables = "tables"
    local = "local"
    controls = "controls"
    lambda_ = "lambda"
    starts = "starts"
    clusters = "clusters"
    order = "order"
    optimizers = "optimizers"


class Precision(StrEnum):
    """Of the arithmetic."""

    f32 = "f32"
    bf16 = "bf16"


@reproduce_app.command("emnist")
def emnist_command(
    data: Annotated[
        str,
        typer.Option(
            help="Where the writers' images are; 'emnist' downloads them, 'generated' makes some."
        ),
    ] = "emnist",
    out: Annotated[Path | None, typer.Option(help="The directory. (default: runs/emnist)")] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A much smaller version for two cores: a small network, 100 writers, few rounds.",
        ),
    ] = False,
    part: Annotated[
        list[Part] | None, typer.Option(help="What to run; repeat it. (default: everything)")
    ] = None,
    row: Annotated[
        list[Row] | None, typer.Option(help="A row of the tables; repeat it. (default: all three)")
    ] = None,
    writers: Annotated[
        int | None,
        typer.Option(help="How many writers. (default: all; generated: 548; quick: 100)"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How often, each time shuffled anew. (default: 3; quick: 1)")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of central training. (default: 1000; quick: 150)")
    ] = None,
    joint: Annotated[
        int | None, typer.Option(help="Mapper's joint rounds. (default: as many; quick: 15)")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="f32, or bf16 for faster arithmetic on a GPU.")
    ] = Precision.f32,
    seed: SeedOption = 0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on in that directory, perhaps with more seeds or parts."),
    ] = False,
) -> None:
    """Tables 2 and 3 of the paper and what goes beyond them; made for a GPU, but for --quick."""
    _reproduce(
        emnist, out or RUNS / "emnist", quick, resume,
        data=data, writers=writers, seeds=seeds, rounds=rounds,
        joint=joint if quick or joint is not None else rounds,
        parts=tuple(p.value for p in part) if part else None,
        rows=tuple(r.value for r in row) if row else None,
        precision=precision.value, seed=seed,
    )  # fmt: skip


def _reproduce(experiment: Any, directory: Path, quick: bool, resume: bool, **given: Any) -> None:
    """Run an experiment; what is not given is as it has it."""
    kind = experiment.Settings.small if quick else experiment.Settings
    settings = kind(**{key: value for key, value in given.items() if value is not None})
    _say_if_new(directory, resume)
    with _stoppable(resume):
        results = experiment.reproduce(settings, directory, resume=resume)
    for line in experiment.as_text(results):
        typer.echo(line)
    typer.echo(f"\nReport:  {directory / 'report.html'}")


def _say_if_new(directory: Path, resume: bool) -> None:
    if resume and not directory.exists():
        typer.echo(f"{directory} holds no run yet: starting a new one", err=True)


@contextlib.contextmanager
def _stoppable(resume: bool) -> Iterator[None]:
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
    _say_if_new(directory, resume)
    with _stoppable(resume):
        finished = run(settings, directory, resume=resume)
    for scores in finished.scores:
        typer.echo(str(scores.summary(seed=settings.seed)))
        typer.echo("")
    typer.echo(f"Models:  {directory / 'models'}")
    typer.echo(f"Report:  {directory / 'report.html'}")


ClientColumn = Annotated[str | None, typer.Option(help="The client column, for tables.")]
LabelColumn = Annotated[str | None, typer.Option(help="The label column, for tables.")]
DomainColumn = Annotated[str | None, typer.Option(help="The domain column, for tables.")]
FeatureColumns = Annotated[
    list[str] | None, typer.Option(help="A feature column; repeat it. (default: all others)")
]


@app.command("advise")
def advise_command(
    source: Annotated[Path, typer.Argument(help="A run directory, or clients' data.")],
    out: Annotated[Path | None, typer.Option(help="The directory. (default: runs/advice)")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A ready model. (default: the run's, or one that fits the labels)"),
    ] = None,
    bound: Annotated[
        float | None, typer.Option(help="The largest loss, which squared errors need.")
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
    more = [f"advice.{k}={v}" for k, v in (("bound", bound), ("folds", folds)) if v is not None]
    config = advice_config(
        source, overrides=[*(overrides or []), *more], columns=columns, model=model, seed=seed
    )
    directory = out or RUNS / "advice"
    advice, results = advise_run(config, directory)
    for name, share in advice.shares().items():
        typer.echo(f"{name:<14}{share:7.1%} of the clients")
    typer.echo(f"\nMean gain over the global model, {results['loss']}: expected (held out)")
    for name, found in results["policies"].items():
        expected = "" if found.get("gain") is None else f"{found['gain']:+.4f}"
        raw = "" if found.get("held_out") is None else f"({found['held_out']:+.4f})"
        typer.echo(f"{name:<14}{expected:>9} {raw}")
    typer.echo(f"\nThe bounds say the same for {advice.agree.mean():.1%} of the clients.")
    typer.echo(f"Table:   {directory / 'per_client.parquet'}")
    typer.echo(f"Report:  {directory / 'report.html'}")


@app.command("settings")
def settings_command(
    name: Annotated[
        str | None, typer.Argument(help="An algorithm or a ready model. (default: a list)")
    ] = None,
) -> None:
    """Show what an algorithm can be told: the keys of its table in a configuration."""
    known: dict[str, Any] = {**CENTRAL, **PERSONAL, **FACTORIES}
    if name is None:
        for title, several in (("central", CENTRAL), ("personal", PERSONAL), ("model", FACTORIES)):
            typer.echo(f"{title}: {', '.join(several)}")
        return
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}"
        raise ConfigError(f"there is nothing named {name!r}; {hint}")
    typer.echo(inspect.getdoc(known[name]))
    typer.echo("\nDefaults:")
    for key, parameter in inspect.signature(known[name]).parameters.items():
        given = "(needed)" if parameter.default is parameter.empty else repr(parameter.default)
        typer.echo(f"  {key} = {given}")


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


@data_app.command("download")
def download_command(
    cache: Annotated[
        Path | None, typer.Option(help="The directory to keep it in. (default: ~/.cache/sartor)")
    ] = None,
) -> None:
    """Get federated EMNIST, 3,400 writers of 62 classes, or go on getting it."""
    with _stoppable(resume=True):  # the same command goes on
        folder = sartor.data.download("emnist", cache)
    typer.echo(f"Data:  {folder}")


DataPath = Annotated[Path, typer.Argument(help="A file or directory with clients' data.")]


class Format(StrEnum):
    """What data can be converted to."""

    hdf5 = "hdf5"
    sqlite = "sqlite"
    fedjax = "fedjax"
    leaf = "leaf"
    sartor = "sartor"


@data_app.command("convert")
def convert_command(
    path: DataPath,
    out: Annotated[Path, typer.Argument(help="The directory to write, new or empty.")],
    to: Annotated[
        Format,
        typer.Option(
            help="TensorFlow Federated's HDF5 or SQLite, FedJAX's SQLite, LEAF's JSON, or Sartor's "
            "own directory, pixels as bytes and mapped when it is opened."
        ),
    ],
    client: ClientColumn = None,
    label: LabelColumn = None,
    domain: DomainColumn = None,
    features: FeatureColumns = None,
) -> None:
    """Write data in another format."""
    opened = sartor.data.open(
        path, client=client, label=label, domain=domain, features=features or None
    )
    sartor.data.convert(opened, out, to.value)
    typer.echo(
        f"Data:  {out}, {to.value} of {len(opened):,} clients, {len(opened.rows):,} examples"
    )


@data_app.command("info")
def info_command(
    path: DataPath,
    client: ClientColumn = None,
    label: LabelColumn = None,
    domain: DomainColumn = None,
    features: FeatureColumns = None,
) -> None:
    """Show clients, sizes and labels, and warn where the order of clients carries a shift."""
    opened = sartor.data.open(
        path, client=client, label=label, domain=domain, features=features or None
    )
    rows = sartor.data.describe(opened).rows()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
    if len(opened) < 8:
        return  # too few to tell an order by
    shift = sartor.data.order_shift(opened)
    if shift.message:
        typer.echo(f"warning: {shift.message}", err=True)


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
