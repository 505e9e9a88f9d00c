"""Small experiments without any training that many tests look at, and a browser to look with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from made_up import made_up_emnist, made_up_regret, made_up_synthetic

import sartor
from sartor.experiments.emnist import EmnistSettings
from sartor.experiments.regret import RegretSettings
from sartor.experiments.synthetic import SyntheticSettings

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic",
    "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Call Chromium with some flags and a page: what it writes, after checking its console."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("needs Chromium; on Debian and Ubuntu: apt install chromium")

    def call(page, *flags):
        profile = tmp_path_factory.mktemp("profile")
        done = subprocess.run(
            [program, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        assert not console, console
        return done.stdout

    return call


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A finished run with everything a report can show."""
    out = tmp_path_factory.mktemp("run") / "shops & co"
    table = {
        "seed": 1,
        "data": {"generator": "synthetic", "clients": 12, "symbols": 6, "samples": 40},
        "split": {"unseen": 0.25, "validation": 0.2, "test": 0.3},
        "model": {"name": "categorical"},
        "central": {
            "name": "HypCluster", "q": 2, "rounds": 6, "cohort": 9, "learning_rate": 0.5,
            "start": "kmeans++",
        },
        "personal": [
            {"name": "Finetune", "epochs": 2, "learning_rate": 0.5},
            {"name": "Dapper", "epochs": 1, "learning_rate": 0.5, "cover": [0.0, 0.5, 1.0]},
        ],
    }  # fmt: skip
    sartor.run(sartor.runs.parse_config(table), out)
    return out


@pytest.fixture
def no_figures(monkeypatch):
    """Pages without figures, which take most of the time."""
    monkeypatch.setattr("sartor.report.page._figure", lambda figure, caption, save: caption)


@pytest.fixture(scope="session")
def experiment(tmp_path_factory):
    """A made-up synthetic experiment."""
    settings = SyntheticSettings.small(samples=(5, 50), seeds=3)
    with pytest.MonkeyPatch.context() as patch:
        made = made_up_synthetic(settings, tmp_path_factory.mktemp("made-up") / "synthetic", patch)
    return made


@pytest.fixture(scope="session")
def handwriting(tmp_path_factory):
    """A made-up EMNIST experiment with all its parts and two seeds."""
    settings = EmnistSettings(data="writers.h5", seeds=2, cover=(0.0, 0.5, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        made = made_up_emnist(settings, tmp_path_factory.mktemp("made-up") / "emnist", patch)
    return made


@pytest.fixture(scope="session")
def advised(tmp_path_factory):
    """A made-up regret experiment."""
    settings = RegretSettings.small(samples=(5, 50))
    with pytest.MonkeyPatch.context() as patch:
        made = made_up_regret(settings, tmp_path_factory.mktemp("made-up") / "regret", patch)
    return made
