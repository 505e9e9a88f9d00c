"""The EMNIST experiment without its training: resuming, errors, choices and saved results."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal

import numpy as np
import pytest
from made_up import made_up_writers, seed_result, stub_emnist

from sartor.errors import CheckpointError, DataError, DivergedError, FileError, InterruptedRun
from sartor.experiments.emnist import EmnistSettings, reproduce, work
from sartor.experiments.emnist.methods import families
from sartor.experiments.emnist.settings import divide
from sartor.experiments.emnist.work import FamilyRun, SeedResult
from sartor.files import read_metadata
from sartor.runs.toml import to_toml

SMALL = EmnistSettings.small(
    data="writers.h5", rows=("fedavg", "hypcluster"), parts=("tables", "local", "order"), seeds=2
)


@pytest.fixture
def calls(monkeypatch, no_figures):
    """Every method that is computed, with its seed."""
    found = []
    stub_emnist(monkeypatch, made_up_writers(), found)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished experiment; tests only look at it."""
    out = tmp_path_factory.mktemp("emnist") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        stub_emnist(patch, made_up_writers())
        return out, reproduce(SMALL, out, progress=False)


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "copy")


def lasting(results):
    """The results without what depends on the clock."""
    kept = {k: v for k, v in results.items() if k not in ("wall_seconds", "memory", "date")}
    methods = {name: {**method, "seconds": None} for name, method in kept["methods"].items()}
    return {**kept, "methods": methods}


def test_only_missing_results_are_computed_again(calls, copy, finished):
    for name in ("fedavg-dapper", "hypcluster"):
        (copy / "checkpoint" / "seed-1" / f"{name}.safetensors").unlink()
    (copy / "checkpoint" / "seed-1" / "central-hypcluster.safetensors").touch()
    assert lasting(reproduce(SMALL, copy, resume=True, progress=False)) == lasting(finished[1])
    assert sorted(calls) == [(1, "fedavg + dapper"), (1, "hypcluster")]
    assert not list((copy / "checkpoint" / "seed-1").glob("central-*"))
    events = [json.loads(line) for line in (copy / "events.jsonl").read_text().splitlines()]
    cells = [event for event in events if event["event"] == "cell"]
    everything = 2 * sum(len(family.methods()) for family in families(SMALL))
    assert len(cells) == everything + 2


def test_several_threads_find_the_same(calls, finished, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "_threads", lambda: 3)  # as on a GPU
    found = reproduce(SMALL, tmp_path / "out", progress=False)
    assert lasting(found) == lasting(finished[1])


def test_an_error_in_one_method_keeps_what_is_done(calls, tmp_path, monkeypatch):
    def fail(self, name, central):
        if name == "fedavg + dapper":
            raise DataError("no more ink")
        return seed_result(self, name)

    monkeypatch.setattr(FamilyRun, "compute", fail)
    with pytest.raises(DataError, match="no more ink"):
        reproduce(SMALL, tmp_path / "out", progress=False)
    kept = {file.stem for file in (tmp_path / "out" / "checkpoint" / "seed-0").iterdir()}
    assert "fedavg-dapper" not in kept and "fedavg" in kept
    assert not (tmp_path / "out" / "results.json").exists()
    monkeypatch.setattr(FamilyRun, "compute", lambda self, name, _: seed_result(self, name))
    found = reproduce(SMALL, tmp_path / "out", resume=True, progress=False)
    assert found["table2"]["fedavg"]["dapper"]["mean"] > 0


def test_ctrl_c_keeps_what_is_done(calls, finished, tmp_path, monkeypatch):
    def interrupted(self, name, central):
        if name == "fedavg + mapper":
            signal.raise_signal(signal.SIGINT)
        return seed_result(self, name)

    monkeypatch.setattr(FamilyRun, "compute", interrupted)
    with pytest.raises(InterruptedRun, match=r"stopped with \d+ of 26 cells done"):
        reproduce(SMALL, tmp_path / "out", progress=False)
    monkeypatch.setattr(FamilyRun, "compute", lambda self, name, _: seed_result(self, name))
    found = reproduce(SMALL, tmp_path / "out", resume=True, progress=False)
    assert lasting(found) == lasting(finished[1])


