"""The command line: what it says, where it says it, and with which exit code it ends."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import h5py
import numpy as np
import pytest
from run_cases import SMALL, contents, lonely, strict_json, table, table_config, write

import sartor as library
from sartor import cli


def test_help_names_everything(sartor):
    for words, expected in {
        (): ["run", "report", "data", "--version", "--import"],
        ("run",): ["config", "--out", "(default: runs/ ", "--resume", "--set", "KEY=VALUE"],
        ("report",): ["runs", "--out", "(default: report.html "],
        ("data",): ["info", "download", "convert", "example"],
        ("data", "info"): ["path", "--client", "--label", "--domain"],
        ("data", "download"): ["--cache", "(default:", "~/.cache/sartor)"],
        ("data", "convert"): ["path", "out", "--to", "--client", "--label", "--domain"],
    }.items():
        code, out, err = sartor(*words, "--help")
        assert code == 0 and err == ""
        assert all(word in out for word in expected), out
        assert " ".join(["Usage: sartor", *words]) in out


def test_settings_of_everything(sartor):
    code, out, _ = sartor("settings")
    assert code == 0 and all(word in out for word in ("HypCluster", "Mapper", "categorical"))
    code, out, _ = sartor("settings", "Dapper")
    assert code == 0 and "cover: Λ" in out and "step = 'sample'" in out
    code, _, err = sartor("settings", "Daper")
    assert code == 1 and "did you mean 'Dapper'?" in err
    for name, setting in {"Automatic": "first = 0.5", "Searched": "clients = 100"}.items():
        code, out, _ = sartor("settings", name)
        assert code == 0 and setting in out
    assert "'advise'; did you mean 'advice'? (For your own" in sartor("settings", "advise")[2]


MINE = """
import dataclasses
import sartor

@dataclasses.dataclass(frozen=True)
class Slow(sartor.FedAvg):
    patience: int = 3

@dataclasses.dataclass(frozen=True)
class Brief(sartor.Finetune):
    pass
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module in the current directory, with algorithms that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(tmp_path / "mine.py", MINE)
    write(tmp_path / "small.toml", SMALL)
    yield "mine"
    sys.modules.pop("mine", None)
    library.Central.known.pop("Slow", None)
    library.Personal.known.pop("Brief", None)


SLOW = ("--set", "central.name=Slow", "--set", "personal=[{name='Brief', epochs=1}]")


def test_algorithms_of_ones_own_are_imported(sartor, mine, tmp_path):
    code, _, err = sartor("run", "small.toml", *SLOW)
    assert code == 1 and "'Slow'; " in err and "your own algorithm, start with" in err
    assert "sartor --import MODULE" in sartor("settings", "Slow")[2]
    advise = ("advise", lonely(tmp_path / "data"), "--set", "cluster.name=Slow")
    assert "cluster.name is 'Slow'; " in (err := sartor(*advise)[2]) and "sartor --import" in err
    code, out, _ = sartor("--import", mine, "settings", "Slow")
    assert code == 0 and "patience = 3" in out
    code, out, err = sartor("--import", mine, "run", "small.toml", *SLOW)
    assert (code, err) == (0, "") and "Brief" in out
    assert (tmp_path / "runs" / "small" / "models" / "Brief").exists()


