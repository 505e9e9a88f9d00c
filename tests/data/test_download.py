"""Downloading from a server of our own: whole, cut, refused, damaged, or not needed at all."""

from __future__ import annotations

import bz2
import errno
import hashlib
import importlib
import io
import re
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_sqlite import same, write_hdf5, writers

import sartor
from sartor.data.download import SOURCES, Source, download
from sartor.errors import ConfigError, FileError

FILES = ("fed_emnist_train.h5", "fed_emnist_test.h5")
module = importlib.import_module("sartor.data.download")  # the name is the function's elsewhere


class Handler(BaseHTTPRequestHandler):
    """Sends the server's content, as its settings say."""

    def do_GET(self):
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        time.sleep(server.delay)
        if server.status != 200:
            self.send_error(server.status)
            return
        content, start = server.content, 0
        if asked and server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(content):
                self.send_error(416)
                return
            start = server.ranges if server.ranges > 1 else start
        self.send_response(206 if asked and server.ranges else 200)
        if asked and server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.content, server.cut, server.status, server.delay = b"", None, 200, 0
        server.ranges, server.length, server.asked = 1, True, []
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """What the archive holds: images of a few writers, under the names of the real files."""
    folder = tmp_path_factory.mktemp("members")
    write_hdf5(folder, writers())
    return {
        f"fed_emnist_{part}.h5": (folder / f"toy_{part}.h5").read_bytes()
        for part in ("train", "test")
    }


