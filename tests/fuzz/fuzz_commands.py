"""The area of command lines: each ends with an answer, an error in words or how to use it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
from fuzz_data import columns_of
from fuzz_files import saved
from known import Known, known
from outcomes import REMEDY, Case, Refused, chance, pick, same, sure
from run_cases import SMALL, blank_figures

import sartor
from sartor import cli

Rng = np.random.Generator


class Answer(NamedTuple):
    """What a command has said."""

    code: int
    out: str
    err: str


def command(*words: Any) -> Answer:
    """Call the command line in this process. It never shows a traceback."""
    out, err = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(), blank_figures(), contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err), mock.patch("sys.argv", ["sartor", *map(str, words)]),
    ):  # fmt: skip
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    answer = Answer(code, out.getvalue(), err.getvalue())
    sure("Traceback" not in answer.out + answer.err, f"{words}: {answer.err}")
    if code == 1:
        sure(re.search(r"^error: .", answer.err, re.M), f"{words}: exit 1 with {answer.err!r}")
        sure(REMEDY.search(answer.err), f"{words} says not what to do: {answer.err!r}")
    elif code == 2:
        shown = answer.out + answer.err
        sure("Usage" in shown or "─ Error ─" in shown, f"{words}: exit 2 with {shown!r}")
    else:
        sure(code == 0, f"{words}: exit {code}")
    return answer


def good(*words: Any) -> str:
    """What a command says that must work."""
    answer = command(*words)
    sure(answer.code == 0, f"{words} ended with {answer.code}: {answer.err!r:.300}")
    return answer.out


def csv_file(rng: Rng, scratch: Path) -> tuple[Known, Path, list[str]]:
    """A table in a file, and the options that say what its columns are."""
    table = known(rng, kind=pick(rng, ["numbers", "floats"]), ids="words",
                  clients=int(rng.integers(2, 7)))  # fmt: skip
    path = scratch / "table.csv"
    pd.DataFrame(columns_of(table)).to_csv(path, index=False)
    features = [word for j in range(table.x.shape[1]) for word in ("--features", f"f{j}")]
    return table, path, ["--client", "who", "--label", "y", *features]


def info(rng: Rng, scratch: Path) -> None:
    """`data info` counts what is there."""
    table, path, columns = csv_file(rng, scratch)
    out = good("data", "info", path, *columns)
    facts = {name.strip(): text for name, text in re.findall(r"^(\S.*?)  +(.*)$", out, re.M)}
    clients, counts = np.unique(table.ids, return_counts=True)
    sure(facts["clients"].startswith(f"{len(clients)} ("), facts)
    sure(facts["examples"].startswith(f"{len(table.who)} ("), facts)
    sure(f"least {counts.min()}" in facts["examples of a client"], facts)
    sure(f"most {counts.max()}" in facts["examples of a client"], facts)
    if table.kind == "numbers":
        for label, count in zip(*np.unique(table.y, return_counts=True), strict=True):
            sure(re.search(rf"\b{label} {count}\b", facts["labels"]), facts)


def convert(rng: Rng, scratch: Path) -> None:
    """`data convert` writes what it reads."""
    table, path, columns = csv_file(rng, scratch)
    form = pick(rng, ["hdf5", "sqlite", "fedjax", "leaf", "sartor"])
    answer = command("data", "convert", path, scratch / "out", "--to", form, *columns)
    if answer.code == 1:
        raise Refused(answer.err)
    data = sartor.data.open(scratch / "out")
    whose, labels = np.array(table.ids), table.labels
    for client in data.ids:
        rows = whose == client
        same("labels", sorted(data.client(client)["y"].tolist()), sorted(labels[rows].tolist()))
    same("examples", len(data.rows), len(table.who))


def settings(rng: Rng, scratch: Path) -> None:
    """`settings` lists every setting with its default."""
    names = ["FedAvg", "Agnostic", "HypCluster", "KMeansClusters", "Local", "Dapper", "Mapper"]
    name = pick(rng, names)
    out = good("settings", name.lower() if chance(rng, 0.5) else name)
    for field in dataclasses.fields(getattr(sartor, name)):
        sure(f"  {field.name} = " in out, f"settings {name} without {field.name}")


def runs(rng: Rng, scratch: Path) -> None:
    """`run` runs, refuses to overwrite, resumes to the same numbers; `report` shows them."""
    file, out = scratch / "small.toml", scratch / "out"
    file.write_text(SMALL)
    seed, rounds = int(rng.integers(9)), int(rng.integers(1, 13))
    words = ["run", file, "--out", out, "--set", f"seed={seed}"]
    words += ["--set", f"central.rounds={rounds}"]
    said = good(*words)
    results = json.loads((out / "results.json").read_text())
    same("methods", list(results["methods"]), ["FedAvg", "Finetune", "Local"])
    same("seed", results["seed"], seed)
    same("rounds", len(results["training_loss"]), rounds)
    sure(str(out) in said, said)
    same("once more", command(*words).code, 1)
    good(*words, "--resume")
    again = json.loads((out / "results.json").read_text())
    same("resumed", again["methods"], results["methods"])
    good("report", out, "--out", scratch / "page.html")
    sure((scratch / "page.html").stat().st_size > 1000, "an empty report")


WORDS: list[Any] = [
    "run", "advise", "settings", "report", "data", "info", "convert", "reproduce", "bounds",
    "--out", "--set", "--resume", "--help", "--version", "--import", "--client", "--label", "--to",
    "--features", "--seed", "--folds", "-x", "", " ", "x", "central.rounds=0", "a.b=c", "=", "hdf5",
    "1", "-1", "nan", "é", "who", "y", "FedAvg", "--quick", "\\", "'", "[", "no_module", "../..",
    "/dev/null", "/proc/nowhere", "--model", "logistic", "--delta", "2", "a" * 300, "--domain",
]  # fmt: skip


def words(rng: Rng, scratch: Path) -> None:
    """Any words end with an answer, an error or how to use it."""
    table = csv_file(rng, scratch)[1]
    (scratch / "small.toml").write_text(SMALL)
    (scratch / "odd.toml").write_bytes(rng.bytes(30))
    there = [table, scratch, scratch / "small.toml", scratch / "odd.toml", scratch / "nothing"]
    if chance(rng, 0.2):
        there.append(shutil.copytree(saved() / "finished", scratch / "run"))
    first = pick(rng, [["run"], ["settings"], ["report"], ["data", "info"], ["data", "convert"],
                       ["data"], ["advise"], ["reproduce"], []])  # fmt: skip
    given = [pick(rng, [*WORDS, *there * 3]) for _ in range(int(rng.integers(0, 5)))]
    text = [str(word) for word in (*first, *given)]
    long = ("advise", "reproduce", "download")  # which take minutes if they are well asked
    if any(word in text for word in long):
        text.append(pick(rng, ["--help", "--no-such-option"]))
    answer = command(*text)
    if answer.code:
        raise Refused(answer.err)


def commands(rng: Rng, scratch: Path) -> None:
    """One of the above."""
    ways = {words: 0.5, info: 0.15, settings: 0.1, convert: 0.15, runs: 0.1}
    way = list(ways)[int(rng.choice(len(ways), p=list(ways.values())))]
    way(rng, scratch)


AREAS: dict[str, tuple[int, Case]] = {"commands": (600, commands)}
