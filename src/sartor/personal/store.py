"""The models of many clients, a shard at a time: in memory while they are few, in files beyond.

A shard is the stacked parameters of some clients; on disk it is one safetensors file, written
whole, that names its clients. So nothing finished is lost at a kill, and a single client's model
is read without touching the others.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sartor.central.model import FILES
from sartor.engine import Stack
from sartor.errors import ConfigError, FileError
from sartor.files import is_unfinished, load_tree, read_metadata, save_tree

IN_MEMORY = min(2**32, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""Bytes of models kept in memory; more of them live in files."""


class Shard(NamedTuple):
    """Some clients, where their models are, arrays or a file, and the work they come from."""

    ids: tuple[str, ...]
    where: Stack | Path
    identity: str = ""

    def check(self) -> None:
        """Refuse a file that others have written meanwhile."""
        if isinstance(self.where, Path):
            there = read_metadata(self.where)
            ids = tuple(json.loads(there.get("clients", "[]")))
            if (ids, there.get("identity", "")) != (self.ids, self.identity):
                raise FileError(f"{self.where} was replaced since it was opened; load it again")


class ModelStore:
    """Models of clients.

    Args:
        shapes: the leaves that every client has, by name; anything with ``shape`` and ``dtype``.
        directory: where to keep shards; ``None`` keeps them in memory, or in a temporary
            directory if they take more than ``IN_MEMORY``.
        identity: the work that the shards come from. Shards of the same work that are there
            already are used; those of other work that was never finished make way. Without it all
            that is there is used.
        expected: how many clients there will be.
    """

    def __init__(
        self,
        shapes: Mapping[str, Any],
        directory: Path | None = None,
        identity: str = "",
        expected: int = 0,
    ) -> None:
        self.shapes = dict(shapes)
        self.identity = identity
        one = sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in shapes.values())
        if directory is None and one * expected > IN_MEMORY:
            directory = Path(tempfile.mkdtemp(prefix="sartor-models-"))
            self._cleanup = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self.directory = directory
        self.shards: list[Shard] = []
        self._places: dict[str, tuple[int, int]] = {}
        if directory is not None:
            self._find(directory)

    def _find(self, directory: Path) -> None:
        if self.identity and directory.exists():
            _refuse_foreign(directory)
        for path in sorted(directory.glob("shard-[0-9]*.safetensors")):
            metadata = read_metadata(path)
            if "clients" not in metadata:
                raise FileError(f"{path} is not a shard of client models; delete it")
            if not self.identity or metadata.get("identity") == self.identity:
                ids = tuple(json.loads(metadata["clients"]))
                self._note(Shard(ids, path, metadata.get("identity", "")))
            elif (directory / "manifest.json").exists():
                raise FileError(
                    f"{directory} holds finished models of other work; choose another directory, "
                    "or delete it"
                )
            else:
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
        where: Stack | Path = params
        if self.directory is not None:
            where = self.directory / self._next_name()
            save_tree(where, params, {"clients": json.dumps(ids), "identity": self.identity})
        self._note(Shard(ids, where, self.identity))

    def get(self, client: str) -> Stack:
        """The model of one client."""
        number, place = self._places[client]
        shard = self.shards[number]
        where = shard.where
        if isinstance(where, Path):
            tree: Stack = load_tree(where, self.shapes, index=place)
            shard.check()
            return tree
        return {name: leaf[place] for name, leaf in where.items()}

    def stack(self, shard: Shard) -> Stack:
        """The models of a shard."""
        if not isinstance(shard.where, Path):
            return shard.where
        shapes = {
            name: np.broadcast_to(np.zeros((), leaf.dtype), (len(shard.ids), *leaf.shape))
            for name, leaf in self.shapes.items()
        }
        tree: Stack = load_tree(shard.where, shapes)
        shard.check()
        return tree

    def copy_to(self, directory: Path) -> None:
        """Write all shards into another directory."""
        for number, shard in enumerate(self.shards):
            target = directory / f"shard-{number:05d}.safetensors"
            if isinstance(shard.where, Path):
                _link(shard.where, target)
            else:
                metadata = {"clients": json.dumps(shard.ids), "identity": self.identity}
                save_tree(target, shard.where, metadata)

    @property
    def widest(self) -> int:
        """The most clients in a block."""
        return max(len(shard.ids) for shard in self.shards)

    def blocks(self) -> Iterator[tuple[tuple[str, ...], Stack]]:
        """All models, a shard at a time."""
        for shard in self.shards:
            yield shard.ids, self.stack(shard)

    def _next_name(self) -> str:
        taken = [int(s.where.stem.split("-")[1]) for s in self.shards if isinstance(s.where, Path)]
        return f"shard-{max(taken, default=-1) + 1:05d}.safetensors"

    def _note(self, shard: Shard) -> None:
        for place, client in enumerate(shard.ids):
            self._places[client] = (len(self.shards), place)
        self.shards.append(shard)


class OnDemand:
    """Models that are made a block at a time when they are asked for, and kept nowhere.

    Args:
        ids: the clients.
        make: makes all their models, a block at a time.
        widest: the most clients in a block.
    """

    directory = None

    def __init__(
        self,
        ids: tuple[str, ...],
        make: Callable[[], Iterator[tuple[tuple[str, ...], Stack]]],
        widest: int,
    ) -> None:
        self.ids, self.blocks, self.widest = ids, make, widest
        self._known = set(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, client: str) -> bool:
        return client in self._known

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
    shards = {name for name in names if name.startswith("shard-")}
    foreign = sorted(names - shards - FILES)
    if foreign or ("manifest.json" in names and not shards):
        what = foreign[0] if foreign else "a saved central model"
        raise FileError(
            f"{directory} holds something else already ({what}); choose a directory of its own for "
            "the clients' models"
        )


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)  # the same bytes under another name, where the disk allows it
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise FileError(
                f"cannot write {target}: {error.strerror or error}; free some space or choose "
                "another directory"
            ) from error
