"""What a report is made from: the files of a run directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sartor.errors import FileError
from sartor.files import read_json


@dataclasses.dataclass(frozen=True)
class Record:
    """A finished run or experiment.

    Attributes:
        directory: where it is.
        results: what is in ``results.json``.
        config: the text of ``config.toml``.
    """

    directory: Path
    results: dict[str, Any]
    config: str

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Read a directory, or say what is wrong with it."""
        directory = Path(directory).resolve()
        config = directory / "config.toml"
        if not (directory / "results.json").exists() and config.exists():
            raise FileError(
                f"the run in {directory} is not finished; go on with it by the same command and "
                "--resume"
            )
        results = read_json(directory / "results.json")
        text = config.read_text(encoding="utf-8") if config.exists() else ""
        return cls(directory, results, text)

    @property
    def kind(self) -> str:
        """``"run"``, or the name of an experiment."""
        return str(self.results.get("experiment")) if isinstance(self.results, dict) else ""

    def clients(self) -> pa.Table:
        """What there is about every client."""
        path = self.directory / "per_client.parquet"
        try:
            return pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"{path} is missing or damaged ({error}); resume the run") from error
