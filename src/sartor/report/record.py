"""The files of a finished run or experiment, from which its page is made."""

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
        directory: its directory.
        results: the content of ``results.json``.
        config: the text of ``config.toml``.
    """

    directory: Path
    results: dict[str, Any]
    config: str

    @classmethod
    def read(cls, directory: Path) -> Record:
        """Read a directory, or raise an error that says what is wrong with it."""
        directory = Path(directory).resolve()
        config = directory / "config.toml"
        if not (directory / "results.json").exists() and config.exists():
            raise FileError(
                f"the run in {directory} is not finished; run the same command with --resume"
            )
        results = read_json(directory / "results.json")
        text = config.read_text(encoding="utf-8") if config.exists() else ""
        return cls(directory, results, text)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.directory.name

    @property
    def kind(self) -> str:
        """``"run"``, ``"advice"``, or the name of an experiment."""
        return str(self.results.get("experiment")) if isinstance(self.results, dict) else ""

    def figure(self, name: str) -> Path:
        """Where a figure is saved, without an ending."""
        return self.directory / "figures" / name

    def clients(self) -> pa.Table:
        """The table of all clients."""
        path = self.directory / "per_client.parquet"
        try:
            return pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"{path} is missing or damaged ({error}); resume the run") from error
