"""Two writers of one directory: one is refused, and what the other leaves behind is whole."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from campaign_cases import CONTEXT, MINUTE, in_stages
from sabotage import Plan, saving

import sartor
from sartor.errors import FileError

OTHERS = {"run": ("--set", "seed=6"), "reproduce": ("--seed", "1"), "advise": ("--seed", "1")}
"""What makes a command another one."""


def appears(path):
    """Wait for a file."""
    deadline = time.monotonic() + MINUTE
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def files(folder):
    """The bytes of all files, half-written ones included."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@in_stages("reading data")
def test_a_second_run_is_refused_in_every_stage(campaign, stage):
    folder = campaign.folder()
    first = campaign.start(folder, Plan(stage, len(campaign.moments[stage]) // 2, "pause"))
    appears(folder.with_suffix(".paused"))
    for words in ((), OTHERS[campaign.command]):
        before = files(folder)
        campaign.end(campaign.start(folder, words=words), 1)
        assert files(folder) == before
    folder.with_suffix(".go").touch()
    campaign.end(first)
    said = folder.with_suffix(".log").read_text()
    assert said.count(f"out is being written by process {first.pid} on") == 2, said
    campaign.check(folder)


@pytest.fixture(scope="module")
def fits():
    """Personal models, and others of the same clients."""
    data = sartor.data.synthetic(clients=6, symbols=5, samples=8)
    central = sartor.FedAvg(rounds=1).fit(sartor.models.categorical(5), data)
    return [sartor.Local(epochs=n, learning_rate=0.1).fit(central, data) for n in (1, 2)]


def bits(path):
    """The models in a directory."""
    models = sartor.load(path)
    return [models.params(client)["logits"].tobytes() for client in models.clients]


def test_models_saved_by_many_at_once_are_whole(fits, tmp_path):
    both = []
    for n, fit in enumerate(fits):
        fit.save(tmp_path / f"{n}")
        both.append(bits(tmp_path / f"{n}"))
    ends = []

    def save(fit):
        for _ in range(5):
            try:
                fit.save(tmp_path / "models", replace=True)
                ends.append("saved")
            except FileError as error:
                ends.append(str(error))

    threads = [threading.Thread(target=save, args=(fit,)) for fit in [*fits, *fits]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 20 and "saved" in ends
    others = {end for end in ends if end != "saved" and "is being written by" not in end}
    assert not others
    assert bits(tmp_path / "models") in both
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "models"]


def test_what_a_kill_left_between_two_names_is_found(fits, tmp_path):
    """The old directory is renamed already, and the new one is not."""
    old, new = (tmp_path / f".models-0123abcd.{end}" for end in ("old", "new"))
    for fit, place in zip(fits, (old, new), strict=True):
        fit.save(place)
    expected = bits(new)
    assert bits(tmp_path / "models") == expected
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


@pytest.mark.soak
def test_killed_while_models_are_replaced_the_old_or_the_new_are_there(fits, tmp_path):
    """At each moment of saving, until it ends."""
    for n, fit in enumerate(fits):
        fit.save(tmp_path / f"{n}")
    old, new = bits(tmp_path / "0"), bits(tmp_path / "1")
    ends, target = [], tmp_path / "models"
    while not ends or ends[-1] != 0:
        sartor.load(tmp_path / "0").save(target)
        plan = Plan("saving models", len(ends))
        process = CONTEXT.Process(target=saving, args=(tmp_path / "1", target, tmp_path, plan))
        process.start()
        process.join(MINUTE)
        ends.append(process.exitcode)
        assert bits(target) in (old, new)
    assert {*ends[:-1]} == {-signal.SIGKILL} and len(ends) > 20
    assert bits(target) == new
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "models"]
