"""``sartor data``: download, inspect and convert data."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import sartor
from sartor.cli import options

data_app = typer.Typer(help="Download, inspect and convert data.", no_args_is_help=True)


@data_app.command("download")
def download_command(
    cache: Annotated[
        Path | None, typer.Option(help="Cache directory. (default: ~/.cache/sartor)")
    ] = None,
) -> None:
    """Download federated EMNIST (3,400 writers, 62 classes), or resume the download."""
    with options.stoppable(resume=True):  # the same command resumes
        folder = sartor.data.download("emnist", cache)
    typer.echo(f"Data:  {folder}")


Format = Literal["hdf5", "sqlite", "fedjax", "leaf", "sartor"]
DataPath = Annotated[Path, typer.Argument(help="File or directory with client data.")]


@data_app.command("convert")
def convert_command(
    path: DataPath,
    out: Annotated[Path, typer.Argument(help="Output directory, new or empty.")],
    to: Annotated[
        Format,
        typer.Option(
            help="Output format: TensorFlow Federated's HDF5 or SQLite, FedJAX's SQLite, LEAF's "
            "JSON, or Sartor's own memory-mapped directory."
        ),
    ],
    client: options.ClientColumn = None,
    label: options.LabelColumn = None,
    domain: options.DomainColumn = None,
    features: options.FeatureColumns = None,
    time: options.TimeColumn = None,
    groups: options.GroupColumn = None,
) -> None:
    """Convert data to another format."""
    columns = options.given(
        client=client, label=label, domain=domain, features=features, time=time, groups=groups
    )
    opened = sartor.data.open(path, **columns)
    sartor.data.convert(opened, out, to)
    typer.echo(f"Data:  {out}, {to} of {len(opened):,} clients, {len(opened.rows):,} examples")


@data_app.command("info")
def info_command(
    path: DataPath,
    client: options.ClientColumn = None,
    label: options.LabelColumn = None,
    domain: options.DomainColumn = None,
    features: options.FeatureColumns = None,
    time: options.TimeColumn = None,
    groups: options.GroupColumn = None,
) -> None:
    """Show clients, sizes and labels. Warn if the order of clients carries a shift."""
    columns = options.given(
        client=client, label=label, domain=domain, features=features, time=time, groups=groups
    )
    opened = sartor.data.open(path, **columns)
    rows = sartor.data.describe(opened).rows()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
    if len(opened) < 8:
        return  # too few to tell an order by
    shift = sartor.data.order_shift(opened)
    if shift.message:
        typer.echo(f"warning: {shift.message}", err=True)
