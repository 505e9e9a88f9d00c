"""What the pages about the synthetic experiment and the regret of advice say."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest
from made_up import made_up_synthetic

from sartor.errors import FileError
from sartor.experiments.pages import PAGES
from sartor.experiments.synthetic import SyntheticSettings, as_text
from sartor.report import write_report


def words(page):
    text = page.read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def results_of(directory):
    return json.loads((directory / "results.json").read_text())


def test_the_page_says_how_it_was_done(experiment):
    results, text = results_of(experiment), words(experiment / "report.html")
    for claim in results["claims"]:
        assert claim["found"] in text
    assert "6 cannot be decided" in text  # with three populations
    assert "k % (d − 4) (literal layout)" in text
    assert "sartor reproduce synthetic --quick --seed 0 --seeds 3 --layout literal" in text
    assert "--samples 5 --samples 50" in text
    for name, version in results["versions"].items():
        assert f"{name} {version}" in text
    assert "step sizes 0.5, 2 and label smoothing 0 (in the quick version" in text
    tuned = sum(bool(row["tried"]) for row in results["figure1"])
    assert f"The chosen step size is {tuned} times the largest candidate." in text
    figures = {path.name for path in (experiment / "figures").iterdir()}
    assert {"figure1.png", "figure1-excess.pdf", "gains-5.png", "gains-50.pdf"} <= figures


def test_the_terminal_shows_tables_and_claims(experiment):
    results = results_of(experiment)
    lines = list(as_text(results))
    exact = next(line for line in lines if line.startswith("exact"))
    assert exact.split()[1:] == [f"{row['exact_loss']:.3f}" for row in results["table1"]]
    dapper = [row["exact_loss"] for row in results["figure1"] if row["method"] == "Dapper"]
    line = next(line for line in lines if line.startswith("Dapper"))
    assert line.split()[1:] == [f"{loss:.3f}" for loss in dapper]
    assert sum("cannot be decided" in line for line in lines) == len(results["claims"])


def test_other_layouts_and_losses_and_a_single_size(tmp_path, no_figures, monkeypatch):
    settings = SyntheticSettings(samples=(50,), seeds=6, layout="shifted", loss="smoothed")
    out = made_up_synthetic(settings, tmp_path / "other", monkeypatch)
    text = words(out / "report.html")
    assert "4 + k % (d − 4) (shifted layout)" in text
    assert "smoothed with the paper's weight 0.9" in text
    assert "down to" not in text  # there is one number of samples
    assert text.count("With 50 samples per client, one model for all costs") == 1
    assert "4 cannot be decided" in text


def test_settings_that_differ_are_named(experiment, tmp_path, no_figures, monkeypatch):
    settings = SyntheticSettings.small(samples=(5, 50), seeds=4, seed=9)
    other = made_up_synthetic(settings, tmp_path / "other", monkeypatch)
    write_report([experiment, other], tmp_path / "page.html", PAGES)
    text = words(tmp_path / "page.html")
    assert "setting synthetic other seeds 3 4 seed 0 9" in text
    both = [results_of(d)["figure1"][0]["exact_loss"] for d in (experiment, other)]
    assert "FedAvg, 5 samples " + " ".join(f"{loss:.4f}" for loss in both) in text


def test_damage_is_found_before_anything_is_written(experiment, tmp_path):
    out = tmp_path / "damaged"
    out.mkdir()
    shutil.copy(experiment / "results.json", out)
    with pytest.raises(FileError, match=r"per_client\.parquet is missing or damaged"):
        write_report([out], tmp_path / "page.html", PAGES)
    assert not (out / "figures").exists() and not (tmp_path / "page.html").exists()


def test_the_regret_page_has_every_number(advised):
    results, text = results_of(advised), words(advised / "report.html")
    for kind, rows in results["regret"].items():
        assert f"With Local {kind}, the mean regret of advice is" in text
        for row in rows:
            for policy in ("local", "global", "cluster", "bounds", "advice", "interpolation"):
                estimate = row[policy]
                assert f"{estimate['mean']:.4f}" in text
                if estimate["low"] is not None:  # fewer than five populations
                    assert f"{estimate['low']:.4f} to {estimate['high']:.4f} (rough)" in text
    assert "from 20 samples on" in text and "with fewer samples" in text
    assert "4 of 8 are the largest or the smallest candidate" in text
    assert (advised / "figures" / "regret-1.pdf").exists()
