"""The report: one page that needs nothing else, holds the run's numbers, and trusts no name."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from run_cases import strict_json

from sartor.errors import FileError
from sartor.evaluation import holm
from sartor.report import write_report

pytestmark = pytest.mark.usefixtures("drawn")


class Page(HTMLParser):
    """The tags with their attributes, and the text, of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def copy(finished, tmp_path):
    """A run to change."""
    return copied(finished, tmp_path / "copy")


def copied(finished, target):
    """A copy without checksums, as earlier versions wrote it."""
    return shutil.copytree(finished.directory, target, ignore=shutil.ignore_patterns("SHA256SUMS"))


def change(run, **changes):
    results = strict_json(run / "results.json") | changes
    (run / "results.json").write_text(json.dumps(results))


def test_the_page_needs_nothing_else(finished):
    path = finished.directory / "report.html"
    page = Page(path)
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                assert value.startswith("#"), (name, value)
            assert not name.startswith("on")
    text = path.read_text(encoding="utf-8")
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == 3


def test_the_page_holds_the_numbers(finished):
    page = Page(finished.directory / "report.html")
    results = strict_json(finished.directory / "results.json")
    for summary in results["methods"].values():
        low, high = summary["loss"]["interval"]
        for cell in (
            f"{summary['loss']['mean']:.4f}",
            f"{low:.4f} to {high:.4f} (rough)",  # 8 clients
            f"{summary['groups']['unseen']['loss']['mean']:.4f}",
            f"{summary['loss']['worst_decile']:.4f}",
        ):
            assert cell in page.texts
    for comparison in results["comparisons"]:
        assert f"{comparison['difference']:+.4f}" in page.texts
    config = (finished.directory / "config.toml").read_text()
    assert config in page.texts  # how to reproduce it
    best = min(results["methods"], key=lambda name: results["methods"][name]["loss"]["mean"])
    assert any(text.startswith(f"{best} has the best mean test loss") for text in page.texts)


def test_names_are_text(finished, tmp_path):
    nasty = "<script>alert(1)</script> & $x^$ \"q'"
    run = copied(finished, tmp_path / nasty.replace("/", "∕"))
    results = strict_json(run / "results.json")
    methods = {nasty if k == "Local" else k: v for k, v in results["methods"].items()}
    comparisons = [{**c, "a": nasty} for c in results["comparisons"]]
    data = {**results["data"], "summary": nasty}
    change(run, methods=methods, comparisons=comparisons, data=data, device={"kind": nasty})
    (run / "config.toml").write_text(f"# {nasty}")
    table = pq.read_table(run / "per_client.parquet")
    names = [nasty if name == "Local" else name for name in table["method"].to_pylist()]
    pq.write_table(table.set_column(0, "method", [names]), run / "per_client.parquet")
    target = tmp_path / "page.html"
    for runs in ([run], [run, run]):
        write_report(runs, target)
        page = Page(target)
        assert not [tag for tag, _ in page.tags if tag == "script"]
        assert nasty in page.texts and f"# {nasty}" in page.texts
        assert any(run.name in text for text in page.texts)


def test_the_same_run_gives_the_same_page(finished, tmp_path):
    write_report([finished.directory], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (
        finished.directory / "report.html"
    ).read_bytes()


def test_a_run_without_a_name(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(finished.directory)
    write_report(["."], tmp_path / "page.html")
    assert "<title>Sartor report: finished</title>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("results.json", None, "is not finished"),
        ("results.json", "{", "results.json is not readable JSON"),
        ("results.json", "{}", "results.json is not the result of a run of this version"),
        ("results.json", "[]", "results.json is not the result of a run of this version"),
        ("results.json", '{"metric": "loss", "methods": [1]}', "is not the result of a run"),
        ("per_client.parquet", None, "^[^;(]*/per_client.parquet is missing or damaged; resume"),
        ("per_client.parquet", "PAR1 and no more", "per_client.parquet is missing or damaged"),
    ],
)
def test_damaged_runs_are_named(copy, tmp_path, file, content, message):
    if content is None:
        (copy / file).unlink()
    else:
        (copy / file).write_text(content)
    with pytest.raises(FileError, match=message):
        write_report([copy], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_numbers_that_are_missing_are_dashes(copy, tmp_path):
    results = strict_json(copy / "results.json")
    for summary in results["methods"].values():
        summary["loss"]["mean"], summary["loss"]["interval"] = None, [None, None]
    for comparison in results["comparisons"]:
        comparison |= {"difference": None, "interval": [None, None], "p_value": None}
    change(copy, methods=results["methods"], comparisons=results["comparisons"])
    write_report([copy], tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert "No method has a finite mean test loss over clients." in page.texts
    assert "–" in page.texts and not any("None" in text for text in page.texts)


def test_p_values_are_adjusted_for_their_number(finished, copy, tmp_path):
    found = strict_json(finished.directory / "results.json")["comparisons"]
    assert [c["p_adjusted"] for c in found] == holm([c["p_value"] for c in found])
    assert any(c["p_adjusted"] > c["p_value"] for c in found)
    several = [{**c, "p_value": p} for c, p in zip(found, (0.03, 0.021, 0.04), strict=True)]
    change(copy, comparisons=several)
    write_report([copy], tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    for p in ("0.0300", "0.0210", "0.0400", "0.0630"):
        assert p in page.texts
    assert page.texts.count("0.0630") == 3  # the least · 3, which the others are not below
    assert any("is not distinguishable from" in text for text in page.texts)
    assert any("assume that clients are drawn independently" in text for text in page.texts)


def test_several_runs_adjust_their_comparisons(finished, copy, tmp_path):
    table = pq.read_table(copy / "per_client.parquet")
    better = [value - 0.5 for value in table["loss"].to_pylist()]
    place = table.column_names.index("loss")
    pq.write_table(table.set_column(place, "loss", [better]), copy / "per_client.parquet")
    other = shutil.copytree(finished.directory, tmp_path / "other")
    write_report([finished.directory, copy], tmp_path / "two.html")
    write_report([finished.directory, copy, other], tmp_path / "three.html")
    pairs = []
    for name in ("two", "three"):
        texts = Page(tmp_path / f"{name}.html").texts
        begin = texts.index("gain of the first")
        pairs.append(texts[begin : begin + 22])  # the rest of the table
    assert pairs[0].count("0.0078") == 1  # 2^-7: eight clients
    assert pairs[1].count("0.0234") == 2 and "0.0078" not in pairs[1]


def test_gains_by_loss_of_older_versions_are_not_shown(finished, copy, tmp_path):
    """They came from a test that was too bold. They also lack the mark of rough intervals."""
    results = strict_json(copy / "results.json")
    for summary in results["methods"].values():
        for found in (summary["loss"], summary["loss_change"] or {}):
            found.pop("rough", None)
        if summary["loss_change"]:
            summary["loss_change"]["gained_beyond_chance"] = 0.77
    change(copy, methods=results["methods"])
    write_report([copy], tmp_path / "page.html")
    texts = Page(tmp_path / "page.html").texts
    assert not any("77.0%" in text or "beyond chance for" in text for text in texts)
    assert any(text.endswith("(rough)") for text in texts)
