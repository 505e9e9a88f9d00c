"""What the README promises works as written."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import sartor

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.filterwarnings("ignore:HypCluster")
def test_the_lines_of_python_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    few = functools.partial(sartor.theory.discrepancies, steps=20)  # 200 take ten seconds
    monkeypatch.setattr("sartor.theory.discrepancies", few)
    exec(compile(code, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "against the central model" in said
    assert "'lambda':" in said
    assert "'shared_examples':" in said


def test_files_that_the_readme_links_to_are_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_example_table_is_what_its_script_makes(tmp_path, monkeypatch):
    script = ROOT / "examples" / "make_shops.py"
    copy = tmp_path / "make_shops.py"
    copy.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    space: dict[str, object] = {"__file__": str(copy), "__name__": "shops"}
    exec(compile(copy.read_text(encoding="utf-8"), str(copy), "exec"), space)
    space["main"]()
    assert (tmp_path / "shops.csv").read_bytes() == (ROOT / "examples" / "shops.csv").read_bytes()
