"""What experiments share: saved parts, and the directory."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from sartor.errors import CheckpointError, FileError
from sartor.experiments.common.directory import ExperimentDirectory
from sartor.experiments.common.saved import Part
from sartor.report import PageKind
from sartor.report.page import Section

PAGE = PageKind("A trial", lambda record: [Section("All")])


@dataclasses.dataclass(frozen=True)
class Bread(Part):
    loss: np.ndarray
    names: list[str]
    salt: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Cake(Part):
    sugar: np.ndarray


def test_saved_parts_are_read_back_or_refused(tmp_path):
    path = tmp_path / "part.safetensors"
    Bread(np.arange(3.0), ["rye"]).save(path, "flour and water")
    found = Bread.load(path, "flour and water")
    assert found.loss.tolist() == [0, 1, 2] and found.names == ["rye"] and found.salt is None
    with pytest.raises(CheckpointError, match=r"by another version .* remove .* to compute every"):
        Bread.load(path, "flour and milk")
    with pytest.raises(FileError, match="is damaged; remove it, and it is computed again"):
        Cake.load(path, "flour and water")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(FileError, match="is damaged; remove it, and it is computed again"):
        Bread.load(path, "flour and water")


def directory(out, resume=False, name="trial", **changes):
    settings = SimpleNamespace(**{"seeds": 2, "parts": ("a",), **changes})
    may_grow = ("seeds", "parts")
    return ExperimentDirectory(out, name, PAGE, settings, resume=resume, may_grow=may_grow)


def finished(out):
    made = directory(out)
    assert not out.exists()  # nothing is written before it begins
    made.begin()
    return made.finish({"seed": 0}, pa.table({"client": ["a"]}), {"a": 1.0})


def test_a_directory_holds_settings_results_and_report(tmp_path):
    results = finished(tmp_path / "out")
    assert results["experiment"] == "trial" and results["wall_seconds"]["cells"] == {"a": 1.0}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "SHA256SUMS", "config.toml", "events.jsonl", "per_client.parquet", "report.html",
        "results.json",
    }  # fmt: skip
    assert "[trial]\nseeds = 2" in (tmp_path / "out" / "config.toml").read_text()
    again = directory(tmp_path / "out", resume=True)
    again.begin()
    events = (tmp_path / "out" / "events.jsonl").read_text()
    assert [word in events for word in ("started", "finished", "resumed")] == [True] * 3


def test_settings_may_grow_and_not_change(tmp_path):
    finished(tmp_path / "out")
    directory(tmp_path / "out", resume=True, seeds=3, parts=["b", "a"])
    for wrong, message in (
        ({"seeds": 1}, "has seeds = 2, not 1; give at least these"),
        ({"parts": ["b"]}, r"has parts = \['a'\], not \['b'\]; give at least these"),
        ({"rounds": 5}, "has rounds = None, not 5; give the same settings, or choose another"),
    ):
        with pytest.raises(CheckpointError, match=message):
            directory(tmp_path / "out", resume=True, **wrong)


def test_other_directories_are_left_alone(tmp_path):
    finished(tmp_path / "out")
    with pytest.raises(FileError, match=r"is not empty; resume its experiment with --resume"):
        directory(tmp_path / "out")
    with pytest.raises(FileError, match="is not of this experiment"):
        directory(tmp_path / "out", resume=True, name="other")
    with pytest.raises(FileError, match="holds no experiment to resume, but other files"):
        directory(tmp_path, resume=True)
