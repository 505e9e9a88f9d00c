"""The files of a finished run or experiment, from which its page is made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from sartor.documents import check_schema
from sartor.errors import FileError
from sartor.files import check_sum, explaining, final_name, read_json


class Results(TypedDict):
    """What every ``results.json`` says; the page of each kind needs more."""

    experiment: str


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
        config = check_sum(directory, "config.toml")
        if not (directory / "results.json").exists() and config.exists():
            raise FileError(
                f"the run in {directory} is not finished; run the same command with --resume"
            )
        path = check_sum(directory, "results.json")
        results = read_json(path)
        with explaining(f"{path} is not the result of a run of this version", "run it again"):
            check_schema(results, Results)
        with explaining(f"{config} cannot be read", "restore it from a copy"):
            text = config.read_text(encoding="utf-8") if config.exists() else ""
        return cls(directory, results, text)

    @property
    def name(self) -> str:
        """The name of its directory, or the one it gets when it is finished."""
        return final_name(self.directory)

    @property
    def kind(self) -> str:
        """``"run"``, ``"advice"``, or the name of an experiment."""
        return str(self.results["experiment"])

    def figure(self, name: str) -> Path:
        """Where a figure is saved, without an ending."""
        return self.directory / "figures" / name

    def clients(self) -> pa.Table:
        """The table of all clients."""
        path = check_sum(self.directory, "per_client.parquet")
        with explaining(f"{path} is missing or damaged", "resume the run"):
            return pq.read_table(path)
