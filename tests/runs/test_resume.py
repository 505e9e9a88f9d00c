"""Stopping and going on: whatever stopped a run, the bits are those of one run.

Processes that are killed are in ``tests/campaigns``.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from run_cases import (
    arrays,
    config,
    contents,
    events,
    table,
    table_config,
    write,
)

import sartor
from sartor.central.checkpoint import Checkpoint, saved_round
from sartor.errors import CheckpointError, ConfigError, FileError
from sartor.files import save_tree
from sartor.runs import read_config, run
from sartor.runs.record import Events

REPORT = ("report.html", "figures/")


class Killed(BaseException):
    """Nobody catches it: as sudden as a process can end from within."""


def failure_of(action):
    """What an action raises, whatever it is."""
    try:
        action()
    except BaseException as error:
        return error
    return None


class Saboteur:
    """Raises at one of the moments when a file or directory takes its final name."""

    def __init__(self, monkeypatch):
        self.countdown, self.error, self.after = None, None, False
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real):
        def call(*arguments, **keywords):
            if self.countdown is None:
                return real(*arguments, **keywords)
            self.countdown -= 1
            now = self.countdown == -1
            if now and not self.after:
                raise self.error
            real(*arguments, **keywords)
            if now:
                raise self.error

        return call


@pytest.mark.parametrize(
    "error, raised, message, after",
    [
        (Killed(), Killed, "", True),
        pytest.param(Killed(), Killed, "", False, marks=pytest.mark.soak),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device"),
            FileError,
            "cannot write .*: No space left on device.*free some space",
            False,
            marks=pytest.mark.soak,  # tests/campaigns has full disks, too
        ),
    ],
)
def test_stopped_at_every_single_write_the_bits_are_the_same(
    finished, tmp_path, monkeypatch, error, raised, message, after
):
    # The report is the slow part, and the last: campaigns stop it there, too.
    monkeypatch.setattr("sartor.runs.record.write_report", lambda *_: None)
    expected = contents(finished.directory)
    expected = {name: v for name, v in expected.items() if not name.startswith(REPORT)}
    saboteur = Saboteur(monkeypatch)
    saboteur.error, saboteur.after = error, after
    for moment in range(100):
        out = tmp_path / str(moment)
        saboteur.countdown = moment
        stopped = failure_of(lambda folder=out: run(config(), folder, resume=True))
        saboteur.countdown = None
        if stopped is None:
            break  # the run has no such moment
        assert isinstance(stopped, raised) and re.search(message, str(stopped))
        run(config(), out, resume=True)
        assert contents(out) == expected
    assert moment > 15  # there were that many writes, and all of them were tried


def test_a_full_disk_leaves_the_old_files(finished, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run(config("central.rounds=8"), out)
    before = contents(out)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match=r"No space left .*untouched.*free some space"):
            run(config(), out, resume=True)
    assert contents(out) == before
    run(config(), out, resume=True)
    assert contents(out) == contents(finished.directory)


def test_a_full_disk_for_the_log():
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    log = Events(Path("/dev/full"))
    with pytest.raises(FileError, match=r"cannot write /dev/full: No space left.*then go on"):
        log.write("round", round=1)


def test_more_rounds_are_a_run_of_that_many(finished, tmp_path):
    run(config("central.rounds=5"), tmp_path / "out")
    run(config(), tmp_path / "out", resume=True)
    assert contents(tmp_path / "out") == contents(finished.directory)


def test_stopped_at_every_single_write_after_adding_rounds(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("sartor.runs.record.write_report", lambda *_: None)
    expected = contents(finished.directory)
    expected = {name: v for name, v in expected.items() if not name.startswith(REPORT)}
    run(config("central.rounds=5"), tmp_path / "short")
    saboteur = Saboteur(monkeypatch)
    saboteur.error = Killed()
    for moment in range(100):
        out = shutil.copytree(tmp_path / "short", tmp_path / str(moment))
        saboteur.countdown = moment
        stopped = failure_of(lambda folder=out: run(config(), folder, resume=True))
        saboteur.countdown = None
        if stopped is None:
            break
        run(config(), out, resume=True)
        assert contents(out) == expected
    assert moment > 10


def test_fewer_rounds_than_done_are_refused(tmp_path):
    out = tmp_path / "out"
    run(config("personal=[]"), out)
    before = contents(out)
    with pytest.raises(
        ConfigError, match=r"central.rounds is 5, but .* has already done 12 rounds"
    ):
        run(config("central.rounds=5", "personal=[]"), out, resume=True)
    assert contents(out) == before


def test_resuming_a_finished_run_changes_nothing(finished, tmp_path):
    out = tmp_path / "out"
    run(config(), out)
    run(config(), out, resume=True)
    assert contents(out) == contents(finished.directory)


@pytest.mark.parametrize(
    "setting, key",
    [
        ("seed=9", "seed was 3 and is 9 now"),
        ("central.learning_rate=0.2", "central.learning_rate was 0.5 and is 0.2 now"),
        ("central.server_optimizer={name='adam', learning_rate=0.1}", "central.server_optimizer"),
        ("data.symbols=7", "data.symbols was 6 and is 7 now"),
        ("split.test=0.5", "split.test was 0.3 and is 0.5 now"),
        ("model.smoothing=0.1", "model.smoothing was None and is 0.1 now"),
        ("personal.1.epochs=9", "personal.1.epochs was 1 and is 9 now"),
        ("personal=[]", "personal"),
        ("engine.precision=bf16", "engine.precision was 'f32' and is 'bf16' now"),
    ],
)
def test_another_configuration_is_refused_by_key(finished, setting, key):
    before = contents(finished.directory)
    with pytest.raises(CheckpointError) as error:
        run(config(setting), finished.directory, resume=True)
    assert key in str(error.value) and "choose another --out" in str(error.value)
    assert contents(finished.directory) == before


def test_other_data_under_the_same_name_is_refused(tmp_path):
    people = write(tmp_path / "people.csv", table("words"))
    made = read_config(write(tmp_path / "a.toml", table_config("logistic")), ["personal=[]"])
    run(made, tmp_path / "out")
    people.write_text(table("words", seed=1))
    with pytest.raises(CheckpointError, match="belongs to other data: the rows"):
        run(made, tmp_path / "out", resume=True)


def test_a_checkpoint_knows_whose_it_is(tmp_path):
    data = sartor.data.synthetic(clients=6, symbols=6, samples=10)
    path = tmp_path / "central.safetensors"
    model = sartor.models.categorical(6)

    usual = sartor.FedAvg(rounds=2, cohort=3)

    def fit(algorithm=usual, data=data, seed=0, model=model):
        return algorithm.fit(model, data, seed=seed, checkpoint=path)

    first = fit()
    assert fit().params["logits"].tolist() == first.params["logits"].tolist()
    changes = {
        "algorithm.cohort was 3 and is 4": {"algorithm": sartor.FedAvg(rounds=2, cohort=4)},
        "other data": {"data": sartor.data.synthetic(clients=6, symbols=6, samples=10, seed=1)},
        "seed was 0 and is 1": {"seed": 1},
        "configuration: model": {"model": sartor.models.categorical(7)},
        ": model": {"model": sartor.models.categorical(6, smoothing=0.5)},
    }
    for message, change in changes.items():
        with pytest.raises(CheckpointError) as error:
            fit(**change)
        assert message in str(error.value) and str(path) in str(error.value)


def test_damaged_and_foreign_checkpoints(finished, tmp_path):
    out = tmp_path / "out"
    run(config("personal=[]"), out)
    path = out / "checkpoint" / "central.safetensors"
    whole = path.read_bytes()
    bad = [whole[: len(whole) // 2], whole[:-1], whole[:4], b"", b"\xff" * 100, b"{}" * 50]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"central.safetensors is damaged or not a safetensors"):
            run(config("personal=[]"), out, resume=True)
    for metadata in ({}, {"round": "x", "identity": "{}"}, {"round": "1", "identity": "[1]"}):
        save_tree(path, {"a": sartor.models.categorical(3).init(None)["logits"]}, metadata)
        with pytest.raises(FileError, match=r"is not a checkpoint of Sartor; delete it"):
            run(config("personal=[]"), out, resume=True)
    # Its own identity, but not its state.
    identity = arrays(finished.directory / "checkpoint" / "central.safetensors")[0]["identity"]
    Checkpoint(path, json.loads(identity)).save(
        1, {"w": sartor.models.categorical(3).init(None)}, [1]
    )
    with pytest.raises(FileError, match="does not hold this model"):
        run(config("personal=[]"), out, resume=True)
    path.unlink()  # the remedy that the message names
    run(config("personal=[]"), out, resume=True)
    assert saved_round(path) == 12


@pytest.mark.parametrize(
    "tail", ['{"event": "rou', "{", "\x00\xff\x00", '{"event": "round", "ro\n12']
)
def test_a_torn_log_is_survived(finished, tmp_path, tail):
    out = tmp_path / "out"
    run(config("personal=[]", "central.rounds=5"), out)
    with (out / "events.jsonl").open("ab") as file:
        file.write(tail.encode("latin-1"))
    run(config("personal=[]"), out, resume=True)
    assert contents(out)["events.jsonl"] == contents(finished.directory)["events.jsonl"]
    assert [line["event"] for line in events(out) if line["event"] != "round"] == [
        "started", "finished", "resumed", "finished"
    ]  # fmt: skip


def test_rounds_after_the_checkpoint_are_dropped_from_the_log(tmp_path):
    log = Events(tmp_path / "events.jsonl")
    log.start(None)
    for round_ in range(1, 8):
        log.write("round", round=round_, loss=float("nan"))
    log.start(5)
    assert [(line["event"], line.get("round")) for line in events(tmp_path)] == [
        ("started", None), *[("round", r) for r in range(1, 6)], ("resumed", None)
    ]  # fmt: skip
    assert events(tmp_path)[1]["loss"] is None  # NaN is no JSON


def test_what_a_kill_left_half_written_is_swept_away(finished, tmp_path):
    out = tmp_path / "out"
    run(config("central.rounds=5"), out)
    write(out / ".config.toml-0123abcd.part", "half")
    write(out / "models" / ".central-0123abcd.new" / "central.safetensors", "half")
    write(out / "models" / ".central-0123abce.old" / "central.safetensors", "half")
    mine = write(out / ".notes", "mine")
    run(config(), out, resume=True)
    assert mine.read_text() == "mine"
    mine.unlink()
    assert contents(out) == contents(finished.directory)


def test_a_kill_before_the_first_file_can_be_resumed(finished, tmp_path):
    out = write(tmp_path / "out" / ".config.toml-0123abcd.part", "half").parent
    run(config(), out, resume=True)
    assert contents(out) == contents(finished.directory)
