"""One writer for a directory or a file at a time; a lock ends with its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sartor
from sartor.errors import ConfigError, FileError
from sartor.files import is_free, is_unfinished, replacing
from sartor.locks import LOCK, locked, locked_file

KINDS = [locked, locked_file]


HOLD = """
import sys, types
package = types.ModuleType("sartor")  # without importing everything
package.__path__ = [sys.argv[1]]
sys.modules["sartor"] = package
from sartor import locks
with getattr(locks, sys.argv[2])(sys.argv[3]):
    print("ready", flush=True)
    sys.stdin.read()
"""


class Other:
    """Another process that writes somewhere, until it is told to end."""

    def __init__(self, kind, place):
        words = [sys.executable, "-c", HOLD, Path(sartor.__file__).parent, kind.__name__, place]
        self._process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        assert self._process.stdout.readline() == "ready\n"

    def end(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def kill(self):
        self._process.kill()
        self.end()


@pytest.fixture
def other():
    """Starts processes that hold a lock; they have it when the call returns."""
    with contextlib.ExitStack() as stack:

        def start(kind, place):
            found = Other(kind, place)
            stack.callback(found.kill)
            return found

        yield start


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_process_is_refused_and_told_by_whom(tmp_path, other, kind):
    place = tmp_path / "deep" / "place"
    process = other(kind, place)
    there = sorted(tmp_path.rglob("*"))
    match = rf"place is being written by process {process.pid} on \S+ \(since 20.*choose another"
    with pytest.raises(FileError, match=match), kind(place):
        pass
    assert sorted(tmp_path.rglob("*")) == there
    process.end()
    with kind(place):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_holds_nobody_up(tmp_path, other, kind):
    place = tmp_path / "place"
    other(kind, place).kill()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(left) == 1 and is_unfinished(left[0])
    assert is_free(place)
    with kind(place):
        pass
    assert not left[0].exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_is_released_even_if_ctrl_c_comes_then(tmp_path, monkeypatch, kind):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), kind(tmp_path / "place"):
        patch.setattr(os, "unlink", interrupt)
    with ThreadPoolExecutor() as pool:  # which does not hold it already

        def again():
            with kind(tmp_path / "place"):
                return True

        assert pool.submit(again).result()


def test_who_waits_gets_it(tmp_path, other):
    place = tmp_path / "place"
    process, ended = other(locked, place), threading.Event()

    def end():
        ended.set()
        process.end()

    threading.Timer(0.2, end).start()
    with locked(place, wait=True):
        assert ended.is_set() and (place / LOCK).exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_may_lock_again_and_others_may_not(tmp_path, kind):
    place, errors = tmp_path / "place", []

    def second():
        try:
            with kind(place):
                pass
        except FileError as error:
            errors.append(str(error))

    with kind(place):
        with kind(place), kind(tmp_path / "elsewhere" / ".." / "place"):
            pass
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(errors) == 1 and f"process {os.getpid()} " in errors[0]
    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert len(errors) == 1


def test_what_was_made_for_a_lock_goes_if_it_is_empty(tmp_path):
    with locked(tmp_path / "a" / "b"), locked_file(tmp_path / "c" / "d"):
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "c"]
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with locked(tmp_path / "mine"), locked(tmp_path / "a"):
        (tmp_path / "a" / "file").touch()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "a", "a/file", "mine"
    ]  # fmt: skip


def test_file_systems_without_locks_are_written_with_a_warning(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(UserWarning, match="has no locks: make sure that"), locked(tmp_path / "run"):
        (tmp_path / "run" / "file").touch()
    assert os.listdir(tmp_path / "run") == ["file"]


def test_places_that_cannot_be_locked_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="file is a file, and a directory is needed"):
        locked(tmp_path / "file")
    with (
        pytest.raises(FileError, match=r"cannot write .*below"),
        locked_file(tmp_path / "file" / "below"),
    ):
        pass

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(FileError, match=r"cannot write .*run: Permission denied.*choose another"),
        locked(tmp_path / "run"),
    ):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_is_written_is_not_replaced(tmp_path, other, kind):
    place = tmp_path / "models"
    place.mkdir()
    (place / "old").touch()
    process = other(kind, place)
    with (
        pytest.raises(FileError, match=rf"models is being written by process {process.pid}"),
        replacing(place, lambda _: True),
    ):
        pass
    assert (place / "old").exists()


def test_fits_into_what_another_process_writes_are_refused(tmp_path, other):
    data = sartor.data.synthetic(clients=3, symbols=5, samples=6)
    model, fedavg = sartor.models.categorical(5), sartor.FedAvg(rounds=2)
    central = fedavg.fit(model, data, checkpoint=tmp_path / "checkpoint")
    other(locked_file, tmp_path / "checkpoint")
    with pytest.raises(FileError, match="checkpoint is being written by process"):
        fedavg.fit(model, data, checkpoint=tmp_path / "checkpoint")
    other(locked, tmp_path / "models")
    for write in (
        lambda: sartor.Local().fit(central, data, directory=tmp_path / "models"),
        lambda: sartor.Local().fit(central, data).save(tmp_path / "models"),
        lambda: central.save(tmp_path / "models"),
        lambda: data.save(tmp_path / "models"),
    ):
        with pytest.raises(FileError, match="models is being written by process"):
            write()
    assert os.listdir(tmp_path / "models") == [LOCK]


def test_fits_remove_what_kills_have_left(tmp_path):
    data = sartor.data.synthetic(clients=3, symbols=5, samples=6)
    mine = tmp_path / ".checkpoint-mine"
    half = [tmp_path / ".checkpoint-0123abcd.part", tmp_path / "models" / ".shard-0123abcd.part"]
    half[1].parent.mkdir()
    for path in (mine, *half):
        path.touch()
    model, fedavg = sartor.models.categorical(5), sartor.FedAvg(rounds=2)
    central = fedavg.fit(model, data, checkpoint=tmp_path / "checkpoint")
    sartor.Local().fit(central, data, directory=tmp_path / "models")
    assert mine.exists() and not any(path.exists() for path in half)


def test_refused_fits_leave_no_directory(tmp_path):
    data = sartor.data.synthetic(clients=3, symbols=5, samples=6)
    with pytest.raises(ConfigError, match="starts from a central model"):
        sartor.Finetune().fit(sartor.models.categorical(5), data, directory=tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux")
def test_where_no_file_can_be_made_nobody_waits_for_ever():
    with pytest.raises(FileError, match="cannot write /proc/nowhere"), locked_file("/proc/nowhere"):
        pass


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_links_in_place_of_locks_are_refused_and_kept(tmp_path, link):
    precious = tmp_path / "precious.csv"
    precious.write_text("a,b")
    run = tmp_path / "run"
    run.mkdir()
    link(run / LOCK, precious)
    with pytest.raises(FileError, match="a lock must be a file"), locked(run):
        pass
    assert precious.read_text() == "a,b"
