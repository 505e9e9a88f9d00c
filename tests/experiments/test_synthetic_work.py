"""The synthetic experiment without its training: saved results, resuming and stopping."""

from __future__ import annotations

import json
import shutil
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_up import method_result, stub_synthetic

from sartor.errors import CheckpointError, FileError, InterruptedRun
from sartor.experiments.synthetic import SyntheticSettings, reproduce
from sartor.experiments.synthetic.work import (
    MethodResult,
    SizeRun,
    path_of,
    table_key,
    tasks,
)

SMALL = SyntheticSettings.small(samples=(5,), seeds=2)


@pytest.fixture
def calls(monkeypatch, no_figures):
    """Every method that is run, with its number of samples."""
    found = []
    stub_synthetic(monkeypatch, found)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished experiment; tests only look at it."""
    out = tmp_path_factory.mktemp("synthetic") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        stub_synthetic(patch)
        reproduce(SMALL, out, progress=False)
    return out


def results(out):
    found = json.loads((out / "results.json").read_text())
    assert found.pop("wall_seconds")["total"] >= 0
    found.pop("date")
    return found


def test_results_are_read_back(tmp_path):
    one = method_result(SMALL, 5, "Dapper")
    one.save(tmp_path / "one.safetensors", "recipe")
    again = MethodResult.load(tmp_path / "one.safetensors", "recipe")
    for name in ("test", "exact", "smoothed", "lambda_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
    assert again.cluster is None and again.choice == one.choice and again.tried == one.tried
    assert again.cost == one.cost and again.seconds == 1.5


def test_results_of_other_versions_are_refused(calls, finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished, tmp_path / "again")
    monkeypatch.setattr("sartor.experiments.synthetic.work.current_recipe", lambda: "other")
    with pytest.raises(CheckpointError, match="by another version of Sartor or JAX"):
        reproduce(SMALL, out, resume=True)


def test_only_missing_results_are_computed_again(calls, finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "again")
    missing = [(5, "HypCluster"), (5, "Mapper"), table_key(3)]
    for key in missing:
        path_of(key, out / "checkpoint").unlink()
    (out / "results.json").unlink()
    (out / "checkpoint" / ".0005-Local.safetensors-0123abcd.part").touch()
    reproduce(SMALL, out, resume=True)
    assert results(out) == results(finished)
    assert sorted(calls) == sorted(missing)
    lines = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    made = [line["event"] for line in lines].count("cell")
    assert made == len(list((out / "checkpoint").iterdir())) + 3
    assert not list((out / "checkpoint").glob(".*"))  # what a kill has left
    before, after = (pq.read_table(f / "per_client.parquet").to_pandas() for f in (finished, out))
    assert before.equals(after)  # in pandas NaN equals itself


def test_later_methods_know_the_choices_that_were_read(calls, finished, tmp_path, monkeypatch):
    """A method that takes over a step size needs it, whether it was computed now or before."""
    out = shutil.copytree(finished, tmp_path / "again")
    names = [name for samples, name in next(t for t in tasks(SMALL) if t[0][0] == 5)]
    known = {}

    def run(self, name):
        known[name] = list(self.chosen)
        return method_result(self.settings, self.samples, name)

    monkeypatch.setattr(SizeRun, "run", run)
    for name in names[3:]:
        path_of((5, name), out / "checkpoint").unlink()
    reproduce(SMALL, out, resume=True)
    assert known == {name: names[:place] for place, name in enumerate(names) if place >= 3}


def test_other_settings_are_refused(finished):
    with pytest.raises(CheckpointError, match=r"has seeds = 2, not 3; give the same settings"):
        reproduce(SyntheticSettings.small(samples=(5,), seeds=3), finished, resume=True)
    with pytest.raises(FileError, match="is not empty"):
        reproduce(SMALL, finished)


def test_ctrl_c_keeps_what_is_done(calls, finished, tmp_path, monkeypatch):
    def run(self, name):
        if name == "Finetune":
            signal.raise_signal(signal.SIGINT)
            assert self.stopping.wait(10)  # as training that is asked to stop
            raise InterruptedRun("stopped")
        return method_result(self.settings, self.samples, name)

    monkeypatch.setattr(SizeRun, "run", run)
    out = tmp_path / "stopped"
    with pytest.raises(InterruptedRun, match=r"stopped with \d+ of 12 cells done"):
        reproduce(SMALL, out, progress=False)
    assert not (out / "results.json").exists()
    kept = list((out / "checkpoint").glob("0005-*.safetensors"))
    assert len(kept) == 3  # of this number of samples: FedAvg, HypCluster and Local
    stub_synthetic(monkeypatch)
    reproduce(SMALL, out, resume=True, progress=False)
    assert results(out) == results(finished)