def test_the_command_to_resume_imports_again(sartor, mine, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    _, _, err = sartor("--import", mine, "run", "small.toml", *SLOW)
    assert err.rstrip().endswith(f"sartor --import mine run small.toml {shlex.join(SLOW)} --resume")


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "ModuleNotFoundError: No module named 'broken'"),
        ("1 +", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("{}['x']", "KeyError: 'x'"),
        ("import sartor\nclass FedAvg(sartor.Central): pass", "ConfigError: the name of class"),
    ],
)
def test_a_module_that_cannot_be_imported(sartor, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    if text is not None:
        write(tmp_path / "broken.py", text)
    code, out, err = sartor("--import", "broken", "settings")
    assert (code, out) == (1, "") and err.startswith(f"error: --import broken: {message}")
    assert err.endswith('run python -c "import broken"\n')


def test_version(sartor):
    assert sartor("--version") == (0, f"sartor {library.__version__}\n", "")


def test_it_is_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "sartor", "run", "absent.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is no configuration file absent.toml\n"


def test_a_table_end_to_end(sartor, tmp_path):
    write(tmp_path / "people.csv", table())
    config = write(tmp_path / "run.toml", table_config("logistic"))
    out = tmp_path / "out"
    code, said, err = sartor("run", config, "--out", out, "--set", "central.rounds=30")
    assert (code, err) == (0, "")
    results = strict_json(out / "results.json")
    assert results["config"]["central"]["rounds"] == 30 and results["metric"] == "accuracy"
    mean = results["methods"]["Finetune"]["accuracy"]["mean"]
    assert mean > 0.8  # two words that a line divides
    assert re.search(rf"accuracy, all +6 +{mean:.4f}", said)
    assert str(out / "report.html") in said
    models = library.load(out / "models" / "Finetune")
    assert models.predict("u3", [[5.0, 0.0], [0.0, 5.0]]).tolist() == ["yes", "no"]


def test_the_usual_place_and_going_on(sartor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "small.toml", SMALL)
    assert sartor("run", "small.toml", "--set", "personal=[]")[0] == 0
    before = contents(tmp_path / "runs" / "small")
    code, _, err = sartor("run", "small.toml", "--set", "personal=[]")
    assert code == 1 and "not empty; resume its run with --resume" in err
    assert sartor("run", "small.toml", "--resume", "--set", "personal=[]")[0] == 0
    assert contents(tmp_path / "runs" / "small") == before


@pytest.mark.parametrize(
    "settings, message",
    [
        (["central.round=3"], "error: central.round does not exist; did you mean 'rounds'?\n"),
        (["central.rounds"], "error: --set takes key=value, such as central.rounds=50 "),
        (["split.test=0"], "error: no client has a test part"),
        (["data={path='absent.csv'}", "split={}"], "absent.csv: there is no such file"),
        (["central.learning_rate=3e38", "personal=[]"], "error: FedAvg diverged in round "),
    ],
)
def test_errors_are_one_line_and_exit_code_1(sartor, tmp_path, settings, message):
    config = write(tmp_path / "small.toml", SMALL)
    words = [word for setting in settings for word in ("--set", setting)]
    code, out, err = sartor("run", config, "--out", tmp_path / "out", *words)
    assert (code, out) == (1, "")
    assert message in err and err.startswith("error: ")
    assert err.count("\n") == 1 and err.endswith("\n") and "Traceback" not in err


def test_errors_of_the_system_are_one_line(sartor, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "x")

    monkeypatch.setattr(cli, "run", refuse)
    config = write(tmp_path / "small.toml", SMALL)
    expected = (1, "", "error: [Errno 13] Permission denied: 'x'\n")
    assert sartor("run", config, "--out", tmp_path / "out") == expected


def test_ctrl_c_anywhere_is_130(sartor, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    code, out, err = sartor("run", write(tmp_path / "small.toml", SMALL))
    assert (code, out) == (130, "")
    assert err.startswith("stopped. Everything so far is kept. Resume with\n  sartor run ")
    assert err.endswith("small.toml --resume\n")


def test_a_wrong_command_shows_usage(sartor):
    code, _, err = sartor("rnu")
    assert code == 2 and "rnu" in err


@pytest.mark.parametrize("words", [("--part", "tabels"), ("--row", "fedprox"), ("--seeds", "0")])
def test_wrong_settings_of_an_experiment_show_usage(sartor, tmp_path, words):
    code, out, err = sartor("reproduce", "emnist", *words, "--out", tmp_path / "out")
    assert (code, out) == (2, "") and "Usage: sartor reproduce emnist" in err and words[1] in err
    assert not (tmp_path / "out").exists()


def test_warnings_are_one_line_and_said_once(sartor, tmp_path):
    config = write(tmp_path / "small.toml", SMALL)
    settings = [
        f"data={{path='{lonely(tmp_path / 'data')}'}}",
        "split={}",
        "personal.1.name=Finetune",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    code, _, err = sartor("run", config, "--out", tmp_path / "out", *words)
    assert code == 0
    assert err == "warning: 1 of 4 clients have no test examples and are left out of the scores\n"


def test_info_of_a_table(sartor, tmp_path):
    path = write(tmp_path / "people.csv", table().replace("north", "[red]"))
    code, out, err = sartor(
        "data", "info", path, "--client", "user", "--label", "label", "--domain", "region"
    )
    assert (code, err) == (0, "")  # six clients are too few for an order to carry anything
    rows = dict(line.split("  ", 1) for line in out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["clients"] == "6 (6 seen, 0 unseen)"
    assert rows["examples"] == "72 (train 72)"
    assert rows["domains (clients)"] == "[red] 3, east 3"
    assert rows["labels"].startswith("2 different: ")
    assert rows["column age"].startswith("numbers around ")
    code, out, err = sartor("data", "info", path)
    assert (code, err) == (0, "") and "these columns look like some: user (6 values" in out
    code, out, err = sartor("data", "info", path, "--client", "users", "--label", "labl")
    assert (code, out) == (1, "") and "client='users': did you mean 'user'?; label='labl'" in err


def test_info_of_a_native_directory(sartor, tmp_path):
    library.data.synthetic(clients=20, symbols=6, samples=10).split(unseen=0.2, test=0.2).save(
        tmp_path / "data"
    )
    code, out, err = sartor("data", "info", tmp_path / "data")
    assert (code, err) == (0, "")
    assert "20 (16 seen, 4 unseen)" in out and "200 (train 160, test 40)" in out


def test_info_of_hdf5_warns_of_an_order(sartor, tmp_path):
    draw = np.random.default_rng(0)
    for part, rows in {"train": 20, "test": 5}.items():
        with h5py.File(tmp_path / f"fed_{part}.h5", "w") as file:
            for k in range(40):
                labels = draw.integers(0, 5, rows) + (5 if k >= 25 else 0)
                file[f"examples/f{k:04d}_00/label"] = labels.astype(np.int32)
                pixels = draw.integers(0, 256, (rows, 4, 4)) / np.float32(255)
                file[f"examples/f{k:04d}_00/pixels"] = pixels.astype(np.float32)
    code, out, err = sartor("data", "info", tmp_path)
    assert code == 0 and "uint8[4, 4]" in out and "1,000 (train 800, test 200)" in out
    assert err.startswith("warning: the order of clients carries a shift: those from 'f0025_00'")
    assert err.count("\n") == 1


def test_info_of_nothing(sartor, tmp_path):
    code, out, err = sartor("data", "info", tmp_path / "absent")
    assert (code, out) == (1, "") and "absent: there is no such file" in err


@pytest.mark.usefixtures("drawn")
def test_reports_of_one_and_of_several(sartor, finished, tmp_path):
    target = tmp_path / "page.html"
    code, out, _ = sartor("report", finished.directory, "--out", target)
    assert code == 0 and out == f"Report:  {target}\n"
    assert target.read_text() == (finished.directory / "report.html").read_text()
    code, out, _ = sartor("report", finished.directory, finished.directory, "--out", target)
    assert code == 0 and target.read_text().count("<h2>finished: Summary</h2>") == 2
    code, _, err = sartor("report", tmp_path / "absent")
    assert code == 1 and err.startswith(
        f"error: {tmp_path / 'absent' / 'results.json'} does not exist; "
    )
