"""Areas of files: data in every format, and damage to what Sartor writes."""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from damage_cases import KINDS, mutations, save_all
from data_cases import contents
from fuzz_data import ROLES, columns_of
from known import Known, check, known
from outcomes import Case, chance, may_refuse, must_refuse, pick, refuses, same, sure
from run_cases import blank_figures, config
from test_sqlite import packed, write_hdf5, write_tff

import sartor
from sartor import files as sartor_files
from sartor.runs import run

Rng = np.random.Generator
Parts = dict[str, dict[str, dict[str, np.ndarray]]]


def files(rng: Rng, scratch: Path) -> None:
    """What is in a file comes out of it, mapped or not; a damaged file is refused or read."""
    if chance(rng, 0.5):
        table_file(rng, scratch)
    else:
        federated_file(rng, scratch)


def table_file(rng: Rng, scratch: Path) -> None:
    """CSV and Parquet."""
    table = known(rng, ids=pick(rng, ["words", "odd", "numbers", "negative"]))
    table.y = [{"0": "zero"}.get(word, word) for word in table.y]  # else CSV might hold numbers
    frame = pd.DataFrame(columns_of(table))
    if chance(rng, 0.5):
        path = scratch / pick(rng, ["t.csv", "T.CSV", "ü b.csv"])
        how = {"quoting": pick(rng, [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
               "lineterminator": pick(rng, ["\n", "\r\n"]),
               "encoding": pick(rng, ["utf-8", "utf-8-sig"])}  # fmt: skip
        frame.to_csv(path, index=False, **how)
    else:
        path = scratch / pick(rng, ["t.parquet", "no ending"])
        arrow = pa.Table.from_pandas(frame, preserve_index=chance(rng, 0.2))
        pq.write_table(arrow, path, compression=pick(rng, ["none", "snappy", "zstd"]),
                       row_group_size=int(rng.integers(1, 50)),
                       use_dictionary=chance(rng, 0.5))  # fmt: skip
    features = [name for name in frame.columns if name.startswith("f")]
    roles = {**ROLES, "features": features}
    del roles["groups"]
    if chance(rng, 0.3):
        damage_bytes(rng, path)
        with may_refuse():
            sartor.data.open(path, **roles)
        return
    if chance(rng, 0.15):
        role = pick(rng, ["client", "label"])
        with must_refuse(f"a table without {role}"):
            sartor.data.open(path, **{k: v for k, v in roles.items() if k != role})
    breaks = path.suffix.lower() == ".csv" and any("\n" in client for client in table.ids)
    with may_refuse() if breaks else contextlib.nullcontext():  # lines inside of quotes
        data = opened(rng, path, scratch, roles)
    check(data, table)
    same("times", data.time, table.time)


def opened(rng: Rng, path: Path, scratch: Path, roles: dict[str, Any] | None = None) -> Any:
    """The data of a file; in memory, or mapped and the same."""
    data = sartor.data.open(path, **roles or {})
    if chance(rng, 0.3):
        mapped = sartor.data.open(path, memory_limit=0, cache=scratch / "cache", **roles or {})
        same("mapped", contents(mapped), contents(data))
        return sartor.data.open(path, memory_limit=0, cache=scratch / "cache", **roles or {})
    return data


def federated(rng: Rng) -> tuple[Known, Parts]:
    """Clients with training and test rows of three inputs that are no pixels."""
    table = known(rng, kind="numbers", features=3, ids=pick(rng, ["words", "numbers"]))
    table.x = table.x / 7
    whose = np.array(table.ids)
    parts: Parts = {"train": {}, "test": {}}
    for client in dict.fromkeys(table.ids):
        found = np.flatnonzero(whose == client)
        cut = int(rng.integers(1, len(found) + 1))
        for part, rows in (("train", found[:cut]), ("test", found[cut:])):
            if len(rows):
                label = np.array(table.y)[rows].astype(np.int32)
                parts[part][client] = {"pixels": table.x[rows].astype(np.float32), "label": label}
    return table, {part: clients for part, clients in parts.items() if clients}


def write_fedjax(folder: Path, parts: Parts) -> Path:
    """SQLite as FedJAX has it."""
    for part, clients in parts.items():
        with contextlib.closing(sqlite3.connect(folder / f"toy_{part}.sqlite")) as file, file:
            file.execute("CREATE TABLE federated_data (client_id BLOB, data BLOB, num_examples)")
            rows = [(c.encode(), packed(a), len(a["label"])) for c, a in clients.items()]
            file.executemany("INSERT INTO federated_data VALUES (?, ?, ?)", rows)
    return folder


def write_leaf(folder: Path, parts: Parts) -> Path:
    """LEAF's JSON."""
    for part, clients in parts.items():
        (folder / part).mkdir()
        content = {
            "users": list(clients),
            "num_samples": [len(a["label"]) for a in clients.values()],
            "user_data": {c: {"x": a["pixels"].tolist(), "y": a["label"].tolist()}
                          for c, a in clients.items()},
        }  # fmt: skip
        (folder / part / "data.json").write_text(json.dumps(content))
    return folder


WRITERS: dict[str, Any] = {
    "hdf5": write_hdf5, "leaf": write_leaf, "fedjax": write_fedjax,
    "sqlite": lambda folder, parts: write_tff(folder / "toy.sqlite", parts),
}  # fmt: skip
"""Other people's formats, each written by hand."""


def federated_file(rng: Rng, scratch: Path) -> None:
    """The formats of TensorFlow Federated, FedJAX and LEAF; and from each to each."""
    _, parts = federated(rng)
    folder = scratch / "made"
    folder.mkdir()
    path = WRITERS[pick(rng, WRITERS)](folder, parts)
    if chance(rng, 0.35):
        victim = pick(rng, [f for f in sorted(folder.rglob("*")) if f.is_file()])
        damage_bytes(rng, victim)
        with may_refuse():
            sartor.data.open(path)
        return
    data = opened(rng, path, scratch)
    check_parts(data, parts)
    form = pick(rng, ["hdf5", "sqlite", "fedjax", "leaf", "sartor"])
    with may_refuse():  # some formats have no place for some data
        sartor.data.convert(data, scratch / "converted", form)
    check_parts(sartor.data.open(scratch / "converted"), parts)
    with refuses("a directory that is there"):
        sartor.data.convert(data, folder, form)


def check_parts(data: Any, parts: Parts) -> None:
    """Every client has its rows in every part."""
    same("clients", set(data.ids), set(parts["train"]))
    for client in data.ids:
        for part in ("train", "test"):
            found = data.client(client, part)
            wanted = parts.get(part, {}).get(client)
            same(f"{part} rows of {client!r}", len(found["y"]), 0 if wanted is None else
                 len(wanted["label"]))  # fmt: skip
            if wanted is not None:
                same(f"{part} labels of {client!r}", found["y"], wanted["label"])
                same(f"{part} inputs of {client!r}", found["x"], wanted["pixels"])


def damage_bytes(rng: Rng, path: Path) -> str:
    """Change the bytes of a file; in which way."""
    content = bytearray(path.read_bytes())
    way = pick(rng, ["flip", "flip", "flip", "cut", "zeros", "longer", "empty", "twice", "noise"])
    at, end = sorted(rng.integers(0, max(len(content), 1), 2).tolist())
    if way == "flip":
        for place in rng.integers(0, max(len(content), 1), int(rng.integers(1, 4))).tolist():
            content[place] ^= 1 << int(rng.integers(8))
    elif way == "cut":
        del content[at:]
    elif way == "zeros":
        content[at : min(end, at + 64)] = bytes(min(end, at + 64) - at)
    elif way == "longer":
        content += rng.bytes(int(rng.integers(1, 20)))
    elif way == "empty":
        content.clear()
    elif way == "twice":
        content[at:at] = content[at:end]
    else:
        content[at : at + 8] = rng.bytes(8)
    path.unlink()  # perhaps a link to something that others read
    path.write_bytes(bytes(content))
    return way


@functools.cache
def saved() -> Path:
    """One of each kind of directory that Sartor writes."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-saved-"))
    with blank_figures():
        run(config(), folder / "finished", progress=False)
    return save_all(folder, folder / "finished")


@functools.cache
def sound(kind: str) -> Any:
    """What is read from a directory that is whole."""
    folder, _, read = KINDS[kind]
    return read(saved() / folder)


def damage(rng: Rng, scratch: Path) -> None:
    """Damage to anything that Sartor wrote is refused, or changes nothing."""
    if chance(rng, 0.06):
        return resumed(rng, scratch)
    kind = pick(rng, KINDS)
    folder, name, read = KINDS[kind]
    path = shutil.copytree(saved() / folder, scratch / "copy", symlinks=True)
    way = pick(rng, ["bytes"] * 6 + ["missing", "a directory", "another file", "edited"])
    if way == "edited" and name.endswith(".json"):
        edits = list(mutations(json.loads((path / name).read_text())))
        (path / name).write_text(json.dumps(pick(rng, edits)))
    elif way == "missing" and kind == "configuration":
        return  # a report can do without
    elif way in ("missing", "a directory"):
        (path / name).unlink()
        if way == "a directory":
            (path / name).mkdir()
    elif way == "another file" and kind not in ("checkpoint", "trials", "joint rounds"):
        others = [f for f in sorted(path.iterdir()) if f.is_file() and f.name != name]
        if others:
            shutil.copyfile(pick(rng, others), path / name)
    else:
        way = damage_bytes(rng, path / name)
    forget()
    whole = sound(kind)
    forget()
    with may_refuse():
        found = read(path)
    sure(found == whole, f"{kind}, {way}: other values")


def forget() -> None:
    """As if in a new process, which has verified nothing."""
    for verified in sartor_files._sound.values():
        verified.clear()


def resumed(rng: Rng, scratch: Path) -> None:
    """A run whose directory is damaged ends as it did before, or is refused."""
    out = shutil.copytree(saved() / "finished", scratch / "run")
    files = [f for f in sorted(out.rglob("*")) if f.is_file()]
    victim = pick(rng, files)
    if chance(rng, 0.3):
        victim.unlink()
    else:
        damage_bytes(rng, victim)
    forget()
    with may_refuse(), blank_figures():
        again = run(config(), out, resume=True, progress=False)
    before = json.loads((saved() / "finished" / "results.json").read_text())
    same(f"results after damage to {victim.name}", again.results["methods"], before["methods"])


AREAS: dict[str, tuple[int, Case]] = {"files": (1000, files), "damage": (900, damage)}
