"""Building blocks of pages: sections, tables, texts, and comparisons of several directories."""

from __future__ import annotations

import json
import re

import pytest

from sartor.errors import FileError
from sartor.report import PageKind, write_report
from sartor.report.compare import compare_values
from sartor.report.page import Section, Texts, document, listed
from sartor.report.runs import _choices, _comparisons

NASTY = "<script>alert(1)</script> & \"q'"


def rows_of(section):
    """The cells of a section's tables, row by row: class and text."""
    rows = re.findall("<tr>(.*?)</tr>", "".join(section.parts))
    return [re.findall(r'<t[hd](?: class="(.*?)")?>(.*?)</t[hd]>', row) for row in rows]


def test_a_table_shows_a_column_of_every_row():
    section = Section("One")
    section.table(
        [("name", lambda n: f"no. {n}"), ("square", lambda n: str(n * n)), ("why", lambda n: "so")],
        [1, 2],
        "Squares",
        text=("why",),
        left=("name",),
        bold=lambda n, heading: (n, heading) == (2, "square"),
    )
    assert rows_of(section) == [
        [("left", "name"), ("", "square"), ("text", "why")],
        [("left", "no. 1"), ("", "1"), ("text", "so")],
        [("left", "no. 2"), ("best", "4"), ("text", "so")],
    ]
    assert "<caption>Squares</caption>" in section.parts[0]


def test_everything_is_escaped():
    section = Section(NASTY)
    section.text(NASTY)
    section.note(NASTY)
    section.lead([NASTY])
    section.heading(NASTY)
    section.code(NASTY)
    section.folded(NASTY, NASTY, opened=True)
    section.warnings({"warnings": [NASTY]})
    section.table(listed(NASTY), [[NASTY]], NASTY)
    page = document(NASTY, [Section("First"), section])
    assert "<script>" not in page and page.count("&lt;script&gt;") == 15


def test_the_first_section_has_no_heading_of_its_own():
    page = document("Title", [Section("Summary"), Section("More")])
    assert re.findall("<h[12]>(.*?)</h[12]>", page) == ["Title", "More"]
    assert '<a href="#part-1">More</a>' in page and 'id="part-1"' in page


def test_texts_are_found_by_name(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("What this file is for.\n\n# one\nA {what}\nin  two lines.\n\n# two\nB.\n")
    texts = Texts(path)
    assert texts("one", what="text") == "A text in two lines." and texts("two") == "B."
    for name in ("three", "one"):  # no such text; no value for it
        with pytest.raises(KeyError):
            texts(name)


@pytest.fixture
def directories(tmp_path):
    """Two results of a kind that only this test knows."""
    for name, scores in (("a", {"x": "1", "y": "2"}), ("b", {"y": "3"})):
        (tmp_path / name).mkdir()
        results = {"experiment": "trial", "scores": scores, "settings": {"at": [1, name], "q": 2}}
        (tmp_path / name / "results.json").write_text(json.dumps(results))
    return [tmp_path / name for name in ("a", "b")]


def sections(record):
    section = Section("Scores")
    section.table(listed("score"), [[value] for value in record.results["scores"].values()])
    return [section]


def compare(section, records):
    compare_values(section, "score", records, lambda record: record.results["scores"], "Scores")


def test_pages_of_other_kinds_are_given_from_above(directories, tmp_path):
    target, pages = tmp_path / "page.html", {"trial": PageKind("A trial", sections, compare)}
    write_report(directories[:1], target, pages)
    assert "<title>A trial: a</title>" in target.read_text()
    write_report(directories, target, pages)
    page = Section("")
    page.parts = [target.read_text()]
    shown = [[text for _, text in row] for row in rows_of(page)]
    assert shown[:3] == [["score", "a", "b"], ["x", "1", "–"], ["y", "2", "3"]]
    differ = "[1, &#x27;a&#x27;]", "[1, &#x27;b&#x27;]"
    assert shown[3:5] == [["setting", "a", "b"], ["at", *differ]]  # q is the same
    assert re.findall("<h2>(.*?)</h2>", target.read_text()) == ["a: Scores", "b: Scores"]


def test_unknown_and_unreadable_results_are_named(directories, tmp_path):
    target = tmp_path / "page.html"
    with pytest.raises(FileError, match="there is no run to report on"):
        write_report([], target)
    with pytest.raises(FileError, match=r"results.json is not the result of a run of this version"):
        write_report(directories, target)
    broken = {"trial": PageKind("A trial", lambda record: record.results["nothing"])}
    with pytest.raises(FileError, match=r"of this version \(KeyError\('nothing'\)\)"):
        write_report(directories, target, broken)
    assert not target.exists()


def test_choices_are_shown_where_clients_had_any():
    chosen = {"Dapper": {"lambda": {"0.0": 3, "1.0": 1}, "cluster": {"0": 4}}}
    (section,) = _choices(chosen)  # one cluster is no choice
    assert [[text for _, text in row] for row in rows_of(section)] == [
        ["method", "λ = 0.0", "λ = 1.0"], ["Dapper", "75.0%", "25.0%"]
    ]  # fmt: skip
    (section,) = _choices({"HypCluster": {"cluster": {"0": 1, "1": 3}}})
    assert [text for _, text in rows_of(section)[1]] == ["HypCluster", "25.0%", "75.0%"]
    assert _choices({"Finetune": {}}) == []


def test_one_method_alone_is_compared_with_nothing():
    section = _comparisons([], "loss")
    assert section.parts == ['<p class="note">There is only one method.</p>']
