"""The manifest of a directory of saved models: what it must say, and which files belong to it."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from sartor.checking import AnyPath
from sartor.documents import check_schema, check_seal, sealed
from sartor.errors import FileError
from sartor.files import explaining, is_unfinished, read_json, tree_digest, write_json

FORMAT = "sartor-models"
VERSION = 1
MANIFEST = "manifest.json"
TRAINED = "trained.safetensors"
"""The file that says which rows models were trained on."""

PARAMETERS = re.compile(r"(central|baseline|trained|shard-\d+)\.safetensors")
"""The files that hold the parameters of models, and what they were trained on."""

REMEDY = "restore the directory from a copy, or save the models again"
"""What to do about damage."""

WORK = ("joint.safetensors", "trials.safetensors")
"""The files of work under way, from which it resumes."""


class Named(TypedDict):
    """An algorithm, objective or ready model by name; its settings are the other keys."""

    name: str


class Space(TypedDict):
    """Where clients are points; its numbers are the other keys."""

    kind: str


class RuleTable(TypedDict):
    """How clients find their cluster."""

    space: Space
    vectors: list[list[float]]
    simplex: list[list[float]]


class ScalingTable(TypedDict):
    """How features are scaled."""

    shift: list[float]
    matrix: list[float] | list[list[float]]


class Baseline(TypedDict):
    """The central model that was given, where it was trained further."""

    central: Named
    q: int


Decided = TypedDict(
    "Decided",
    {
        "cluster": int,
        "hypothesis": NotRequired[int],
        "lambda": NotRequired[float],
        "how": NotRequired[str],
        "kept": NotRequired[bool],
    },
)
"""What was decided for a client."""


class Manifest(TypedDict):
    """What every manifest says. Those of earlier versions have no digests."""

    kind: Literal["central", "personal"]
    model: Named | None
    label_names: list[str] | None
    feature_names: NotRequired[list[str] | None]
    scaling: NotRequired[ScalingTable | None]
    files: NotRequired[dict[str, str | None]]
    digest: NotRequired[str]


class CentralPart(TypedDict):
    """What it says about a central model."""

    central: Named
    q: int
    blocks: list[int]
    rule: RuleTable | None
    last: dict[str, Any]


class PersonalPart(TypedDict):
    """What it says about the models of clients."""

    personal: Named
    objective: Named
    clients: dict[str, Decided]
    baseline: NotRequired[Baseline]


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest, with the digests of the files of models in its directory."""
    names = sorted(path.name for path in folder.iterdir() if PARAMETERS.fullmatch(path.name))
    files = {name: tree_digest(folder / name) for name in names}
    write_json(folder / MANIFEST, sealed({**manifest, "files": files}))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest; refuses one that is damaged, or whose files are not those it was saved with.

    Headers of files are verified here, and the parameters in them when they are first read.
    """
    path = folder / MANIFEST
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(
            f"{folder} does not hold models saved by Sartor: {MANIFEST} is of something else, or "
            f"damaged; {REMEDY}"
        )
    if found.get("version") != VERSION:
        raise FileError(
            f"{folder} was written in version {found.get('version')!r:.60} of the format, and this "
            f"Sartor reads version {VERSION}; use the Sartor that wrote it, or restore {MANIFEST}"
        )
    with explaining(f"{path} is damaged", REMEDY):
        check_seal(found)
        check_schema(found, Manifest)
        if found["kind"] == "central" or "central" in found:
            check_schema(found, CentralPart)
        if found["kind"] == "personal":
            check_schema(found, PersonalPart)
        _check_numbers(found)
    _check_files(folder, found.get("files"))
    return found


def is_models(path: Path) -> bool:
    """Whether a directory holds models saved by Sartor and nothing else."""
    names = {file.name for file in path.iterdir() if not is_unfinished(file)}
    if MANIFEST not in names:  # a damaged central model may be made anew; of clients' nobody knows
        if not names or names - {"central.safetensors", TRAINED}:
            return False
        try:
            return all(tree_digest(path / name) is not None for name in names)
        except FileError:
            return False
    if foreign(names):
        return False
    found = read_json(path / MANIFEST)
    return isinstance(found, dict) and found.get("format") == FORMAT


def refuse_loss(directory: AnyPath, clients: Collection[str], replace: bool) -> None:
    """Refuse to replace saved models if some are of clients that are not among these.

    Models of clients do not replace a central model either; without clients it is one itself.
    """
    path = Path(directory).expanduser()
    if replace or not path.is_dir() or not is_models(path):
        return
    found = read_json(path / MANIFEST) if (path / MANIFEST).exists() else {"kind": "central"}
    if clients and found.get("kind") == "central":
        raise FileError(
            f"{path} holds a central model, and would lose it; choose another directory for the "
            "clients' models, or say save(directory, replace=True)"
        )
    there = found.get("clients")
    lost = [client for client in there if client not in clients] if there else []
    if lost:
        named = ", ".join(map(repr, lost[:3])) + (" …" if len(lost) > 3 else "")
        raise FileError(
            f"{path} holds the models of {len(lost)} clients that are not among those to be saved "
            f"({named}), and would lose them; choose another directory, or say "
            "save(directory, replace=True)"
        )


def foreign(names: set[str]) -> list[str]:
    """Those of some files that no directory of models holds."""
    return sorted(name for name in names - {MANIFEST, *WORK} if not PARAMETERS.fullmatch(name))


def _check_numbers(manifest: dict[str, Any]) -> None:
    """Refuse numbers that contradict each other."""
    q, clients = manifest.get("q", 1), manifest.get("clients", {})
    if sum(manifest.get("blocks", ())) not in (0, q):
        raise ValueError(f"blocks must sum to q = {q} (got {manifest['blocks']})")
    most = {"cluster": q, "hypothesis": q + manifest.get("baseline", {"q": 0})["q"]}
    with_lambda = sum("lambda" in decided for decided in clients.values())
    if with_lambda not in (0, len(clients)):
        raise ValueError(f"{len(clients) - with_lambda} clients have no lambda")
    for client, decided in clients.items():
        for key, end in most.items():
            if not 0 <= decided.get(key, 0) < end:
                raise ValueError(f"clients.{client}.{key} must be below {end} (got {decided[key]})")
        if not 0 <= decided.get("lambda", 0) <= 1:
            raise ValueError(f"clients.{client}.lambda must be from 0 to 1")


def _check_files(folder: Path, files: dict[str, str | None] | None) -> None:
    if files is None:
        return  # an earlier version wrote it
    there = {path.name for path in folder.iterdir() if PARAMETERS.fullmatch(path.name)}
    for name in sorted(there ^ set(files)):
        if name in files:
            raise FileError(f"{folder / name} is missing; {REMEDY}")
        raise FileError(f"{folder / name} is not of the models that were saved there; remove it")
    for name, digest in files.items():
        if tree_digest(folder / name) != digest:
            raise FileError(
                f"{folder / name} is not the file that was saved with {MANIFEST}; {REMEDY}"
            )
