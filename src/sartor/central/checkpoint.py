"""Checkpoints of a central run: one file, written whole, that knows whose it is."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypedDict

import numpy.typing as npt

from sartor.documents import check_schema, parse_json
from sartor.engine import ClientStates
from sartor.errors import CheckpointError, FileError
from sartor.files import (
    load_arrays,
    load_tree,
    read_metadata,
    save_tree,
    sweep_beside,
    verify_tree,
)
from sartor.trees import Tree

History = dict[str, npt.NDArray[Any]]
"""What was measured in every round, by name: each [rounds, ...]."""


class About(TypedDict):
    """What a checkpoint says about itself, as JSON."""

    round: int
    identity: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        path: the file.
        identity: what must be the same for a run to resume from here: algorithm, model, data, seed.
    """

    path: Path
    identity: dict[str, Any]

    def save(
        self, round_: int, state: Tree, history: History, kept: ClientStates | None = None
    ) -> None:
        """Write the state after ``round_`` rounds, what was measured, and what clients keep."""
        metadata = {"round": str(round_), "identity": json.dumps(self.identity)}
        tree = {"state": state, "history": history}
        if kept is not None:
            tree["kept"] = kept.arrays()
        save_tree(self.path, tree, metadata)

    def load(self, like: Tree) -> tuple[int, Tree, History, History] | None:
        """The round, state, history and client states to resume from; ``None`` without a file.

        What killed writes have left is removed, so the caller holds the lock of the file.
        """
        sweep_beside(self.path)
        if not self.path.exists():
            return None
        round_ = self.check()
        history, kept = (load_arrays(self.path, f"{part}/") for part in ("history", "kept"))
        tree = {"state": like, "history": history, "kept": kept}
        return round_, load_tree(self.path, tree)["state"], history, kept

    def check(self) -> int:
        """Refuse a damaged checkpoint, or another run's; how many rounds are behind this one."""
        if not self.path.exists():
            return 0
        verify_tree(self.path)
        round_, identity = _read(self.path)
        if identity != json.loads(json.dumps(self.identity)):
            if identity["data"] != self.identity["data"]:
                raise CheckpointError(
                    f"{self.path} belongs to other data: the rows, or how they are split, have "
                    "changed since; bring them back, or start in a new directory"
                )
            raise CheckpointError(
                f"{self.path} belongs to another configuration: "
                f"{difference(identity, self.identity)}; set it back, or start in a new directory"
            )
        return round_


def saved_round(path: Path) -> int:
    """How many rounds the checkpoint in a file has behind it; 0 where there is no file."""
    return _read(path)[0] if path.exists() else 0


def difference(before: Any, now: Any) -> str:
    """Where two configurations differ, in words.

    >>> difference({"seed": 0, "central": {"rounds": 5}}, {"seed": 0, "central": {"rounds": 7}})
    'central.rounds was 5 and is 7 now'
    """
    there, here = _leaves(before), _leaves(json.loads(json.dumps(now)))
    names = [name for name in here | there if here.get(name) != there.get(name)]
    if not names:
        return "nothing"
    name, others = names[0], len(names) - 1
    more = f" ({others} more differ)" if others else ""
    return f"{name} was {there.get(name)!r} and is {here.get(name)!r} now{more}"


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    metadata = read_metadata(path)
    try:
        found = {key: parse_json(metadata[key]) for key in About.__annotations__}
        check_schema(found, About)
    except (KeyError, ValueError) as error:
        raise FileError(
            f"{path} is not a checkpoint of Sartor; delete it or start without resuming"
        ) from error
    return found["round"], found["identity"]


def _leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(tree, list) and any(isinstance(entry, dict) for entry in tree):
        tree = {str(i): entry for i, entry in enumerate(tree)}
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {
        name: leaf
        for key, value in tree.items()
        for name, leaf in _leaves(value, f"{prefix}.{key}" if prefix else key).items()
    }
