"""What the tests of runs/ share: a small configuration, tables of data, and comparing runs."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open

import sartor
from sartor import cli
from sartor.runs import read_config

SMALL = """
seed = 3

[data]
generator = "synthetic"
clients = 8
symbols = 6
samples = 20

[split]
unseen = 0.25
test = 0.3

[model]
name = "categorical"

[central]
name = "FedAvg"
rounds = 12
cohort = 3
learning_rate = 0.5

[[personal]]
name = "Finetune"
epochs = 1

[[personal]]
name = "Local"
epochs = 1

[engine]
lanes = 4
"""


def config(*overrides):
    """The small configuration, changed as by --set."""
    with tempfile.TemporaryDirectory() as folder:
        return read_config(write(Path(folder, "small.toml"), SMALL), overrides)


def write(path, text):
    """A file, made on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def table(kind="words", clients=6, rows=12, seed=0):
    """A CSV table: label "words", "numbers" (regression) or "counts" (class numbers)."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((clients * rows, 2))
    score = x @ [1.0, -2.0]
    labels = {
        "words": np.where(score > 0, "yes", "no"),
        "numbers": np.round(score, 3),
        "counts": (score > 0).astype(int) + (score > 1),
    }[kind]
    lines = ["user,age,income,label,region"]
    for i, (features, label) in enumerate(zip(x.round(3), labels, strict=True)):
        user = i // rows
        lines.append(
            f"u{user},{features[0]},{features[1]},{label},{'north' if user % 2 else 'east'}"
        )
    return "\n".join(lines) + "\n"


def table_config(model, path="people.csv", rounds=5):
    """A configuration that reads such a table."""
    return f"""
[data]
path = "{path}"
client = "user"
label = "label"
domain = "region"

[split]
test = 0.25

[model]
name = "{model}"

[central]
name = "FedAvg"
rounds = {rounds}
cohort = 4
learning_rate = 0.1

[[personal]]
name = "Finetune"
epochs = 1
"""


def lonely(folder):
    """A native directory with four clients, one of them too small for a test part."""
    draw = np.random.default_rng(0)
    sizes = {"a": 20, "b": 1, "c": 20, "d": 20}
    clients = {name: {"y": draw.integers(0, 6, m)} for name, m in sizes.items()}
    sartor.data.from_dict(clients).split(test=0.3).save(folder)
    return folder


def blank_figure(self, file, *, format, **_):
    """In place of ``savefig`` of a figure."""
    file.write("<svg ></svg>" if format == "svg" else format.encode())


def blank_figures():
    """Draw no figures inside: that takes nine tenths of the time of a small run."""
    return mock.patch("matplotlib.figure.Figure.savefig", blank_figure)


def sartor_command(monkeypatch, capsys, *words):
    """Call the command line in this process: exit code, stdout and stderr."""
    monkeypatch.setattr("sys.argv", ["sartor", *map(str, words)])
    capsys.readouterr()
    try:
        with warnings.catch_warnings():  # which puts everything back
            warnings.resetwarnings()
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def sartor_process(words, log, compiled):
    """What a new process does: the command line, writing to a log."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    jax.config.update("jax_compilation_cache_dir", compiled)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    sys.argv = ["sartor", *words]
    cli.main()


def strict_json(path):
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} in {path}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def events(directory):
    """The lines of a run's log."""
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def arrays(path):
    """Metadata and bits of a safetensors file (the file's own bytes have no fixed order)."""
    with safe_open(path, framework="numpy") as file:
        named = {name: file.get_tensor(name) for name in sorted(file.keys())}
        return file.metadata(), {k: (a.dtype.str, a.shape, a.tobytes()) for k, a in named.items()}


def _timeless(metadata, named):
    """The same without how long a part of an experiment took, and without the digest of that."""
    if "facts" in metadata:
        facts = {k: v for k, v in json.loads(metadata["facts"]).items() if k != "seconds"}
        metadata = {"recipe": metadata["recipe"], "facts": facts}
    return metadata, named


def contents(directory):
    """All that must not depend on whether a run was stopped: every bit but times and dates."""
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = str(path.relative_to(directory))
        if path.suffix == ".safetensors":
            found[name] = _timeless(*arrays(path))
        elif path.name == "results.json":
            results = strict_json(path)
            found[name] = {k: v for k, v in results.items() if k not in ("date", "wall_seconds")}
        elif path.suffix == ".parquet":
            found[name] = repr(pq.read_table(path).to_pydict())  # where NaN is NaN
        elif path.name == "events.jsonl":
            rounds = [line for line in events(path.parent) if line["event"] == "round"]
            found[name] = [(line["round"], line["loss"]) for line in rounds]
        elif path.name == "SHA256SUMS":
            found[name] = [line.split()[1] for line in path.read_text().splitlines()]
        else:
            found[name] = None if path.suffix in (".html", ".png", ".pdf") else path.read_bytes()
    return found
