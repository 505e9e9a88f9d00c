"""What the README and the pages in docs/ promise works as written."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

import sartor
from sartor.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "bench").glob("*.md")]

NO_RUN = {"docs/data.md": 1, "docs/serving.md": 1}
"""How many Python blocks of a page cannot run here (they need a download), marked ``no-run``."""

PRINTED = {
    "README.md": ["against the central model", "loss change, unseen"],
    "docs/algorithms.md": ["'lambda':", "'shared_examples':"],
}
"""What the blocks of a page must print, at the least."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """The fenced blocks of a page: what stands after the fence, the text, and its first line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(m[1].strip(), m[2], text.count("\n", 0, m.start()) + 2) for m in found]


def python_of(page: Path) -> list[tuple[str, int]]:
    return [(code, line) for info, code, line in blocks(page) if info == "python"]


@pytest.mark.filterwarnings("ignore:HypCluster")
@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p)], ids=name_of)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    """The blocks of a page run one after the other, and share their names."""
    for package in ("pandas", "flax", "equinox"):
        pytest.importorskip(package)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    few = functools.partial(sartor.theory.discrepancies, steps=20)  # 200 take ten seconds
    monkeypatch.setattr("sartor.theory.discrepancies", few)
    space: dict[str, object] = {"__name__": "__main__"}
    for code, line in python_of(page):
        # Empty lines before the code make tracebacks name the line of the page.
        exec(compile("\n" * (line - 1) + code, name_of(page), "exec"), space)
    said = capsys.readouterr().out
    for words in PRINTED.get(name_of(page), []):
        assert words in said


def test_few_python_blocks_do_not_run():
    """Every other block is plain ``python``: nothing escapes the tests by another spelling."""
    for page in PAGES:
        infos = [info for info, *_ in blocks(page)]
        assert infos.count("python no-run") == NO_RUN.get(name_of(page), 0), name_of(page)
        assert set(infos) <= {"python", "python no-run", "bash", "toml", "text"}, infos


def commands() -> Iterator[tuple[str, str]]:
    for page in LINKED:
        for info, text, _ in blocks(page):
            if info == "bash":
                for line in text.replace("\\\n", " ").splitlines():
                    if line.startswith("sartor "):
                        yield name_of(page), line


def test_commands_and_options_exist():
    """A command line on a page names commands and options that there are."""
    shown = list(commands())
    assert len(shown) > 10
    for page, line in shown:
        _, *words = shlex.split(line, comments=True)
        command: click.Command = typer.main.get_command(app)
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        assert not isinstance(command, click.Group), f"{page}: {line}"
        try:
            command.make_parser(click.Context(command)).parse_args(words)
        except click.UsageError as error:
            pytest.fail(f"{page}: {line}: {error.message}")


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub spells them in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_relative_links_resolve(page):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "README.md":
            assert f"({page.relative_to(ROOT / 'docs').as_posix()})" in index


def test_the_example_table_is_what_its_script_makes(tmp_path, monkeypatch):
    script = ROOT / "examples" / "make_shops.py"
    copy = tmp_path / "make_shops.py"
    copy.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    space: dict[str, object] = {"__file__": str(copy), "__name__": "shops"}
    exec(compile(copy.read_text(encoding="utf-8"), str(copy), "exec"), space)
    space["main"]()
    assert (tmp_path / "shops.csv").read_bytes() == (ROOT / "examples" / "shops.csv").read_bytes()
