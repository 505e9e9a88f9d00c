"""The page about a fitted model: the one that ``sartor run`` writes about a table."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sartor.checking import AnyPath
from sartor.errors import ConfigError
from sartor.estimators.findings import findings
from sartor.files import write_json
from sartor.report import write_report


def report(model: Any, path: AnyPath, x: Any, y: Any, client: Any) -> None:
    """Write the page; see :meth:`PersonalClassifier.report`."""
    target = Path(path)
    if target.is_dir():
        raise ConfigError(f"{target} is a directory; name a file for the page, such as report.html")
    if (x is None) != (y is None):
        raise ConfigError("report: give fresh rows and their labels, or neither")
    scores = measures = None
    if x is not None:
        scores, measures = model.evaluate(x, y, client), model.measure(x, y, client)
    results, clients = findings(model, scores, measures)
    kind = "table advice" if x is None else "table"
    with tempfile.TemporaryDirectory() as folder:  # pages are made of the files of a run
        run = Path(folder) / target.stem
        run.mkdir()
        write_json(run / "results.json", {"experiment": kind, "warnings": [], **results})
        pq.write_table(clients, run / "per_client.parquet")
        write_report([run], target)