def packed(members, links=()):
    """An archive with such members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:bz2") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


@pytest.fixture
def offer(server, monkeypatch):
    """Put an archive on the server, as the source of "emnist"."""

    def put(content, **changes):
        server.content = content
        facts = {
            "url": f"http://127.0.0.1:{server.server_port}/fed_emnist.tar.bz2",
            "sha256": hashlib.sha256(content).hexdigest(),
            "files": FILES,
            "clients": 3,
        }
        monkeypatch.setitem(SOURCES, "emnist", Source(**facts | changes))
        return content

    return put


@pytest.fixture
def archive(offer, members):
    return offer(packed(members))


def check(folder, tmp_path, members):
    """The directory is what was packed, with nothing unfinished left in it."""
    assert folder == tmp_path / "cache" / "fed_emnist"
    assert {name: (folder / name).read_bytes() for name in FILES} == members
    assert {file.name for file in folder.iterdir()} <= {*FILES, "fed_emnist.tar.bz2"}


def test_what_the_real_source_is():
    source = SOURCES["emnist"]
    assert source.url.startswith("https://") and source.archive == "fed_emnist.tar.bz2"
    assert re.fullmatch(r"[0-9a-f]{64}", source.sha256) and source.files == FILES


@pytest.mark.parametrize("length", [True, False])
def test_fresh_and_then_without_a_network(server, offer, members, tmp_path, capsys, length):
    offer(packed(members))
    server.length = length
    folder = download("emnist", tmp_path / "cache", progress=True)
    check(folder, tmp_path, members)
    assert "fed_emnist.tar.bz2, MB" in capsys.readouterr().err
    expected = write_hdf5(tmp_path, writers())
    same(sartor.data.open(folder), sartor.data.open(expected))
    assert download("emnist", tmp_path / "cache") == folder
    assert server.asked == [None]


def test_a_cut_connection_is_gone_on_with(server, archive, members, tmp_path):
    server.cut = 1000
    with pytest.raises(FileError, match=rf"cut after 1,000 of {len(archive):,} bytes, .* kept"):
        download("emnist", tmp_path / "cache")
    server.cut = 3000
    with pytest.raises(FileError, match="cut after 3,000 of"):
        download("emnist", tmp_path / "cache")
    server.cut = None
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == [None, "bytes=1000-", "bytes=3000-"]


@pytest.mark.parametrize("ranges", [0, 500])
def test_a_server_that_does_not_go_on_where_asked(server, archive, members, tmp_path, ranges):
    """It sends all from the start, or from somewhere else."""
    put(tmp_path, "fed_emnist.tar.bz2.part", archive[:1000])
    server.ranges = ranges
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == ["bytes=1000-", *([None] if ranges else [])]


def test_a_part_that_is_whole_or_too_long(server, archive, members, tmp_path):
    put(tmp_path, "fed_emnist.tar.bz2.part", archive)
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == []
    put(tmp_path / "other", "fed_emnist.tar.bz2.part", archive + b"more")
    check(download("emnist", tmp_path / "other" / "cache"), tmp_path / "other", members)
    assert server.asked == [f"bytes={len(archive) + 4}-", None]


def put(tmp_path, name, content):
    """A file where downloads are kept."""
    file = tmp_path / "cache" / "fed_emnist" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("start", [b"", b"something else"])
def test_a_wrong_hash_removes_what_came(server, offer, members, tmp_path, start):
    content = offer(packed(members), sha256="0" * 64)
    part = put(tmp_path, "fed_emnist.tar.bz2.part", start)
    with pytest.raises(FileError, match=r"SHA-256 [0-9a-f]{64} instead of 0{64} and was removed"):
        download("emnist", tmp_path / "cache")
    assert list(part.parent.iterdir()) == []
    assert len(server.asked) == 1 and len(content) > len(start)


def helps(error, tmp_path):
    """Everything that somebody without a network needs, in one line."""
    text = str(error)
    folder = tmp_path / "cache" / "fed_emnist"
    words = [SOURCES["emnist"].url, "put fed_emnist.tar.bz2 into", str(folder)]
    words += [name for name in FILES if not (folder / name).exists()]
    words += ["--data DIR", "--data generated"]
    assert all(word in text for word in words) and "\n" not in text
    return True


@pytest.mark.parametrize("status, words", [(404, "404: Not F"), (416, "416: "), (503, "503: Serv")])
def test_servers_that_refuse(server, archive, tmp_path, status, words):
    server.status = status
    with pytest.raises(FileError, match=f"HTTP Error {words}") as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path)


def test_no_server_and_no_tls(server, offer, archive, tmp_path):
    offer(archive, url=SOURCES["emnist"].url.replace("http", "https"))
    with pytest.raises(FileError, match=r"urlopen error .*SSL") as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path)
    server.shutdown()
    server.server_close()
    offer(archive)
    with pytest.raises(FileError, match=r"urlopen error .*refused") as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path)


def test_a_server_that_says_nothing(server, archive, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    server.delay = 0.2
    with pytest.raises(FileError, match="timed out") as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_what_came_before_a_full_disk_or_ctrl_c_is_kept(
    server, archive, members, tmp_path, monkeypatch, error
):
    class Stops:
        """A progress bar that stops the second time, so after two blocks."""

        def __init__(self, *_):
            self.calls = 0

        def update(self, _):
            self.calls += 1
            if self.calls == 2:
                raise error

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(module, "Bar", Stops)
        patch.setattr(module, "_BLOCK", 400)
        with pytest.raises((FileError, KeyboardInterrupt)) as caught:
            download("emnist", tmp_path / "cache")
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value) and helps(caught.value, tmp_path)
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == [None, "bytes=800-"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_unpacking_that_is_interrupted(server, archive, members, tmp_path, monkeypatch, error):
    """At the second file: the first is there and whole, which is not taken for all."""
    real, names = module.writing, []

    def failing(path):
        names.append(path.name)
        if len(names) == 2:
            raise error
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(module, "writing", failing)
        with pytest.raises((FileError, KeyboardInterrupt)):
            download("emnist", tmp_path / "cache")
    folder = tmp_path / "cache" / "fed_emnist"
    assert sorted(file.name for file in folder.iterdir()) == ["fed_emnist.tar.bz2", FILES[0]]
    put(tmp_path, ".fed_emnist_test.h5-0123abcd.part", b"what a kill leaves")
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == [None]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_files_cut_short_are_not_trusted(server, archive, members, tmp_path, share):
    for name, content in members.items():
        put(tmp_path, name, content if name == FILES[0] else content[: int(share * len(content))])
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert server.asked == [None]


def test_only_the_files_that_are_wanted_are_written(offer, members, tmp_path):
    odd = {"../evil": b"1", "/tmp/sartor-evil": b"2", "evil": b"3", f"../{FILES[0]}": b"4"}
    offer(packed({**odd, **{f"./{name}": content for name, content in members.items()}}))
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    assert {path.name for path in tmp_path.rglob("*")} == {
        "cache", "fed_emnist", "fed_emnist.tar.bz2", *FILES
    }  # fmt: skip


@pytest.mark.parametrize(
    "content, message",
    [
        (lambda m: packed({FILES[0]: m[FILES[0]]}), f"there is no {FILES[1]} in .*tar.bz2"),
        (
            lambda m: packed({FILES[0]: m[FILES[0]]}, [(FILES[1], "/etc/hostname")]),
            f"there is no {FILES[1]} in ",
        ),
        (lambda m: packed({f"../{name}": b"" for name in m}), f"no {FILES[1]} and no {FILES[0]}"),
        (lambda m: b"no archive", "Invalid data stream"),
        (lambda m: bz2.compress(b"no archive"), "truncated header"),
        (lambda m: packed(m)[:-1000], "file ended before"),
    ],
)
def test_archives_without_what_is_wanted(offer, members, tmp_path, content, message):
    offer(content(members))
    with pytest.raises(FileError, match=message) as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path)
    assert not (tmp_path / "cache" / "fed_emnist" / FILES[1]).exists()


def test_what_is_put_there_by_hand(server, archive, members, tmp_path):
    put(tmp_path, "fed_emnist.tar.bz2", archive)
    check(download("emnist", tmp_path / "cache"), tmp_path, members)
    for name, content in members.items():
        put(tmp_path / "files", name, content)
    check(download("emnist", tmp_path / "files" / "cache"), tmp_path / "files", members)
    other = put(tmp_path / "other", "fed_emnist.tar.bz2", archive[:-1])
    with pytest.raises(FileError, match=r"bz2 is cut short, .* SHA-256 .*: remove it"):
        download("emnist", tmp_path / "other" / "cache")
    assert other.read_bytes() == archive[:-1]  # not ours
    assert server.asked == []


def test_two_at_once_fetch_it_once(server, archive, members, tmp_path):
    server.delay, found = 0.05, []
    threads = [
        threading.Thread(target=lambda: found.append(download("emnist", tmp_path / "cache")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and server.asked == [None]
    check(found[0], tmp_path, members)


def test_places_and_names_that_cannot_be(server, archive, tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(FileError, match="Not a directory") as caught:
        download("emnist", tmp_path / "cache")
    assert helps(caught.value, tmp_path) and server.asked == []
    with pytest.raises(ConfigError, match=r"name='emnits': .* did you mean 'emnist'\?"):
        download("emnits")


def test_the_usual_place(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download() == tmp_path / ".cache" / "sartor" / "fed_emnist"


def test_files_of_something_else_are_not_taken_for_it(offer, members, tmp_path):
    offer(packed(members), clients=3400)
    folder = tmp_path / "cache" / "fed_emnist"
    folder.mkdir(parents=True)
    for name, content in members.items():
        (folder / name).write_bytes(content)
    with pytest.raises(FileError, match=r"train\.h5 has 3 clients instead of 3,400.*--data"):
        download("emnist", tmp_path / "cache")
    assert {name: (folder / name).read_bytes() for name in members} == members


def test_what_is_missing_is_named(server, offer, members, tmp_path):
    offer(packed(members), url="http://127.0.0.1:1/fed_emnist.tar.bz2")
    folder = tmp_path / "cache" / "fed_emnist"
    folder.mkdir(parents=True)
    (folder / FILES[0]).write_bytes(members[FILES[0]])
    (folder / FILES[1]).write_bytes(members[FILES[1]][:-500])
    with pytest.raises(FileError, match=r"cut short, fed_emnist_test\.h5\)"):
        download("emnist", tmp_path / "cache")
