"""The rules of the house: imports go one way, and optional packages are optional."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")

from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[1]


def test_imports_follow_the_layers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_a_break_of_the_layers_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that guards us can fail: a low layer that imports a high one is refused."""
    package = tmp_path / "tailor"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "high.py").touch()
    (package / "low.py").write_text("import tailor.high\n", encoding="utf-8")
    (tmp_path / "contracts.toml").write_text(
        '[tool.importlinter]\nroot_package = "tailor"\n'
        '[[tool.importlinter.contracts]]\nname = "layers"\ntype = "layers"\n'
        'layers = ["tailor.high", "tailor.low"]\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    status = lint_imports(config_filename="contracts.toml", no_cache=True)
    assert status == EXIT_STATUS_ERROR


@pytest.mark.parametrize("module", ["sartor", "sartor.cli"])
def test_imports_without_optional_packages(module: str) -> None:
    blocked = ("equinox", "flax", "pandas")
    # None in sys.modules makes Python refuse the import, as if the package were not there.
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import {module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
