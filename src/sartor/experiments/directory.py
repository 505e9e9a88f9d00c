"""The directory of an experiment: whether it can be begun there, or gone on with."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sartor.errors import CheckpointError, FileError
from sartor.files import is_free


def look(
    out: Path,
    kind: str,
    settings: Mapping[str, Any],
    resume: bool,
    may_change: tuple[str, ...] = (),
) -> None:
    """Refuse a directory that holds something else, without changing it.

    Args:
        out: the directory.
        kind: the experiment's name, and that of its table in ``config.toml``.
        settings: that table.
        resume: whether to go on with what is there.
        may_change: settings that may differ from those before.
    """
    path = out / "config.toml"
    if resume and path.exists():
        before = _read(path, kind)
        for key in {**settings, **before}:
            if key not in may_change and before.get(key) != settings.get(key):
                raise CheckpointError(
                    f"{path} has {key} = {before.get(key)}, not {settings.get(key)}; give the same "
                    "settings, or choose another --out"
                )
    elif out.is_file():
        raise FileError(f"{out} is a file; --out names a directory")
    elif not is_free(out):
        what = "holds no experiment to resume, but other files" if resume else "is not empty"
        remedy = "" if resume else "go on with its experiment by --resume, or "
        raise FileError(f"{out} {what}; {remedy}choose another --out")


def _read(path: Path, kind: str) -> dict[str, Any]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8"))[kind])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} is not of this experiment; choose another --out") from error
