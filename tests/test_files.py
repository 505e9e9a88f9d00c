"""Files written whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sartor.errors import FileError
from sartor.files import (
    load_tree,
    read_json,
    read_metadata,
    replacing,
    save_tree,
    settled,
    sweep,
    write_atomic,
    write_json,
    writing,
)
from sartor.locks import locked_file


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def anything(path):
    return True


def test_what_kills_have_left_beside_a_directory_is_removed(tmp_path):
    for name in (".a-0123abcd.new", ".a-0123abcd.part", ".a-1-0123abcd.new", ".a-89abcdef.old"):
        write_atomic(tmp_path / name / "file", "left")
    with replacing(tmp_path / "a", anything) as folder:
        assert (tmp_path / "a" / "file").read_text() == "left"  # the old one, until the end
        write_atomic(folder / "new", "")
    assert sorted(os.listdir(tmp_path)) == [".a-1-0123abcd.new", "a"]
    assert os.listdir(tmp_path / "a") == ["new"]


def test_a_directory_that_is_being_replaced_is_left_to_its_writer(tmp_path):
    """Another thread or process reads it between the two renames."""
    old, new = (tmp_path / f".a-0123abcd.{end}" for end in ("old", "new"))
    old.mkdir()
    new.mkdir()
    with ThreadPoolExecutor() as pool:
        with locked_file(tmp_path / "a"):
            pool.submit(settled, tmp_path / "a").result()
            assert old.exists() and new.exists()
        assert pool.submit(settled, tmp_path / "a").result().is_dir()
    assert os.listdir(tmp_path) == ["a"]
    assert not settled(tmp_path / "b" / "c").exists() and os.listdir(tmp_path) == ["a"]


def test_text_and_bytes(tmp_path):
    path = tmp_path / "deep" / "down" / "file"
    write_atomic(path, "日本\n")
    assert path.read_bytes() == "日本\n".encode()
    write_atomic(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(path.parent) == ["file"]


def test_files_are_as_readable_as_any_other(tmp_path):
    mask = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", "")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, step, error
):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises((FileError, KeyboardInterrupt)) as raised:
        write_atomic(path, "new")
    if isinstance(error, OSError):
        assert f"cannot write {path}: No space left; what was there" in str(raised.value)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_file_in_pieces_is_whole_or_not_there(tmp_path):
    with writing(tmp_path / "file") as file:
        for piece in (b"in ", b"pieces"):
            file.write(piece)
        assert not (tmp_path / "file").exists()

    def failing(error):
        with writing(tmp_path / "file") as file:
            file.write(b"new")
            raise error

    for error in (ZeroDivisionError(), FileError("of the block")):
        with pytest.raises(type(error)) as raised:
            failing(error)
        assert raised.value is error
    assert (tmp_path / "file").read_bytes() == b"in pieces" and os.listdir(tmp_path) == ["file"]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "full").mkdir(parents=True)
    for path in (tmp_path / "file" / "below", tmp_path / "folder"):
        with pytest.raises(FileError, match=f"cannot write {path}"):
            write_atomic(path, "x")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_json_is_utf8_whatever_the_locale(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"ü": [1, None, "日本"]})
    assert "日本" in path.read_bytes().decode("utf-8")
    assert read_json(path) == {"ü": [1, None, "日本"]}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"a": 1}}'])
def test_damaged_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"a\.json is not readable JSON"):
        read_json(path)
    with pytest.raises(FileError, match="does not exist"):
        read_json(tmp_path / "absent.json")


TREE = {"a": {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "b": np.array([7, 8], np.int32)}


def test_trees_are_read_back(tmp_path):
    path = tmp_path / "tree.safetensors"
    save_tree(path, TREE, {"note": "ü"})
    assert read_metadata(path) == {"note": "ü"}
    read = load_tree(path, TREE)
    np.testing.assert_array_equal(read["a"]["w"], TREE["a"]["w"])
    np.testing.assert_array_equal(read["b"], TREE["b"])
    assert read["b"].dtype == np.int32
    one = load_tree(path, {"a": {"w": TREE["a"]["w"][0]}, "b": TREE["b"][0]}, index=1)
    assert one["a"]["w"].tolist() == [3, 4, 5] and one["b"] == 8


def test_trees_of_another_model_are_refused(tmp_path):
    path = tmp_path / "tree.safetensors"
    save_tree(path, TREE, {})
    with pytest.raises(FileError, match=r"'c' has shape None there and \(2,\) in the model"):
        load_tree(path, {**TREE, "c": TREE["b"]})
    with pytest.raises(FileError, match=r"'b' has shape \(2,\) there and \(3,\) in the model"):
        load_tree(path, {**TREE, "b": np.zeros(3)})


def test_damaged_trees_are_named(tmp_path):
    path = tmp_path / "tree.safetensors"
    with pytest.raises(FileError, match=r"tree.safetensors does not exist"):
        read_metadata(path)
    save_tree(path, TREE, {})
    whole = path.read_bytes()
    for content in (b"", whole[:5], whole[:40], whole[:-1], b"\xff" * len(whole)):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"tree.safetensors is damaged or not a safetensors"):
            load_tree(path, TREE)
    with pytest.raises(FileError, match="is damaged or not a safetensors"):
        read_metadata(tmp_path)  # a directory


def fill(path, content):
    with replacing(path, anything) as folder:
        (folder / "file").write_text(content)


def test_a_directory_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "models"
    fill(path, "old")
    (path / "more").touch()
    fill(path, "new")
    assert os.listdir(tmp_path) == ["models"] and os.listdir(path) == ["file"]
    assert (path / "file").read_text() == "new"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("when", range(5))
def test_a_directory_that_fails_leaves_the_old_one(tmp_path, monkeypatch, error, when):
    """Wherever it fails: in the block, at a flush, at either of the two renames, or after them."""
    path = tmp_path / "models"
    fill(path, "old")
    calls = iter(range(100))

    def failing(real):
        def call(*arguments):
            if next(calls) == when:
                raise error
            return real(*arguments)

        return call

    for step in ("fsync", "rename"):
        monkeypatch.setattr(os, step, failing(getattr(os, step)))
    with pytest.raises((FileError, KeyboardInterrupt)) as raised:
        fill(path, "new")
    if isinstance(error, OSError):
        assert f"cannot write {path}: No space left" in str(raised.value)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["models"]
    assert (path / "file").read_text() == ("old" if when < 4 else "new")


def test_an_error_of_the_block_leaves_the_old_directory(tmp_path):
    path = tmp_path / "models"
    fill(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path, anything):
        _ = 1 / 0
    assert os.listdir(tmp_path) == ["models"] and (path / "file").read_text() == "old"


def test_foreign_directories_are_left_alone(tmp_path):
    path = tmp_path / "thesis"
    path.mkdir()
    with replacing(path, lambda p: False):  # an empty one may go
        pass
    (path / "chapter").touch()
    with (
        pytest.raises(FileError, match=r"thesis already exists and .* nothing was written"),
        replacing(path, lambda p: False),
    ):
        pass
    assert os.listdir(path) == ["chapter"]


def test_sweeping_takes_only_what_a_kill_left(tmp_path, monkeypatch):
    left = [".a.json-0123abcd.part", "deep/.models-89abcdef.new/x", "deep/.models-89abcdef.old/x"]
    kept = ["a.json", ".notes", ".a.part", ".a-xyz.new", "deep/b-0123abcd.part", ".gitignore"]
    for name in left + kept:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    sweep(tmp_path)
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == set(kept)
    # What writes really leave is among it: nothing is unlinked when the process is gone.
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        patch.setattr(type(tmp_path), "unlink", full)
        with pytest.raises(FileError):
            write_atomic(tmp_path / "new", "x")
    assert len(list(tmp_path.glob(".new-*"))) == 1
    sweep(tmp_path)
    assert not list(tmp_path.glob(".new-*"))
