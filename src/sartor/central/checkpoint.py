"""Checkpoints of a central run: one file, written whole, that knows whose it is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sartor.errors import CheckpointError, FileError
from sartor.files import load_tree, read_metadata, save_tree
from sartor.trees import Tree


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run stands.

    Attributes:
        path: the file.
        identity: what must be the same for a run to go on from here: algorithm, model, data, seed.
    """

    path: Path
    identity: dict[str, Any]

    def save(self, round_: int, state: Tree, loss: npt.NDArray[np.float32]) -> None:
        """Write the state after ``round_`` rounds, with the training loss of each."""
        metadata = {"round": str(round_), "identity": json.dumps(self.identity)}
        save_tree(self.path, {"state": state, "loss": loss}, metadata)

    def load(self, like: Tree) -> tuple[int, Tree, npt.NDArray[np.float32]] | None:
        """The round, state and losses to go on from; ``None`` where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        metadata = read_metadata(self.path)
        try:
            round_, identity = int(metadata["round"]), json.loads(metadata["identity"])
        except (KeyError, ValueError) as error:
            raise FileError(
                f"{self.path} is not a checkpoint of Sartor; delete it or start without resuming"
            ) from error
        self._check(identity)
        shapes = {"state": like, "loss": np.zeros(round_, np.float32)}
        tree = load_tree(self.path, shapes)
        return round_, tree["state"], tree["loss"]

    def _check(self, found: dict[str, Any]) -> None:
        ours = json.loads(json.dumps(self.identity))
        if found == ours:
            return
        there, here = _leaves(found), _leaves(ours)
        different = sorted(k for k in {*there, *here} if there.get(k) != here.get(k))
        name = different[0]
        raise CheckpointError(
            f"{self.path} belongs to another configuration: {name} was {there.get(name)!r} and is "
            f"{here.get(name)!r} now ({len(different)} differences in all); set it back, or start "
            "in a new directory"
        )


def _leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {
        name: leaf
        for key, value in tree.items()
        for name, leaf in _leaves(value, f"{prefix}.{key}" if prefix else key).items()
    }
