"""The models of many clients, a shard at a time: in memory while they are few, in files beyond.

A shard is the stacked parameters of some clients; on disk it is one safetensors file, written
whole, that names its clients. So nothing finished is lost at a kill, and a single client's model
is read without touching the others.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from sartor.central.manifest import MANIFEST, foreign
from sartor.documents import check_schema, parse_json
from sartor.engine import Stack
from sartor.errors import ConfigError, FileError, explaining_writes
from sartor.files import (
    explaining,
    is_unfinished,
    load_tree,
    read_json,
    read_metadata,
    save_tree,
    sweep,
    verify_tree,
)

IN_MEMORY = min(2**32, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""The most bytes of models kept in memory; larger sets are kept in files."""

GATHERED = 2**28
"""The most bytes of models that predict at a time, unless one takes more."""


class Shard(NamedTuple):
    """Some clients, their models as arrays or as a file, and the work that made them."""

    ids: tuple[str, ...]
    where: Stack | Path
    identity: str = ""

    @classmethod
    def at(cls, path: Path) -> Shard:
        """The shard in a file."""
        metadata = read_metadata(path)
        with explaining(f"{path} is not a shard of client models", "delete it"):
            clients = parse_json(metadata["clients"])
            check_schema(clients, list[str], "clients")
            if len(set(clients)) < len(clients):
                raise ValueError("a client is there twice")
        return cls(tuple(clients), path, metadata.get("identity", ""))

    def write(self, path: Path) -> None:
        """Write the shard into a file."""
        if not isinstance(self.where, Path):
            metadata = {"clients": json.dumps(self.ids), "identity": self.identity}
            save_tree(path, self.where, metadata)
            return
        try:
            os.link(self.where, path)  # the same bytes under another name, if the disk allows it
        except OSError:
            shutil.copyfile(self.where, path)

    def read(self, shapes: Mapping[str, Any], index: int | None = None) -> Stack:
        """The models of all its clients, or of one; ``shapes`` are those of one client's leaves."""
        if not isinstance(self.where, Path):
            stack = self.where
            return stack if index is None else {name: a[index] for name, a in stack.items()}
        if index is None:
            shapes = stacked(shapes, len(self.ids))
        tree: Stack = load_tree(self.where, shapes, index)
        if Shard.at(self.where) != self:
            raise FileError(f"{self.where} was replaced since it was opened; load it again")
        return tree


