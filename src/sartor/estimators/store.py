"""Personal estimators in a directory: a sealed manifest, arrays, estimators, and no pickle.

Every file but the manifest is named by its content. So a model that has learned of some clients is
saved by adding the files that are new and then replacing the manifest: at any moment the directory
holds the old models or the new ones. What no manifest names any more is removed in the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from sklearn.utils import get_tags

from sartor.checking import AnyPath, check_table, checks_arguments, hints_of
from sartor.documents import check_schema, check_seal, sealed
from sartor.errors import ConfigError, FileError
from sartor.estimators import foreign
from sartor.estimators.candidates import CANDIDATES
from sartor.estimators.choosing import Decision
from sartor.estimators.models import Models
from sartor.estimators.parts import apart, together
from sartor.files import (
    explaining,
    flush,
    is_unfinished,
    read_json,
    sha256_of,
    sweep,
    write_atomic,
    write_json,
)
from sartor.locks import locked

FORMAT = "sartor-estimator"
VERSION = 1
MANIFEST = "manifest.json"
REMEDY = "restore it from a copy, or save it again"

OURS = re.compile(r"(arrays|rows|estimator)-[0-9a-f]{16}\.(safetensors|skops)")
"""The files of a directory, but for the manifest."""

PIECE = 1 << 22
"""Bytes of a large array that are in one file, so that more rows of it make more files."""


class Manifest(TypedDict):
    """What the manifest says.

    Attributes:
        kind: what is fitted.
        model: it, taken apart; see :mod:`sartor.estimators.parts`.
        arrays: the files that each array is in, piece by piece.
        estimators: the file that each estimator is in.
        files: the digest of each file.
    """

    kind: Literal["classifier", "regressor"]
    model: dict[str, Any]
    arrays: dict[str, list[str]]
    estimators: dict[str, str]
    files: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Saved:
    """All that is saved of an estimator.

    Attributes:
        settings: its constructor's arguments.
        features: how many columns it was fitted to.
        names: their names, if they had any.
        labels: the smallest and the largest label.
        classes: the classes, of a classifier.
        models: what was fitted.
        decision: why clients have the models that they have.
    """

    settings: Mapping[str, Any]
    features: int
    names: npt.NDArray[Any] | None
    labels: tuple[float, float]
    classes: npt.NDArray[Any] | None
    models: Models
    decision: Decision | None

    @classmethod
    def of(cls, model: Any) -> Saved:
        """Of a fitted estimator."""
        decision = model.decision_ and _without_others(model.decision_, model.models_)
        return cls(
            {**model.get_params(deep=False), "random_state": model._seed},
            int(model.n_features_in_),
            getattr(model, "feature_names_in_", None), model._range,
            getattr(model, "classes_", None), model.models_, decision,
        )  # fmt: skip

    def restored(self, kind: str) -> Any:
        """The estimator."""
        from sartor.estimators import personal

        kinds = {"classifier": personal.PersonalClassifier, "regressor": personal.PersonalRegressor}
        check_table("settings", self.settings, hints_of(kinds[kind].__init__))
        model = kinds[kind](**self.settings)
        if model.approach not in ("auto", *CANDIDATES):
            raise ValueError(f"there is no approach {model.approach!r:.60}")
        if (self.classes is None) == (kind == "classifier"):
            raise ValueError(f"classes of a {kind}: {self.classes}")
        if self.classes is not None:
            model.classes_ = self.classes
        if self.names is not None:
            model.feature_names_in_ = self.names
        model.n_features_in_, model._range = self.features, self.labels
        model._seed = model.random_state
        model.models_, model.decision_, model.tried_ = self.models, self.decision, None
        self.models.check()
        return model


def save(model: Any, path: AnyPath, replace: bool) -> None:
    """Write a fitted model; see :meth:`PersonalClassifier.save`."""
    folder = Path(path).expanduser().resolve()
    with locked(folder):
        _refuse_others(folder)
        if not replace:
            _refuse_loss(model.models_, folder)
        contents, manifest = _contents(model)
        for name, content in contents.items():
            there = folder / name
            if not there.exists() or sha256_of(there) != manifest["files"][name]:
                write_atomic(there, content)
        flush(folder)
        write_json(folder / MANIFEST, sealed(manifest))
        flush(folder)
        sweep(folder)
        for file in folder.iterdir():
            if OURS.fullmatch(file.name) and file.name not in contents:
                file.unlink()


def _contents(model: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a model, and its manifest."""
    arrays: dict[str, Any] = {}
    estimators: dict[str, Any] = {}
    contents: dict[str, bytes] = {}

    def named(what: str, content: bytes, suffix: str) -> str:
        name = f"{what}-{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"
        contents[name] = content
        return name

    plain = apart(Saved.of(model), arrays, estimators)
    small = {name: a for name, a in arrays.items() if a.nbytes <= PIECE}
    shared = named("arrays", to_safetensors(small), "safetensors")
    of_arrays = {
        name: [shared] if name in small else
        [named("rows", to_safetensors({"rows": rows}), "safetensors")
         for rows in _pieces(array)]
        for name, array in arrays.items()
    }  # fmt: skip
    dumped: dict[int, str] = {}  # some are in several places
    for each in estimators.values():
        if id(each) not in dumped:
            dumped[id(each)] = named("estimator", foreign.dump(each), "skops")
    manifest = {
        "format": FORMAT, "version": VERSION, "kind": get_tags(model).estimator_type,
        "model": plain, "arrays": of_arrays,
        "estimators": {place: dumped[id(each)] for place, each in estimators.items()},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }  # fmt: skip
    return contents, manifest


