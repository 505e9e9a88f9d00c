"""One small EMNIST experiment, with all its training."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import sartor
from sartor.experiments.emnist import EmnistSettings, as_text, reproduce
from sartor.experiments.emnist.methods import families
from sartor.experiments.emnist.settings import COLUMNS, PAPER
from sartor.experiments.emnist.work import FamilyRun

TINY = EmnistSettings.small(
    data="generated", writers=12, rounds=4, joint=1, cohort=4, cover=(0.0, 1.0),
    rows=("hypcluster",), parts=("tables",),
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("emnist") / "run"
    return out, reproduce(TINY, out, progress=False)


def test_tables_have_every_method_and_the_papers_numbers(run):
    out, results = run
    assert results["experiment"] == "emnist"
    for table in ("table2", "table3"):
        assert list(results[table]) == ["hypcluster"]
        for row, cells in results[table].items():
            assert list(cells) == list(COLUMNS)
            for cell in cells.values():
                if table == "table2":  # nine writers
                    assert cell["low"] <= cell["mean"] <= cell["high"] and cell["rough"]
                else:  # three
                    assert cell["low"] is cell["high"] is None and not cell["rough"]
            assert list(results["paper"][table][row].values()) == list(PAPER[table][row])
    assert json.loads((out / "results.json").read_text()) == results
    assert results["data"] | {"fingerprint": ""} == {
        "generated": True, "fingerprint": "", "writers": 12, "seen": 9, "unseen": 3,
        "images": results["data"]["images"], "domains": results["data"]["domains"],
    }  # fmt: skip
    text = "\n".join(as_text(results))
    assert "(generated)" in text and "quick version" in text
    assert (out / "report.html").exists()


def test_the_table_of_clients_agrees_with_the_results(run):
    out, results = run
    rows = pq.read_table(out / "per_client.parquet").to_pylist()
    for table, seen in (("table2", True), ("table3", False)):
        for row, column in (("hypcluster", "initial"), ("hypcluster", "dapper")):
            name = row if column == "initial" else f"{row} + {column}"
            mine = [r["accuracy"] for r in rows if r["method"] == name and r["seen"] == seen]
            assert results[table][row][column]["mean"] == pytest.approx(np.mean(mine))


def test_clusters_are_the_same_in_all_columns(run):
    rows = pq.read_table(run[0] / "per_client.parquet").to_pylist()
    clusters = {
        name: {r["client"]: r["cluster"] for r in rows if r["method"] == name}
        for name in ("hypcluster", *(f"hypcluster + {column}" for column in COLUMNS[1:]))
    }
    assert all(found == clusters["hypcluster"] for found in clusters.values())


@pytest.mark.filterwarnings("ignore:HypCluster")
def test_test_images_choose_nothing(run, tmp_path):
    """With other test images, λ and clusters stay as they are."""
    real = sartor.data.handwriting(TINY.writers)
    held = np.concatenate([real.part(k, "test") for k in range(len(real))])
    x, y = real.columns["x"].copy(), real.columns["y"].copy()
    x[held], y[held] = 255 - x[held], (y[held] + 7) % 62
    other = dataclasses.replace(real, columns={"x": x, "y": y})
    family = next(f for f in families(TINY) if f.name == "hypcluster")
    again = FamilyRun(TINY, other, 0, tmp_path, family, str)
    result, new = again.result("hypcluster + dapper")
    table = pq.read_table(run[0] / "per_client.parquet").to_pylist()
    before = {r["client"]: r for r in table if r["method"] == "hypcluster + dapper"}
    scores, assert_equal = result.scores, np.testing.assert_array_equal
    for name in ("lambda", "cluster"):
        assert_equal(scores.extra[name], [before[client][name] for client in scores.client])
    assert new and (scores.loss != [before[client]["loss"] for client in scores.client]).any()


def test_held_out_images_choose_the_settings_of_local(tmp_path):
    settings = dataclasses.replace(TINY, parts=("tables", "local"))
    grid = tuple({"learning_rate": rate, "epochs": 1} for rate in (1e-9, 0.1))
    local = next(f for f in families(settings) if f.name == "local")._replace(grid=grid)
    writers = sartor.data.handwriting(TINY.writers)
    found = FamilyRun(settings, writers, 0, tmp_path, local, str).tune()
    assert found["chosen"] == grid[1]  # the first hardly moves
    assert found["tried"][0][1] == pytest.approx(np.log(62), abs=0.5)  # it guesses
