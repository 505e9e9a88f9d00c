"""Damage: a flipped bit gives the very same values or a clear error, and never other values."""

from __future__ import annotations

import json
import random
import re
import shutil

import numpy as np
import pytest
from damage_cases import KINDS, mutations, save_all, unsealed
from run_cases import SMALL, config, write

import sartor
from sartor import files
from sartor.central.checkpoint import saved_round
from sartor.data import open as opened
from sartor.documents import DEPTH
from sartor.errors import ConfigError, FileError, SartorError
from sartor.files import load_arrays, read_metadata, save_tree
from sartor.personal.store import Shard
from sartor.runs import read_config, run
from sartor.runs.record import Events


@pytest.fixture(scope="module")
def saved(tmp_path_factory, finished):
    """One of each kind of directory that Sartor writes."""
    return save_all(tmp_path_factory.mktemp("saved"), finished.directory)


def complaint(holds):
    """The error of ours that something ends with; it must hold if there is none."""
    try:
        assert holds()
    except SartorError as error:
        return str(error)
    return None


def flip(kind, saved, tmp_path, flips):
    """Flip one bit at a time, at random places; how often it was noticed."""
    folder, name, read = KINDS[kind]
    path = shutil.copytree(saved / folder, tmp_path / "copy", symlinks=True)
    expected, whole = read(path), (path / name).read_bytes()
    draw, noticed = random.Random(kind), 0
    for _ in range(flips):
        content = bytearray(whole)
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        content[at] ^= 1 << bit
        (path / name).write_bytes(content)
        for verified in files._sound.values():  # as if in a new process
            verified.clear()
        said = complaint(lambda: read(path) == expected)
        assert said is None or (name in said or "SHA256SUMS" in said), (at, bit, said)
        assert said is None or re.search("restore|make|run it again", said), (at, bit, said)
        noticed += said is not None
    return noticed


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_harmless_or_an_error_that_names_the_file(kind, saved, tmp_path):
    assert flip(kind, saved, tmp_path, 40) > 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_flipped_bits(kind, saved, tmp_path):
    assert flip(kind, saved, tmp_path, 2000) > 500


def test_a_damaged_checkpoint_or_shard_stops_a_resumed_run_before_it_writes(finished, tmp_path):
    for name in ("checkpoint/central.safetensors", "models/Local/shard-00000.safetensors"):
        out = shutil.copytree(finished.directory, tmp_path / name.replace("/", "-"))
        content = bytearray((out / name).read_bytes())
        content[-3] ^= 4
        (out / name).write_bytes(content)
        log = (out / "events.jsonl").read_bytes()
        with pytest.raises(FileError, match=rf"{name} is damaged.*or delete it and run the same"):
            run(config(), out, resume=True)
        if name.startswith("checkpoint"):
            assert (out / "events.jsonl").read_bytes() == log
        (out / name).unlink()  # as the error says
        again = run(config(), out, resume=True)
        assert again.results["methods"] == finished.results["methods"]


def test_what_is_deleted_is_made_anew_by_a_resumed_run(finished, tmp_path):
    out = shutil.copytree(finished.directory, tmp_path / "run")
    expected = (out / "per_client.parquet").read_bytes()
    for pattern in ("models/Local/shard-*", "models/central/*", "results.json", "models/*/*"):
        for path in list(out.glob(pattern)):
            path.unlink()
        run(config(), out, resume=True)
        assert (out / "per_client.parquet").read_bytes() == expected
        assert len(sartor.load(out / "models" / "Local")) == len(finished.scores[0])


@pytest.mark.parametrize("kind", ["manifest", "manifest of clients", "data"])
def test_files_of_earlier_versions_are_read(kind, saved, tmp_path):
    folder, name, read = KINDS[kind]
    path = shutil.copytree(saved / folder, tmp_path / "copy")
    (path / name).write_text(json.dumps(unsealed(path / name)))
    for file in path.glob("*.safetensors"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "_verify", lambda *_: None)
            stripped = load_arrays(file, ""), read_metadata(file)
        file.write_bytes(files.to_safetensors(*stripped))
    assert read(path) == read(saved / folder)


