"""Stopping and going on: by kill, by Ctrl-C, by a full disk; the bits are those of one run."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from run_cases import (
    arrays,
    config,
    contents,
    events,
    sartor_process,
    table,
    table_config,
    write,
)

import sartor
from sartor.central.checkpoint import Checkpoint, saved_round
from sartor.errors import CheckpointError, ConfigError, FileError
from sartor.files import save_tree
from sartor.runs import read_config, run
from sartor.runs.config import Config
from sartor.runs.record import Events

REPORT = ("report.html", "figures/")

ROUNDS = 1600
LONG = f"""
seed = 5
data = {{generator = "synthetic", clients = 60, symbols = 6, samples = 20}}
split = {{unseen = 0.25, test = 0.3}}
model = {{name = "categorical"}}
central = {{name = "FedAvg", rounds = {ROUNDS}, cohort = 4, learning_rate = 0.05}}
personal = [{{name = "Finetune", epochs = 2}}, {{name = "Local", epochs = 2}}]
engine = {{lanes = 2}}
"""


class Processes:
    """Processes that run ``sartor run --resume`` on one configuration, and how it should end."""

    def __init__(self, folder):
        self.config = write(folder / "long.toml", LONG)
        self.folder, self.compiled = folder, folder / "compiled"
        self.reference = folder / "reference"
        # Fresh processes that need not import everything first. What the reference compiles, the
        # others find, or most of their time would go there.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["sartor.cli", "run_cases", "pytest"])
        self.end(self.start(self.reference))
        self.expected = contents(self.reference)

    def words(self, out, *more):
        """The command line."""
        return ["run", str(self.config), "--out", str(out), "--resume", *more]

    def start(self, out, *more):
        """A process that runs, or goes on with what is in ``out``."""
        log = self.folder / "log"
        arguments = (self.words(out, *more), str(log), str(self.compiled))
        process = self.context.Process(target=sartor_process, args=arguments)
        process.start()
        return process

    def end(self, process, codes=(0,)):
        """Wait for a process; how it ended."""
        process.join(60)
        assert process.exitcode in codes, (self.folder / "log").read_text()
        return process.exitcode


def wait_for(happened, running):
    """Wait until something has happened, or the process has ended."""
    deadline = time.monotonic() + 60
    while running() and not happened():
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    return Processes(tmp_path_factory.mktemp("processes"))


def lines(out):
    path = out / "events.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


STAGES = {
    "central": "events.jsonl",
    "personal": "models/central/manifest.json",
    "results": "models/Local/manifest.json",
}
"""What a run writes as it comes to a stage."""


def kill_again_and_again(processes, folder, kills, seed):
    """Kill runs at random moments, each up to five times; returns the runs and their stages."""
    draw, finished, stages = random.Random(seed), [], []
    while len(stages) < kills:
        out = folder / str(len(finished))
        for _ in range(min(5, kills - len(stages))):
            stage = list(STAGES)[len(stages)] if kills <= 3 else draw.choice(list(STAGES))
            sign = out / STAGES[stage]
            before = modified(sign)
            process = processes.start(out)
            wait_for(lambda s=sign, b=before: modified(s) != b, process.is_alive)
            time.sleep(draw.uniform(0, 0.4))
            process.kill()
            if processes.end(process, codes=(0, -signal.SIGKILL)) == 0:
                break  # too late
            stages.append(stage)
        processes.end(processes.start(out))
        finished.append(out)
    return finished, stages


def modified(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def test_killed_in_each_stage_the_bits_are_the_same(processes, tmp_path):
    finished, stages = kill_again_and_again(processes, tmp_path, kills=3, seed=0)
    assert {*stages} == {*STAGES}
    for out in finished:
        assert contents(out) == processes.expected


def test_two_runs_at_once(processes, tmp_path, monkeypatch):
    """The second comes when the first has found the directory empty, and has written nothing."""
    out, opened = tmp_path / "out", Config.open_data

    def open_data(self):
        monkeypatch.undo()
        other = processes.start(out, "--set", "seed=6", "--set", "central.rounds=9")
        # A process that is not refused has written its settings before the first goes on.
        wait_for((out / "config.toml").exists, other.is_alive)
        ends.append(other)
        return opened(self)

    ends = []
    monkeypatch.setattr(Config, "open_data", open_data)
    done = run(read_config(processes.config), out)
    assert processes.end(ends[0], codes=(1,)) == 1
    said = (processes.folder / "log").read_text()
    assert f"out is being written by process {os.getpid()} on" in said and "choose another" in said
    assert contents(out) == processes.expected
    assert run(read_config(processes.config), out, resume=True).scores[0] is not done.scores[0]
    assert contents(out) == processes.expected


@pytest.mark.soak
def test_killed_at_100_random_moments_the_bits_are_the_same(processes, tmp_path):
    def worker(seed):
        return kill_again_and_again(processes, tmp_path / str(seed), 50, seed)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(worker, (1, 2)))
    stages = [stage for _, here in both for stage in here]
    finished = [out for here, _ in both for out in here]
    assert len(stages) == 100 and {*stages} == {*STAGES}
    for out in finished:
        assert contents(out) == processes.expected


def test_ctrl_c_keeps_everything_and_says_so(processes, tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "sartor", *processes.words(out)],
        env=dict(os.environ, JAX_COMPILATION_CACHE_DIR=str(processes.compiled)),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: lines(out) > 2, lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    round_ = saved_round(out / "checkpoint" / "central.safetensors")
    assert 0 < round_ < ROUNDS
    message = (
        f"FedAvg stopped after round {round_} of {ROUNDS}. Everything so far is kept. Resume with"
    )
    command = said.split(message)[1].split()
    assert command[:2] == ["sartor", "run"] and command[-1] == "--resume"
    assert events(out)[-1]["event"] == "round"
    processes.end(processes.start(out))
    assert contents(out) == processes.expected


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
        (Killed(), Killed, "", False),
        (Killed(), Killed, "", True),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            FileError,
            "cannot write .*: No space left on device.*free some space",
            False,
        ),
    ],
)
def test_stopped_at_every_single_write_the_bits_are_the_same(
    finished, tmp_path, monkeypatch, error, raised, message, after
):
    # The report is the slow part, and the last: it is left to the processes above.
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
    with pytest.raises(
        CheckpointError, match=r"another configuration: data was '\w+' and is '\w+'"
    ):
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
        "data was": {"data": sartor.data.synthetic(clients=6, symbols=6, samples=10, seed=1)},
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
