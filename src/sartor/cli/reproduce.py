"""``sartor reproduce``: the paper's examples and experiments."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sartor.cli import options
from sartor.data.synthetic import Layout
from sartor.errors import ConfigError
from sartor.experiments import coverage, emnist, regret, synthetic
from sartor.experiments.emnist.settings import PARTS, ROWS
from sartor.experiments.examples import EXAMPLES
from sartor.theory.bounds import Constants

SamplesOption = Annotated[
    list[int] | None,
    typer.Option(help="Samples per client; repeat for several. (default: 5 to 1000)"),
]

reproduce_app = typer.Typer(help="Run the paper's examples and experiments.", no_args_is_help=True)


@reproduce_app.command("examples")
def examples_command(seed: options.Seed = 0) -> None:
    """Run the paper's three examples. Takes about a minute."""
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


@reproduce_app.command("bounds")
def bounds_command(
    constants: Annotated[
        Constants, typer.Option(help="Derived with all constants, or as printed in the paper.")
    ] = "derived",
    draws: Annotated[int, typer.Option(help="How many times to draw samples.", min=100)] = 1000,
    seed: options.Seed = 0,
) -> None:
    """Test the paper's bounds on a class where both sides are exact. Takes seconds."""
    typer.echo("\n".join(coverage.as_text(coverage.coverage(draws, seed, constants))))
    typer.echo(
        f"\nBound: holds with probability {1 - coverage.DELTA:.0%}, constants as "
        f"{'printed' if constants == 'paper' else 'derived'}. Found: the value exceeded "
        f"in {coverage.DELTA:.0%} of {draws} draws. Slack: how many times too large the bound is. "
        "Covered: share of draws in which it held."
    )


@reproduce_app.command("synthetic")
def synthetic_command(
    out: options.Out = options.RUNS / "synthetic",
    quick: options.Quick = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of populations. (default: 20; quick: 6)")
    ] = None,
    samples: SamplesOption = None,
    layout: Annotated[
        Layout,
        typer.Option(
            help="Own symbols as printed in the paper, or distinct from the clusters' symbols."
        ),
    ] = "literal",
    loss: Annotated[
        Literal["plain", "smoothed"],
        typer.Option(help="Training loss: plain, or with the paper's label smoothing."),
    ] = "plain",
    seed: options.Seed = 0,
    resume: options.Resume = False,
) -> None:
    """Reproduce the synthetic experiment (section 7.1).

    Takes about ten minutes, or one to two with --quick.
    """
    _reproduce(
        synthetic, synthetic.SyntheticSettings, out, quick, resume,
        seeds=seeds, samples=tuple(samples or ()), layout=layout,
        loss=loss, seed=seed,
    )  # fmt: skip


@reproduce_app.command("advice")
def regret_command(
    out: options.Out = options.RUNS / "regret",
    quick: options.Quick = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of populations. (default: 10; quick: 2)")
    ] = None,
    samples: SamplesOption = None,
    seed: Annotated[
        int, typer.Option(help="Random seed. The rules of advice were settled on seed 0.")
    ] = 1,
    resume: options.Resume = False,
) -> None:
    """Measure the regret of advice, and of the bounds, on the paper's synthetic clients.

    Takes about a minute with --quick.
    """
    _reproduce(
        regret, regret.RegretSettings, out, quick, resume,
        seeds=seeds, samples=tuple(samples or ()), seed=seed,
    )  # fmt: skip


@reproduce_app.command("emnist")
def emnist_command(
    data: Annotated[
        str,
        typer.Option(help="Directory with the images; or 'emnist' to download, or 'generated'."),
    ] = "emnist",
    out: options.Out = options.RUNS / "emnist",
    quick: options.Quick = False,
    part: Annotated[
        list[str] | None,
        typer.Option(help=f"Part to run; repeat for several. (default: all: {', '.join(PARTS)})"),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help=f"Row to run; repeat for several. (default: all: {', '.join(ROWS)})"),
    ] = None,
    writers: Annotated[
        int | None,
        typer.Option(help="Number of writers. (default: all; generated: 548; quick: 100)"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds; each shuffles writers anew. (default: 3; quick: 1)"),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Central training rounds. (default: 1000; quick: 150)")
    ] = None,
    joint: Annotated[
        int | None,
        typer.Option(help="Mapper's joint rounds. (default: same as --rounds; quick: 15)"),
    ] = None,
    precision: Annotated[
        Literal["f32", "bf16"],
        typer.Option(help="Arithmetic: f32, or bf16, which is faster on a GPU."),
    ] = "f32",
    seed: options.Seed = 0,
    resume: options.Resume = False,
) -> None:
    """Reproduce Tables 2 and 3 of the paper, and more. Use a GPU, or --quick.

    --quick is for two cores: a small network, 100 writers, few rounds.
    --resume takes more seeds and parts.
    """
    _reproduce(
        emnist, emnist.EmnistSettings, out, quick, resume,
        data=data, writers=writers, seeds=seeds, rounds=rounds,
        joint=joint if quick or joint is not None else rounds,
        parts=tuple(part or ()), rows=tuple(row or ()),
        precision=precision, seed=seed,
    )  # fmt: skip


def _reproduce(
    experiment: Any, settings_class: Any, out: Path, quick: bool, resume: bool, **settings: Any
) -> None:
    """Run an experiment; settings that are not given keep their defaults."""
    make = settings_class.small if quick else settings_class
    try:
        chosen = make(**options.given(**settings))
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    options.say_if_new(out, resume)
    with options.stoppable(resume):
        results = experiment.reproduce(chosen, out, resume=resume)
    typer.echo("\n".join(experiment.as_text(results)))
    typer.echo(f"\nReport:  {out / 'report.html'}")
