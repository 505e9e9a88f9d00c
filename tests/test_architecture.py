"""The rules of the house: imports go one way, and optional packages are optional."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter")

ROOT = Path(__file__).resolve().parents[1]


def lint(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    """Check contracts in a process of its own: import-linter resets everybody's logging."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", program, "--config", config, "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_imports_follow_the_layers() -> None:
    done = lint(ROOT, "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_break_of_the_layers_is_noticed(tmp_path: Path) -> None:
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
    done = lint(tmp_path, "contracts.toml")
    assert done.returncode == 1
    assert "tailor.low is not allowed to import tailor.high" in done.stdout


@pytest.mark.parametrize("module", ["sartor", "sartor.cli"])
def test_imports_without_optional_packages(module: str) -> None:
    blocked = ("equinox", "flax", "pandas")
    # None in sys.modules makes Python refuse the import, as if the package were not there.
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import {module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
