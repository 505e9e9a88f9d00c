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
            f"{low:.4f} to {high:.4f}",
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
        ("per_client.parquet", None, "per_client.parquet is missing or damaged"),
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
    assert "– to –" in page.texts
