"""The pages in a real browser: they open without complaint, and show what was found."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread

from sartor.experiments.pages import PAGES
from sartor.report import write_report

MEASURE = """<script>
const rows = [...document.querySelectorAll("table")].map(t => [...t.rows].map(
  r => [...r.cells].map(c => c.innerText.trim())));
const shown = [...document.querySelectorAll("svg, table")].every(
  e => e.getBoundingClientRect().height > 40);
document.body.innerHTML = "<pre id=found></pre>";
document.getElementById("found").textContent = JSON.stringify({rows, shown,
  wide: WIDE, dark: matchMedia("(prefers-color-scheme: dark)").matches});
</script>"""


class Found(HTMLParser):
    """What the script has left on the page."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.text = False, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = dict(attrs).get("id") == "found"

    def handle_data(self, data):
        self.text += data if self.inside else ""


@pytest.fixture
def look(browser, tmp_path):
    """Measure a page as the browser shows it."""

    def measure(page, *flags):
        copy = tmp_path / "measured.html"
        wide = "document.documentElement.scrollWidth > innerWidth + 1"
        first = f"<script>const WIDE = {wide};</script>"
        copy.write_text(page.read_text(encoding="utf-8").replace("</body>", first + MEASURE))
        return json.loads(Found(browser(copy, "--dump-dom", *flags)).text)

    return measure


def test_the_experiments_tables_hold_its_numbers(look, experiment):
    results = json.loads((experiment / "results.json").read_text())
    found = look(experiment / "report.html")
    assert found["shown"]
    head, *rows = next(table for table in found["rows"] if table[0][0] == "q")
    for shown, row in zip(rows, results["table1"], strict=True):
        cells = dict(zip(head, shown, strict=True))
        assert cells["test loss"] == f"{row['test_loss']:.4f}"
        assert cells["exact loss"] == f"{row['exact_loss']:.4f}"
        assert cells["lowest possible"] == f"{row['limit']:.4f}"
        assert cells["the paper"] == f"{row['paper']:.1f}"
    for row in results["figure1"]:
        column = [5, 50].index(row["samples"])
        exact = next(
            r for table in found["rows"] for r in table
            if r[0] == row["method"] and len(r) == 3 and table[0][0] == "samples per client"
        )  # fmt: skip
        assert exact[1 + column] == f"{row['exact_loss']:.4f}"
    everything = [cell for table in found["rows"] for row in table for cell in row]
    for claim in results["claims"]:
        row = next(r for table in found["rows"] for r in table if claim["claim"] in r)
        assert row[1:3] == [f"{claim['samples']} samples", "undecided"]
    assert str(results["settings"]["seeds"]) == "3" and "yes" not in everything


def test_the_emnist_tables_hold_its_numbers(look, handwriting):
    results = json.loads((handwriting / "results.json").read_text())
    found = look(handwriting / "report.html")
    assert found["shown"]
    for number, group in ((2, "seen"), (3, "unseen")):
        table = next(t for t in found["rows"] if t[0][:2] == [group, "initial model"])
        for row, cells in zip(table[1:], results[f"table{number}"].values(), strict=True):
            means = [f"{100 * cell['mean']:.2f}" for cell in cells.values()]
            assert [shown.split()[0] for shown in row[1:]] == means
    table = next(t for t in found["rows"] if t[0][0] == "order")
    gaps = [f"{100 * order['gap']:+.2f}" for order in results["order"].values()]
    assert [row[3] for row in table[1:]] == gaps


def test_a_runs_tables_hold_its_numbers(look, run):
    results = json.loads((run / "results.json").read_text())
    found = look(run / "report.html")
    assert found["shown"]
    everything = [cell for table in found["rows"] for row in table for cell in row]
    for name, summary in results["methods"].items():
        assert name in everything and f"{summary['loss']['mean']:.4f}" in everything
        if summary["loss_change"]:
            assert f"{summary['loss_change']['hurt']:.1%}" in everything
    for counts in results["chosen"]["Dapper"].values():
        for count in counts.values():
            assert f"{count / 12:.1%}" in everything
    for cost in results["cost"].values():
        assert f"{cost['steps']:,}" in everything


@pytest.mark.parametrize("width", [500, 1300])
def test_nothing_is_wider_than_the_window(look, run, experiment, handwriting, tmp_path, width):
    write_report([run, experiment, experiment], tmp_path / "several.html", PAGES)
    pages = [directory / "report.html" for directory in (run, experiment, handwriting)]
    for page in (*pages, tmp_path / "several.html"):
        assert not look(page, f"--window-size={width},900")["wide"]


def test_light_and_dark(browser, look, experiment, tmp_path):
    page, means = experiment / "report.html", []
    for dark in (False, True):
        flag = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        assert look(page, flag)["dark"] == dark
        target = tmp_path / f"dark-{dark}.png"
        browser(page, flag, "--window-size=1000,1600", f"--screenshot={target}")
        picture = imread(target)[..., :3]
        assert picture.std() > 0.05  # there is something on it
        colours = np.unique((picture[::4, ::4] * 255).astype(int).reshape(-1, 3), axis=0)
        assert len(colours) > 50  # pictures among it
        means.append(picture.mean())
    assert means[0] > 0.8 and means[1] < 0.3


def test_it_prints(browser, experiment, tmp_path):
    target = tmp_path / "page.pdf"
    browser(experiment / "report.html", f"--print-to-pdf={target}")
    pages = len(re.findall(rb"/Type\s*/Page[^s]", target.read_bytes()))
    assert 2 <= pages <= 20
