"""``sartor predict`` and ``sartor update``: saved models, and files with new rows."""

from pathlib import Path
from typing import Annotated

import typer

import sartor
from sartor.estimators.batches import predict_file, update_from

Directory = Annotated[Path, typer.Argument(help="Directory of saved models.")]
File = Annotated[Path, typer.Argument(help="CSV or Parquet file with new rows.")]
Client = Annotated[
    str | None,
    typer.Option(help="Client column. (default: the one that the models were fitted to)"),
]
Trust = Annotated[
    list[str] | None,
    typer.Option(help="Type of Python that the models' files may restore; repeat for several."),
]


def predict_command(
    models: Directory,
    file: File,
    out: Annotated[Path, typer.Option(help="Output file: .csv or .parquet.")],
    client: Client = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to copy to the output; repeat for several."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Write intervals that hold this share of labels, as 0.9.")
    ] = None,
    trust: Trust = None,
) -> None:
    """Predict every row of a file by the model of its client.

    Rows of unknown clients get the global model. The output names the model that predicted each
    row: own, cluster or global.
    """
    model = sartor.load(models, trusted=trust)
    done = predict_file(model, file, out, client=client, keep=keep or [], interval=interval)
    words = {"own": "own models", "cluster": "models of clusters", "global": "the global model"}
    used = [f"{done.used[name]:,} by {said}" for name, said in words.items() if done.used[name]]
    typer.echo(f"Rows:         {done.rows:,}: {', '.join(used)}")
    typer.echo(f"Predictions:  {out}")


def update_command(
    models: Directory,
    file: File,
    label: Annotated[str, typer.Option(help="Label column.")],
    client: Client = None,
    trust: Trust = None,
) -> None:
    """Learn from new rows of some clients, who may be new. All other clients stay as they are.

    The directory is replaced at once: a kill at any moment leaves the old models or the new ones.
    """
    model = sartor.load(models, trusted=trust)
    done = update_from(model, file, label, client=client)
    model.save(models)
    typer.echo(done)
    typer.echo(f"Models:  {models}")