def edit(kind, saved, tmp_path, count):
    """Edit a manifest: all edits show by its digest, and without one no edit gives a traceback."""
    folder, name, read = KINDS[kind]
    path = shutil.copytree(saved / folder, tmp_path / "copy")
    expected, sealed = read(path), json.loads((path / name).read_text())
    for tree, show in ((sealed, True), (unsealed(path / name), False)):
        every = list(mutations(tree))
        for changed in random.Random(0).sample(every, min(count, len(every))):
            (path / name).write_text(json.dumps(changed))
            said = complaint(lambda: read(path) == expected or not show)  # noqa: B023
            same = json.dumps(changed) == json.dumps(sealed)  # True is 1 for Python, not for JSON
            assert not show or (said is None) == same, changed


@pytest.mark.parametrize("kind", ["manifest", "manifest of clients", "data"])
def test_edited_manifests_are_refused_or_read(kind, saved, tmp_path):
    edit(kind, saved, tmp_path, 150)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["manifest", "manifest of clients", "data"])
def test_all_edits_of_manifests(kind, saved, tmp_path):
    edit(kind, saved, tmp_path, 10_000)


def test_clients_that_are_there_twice_are_refused(saved, tmp_path):
    path = shutil.copytree(saved / "mapper", tmp_path / "copy")
    text = json.dumps(unsealed(path / "manifest.json"))
    (path / "manifest.json").write_text(text.replace('"client 1"', '"client 0"'))
    with pytest.raises(FileError, match=r"manifest.json .*'client 0' is there twice"):
        sartor.load(path)


@pytest.mark.parametrize("depth", [DEPTH + 5, 900, 100_000])
def test_deep_files_are_refused(depth, saved, tmp_path, sartor):
    deep = "[" * depth + "]" * depth
    for kind in ("manifest", "data", "results"):
        folder, name, read = KINDS[kind]
        path = shutil.copytree(saved / folder, tmp_path / kind)
        (path / "SHA256SUMS").unlink(missing_ok=True)
        (path / name).write_text(deep)
        with pytest.raises(FileError, match=rf"{name} .*nested more than {DEPTH} levels deep"):
            read(path)
    leaf = write(tmp_path / "leaf" / "train" / "a.json", deep)
    with pytest.raises(FileError, match=r"a.json"):
        opened(leaf.parent.parent)
    small = write(tmp_path / "small.toml", f"seed = {deep}")
    with pytest.raises(ConfigError, match=rf"small.toml .*nested more than {DEPTH} levels deep"):
        read_config(small)
    write(small, SMALL)
    code, _, err = sartor("run", small, "--set", f"seed={deep}", "--out", tmp_path / "out")
    assert code == 1 and err.startswith("error: seed must be a whole number")
    log = write(tmp_path / "events.jsonl", json.dumps({"event": "started", "time": "never"}))
    for text in ("3", "null", '{"event": 3}', f'{{"event": {deep}}}', log.read_text()):
        assert Events(write(log, text)).elapsed() == 0
        Events(log).start(3)
    checkpoint = tmp_path / "central.safetensors"
    save_tree(checkpoint, {"w": np.zeros(2)}, {"round": "3", "identity": deep})
    with pytest.raises(FileError, match="is not a checkpoint of Sartor"):
        saved_round(checkpoint)
    shard = tmp_path / "shard-00000.safetensors"
    for clients in (deep, "3", "[3]", '["a", "a"]'):
        save_tree(shard, {"w": np.zeros(2)}, {"clients": clients})
        with pytest.raises(FileError, match=r"is not a shard of client models .*; delete it"):
            Shard.at(shard)
