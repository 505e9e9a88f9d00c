"""What the tests of runs/ share: a small configuration, tables of data, and comparing runs."""

from __future__ import annotations

import json
import tomllib
import warnings

import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open

from sartor import cli
from sartor.runs import parse_config
from sartor.runs.config import _override

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
    table = tomllib.loads(SMALL)
    for text in overrides:
        _override(table, text)
    return parse_config(table)


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


def sartor_command(monkeypatch, capsys, *words):
    """Call the command line in this process: exit code, stdout and stderr."""
    monkeypatch.setattr("sys.argv", ["sartor", *map(str, words)])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # to be put back
    capsys.readouterr()
    try:
        with warnings.catch_warnings():
            warnings.resetwarnings()
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def strict_json(path):
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} in {path}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def events(directory):
    """The lines of a run's log."""
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def contents(directory):
    """All that must not depend on whether a run was stopped: every bit but times and dates."""
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = str(path.relative_to(directory))
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as file:
                arrays = {k: (a := file.get_tensor(k)).tobytes() + bytes(a.dtype.str, "ascii")
                          for k in file.keys()}  # fmt: skip  # noqa: SIM118
                found[name] = (file.metadata(), arrays)
        elif path.name == "results.json":
            results = strict_json(path)
            found[name] = {k: v for k, v in results.items() if k not in ("date", "wall_seconds")}
        elif path.suffix == ".parquet":
            found[name] = pq.read_table(path).to_pydict()
        elif path.name == "events.jsonl":
            rounds = [line for line in events(directory) if line["event"] == "round"]
            found[name] = [(line["round"], line["loss"]) for line in rounds]
        else:
            found[name] = None if path.suffix in (".html", ".png") else path.read_text()
    return found
