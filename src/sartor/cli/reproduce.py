"""``sartor reproduce``: the paper's examples and experiments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.cli.options import RUNS, SeedOption, say_if_new, stoppable
from sartor.experiments import coverage, emnist, regret, synthetic
from sartor.experiments.examples import EXAMPLES

reproduce_app = typer.Typer(help="Run the paper's examples and experiments.", no_args_is_help=True)


@reproduce_app.command("examples")
def examples_command(
    seed: SeedOption = 0,
) -> None:
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


class ConstantsOf(StrEnum):
    """Which constants the bounds use."""

    derived = "derived"
    paper = "paper"


@reproduce_app.command("bounds")
def bounds_command(
    constants: Annotated[
        ConstantsOf, typer.Option(help="Derived with all constants, or as printed in the paper.")
    ] = ConstantsOf.derived,
    draws: Annotated[int, typer.Option(help="How many times to draw samples.", min=100)] = 1000,
    seed: SeedOption = 0,
) -> None:
    """Test the paper's bounds on a class where both sides are exact. Takes seconds."""
    for line in coverage.as_text(coverage.coverage(draws, seed, constants.value)):
        typer.echo(line)
    typer.echo(
        f"\nBound: holds with probability {1 - coverage.DELTA:.0%}, constants as "
        f"{'printed' if constants is ConstantsOf.paper else 'derived'}. Found: the value exceeded "
        f"in {coverage.DELTA:.0%} of {draws} draws. Slack: how many times too large the bound is. "
        "Covered: share of draws in which it held."
    )


class Layout(StrEnum):
    """Where the synthetic clients' own symbols are."""

    literal = "literal"
    shifted = "shifted"


class Loss(StrEnum):
    """Training loss of the synthetic experiment."""

    plain = "plain"
    smoothed = "smoothed"


@reproduce_app.command("synthetic")
def synthetic_command(
    out: Annotated[
        Path | None, typer.Option(help="Output directory. (default: runs/synthetic)")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller version; less than a minute.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of populations. (default: 20; quick: 6)")
    ] = None,
    samples: Annotated[
        list[int] | None,
        typer.Option(help="Samples per client; repeat for several. (default: 5 to 1000)"),
    ] = None,
    layout: Annotated[
        Layout,
        typer.Option(
            help="Own symbols as printed in the paper, or distinct from the clusters' symbols."
        ),
    ] = Layout.literal,
    loss: Annotated[
        Loss, typer.Option(help="Training loss: plain, or with the paper's label smoothing.")
    ] = Loss.plain,
    seed: SeedOption = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the experiment in the output directory.")
    ] = False,
) -> None:
    """Reproduce the synthetic experiment (section 7.1). Takes about ten minutes."""
    _reproduce(
        synthetic, synthetic.SyntheticSettings, out or RUNS / "synthetic", quick, resume,
        seeds=seeds, samples=tuple(samples) if samples else None, layout=layout.value,
        loss=loss.value, seed=seed,
    )  # fmt: skip


@reproduce_app.command("advice")
def regret_command(
    out: Annotated[
        Path | None, typer.Option(help="Output directory. (default: runs/regret)")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller version; about a minute.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of populations. (default: 10; quick: 2)")
    ] = None,
    samples: Annotated[
        list[int] | None,
        typer.Option(help="Samples per client; repeat for several. (default: 5 to 1000)"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed. The rules of advice were settled on seed 0.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the experiment in the output directory.")
    ] = False,
) -> None:
    """Measure the regret of advice, and of the bounds, on the paper's synthetic clients."""
    _reproduce(
        regret, regret.RegretSettings, out or RUNS / "regret", quick, resume,
        seeds=seeds, samples=tuple(samples) if samples else None, seed=seed,
    )  # fmt: skip


class Row(StrEnum):
    """Rows of the EMNIST tables."""

    fedavg = "fedavg"
    agnostic = "agnostic"
    hypcluster = "hypcluster"


class Part(StrEnum):
    """Parts of the EMNIST experiment."""

    tables = "tables"
    local = "local"
    controls = "controls"
    lambda_ = "lambda"
    starts = "starts"
    clusters = "clusters"
    order = "order"
    optimizers = "optimizers"


class Precision(StrEnum):
    """Precision of the arithmetic."""

    f32 = "f32"
    bf16 = "bf16"


@reproduce_app.command("emnist")
def emnist_command(
    data: Annotated[
        str,
        typer.Option(help="Directory with the images; or 'emnist' to download, or 'generated'."),
    ] = "emnist",
    out: Annotated[
        Path | None, typer.Option(help="Output directory. (default: runs/emnist)")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Much smaller version for two cores: small network, 100 writers, few rounds.",
        ),
    ] = False,
    part: Annotated[
        list[Part] | None,
        typer.Option(help="Part to run; repeat for several. (default: all parts)"),
    ] = None,
    row: Annotated[
        list[Row] | None, typer.Option(help="Row to run; repeat for several. (default: all three)")
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
        Precision, typer.Option(help="Arithmetic: f32, or bf16, which is faster on a GPU.")
    ] = Precision.f32,
    seed: SeedOption = 0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume in the output directory; more seeds or parts are allowed."
        ),
    ] = False,
) -> None:
    """Reproduce Tables 2 and 3 of the paper, and more. Use a GPU, or --quick."""
    _reproduce(
        emnist, emnist.EmnistSettings, out or RUNS / "emnist", quick, resume,
        data=data, writers=writers, seeds=seeds, rounds=rounds,
        joint=joint if quick or joint is not None else rounds,
        parts=tuple(p.value for p in part) if part else None,
        rows=tuple(r.value for r in row) if row else None,
        precision=precision.value, seed=seed,
    )  # fmt: skip


def _reproduce(
    experiment: Any, settings_class: Any, directory: Path, quick: bool, resume: bool, **given: Any
) -> None:
    """Run an experiment; settings that are None keep their defaults."""
    make = settings_class.small if quick else settings_class
    settings = make(**{key: value for key, value in given.items() if value is not None})
    say_if_new(directory, resume)
    with stoppable(resume):
        results = experiment.reproduce(settings, directory, resume=resume)
    for line in experiment.as_text(results):
        typer.echo(line)
    typer.echo(f"\nReport:  {directory / 'report.html'}")