def test_more_can_be_added_and_nothing_else_changed(calls, copy, finished):
    with pytest.raises(CheckpointError, match="has rounds = 150, not 7"):
        reproduce(dataclasses.replace(SMALL, rounds=7), copy, resume=True)
    fewer = dataclasses.replace(SMALL, rows=("fedavg",), parts=("tables",), seeds=1)
    with pytest.raises(CheckpointError, match=r"has rows = .* not \['fedavg'\]; give at least"):
        reproduce(fewer, copy, resume=True, progress=False)
    (copy / "config.toml").write_text(
        to_toml({"emnist": {"data": "writers.h5", "rows": ["fedavg"], "parts": ["tables"],
                            "seeds": 1, "rounds": 150, "joint": 15, "cohort": 20,
                            "cover": list(SMALL.cover), "network": "mlp", "precision": "f32",
                            "seed": 0, "quick": True}}), encoding="utf-8",
    )  # fmt: skip
    found = reproduce(SMALL, copy, resume=True, progress=False)
    assert lasting(found) == lasting(finished[1]) and not calls


def test_results_of_other_data_are_refused(calls, copy, monkeypatch):
    stub_emnist(monkeypatch, made_up_writers(24))
    with pytest.raises(CheckpointError, match="was made from other data or settings"):
        reproduce(SMALL, copy, resume=True, progress=False)


@pytest.mark.parametrize("damage", ["client", "facts", "recipe", "size", "cut"])
def test_damaged_results_are_named(finished, tmp_path, damage):
    path = tmp_path / "fedavg.safetensors"
    shutil.copy(finished[0] / "checkpoint" / "seed-0" / "fedavg.safetensors", path)
    recipe = read_metadata(path)["recipe"]
    assert SeedResult.load(path, recipe).scores.accuracy is not None
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-50])
    else:
        assert damage.encode() in content
        path.write_bytes(content.replace(damage.encode(), damage[::-1].encode()))
    with pytest.raises(FileError, match=r"fedavg.safetensors is damaged; remove it"):
        SeedResult.load(path, recipe)


def test_choices_are_kept_and_a_diverged_candidate_is_none(tmp_path, monkeypatch):
    grid = ({"learning_rate": 1e30, "epochs": 1}, {"learning_rate": 0.05, "epochs": 1})
    family = next(f for f in families(SMALL) if f.name == "local")._replace(grid=grid)
    writers, said = made_up_writers(), []

    def attempt(self, family):
        if family.personal["local"].learning_rate > 1:
            raise DivergedError("infinite loss", round=1, clients=())
        return 1.5

    monkeypatch.setattr(FamilyRun, "_try", attempt)

    def run(family=family):
        return FamilyRun(SMALL, writers, 0, tmp_path, family, said.append)

    found = run().tune()
    assert found["chosen"] == grid[1] and [loss for _, loss in found["tried"]] == [np.inf, 1.5]
    assert said == ["local, candidate 1 of 2", "local, candidate 2 of 2"]
    assert run().tune() == found and len(said) == 2
    with pytest.raises(CheckpointError, match=r"chosen-local.safetensors was made from other data"):
        run(family._replace(grid=grid[::-1])).tune()
    (tmp_path / "chosen-local.safetensors").write_text("{}")
    with pytest.raises(FileError, match=r"chosen-local.safetensors is damaged"):
        run().tune()


def test_writers_without_test_images_are_named_before_any_training(tmp_path):
    data = made_up_writers()
    bounds = data.bounds.copy()
    seen = divide(data, "shuffled", 0).seen
    bounds[~seen, 3] = bounds[~seen, 2]
    keep = np.concatenate([np.arange(b[0], b[3]) for b in bounds])
    sizes = np.diff(bounds, axis=1)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    moved = np.concatenate([ends[:, -1:] - sizes.sum(axis=1, keepdims=True), ends], axis=1)
    lacking = dataclasses.replace(data, rows=data.rows[keep], bounds=moved)
    with pytest.raises(DataError, match="no unseen writer has test images"):
        FamilyRun(SMALL, lacking, 0, tmp_path, families(SMALL)[0], print)
