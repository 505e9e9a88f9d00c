"""Federated EMNIST from TensorFlow Federated's public storage, checked and ready to be opened.

Interrupted downloads resume. An archive or its files that are there already need no network, even
if somebody has put them there by hand.
"""

import bz2
import http.client
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from sartor.checking import AnyPath, checks_arguments
from sartor.errors import ConfigError, FileError, nearest
from sartor.files import cache_root, sha256_of, sweep, writing
from sartor.locks import locked
from sartor.progress import Bar
from sartor.version import __version__

TIMEOUT = 30.0
"""Seconds to wait for the server."""

_BLOCK = 1 << 18
_ERRORS = OSError, http.client.HTTPException, tarfile.TarError, EOFError
"""What networks, disks and archives raise."""


@dataclass(frozen=True)
class Source:
    """Where a data set is on the network.

    Attributes:
        url: a .tar.bz2 archive.
        sha256: the archive's hash, in hex.
        files: the HDF5 files to take out of it.
        clients: the number of clients in each of them.
    """

    url: str
    sha256: str
    files: tuple[str, ...]
    clients: int

    @property
    def archive(self) -> str:
        """The archive's name."""
        return self.url.rsplit("/", 1)[-1]


SOURCES = {
    "emnist": Source(
        # Address and hash are those of TensorFlow Federated's own loader.
        url="https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2",
        sha256="fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
        files=("fed_emnist_train.h5", "fed_emnist_test.h5"),
        clients=3400,
    )
}
"""The data sets that can be downloaded. "emnist": 3,400 writers, 62 classes, 749,068 images."""


@checks_arguments
def download(
    name: str = "emnist",
    cache: AnyPath | None = None,
    progress: bool | None = None,
) -> Path:
    """Download a data set unless it is there already, and return its directory.

    `sartor.data.open` reads the directory.

    Args:
        name: the data set; "emnist" is federated EMNIST with all 62 classes.
        cache: parent of the directory (default: ~/.cache/sartor). It can be deleted at any time.
        progress: whether to show a bar (default: only on a terminal).
    """
    if name not in SOURCES:
        raise ConfigError(f"name={name!r}: it cannot be downloaded; {nearest(name, SOURCES)}")
    source = SOURCES[name]
    folder = cache_root(cache) / source.archive.removesuffix(".tar.bz2")
    if not _missing(source, folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            if _missing(source, folder):  # nobody else has got it meanwhile
                sweep(folder)
                archive = _archive(source, folder, progress)
                _unpack(source, archive, progress)
    except _ERRORS as error:
        raise FileError(
            f"cannot download {name}: {error}; try again, or get {source.url} in another "
            f"way and put {source.archive} into {folder} (or the files that are missing or cut "
            f"short, {' and '.join(_missing(source, folder))}), or do without: --data DIR takes "
            "data that you have, --data generated makes some up"
        ) from error
    return folder


def _missing(source: Source, folder: Path) -> list[str]:
    """The files that are missing or cut short: h5py does not open the latter."""
    missing = []
    for name in source.files:
        try:
            with h5py.File(folder / name) as file:
                found = len(file["examples"])
        except (OSError, KeyError, TypeError):
            missing.append(name)
            continue
        if found != source.clients:  # perhaps put there by hand, so it is not ours to replace
            raise FileError(
                f"{folder / name} has {found:,} clients instead of {source.clients:,}, so it is "
                "something else: remove it, or name the directory that it belongs to by --data"
            )
    return missing


def _archive(source: Source, folder: Path, progress: bool | None) -> Path:
    """The archive, checked: one that is there already, or fetched."""
    archive, part = folder / source.archive, folder / f"{source.archive}.part"
    if archive.exists():
        if (found := sha256_of(archive)) != source.sha256:  # perhaps put there by hand, so not ours
            raise FileError(
                f"{archive} is cut short, damaged or something else, with SHA-256 {found} instead "
                f"of {source.sha256}: remove it"
            )
        return archive
    if not part.exists() or sha256_of(part) != source.sha256:
        _fetch(source, part, progress)
        if (found := sha256_of(part)) != source.sha256:
            part.unlink()
            raise FileError(
                f"what came has SHA-256 {found} instead of {source.sha256} and was removed"
            )
    return part.rename(archive)


def _fetch(source: Source, part: Path, progress: bool | None) -> None:
    """Fetch what is missing of the archive; what has come is kept, however this ends."""
    answer, start = _ask(source.url, part.stat().st_size if part.exists() else 0)
    total = None if answer.length is None else start + answer.length
    with (
        answer,
        part.open("ab" if start else "wb") as file,
        Bar(f"{source.archive}, MB", total and total >> 20, progress) as bar,
    ):
        while block := answer.read(_BLOCK):
            file.write(block)
            bar.update(file.tell() >> 20)
    done = part.stat().st_size
    if total is not None and done < total:
        raise FileError(f"the connection was cut after {done:,} of {total:,} bytes, which are kept")


def _ask(url: str, start: int) -> tuple[Any, int]:
    """The server's answer, and where in the file it begins: at 0 if it cannot be at ``start``."""
    headers = {"User-Agent": f"sartor/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if not start or error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        return _ask(url, 0)  # the file has no more than we have, so ours is not the same
    if not start or answer.status != http.client.PARTIAL_CONTENT:
        return answer, 0
    if answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        return answer, start
    answer.close()
    return _ask(url, 0)


def _unpack(source: Source, archive: Path, progress: bool | None) -> None:
    """Write the wanted files, and nothing else, next to the archive."""
    missing = set(source.files)
    with (
        archive.open("rb") as file,
        bz2.open(file) as stream,  # tarfile's own may unpack all of it into memory at once
        tarfile.open(fileobj=stream, mode="r|") as tar,
        Bar("unpacking, MB", archive.stat().st_size >> 20, progress) as bar,
    ):
        for member in tar:
            # No path comes from the archive: names are ours, and only plain files are read.
            name = member.name.removeprefix("./")
            content = tar.extractfile(member) if name in missing and member.isfile() else None
            if content is None:
                continue
            with writing(archive.with_name(name)) as target:
                while block := content.read(_BLOCK):
                    target.write(block)
                    bar.update(file.tell() >> 20)
            missing.remove(name)
    if missing:
        raise FileError(f"there is no {' and no '.join(sorted(missing))} in {archive}")