def _pieces(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Rows of an array that are in one file: as many of each array whose rows have this size."""
    rows = max(1, PIECE // max(array[:1].nbytes, 1))
    for begin in range(0, len(array), rows):
        yield array[begin : begin + rows]


def _without_others(decision: Decision, models: Models) -> Decision:
    """A decision without what it says of clients that were dropped."""
    kept = np.isin(np.arange(len(decision.loss)), list(models.ids.values()))
    if kept.all():
        return decision

    def of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: of(each) for name, each in value.items()}
        if isinstance(value, np.ndarray):
            empty = np.nan if value.dtype.kind == "f" else np.zeros((), value.dtype)
            return np.where(kept, value, empty)
        return value

    return dataclasses.replace(
        decision, **{f.name: of(getattr(decision, f.name)) for f in dataclasses.fields(decision)}
    )


def _refuse_others(folder: Path) -> None:
    """Refuse a directory that holds something else."""
    names = {file.name for file in folder.iterdir() if not is_unfinished(file)}
    other = sorted(name for name in names - {MANIFEST} if not OURS.fullmatch(name))
    if MANIFEST in names and not other:
        found = read_json(folder / MANIFEST)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            other = [MANIFEST]
    if other:
        raise FileError(
            f"{folder} already exists and contains other files ({other[0]}), so nothing was "
            "written; choose another directory, or remove it"
        )


def _refuse_loss(models: Models, folder: Path) -> None:
    """Refuse to replace saved models if some are of clients that are not among these."""
    if not (folder / MANIFEST).exists():
        return
    with explaining(f"{folder / MANIFEST} is damaged", REMEDY):
        there = _manifest(folder)["model"]["of"]["models"]["of"]["ids"]["table"]
    lost = [name for name in there if name not in models.ids and name not in models.dropped]
    if lost:
        raise FileError(
            f"{folder} holds models of {len(lost)} clients that are not among those to be saved "
            f"({lost[0]!r} …), and would lose them; choose another directory, or say "
            "save(path, replace=True)"
        )


@checks_arguments
def load(path: AnyPath, *, trusted: Sequence[str] = ()) -> Any:
    """Read a model that was saved by ``save``.

    Args:
        path: where it is.
        trusted: types that files may restore beside those of scikit-learn that are harmless, such
            as classes of your own. Name only what you know.
    """
    folder = Path(path).expanduser()
    while True:
        manifest = _manifest(folder)
        try:
            return _loaded(folder, manifest, trusted)
        except FileError:
            # Somebody may have saved other models there, and removed the files of these.
            if _manifest(folder) == manifest:
                raise


def _manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        raise FileError(f"{folder} holds no estimator saved by Sartor (no {MANIFEST}); {REMEDY}")
    found = read_json(folder / MANIFEST)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"{folder} holds something else than an estimator; see sartor.load")
    if found.get("version") != VERSION:
        raise FileError(
            f"{folder} was written in version {found.get('version')!r:.60} of the format, and this "
            f"Sartor reads version {VERSION}; use the Sartor that wrote it"
        )
    with explaining(f"{folder / MANIFEST} is damaged", REMEDY):
        check_seal(found)
        check_schema(found, Manifest)
    return found


def _loaded(folder: Path, manifest: dict[str, Any], trusted: Sequence[str]) -> Any:
    """The model of a directory."""
    digests, damaged = manifest["files"], f"{folder} is damaged"

    def content(name: str) -> bytes:
        if not OURS.fullmatch(name):
            raise ValueError(f"{name:.60} is no file of a model")
        found = (folder / name).read_bytes()
        if hashlib.sha256(found).hexdigest() != digests[name]:
            raise ValueError(f"{name} is not the file that was saved with it")
        return found

    def estimator(place: str) -> Any:
        name = manifest["estimators"][place]
        return foreign.restore(content(name), str(folder / name), trusted)

    with explaining(damaged, REMEDY, (ConfigError, MemoryError)):
        files = {name for several in manifest["arrays"].values() for name in several}
        read = {name: from_safetensors(content(name)) for name in files}
        arrays = {
            place: read[names[0]][place] if place in read[names[0]]
            else np.concatenate([read[name]["rows"] for name in names])
            for place, names in manifest["arrays"].items()
        }  # fmt: skip
        saved = together(manifest["model"], Saved, arrays, estimator)
        if not isinstance(saved, Saved):
            raise ValueError("it holds no model")
        return saved.restored(manifest["kind"])
