"""Personal estimators in a directory: a sealed manifest, arrays, and no pickle.

Central models are written by skops, which restores only types that are known to be harmless. What
was learned of clients is arrays in safetensors.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import skops.io
from sklearn.utils import get_tags
from skops.io.exceptions import UntrustedTypesFoundException

from sartor.checking import AnyPath, checks_arguments
from sartor.data.preparing import Preparation
from sartor.documents import check_schema, check_seal, sealed
from sartor.effects import Effects
from sartor.errors import ConfigError, FileError
from sartor.estimators.approaches import Added
from sartor.estimators.central import Fitted
from sartor.estimators.choosing import CANDIDATES
from sartor.estimators.encoders import Encoded
from sartor.estimators.models import Models
from sartor.estimators.tasks import Task
from sartor.estimators.views import View
from sartor.files import (
    explaining,
    is_unfinished,
    load_arrays,
    read_json,
    replacing,
    save_tree,
    settled,
    sha256_of,
    write_json,
)

FORMAT = "sartor-estimator"
VERSION = 1
MANIFEST = "manifest.json"

HARMLESS = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
    "functools.partial",
)
"""Types of scikit-learn's boosting that skops asks about. Nodes of trees are checked when they are
restored, and a partial function is one of a function that is harmless itself."""

_PARTS = ("fixed", "clients", "covariance", "spread", "follows", "uncertainty")


class Manifest(TypedDict):
    """What the manifest says."""

    kind: Literal["classifier", "regressor"]
    settings: dict[str, Any]
    classes: NotRequired[list[Any]]
    sees: Literal["trees", "linear", "frame"]
    columns: list[dict[str, Any]]
    names: list[Any] | None
    features: int
    clients: dict[str, int]
    rows: list[int]
    approaches: list[str]
    candidates: list[str]
    central: dict[str, str]
    corrections: dict[str, dict[str, Any]]
    range: list[float]
    files: dict[str, str]


def save(model: Any, path: AnyPath, replace: bool) -> None:
    """Write a fitted model; see :meth:`PersonalClassifier.save`."""
    _refuse_loss(model, Path(path), replace)
    models: Models = model.models_
    settings = {k: v for k, v in model.get_params(deep=False).items() if k != "estimator"}
    manifest: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "kind": get_tags(model).estimator_type,
        "settings": settings, "sees": models.view.sees,
        "columns": models.view.preparation.to_dict(),
        "names": list(names) if (names := getattr(model, "feature_names_in_", None)) is not None
        else None,
        "features": int(model.n_features_in_), "range": list(model._range),
        "clients": models.ids, "rows": models.rows.tolist(), "approaches": models.names.tolist(),
        "candidates": list(models.candidates),
        "central": {}, "corrections": {},
    }  # fmt: skip
    if models.task.classes:
        manifest["classes"] = model.classes_.tolist()
    with replacing(path, is_estimator) as folder:
        for place, (name, fitted) in enumerate(models.central.items()):
            manifest["central"][name] = type(fitted.encoded).__name__.lower()
            save_tree(
                folder / f"central-{place}.safetensors", {"levels": fitted.encoded.levels}, {}
            )
            _dump(folder / f"central-{place}.skops", fitted.estimator)
        for place, (name, added) in enumerate(models.added.items()):
            manifest["corrections"][name] = {
                "columns": added.columns.tolist(), "slope": added.slope,
                "noise": [each.noise for each in added.effects],
            }  # fmt: skip
            tree = {str(i): {n: getattr(e, n) for n in _PARTS} for i, e in enumerate(added.effects)}
            save_tree(folder / f"correction-{place}.safetensors", tree, {})
        manifest["files"] = {file.name: sha256_of(file) for file in sorted(folder.iterdir())}
        write_json(folder / MANIFEST, sealed(manifest))


def is_estimator(path: Path) -> bool:
    """Whether a directory holds a saved estimator and nothing else."""
    names = {file.name for file in path.iterdir() if not is_unfinished(file)}
    if MANIFEST not in names:
        return False
    found = read_json(path / MANIFEST)
    ours = isinstance(found, dict) and found.get("format") == FORMAT
    return ours and names <= {MANIFEST, *found.get("files", {})}


def _refuse_loss(model: Any, path: Path, replace: bool) -> None:
    """Refuse to replace saved models if some are of clients that are not among these."""
    if replace or not path.is_dir() or not is_estimator(path):
        return
    lost = [
        name
        for name in read_json(path / MANIFEST).get("clients", ())
        if name not in model.models_.ids
    ]
    if lost:
        raise FileError(
            f"{path} holds models of {len(lost)} clients that are not among those to be saved "
            f"({lost[0]!r} …), and would lose them; choose another directory, or say "
            "save(path, replace=True)"
        )


def _dump(path: Path, estimator: Any) -> None:
    try:
        skops.io.dump(estimator, path)
    except Exception as error:  # of skops, and whatever the estimator does
        raise ConfigError(
            f"{type(estimator).__name__} cannot be saved without pickle ({error}); refit it after "
            "loading, or use an estimator of scikit-learn's, LightGBM's or XGBoost's"
        ) from error


@checks_arguments
def load(path: AnyPath, *, trusted: Sequence[str] = ()) -> Any:
    """Read a model that was saved by ``save``.

    Args:
        path: where it is.
        trusted: types that files may restore beside those of scikit-learn that are harmless, such
            as classes of your own. Name only what you know.
    """
    from sartor.estimators import personal

    folder = settled(Path(path))
    if not (folder / MANIFEST).is_file():
        raise FileError(f"{folder} holds no estimator saved by Sartor (no {MANIFEST})")
    found = read_json(folder / MANIFEST)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"{folder} holds something else than an estimator; see sartor.load")
    with explaining(f"{folder / MANIFEST} is damaged", "restore it from a copy, or save it again"):
        check_seal(found)
        check_schema(found, Manifest)
        for name, digest in found["files"].items():
            if sha256_of(folder / name) != digest:
                raise ValueError(f"{name} is not the file that was saved with it")
        kinds = {"classifier": personal.PersonalClassifier, "regressor": personal.PersonalRegressor}
        model = kinds[found["kind"]](**found["settings"])
        classes = found.get("classes")
        if classes is not None:
            model.classes_ = np.array(classes)
        task = Task(0 if classes is None else max(len(classes), 2))
        model.n_features_in_ = found["features"]
        if found["names"] is not None:
            model.feature_names_in_ = np.array(found["names"], dtype=object)
        model.tried_, model.decision_ = None, None
        low, high = found["range"]
        model._range = low, high
        model.models_ = Models(
            task,
            View(found["sees"], Preparation.from_dict(found["columns"])),
            found["clients"],
            np.array(found["rows"], np.int64),
            np.array(found["approaches"]),
            {name: CANDIDATES[name] for name in found["candidates"]},
            {
                name: _central(task, folder / f"central-{i}", kind, trusted)
                for i, (name, kind) in enumerate(found["central"].items())
            },
            {
                name: _added(task, folder / f"correction-{i}.safetensors", about)
                for i, (name, about) in enumerate(found["corrections"].items())
            },
        )
    return model


def _central(task: Task, path: Path, kind: str, trusted: Sequence[str]) -> Fitted:
    levels = load_arrays(path.with_suffix(".safetensors"), "")["levels"]
    return Fitted(task, _restore(path.with_suffix(".skops"), trusted), Encoded.known[kind](levels))


def _added(task: Task, path: Path, about: dict[str, Any]) -> Added:
    effects = []
    for i, noise in enumerate(about["noise"]):
        parts = load_arrays(path, f"{i}/")
        effects.append(Effects(noise=noise, **{name: parts[name] for name in _PARTS}))
    return Added(task, effects, np.array(about["columns"], np.int64), about["slope"])


def _restore(path: Path, trusted: Sequence[str]) -> Any:
    """A central model; its trees lead nowhere outside themselves."""
    try:
        estimator = skops.io.load(path, trusted=[*HARMLESS, *trusted])
    except UntrustedTypesFoundException as error:
        unknown = set(skops.io.get_untrusted_types(file=path)) - {*HARMLESS, *trusted}
        named = ", ".join(sorted(unknown))
        raise ConfigError(
            f"{path} restores types that are not known to be harmless: {named}. If you trust who "
            "wrote it, load(path, trusted=[...]) with their names"
        ) from error
    for iteration in getattr(estimator, "_predictors", ()):
        for tree in iteration:
            nodes = tree.nodes
            inner = nodes[nodes["is_leaf"] == 0]
            for side in ("left", "right"):
                if len(inner) and not (inner[side] < len(nodes)).all():
                    raise ValueError("a tree leads outside itself")
            if len(inner) and not (inner["feature_idx"] < estimator.n_features_in_).all():
                raise ValueError("a tree asks for a column that is not there")
    return estimator
