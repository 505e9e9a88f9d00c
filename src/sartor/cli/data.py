"""``sartor data``: download, inspect and convert data."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

import sartor
from sartor.checking import machine_memory
from sartor.cli import options
from sartor.data.files import is_table
from sartor.data.tables import table_bytes
from sartor.runs.reading import read_file

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
    """Show clients, sizes, labels and columns, and which columns need attention."""
    columns = options.given(
        client=client, label=label, domain=domain, features=features, time=time, groups=groups
    )
    if is_table(path) and table_bytes(path) < machine_memory() // 2:
        about = sartor.data.describe_table(read_file(path, client), **columns)
        rows, shift = about.rows(), about.shift
    else:
        opened = sartor.data.open(path, **columns)
        rows = sartor.data.describe(opened).rows()
        shift = sartor.data.order_shift(opened) if len(opened) >= 8 else None
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
    if shift is not None and shift.message:
        typer.echo(f"warning: {shift.message}", err=True)


@data_app.command("example")
def example_command(
    name: Annotated[
        str | None, typer.Argument(help="Its name. (default: list all examples)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New file to write: .csv or .parquet.")] = None,
) -> None:
    """Write a table to try things on into a file, or list the tables that there are."""
    if name is None:
        names = sartor.data.example_names()
        width = max(map(len, names))
        for each, words in names.items():
            typer.echo(f"{each:<{width}}  {words}")
        return
    found = sartor.data.example(name)
    path = Path(f"{name}.csv") if out is None else out
    found.save(path)
    rows, columns = found.table.num_rows, found.table.num_columns
    typer.echo(f"Data:  {path}, {rows:,} rows, {columns} columns. {found.words}")
    command = [
        "sartor",
        "data",
        "info",
        str(path),
        "--client",
        found.client,
        "--label",
        found.label,
    ]
    typer.echo(f"Next:  {shlex.join(command)}")
