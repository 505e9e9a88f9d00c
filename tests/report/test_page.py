"""What the pages say, whether there is a browser or not."""

from __future__ import annotations

import html
import json
import re

import pytest
from made_up import made_up

from sartor.errors import FileError
from sartor.experiments.synthetic import Settings
from sartor.report import write_report


def words(page):
    text = page.read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", " ", text))


def test_the_experiment_says_how_it_was_done(experiment):
    results, text = (
        json.loads((experiment / "results.json").read_text()),
        words(experiment / "report.html"),
    )
    for claim in results["claims"]:
        assert claim["found"] in text
    assert "6 cannot be decided" in text  # of three populations
    assert "k % (d − 4) (literal layout)" in text
    assert "sartor reproduce synthetic --quick --seed 0 --seeds 3 --layout literal" in text
    assert "--samples 5 --samples 50" in text
    for name, version in results["versions"].items():
        assert f"{name} {version}" in text
    assert "smoothing 0.3" in text or "label smoothing 0" in text


def test_other_layouts_and_losses_and_a_single_size(tmp_path):
    settings = Settings(samples=(50,), seeds=6, layout="shifted", loss="smoothed")
    text = words(made_up(settings, tmp_path / "other") / "report.html")
    assert "4 + k % (d − 4) (shifted layout)" in text
    assert "smoothed with the paper's weight 0.9" in text
    assert "down to" not in text  # of one number of samples
    assert text.count("With 50 samples per client one model for all costs") == 1
    assert "4 cannot be decided" in text


def test_several_are_compared(run, experiment, tmp_path):
    page = tmp_path / "several.html"
    write_report([run, run, experiment, experiment], page)
    text = words(page)
    assert "The best method of each run, paired over clients" in text
    assert "Exact loss" in text
    results = json.loads((experiment / "results.json").read_text())
    assert f"{results['figure1'][0]['exact_loss']:.4f}" in text


def test_settings_that_differ_are_named(experiment, tmp_path):
    other = made_up(Settings.small(samples=(5, 50), seeds=4, seed=9), tmp_path / "other")
    write_report([experiment, other], tmp_path / "page.html")
    text = re.sub(r"\s+", " ", words(tmp_path / "page.html"))
    assert "setting synthetic other seeds 3 4 seed 0 9" in text


def test_damage_is_found_before_anything_is_written(tmp_path):
    out = made_up(Settings.small(samples=(5, 50), seeds=3), tmp_path / "one")
    (out / "per_client.parquet").unlink()
    for path in (out / "figures").iterdir():
        path.unlink()
    with pytest.raises(FileError, match=r"per_client\.parquet is missing or damaged"):
        write_report([out], tmp_path / "page.html")
    assert not list((out / "figures").iterdir())
