"""What the EMNIST page says: with all parts and few, about real writers and generated ones."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest
from made_up import made_up_emnist

from sartor.errors import FileError
from sartor.experiments.emnist import EmnistSettings
from sartor.experiments.pages import PAGES
from sartor.report import write_report
from sartor.report.numbers import points

BEYOND = (
    "Sources of the writers", "Starts of HypCluster", "Numbers of clusters", "Order of writers",
    "Choice of λ", "One λ for all", "Local", "Controls", "Adaptive servers", "Forgetting", "Cost",
)  # fmt: skip


def read(directory):
    """The results, the words on the page, and its headings."""
    page = (directory / "report.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", page)))
    assert not re.search(r"\b(nan|NaN|None|inf|null)\b", text)
    headings = [html.unescape(h) for h in re.findall("<h[23]>(.*?)</h[23]>", page)]
    results = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    return results, re.sub(r"\s+", " ", text), headings


def test_everything_is_there(handwriting):
    results, text, headings = read(handwriting)
    assert set(BEYOND) <= set(headings)
    claims = results["claims"]
    shown = [claim for claim in claims if claim["kind"] != "alike"]
    holding = sum(claim["holds"] is True for claim in shown)
    said = f"The paper claims or expects {len(shown)} differences; {holding} of them are shown"
    assert said in text
    for claim in claims:
        sign = -1 if claim["kind"] == "averse" else 1  # how many fewer are hurt
        assert points(sign * claim["mean"]) in text
    for name in ("fedavg + dapper", "hypcluster + mapper"):
        for group, hurt in results["methods"][name]["hurt"].items():
            gain = results["methods"][name]["gain"][group]
            shown = f"{100 * gain['mean']:+.2f} {100 * gain['low']:+.2f} to"
            assert shown in text and f"{hurt['gained']:.1%} {hurt['hurt']:.1%}" in text
    assert f"{100 * results['lambda']['seen_oracle']['mean']:.2f}" in text
    assert f"{100 * results['methods']['hypcluster']['oracle']['unseen']['mean']:.2f}%" in text
    assert "Generated" not in text and "quick version" not in text
    figures = {path.name for path in (handwriting / "figures").iterdir()}
    assert {"tables.png", "tables.pdf", "gains-fedavg.pdf", "one-lambda.png"} <= figures


def test_the_lead_names_the_best_cells(handwriting):
    results, text, _ = read(handwriting)
    titles = {"fedavg": "FedAvg", "agnostic": "Agnostic", "hypcluster": "HypCluster"}
    for table, group in (("table2", "seen"), ("table3", "unseen")):
        cells = {(r, c): v["mean"] for r, of in results[table].items() for c, v in of.items()}
        row, column = max(cells, key=cells.get)
        name = titles[row] + (f" + {column.title()}" if column != "initial" else "")
        assert f"for {group} writers by {name}, {100 * cells[row, column]:.2f}%" in text


def test_empty_clusters_are_shown(tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings(rows=("hypcluster",), parts=("tables", "clusters"), seeds=1)
    _, text, _ = read(made_up_emnist(settings, tmp_path / "one", monkeypatch))
    rows = re.findall(r"q = 4 0((?: [\d.]+%){4}) (\d)", text)  # all writers are in two clusters
    assert [(row.split()[2:], used) for row, used in rows] == [(["0.0%", "0.0%"], "2")]


@pytest.mark.parametrize("row", ["fedavg", "agnostic", "hypcluster"])
def test_one_row_of_the_tables_and_nothing_else(tmp_path, row, no_figures, monkeypatch):
    settings = EmnistSettings(rows=(row,), parts=("tables",), seeds=1)
    results, text, headings = read(made_up_emnist(settings, tmp_path / "one", monkeypatch))
    there = {"Sources of the writers", "Choice of λ", "Forgetting", "Cost"}
    assert set(BEYOND) & set(headings) == there
    assert "HypCluster against FedAvg" not in text
    assert f"{100 * results['table3'][row]['mapper']['mean']:.2f}" in text
    assert f"--row {row} \\ --part tables \\ --seeds 1 --rounds 1000 --joint 1000" in text


def test_parts_without_the_rows_they_are_compared_with(tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings(rows=("agnostic",), seeds=1, cover=(0.0, 1.0))
    _, _, headings = read(made_up_emnist(settings, tmp_path / "one", monkeypatch))
    assert set(BEYOND) - set(headings) == {"One λ for all"}


def test_writers_without_sources_and_hardly_any(tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings(rows=("fedavg", "hypcluster"), parts=("tables", "lambda"), seeds=1)
    few = made_up_emnist(settings, tmp_path / "few", monkeypatch, writers=4, domains=False)
    _, _, headings = read(few)
    assert "Sources of the writers" not in headings and "One λ for all" in headings


def test_generated_handwriting_is_called_so(tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings.small(data="generated", writers=20)
    out = made_up_emnist(settings, tmp_path / "one", monkeypatch)
    _, text, _ = read(out)
    lead, _, after = text.partition("Table 2: test accuracy")
    assert "The handwriting is generated by Sartor, not real." in lead
    assert "The paper's numbers are of real EMNIST" in lead
    page = html.unescape((out / "report.html").read_text(encoding="utf-8"))
    accuracies = [c for c in re.findall("<caption>(.*?)</caption>", page) if "accuracy" in c]
    assert accuracies and all("Generated handwriting" in caption for caption in accuracies)
    assert "--quick --data generated" in after


def test_the_quick_version_says_what_it_leaves_out(tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings.small(parts=("tables", "order"), rows=("fedavg",), data="writers.h5")
    _, text, _ = read(made_up_emnist(settings, tmp_path / "one", monkeypatch))
    assert "This is the quick version: a small network instead of the paper's CNN" in text
    assert "20 writers, 150 rounds instead of 1000, 15 joint rounds of Mapper instead of" in text
    assert "1 seed instead of 3, 5 candidates λ instead of 11" in text
    assert "Left out are models of single writers, controls, one λ for all" in text
    assert "other orders" not in text


def test_several_are_compared(handwriting, tmp_path, no_figures, monkeypatch):
    settings = EmnistSettings(rows=("fedavg",), parts=("tables",), seeds=1, data="generated")
    other = made_up_emnist(settings, tmp_path / "other", monkeypatch)
    write_report([handwriting, other], tmp_path / "page.html", PAGES)
    text = re.sub("<[^>]+>", " ", (tmp_path / "page.html").read_text(encoding="utf-8"))
    text = re.sub(r"\s+", " ", html.unescape(text))
    both = [read(d)[0]["table2"]["fedavg"]["dapper"]["mean"] for d in (handwriting, other)]
    assert "FedAvg + Dapper " + " ".join(f"{100 * mean:.2f}" for mean in both) in text
    assert "generated handwriting: other" in text
    assert "Agnostic + Mapper" in text and "seeds 2 1" in text


@pytest.mark.parametrize("path", [
    ("table3",), ("paper", "table2", "fedavg"), ("claims", 0, "p_value"),
    ("methods", "fedavg + mapper", "hurt", "seen", "hurt"), ("methods", "local", "tried"),
    ("order", "id", "gap"), ("memory",),
])  # fmt: skip
def test_damage_is_named(handwriting, tmp_path, no_figures, path):
    out = tmp_path / "damaged"
    out.mkdir()
    for name in ("results.json", "per_client.parquet"):
        shutil.copy(handwriting / name, out)
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    place = results
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    (out / "results.json").write_text(json.dumps(results), encoding="utf-8")
    with pytest.raises(
        FileError, match=r"results\.json is not the result of a run of this version"
    ):
        write_report([out], tmp_path / "page.html", PAGES)
    assert not (tmp_path / "page.html").exists()


def test_lost_clients_are_found_before_anything_is_written(handwriting, tmp_path):
    out = tmp_path / "damaged"
    shutil.copytree(handwriting, out)
    shutil.rmtree(out / "figures")
    (out / "per_client.parquet").unlink()
    with pytest.raises(FileError, match=r"per_client\.parquet is missing or damaged"):
        write_report([out], tmp_path / "page.html", PAGES)
    assert not (out / "figures").exists()