def stacked(shapes: Any, count: int) -> Any:
    """The shapes of a tree of arrays, stacked: [count, ...]."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((count, *a.shape), a.dtype), shapes)


class ModelStore:
    """Models of clients.

    Args:
        shapes: the leaves that every client has, by name; anything with ``shape`` and ``dtype``.
        directory: where to keep shards; ``None`` keeps them in memory, or in a temporary
            directory if they take more than ``IN_MEMORY``.
        identity: the work that the shards come from. Existing shards of the same work are used,
            and those of unfinished other work are deleted. Without an identity, all shards are
            used.
        clients: the clients that there will be. Unfinished work of others is not deleted.
    """

    def __init__(
        self,
        shapes: Mapping[str, Any],
        directory: Path | None = None,
        identity: str = "",
        clients: Collection[str] = (),
    ) -> None:
        self.shapes = dict(shapes)
        self.identity = identity
        self.bytes = sum(
            int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in shapes.values()
        )
        if directory is None and self.bytes * len(clients) > IN_MEMORY:
            with explaining_writes(tempfile.gettempdir()):
                directory = Path(tempfile.mkdtemp(prefix="sartor-models-"))
            self._cleanup = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.directory = directory
        self.shards: list[Shard] = []
        self._places: dict[str, tuple[int, int]] = {}
        if directory is not None:
            self._find(directory, set(clients))

    def _find(self, directory: Path, clients: set[str]) -> None:
        if self.identity and directory.exists():
            _refuse_foreign(directory)
            sweep(directory)
        others = []
        for path in sorted(directory.glob("shard-[0-9]*.safetensors")):
            shard = Shard.at(path)
            if self.identity in ("", shard.identity):
                if self.identity:  # the work resumes, and does not make these models again
                    verify_tree(path)
                self._note(shard)
            else:
                others.append((path, shard.ids))
        if others and (directory / MANIFEST).exists():
            raise FileError(
                f"{directory} holds finished models of other work; choose another directory, or "
                "delete it"
            )
        lost = {client for _, ids in others for client in ids} - clients
        if lost:
            raise FileError(
                f"{directory} holds models of {len(lost)} clients that are not among these "
                f"({min(lost)!r} …), from work that was not saved; choose another directory, or "
                "delete it"
            )
        for path, _ in others:
            path.unlink()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, client: str) -> bool:
        return client in self._places

    @property
    def ids(self) -> tuple[str, ...]:
        """The clients that have a model here."""
        return tuple(self._places)

    def add(self, ids: tuple[str, ...], params: Stack) -> None:
        """Keep the models of some clients."""
        shard = Shard(ids, params, self.identity)
        if self.directory is not None:
            files = [s.where.stem for s in self.shards if isinstance(s.where, Path)]
            number = 1 + max((int(name.removeprefix("shard-")) for name in files), default=-1)
            path = self.directory / f"shard-{number:05d}.safetensors"
            shard.write(path)
            shard = shard._replace(where=path)
        self._note(shard)

    def get(self, client: str) -> Stack:
        """The model of one client."""
        number, place = self._places[client]
        return self.shards[number].read(self.shapes, place)

    def gather(self, clients: Sequence[str]) -> Stack:
        """The models of some clients, stacked in that order."""
        out = {name: np.empty((len(clients), *a.shape), a.dtype) for name, a in self.shapes.items()}
        wanted: dict[int, list[tuple[int, int]]] = {}  # by shard
        for row, client in enumerate(clients):
            number, place = self._places[client]
            wanted.setdefault(number, []).append((row, place))
        for number, these in wanted.items():
            shard, rows, places = self.shards[number], *np.array(these).T
            if isinstance(shard.where, Path) and 8 * len(rows) < len(shard.ids):
                for row, place in these:  # of a file, only what is needed
                    for name, leaf in shard.read(self.shapes, place).items():
                        out[name][row] = leaf
                continue
            for name, leaf in shard.read(self.shapes).items():
                out[name][rows] = leaf[places]
        return out

    @property
    def at_once(self) -> int:
        """How many models are gathered at a time."""
        return max(1, GATHERED // max(self.bytes, 1))

    def copy_to(self, directory: Path) -> None:
        """Write all shards into another directory."""
        for number, shard in enumerate(self.shards):
            shard.write(directory / f"shard-{number:05d}.safetensors")

    @property
    def widest(self) -> int:
        """The most clients in a shard."""
        return max(len(shard.ids) for shard in self.shards)

    def blocks(self) -> Iterator[tuple[tuple[str, ...], Stack]]:
        """All models, a shard at a time."""
        for shard in self.shards:
            yield shard.ids, shard.read(self.shapes)

    def _note(self, shard: Shard) -> None:
        for place, client in enumerate(shard.ids):
            self._places[client] = (len(self.shards), place)
        self.shards.append(shard)


@dataclasses.dataclass(frozen=True)
class OnDemand:
    """Models that are made when they are needed, a block at a time, and not kept.

    Attributes:
        blocks: makes the models of all clients, a block at a time.
        widest: the most clients in a block.
    """

    blocks: Callable[[], Iterator[tuple[tuple[str, ...], Stack]]]
    widest: int

    directory: ClassVar[None] = None
    at_once: ClassVar[int] = 1

    def gather(self, clients: Sequence[str]) -> Stack:
        """There is nothing to gather."""
        raise ConfigError(NOT_KEPT)

    def get(self, client: str) -> Stack:
        """There is nothing to get."""
        raise ConfigError(NOT_KEPT)

    def copy_to(self, directory: Path) -> None:
        """There is nothing to copy."""
        raise ConfigError(NOT_KEPT)


NOT_KEPT = "these models were not kept, only evaluate makes them; fit them with keep=True"


def _refuse_foreign(directory: Path) -> None:
    """Models are not mixed with other files, nor with a central model that was saved there."""
    names = {path.name for path in directory.iterdir() if not is_unfinished(path)}
    others = foreign(names)
    if others or (MANIFEST in names and _kind(directory) == "central"):
        what = others[0] if others else "a saved central model"
        raise FileError(
            f"{directory} holds something else already ({what}); choose a directory of its own for "
            "the clients' models"
        )


def _kind(directory: Path) -> Any:
    """Whether the models that were saved in a directory are central ones or clients' own."""
    manifest = read_json(directory / MANIFEST)
    return manifest.get("kind") if isinstance(manifest, dict) else None
