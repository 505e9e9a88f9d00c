"""Directories to damage: one of each kind that Sartor writes, and how they are read."""

from __future__ import annotations

import copy
import json
import shutil

import numpy as np

import sartor
from sartor.documents import DEPTH
from sartor.files import load_arrays, read_metadata
from sartor.report.record import Record

MODEL = sartor.models.mlp(2, (3,), classes=2)
LOCAL = sartor.models.logistic(2, classes=2)
X = np.random.default_rng(1).standard_normal((5, 2)).astype(np.float32)


def save_all(folder, finished):
    """One of each kind of directory that Sartor writes; the run is a copy of a finished one."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((36, 2)).astype(np.float32), np.arange(36) % 2
    ids = [f"client {k}" for k in range(4)]
    data = sartor.data.from_arrays(x, y, np.repeat(ids, 9), domain=np.repeat(["a", "b"], 18))
    data = data.split(validation=0.2, test=0.2)
    data.save(folder / "data")
    clusters = sartor.central.KMeansClusters(rounds=2, q=2).fit(MODEL, data)
    clusters.save(folder / "clusters")
    mapper = sartor.Mapper(local=LOCAL, rounds=1, epochs=1, cover=(0.0, 0.5, 1.0), guard=True)
    mapper.fit(clusters, data, directory=folder / "mapper").save(folder / "mapper")
    shutil.copytree(finished, folder / "run")
    return folder


def arrays(path):
    """All that is in a safetensors file."""
    found = {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in load_arrays(path, "").items()}
    return read_metadata(path), found


def predictions(path):
    """What models from a directory predict."""
    models = sartor.load(path)
    if isinstance(models, sartor.CentralModel):
        rule = None if models.rule is None else models.rule.to_dict()
        return [models.predict_proba(X, k).tobytes() for k in range(models.q)], rule
    return [models.predict_proba(f"client {k}", X).tobytes() for k in range(4)], models.clients


def report(path):
    """What a report is made from."""
    record = Record.read(path)
    return record.results, record.config, record.clients()


def examples(path):
    """All that is in a data set."""
    data = sartor.data.open(path)
    metadata = {name: values.tolist() for name, values in data.metadata.items()}
    return data.fingerprint, data.ids, metadata, data.label_names, data.feature_names


def own(read, name):
    """A reader of one file of a directory."""
    return lambda path: read(path / name)


KINDS = {
    "checkpoint": ("run/checkpoint", "central.safetensors", own(arrays, "central.safetensors")),
    "trials": ("mapper", "trials.safetensors", own(arrays, "trials.safetensors")),
    "joint rounds": ("mapper", "joint.safetensors", own(arrays, "joint.safetensors")),
    "central model": ("clusters", "central.safetensors", predictions),
    "manifest": ("clusters", "manifest.json", predictions),
    "baseline": ("mapper", "baseline.safetensors", predictions),
    "shard": ("mapper", "shard-00000.safetensors", predictions),
    "manifest of clients": ("mapper", "manifest.json", predictions),
    "results": ("run", "results.json", report),
    "configuration": ("run", "config.toml", report),
    "table of clients": ("run", "per_client.parquet", report),
    "checksums": ("run", "SHA256SUMS", report),
    "data": ("data", "data.json", examples),
    "rows": ("data", "rows.npy", examples),
    "bounds": ("data", "bounds.npy", examples),
    "seen": ("data", "seen.npy", examples),
    "column": ("data", "column-0.npy", examples),
}
"""By what is damaged: the directory, the file, and how the directory is read."""


def unsealed(path):
    """The manifest without digests, as an earlier version wrote it."""
    content = json.loads(path.read_text())
    return {key: value for key, value in content.items() if key not in ("files", "digest")}


DEEP = json.loads("[" * (DEPTH - 8) + "]" * (DEPTH - 8))
INSTEAD = [None, [], {}, 3, -1, 1e300, 10**30, "x", True, [[1], 2], {"name": "x"}, DEEP]


def nodes(tree, place=()):
    """The places of all values in a tree; of a long list or table of clients only the first two."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(inside) if "clients" not in place else list(inside)[:2]:
        yield (*place, key)
        if isinstance(value, dict | list):
            yield from nodes(value, (*place, key))


def mutations(tree):
    """The tree with any one value replaced, doubled into a list, or removed."""
    for *above, key in nodes(tree):
        for value in (*INSTEAD, "removed", "nested"):
            changed = copy.deepcopy(tree)
            holder = changed
            for step in above:
                holder = holder[step]
            if value == "removed":
                del holder[key]
            else:
                holder[key] = [holder[key]] if value == "nested" else value
            yield changed
