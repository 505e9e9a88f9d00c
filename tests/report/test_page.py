"""Building blocks of pages: sections, tables, texts, and comparisons of several directories."""

from __future__ import annotations

import json
import re

import pytest

from sartor.errors import FileError
from sartor.report import PageKind, write_report
from sartor.report.compare import compare_values
from sartor.report.page import Section, document
from sartor.report.runs import choices
from sartor.report.template import Template

NASTY = "<script>alert(1)</script> & \"q'"


def rows_of(section):
    """The cells of a section's tables, row by row: class and text."""
    rows = re.findall("<tr>(.*?)</tr>", "".join(section.parts))
    return [re.findall(r'<t[hd](?: class="(.*?)")?>(.*?)</t[hd]>', row) for row in rows]


def test_a_table_marks_columns_and_cells():
    section = Section("One")
    section.table(
        ["name", "square", "why"],
        [["no. 1", "1", "so"], ["no. 2", "4", "so"]],
        "Squares",
        kinds={"why": "text", "name": "left"},
        best=[[], ["square"]],
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
    section.table([NASTY], [[NASTY]], NASTY)
    page = document(NASTY, [Section("First"), section])
    assert "<script>" not in page and page.count("&lt;script&gt;") == 14


def test_the_first_section_has_no_heading_of_its_own():
    page = document("Title", [Section("Summary"), Section("More")])
    assert re.findall("<h[12]>(.*?)</h[12]>", page) == ["Title", "More"]
    assert '<a href="#part-1">More</a>' in page and 'id="part-1"' in page


def test_texts_are_found_by_name(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("What this file is for.\n\n# one\nA {what}\nin  two lines.\n\n# two\nB.\n")
    texts = Template(path)
    assert texts.text("one", what="text") == "A text in two lines." and texts.text("two") == "B."
    for name in ("three", "one"):  # no such text; no value for it
        with pytest.raises(KeyError):
            texts.text(name)


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
    section.table(["score"], [[value] for value in record.results["scores"].values()])
    return [section]


def compare(section, records):
    compare_values(section, "score", records, [r.results["scores"] for r in records], "Scores")


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
    found = choices(chosen)
    assert found["lambdas"] == ["0.0", "1.0"] and not found["cluster"]  # no choice
    assert found["lambda"] == {"Dapper": {"shares": {"0.0": 0.75, "1.0": 0.25}}}
    found = choices({"HypCluster": {"cluster": {"0": 1, "1": 3}}})
    shares = {"0": 0.25, "1": 0.75}
    assert found["cluster"] == {"HypCluster": {"shares": shares}} and not found["lambda"]
    assert choices({"Finetune": {}}) == {}


TEMPLATE = """A comment.

# Scores of {who}

- *lead {words}

- ?shown One finding
of {who}.
- ?hidden Not this.
- {c:.1f} is another.

Words that go on
in the next line: {a.b:share}, {c:.1f}, {missing?:number}.

[rows] A table of {who}
| name | *headings | why |
| --- | --- | :-: |
| {name} | *cells:number | {why} |

?shown
> Small print.

?hidden
> Not this.

# ?hidden Left out

Words.

# Nothing to show

[empty] A table
| name |
| --- |
| {name} |

# *items Number {n}

{who}
"""


def test_a_template_is_filled_with_values(tmp_path):
    (tmp_path / "page.md").write_text(TEMPLATE)
    values = {
        "who": NASTY, "lead": [{"words": "First."}], "a": {"b": 0.5}, "c": 1.23, "shown": 1,
        "hidden": 0, "headings": ["x", "y"], "empty": [],
        "items": [{"n": 1}, {"n": 2, "who": "{who}"}],
        "rows": {"one": {"cells": [1.0, None], "why": "so", "best": ["y"]}},
    }  # fmt: skip
    first, *repeated = Template(tmp_path / "page.md").sections(values)
    assert first.title == f"Scores of {NASTY}"
    assert first.parts[0] == '<div class="lead"><p>First.</p></div>'
    assert re.findall("<p>(One finding of .*?)</p><p>(.*?)</p>", first.parts[1])[0][1] == (
        "1.2 is another."
    )
    assert first.parts[2] == "<p>Words that go on in the next line: 50.0%, 1.2, –.</p>"
    assert rows_of(first) == [
        [("", "name"), ("", "x"), ("", "y"), ("text", "why")],
        [("", "one"), ("", "1.0000"), ("best", "–"), ("text", "so")],
    ]
    assert first.parts[4:] == ['<p class="note">Small print.</p>']
    assert [section.title for section in repeated] == ["Number 1", "Number 2"]
    assert repeated[1].parts == ["<p>{who}</p>"]  # values are not filled in once more
    assert "<script>" not in document("Page", [first, *repeated])


def test_a_template_names_what_is_missing(tmp_path):
    (tmp_path / "page.md").write_text("# One\n\n{a.b}")
    for values in ({}, {"a": {}}):
        with pytest.raises(KeyError):
            Template(tmp_path / "page.md").sections(values)


def test_conditions_inside_a_template(tmp_path):
    text = "# One\n\nA[?b:, {b:g} of {c}][?!b:, none].\n\n?c=all\nEverything.\n\n?!c=all\nSome.\n\n"
    (tmp_path / "page.md").write_text(text + "- *rows {name}: {n}\n- ?b Yes.\n- ?!b No.\n")
    template, rows = Template(tmp_path / "page.md"), [{"name": "x", "n": 1}, {"name": "y", "n": 2}]
    (section,) = template.sections({"b": 2.0, "c": "all", "rows": rows})
    lead = '<div class="lead"><p>x: 1</p><p>y: 2</p><p>Yes.</p></div>'
    assert section.parts == ["<p>A, 2 of all.</p>", "<p>Everything.</p>", lead]
    (section,) = template.sections({"b": 0, "c": "few", "rows": []})
    lead = '<div class="lead"><p>No.</p></div>'
    assert section.parts == ["<p>A, none.</p>", "<p>Some.</p>", lead]


def test_columns_of_a_template_are_lists_or_mappings(tmp_path):
    text = "# One\n\n[rows]\n| name | λ = *keys | last |\n| --- | :-- | --- |\n"
    values = {
        "keys": ["0", "1"],
        "rows": {"a": {"by_key": {"1": 0.5}, "in_order": [0.25], "of": [{"q": 3}], "n": 7}},
    }
    for body, cells in (
        ("*by_key:share", ["0.0%", "50.0%"]),  # a key that is missing counts as 0
        ("*in_order:share", ["25.0%", ""]),
        ("*of:q is {q}", ["q is 3", ""]),
    ):
        (tmp_path / "page.md").write_text(f"{text}| {{name}} | {body} | {{n}} |\n")
        (section,) = Template(tmp_path / "page.md").sections(values)
        head, shown = rows_of(section)
        assert head == [("", "name"), ("left", "λ = 0"), ("left", "λ = 1"), ("", "last")]
        assert [words for _, words in shown] == ["a", *cells, "7"]
