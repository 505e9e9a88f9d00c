"""Saved models, back from disk: nothing is read before it is needed, nothing is executed."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sartor.central import CentralModel
from sartor.central.clusters import rule_from
from sartor.central.manifest import MANIFEST, REMEDY, TRAINED, read_manifest
from sartor.checking import AnyPath, as_tuples, check_fields, checks_arguments
from sartor.data.scaling import Scaling
from sartor.data.trained import Trained
from sartor.engine import Engine, Objective, leaf_shapes
from sartor.errors import ConfigError, FileError, warn
from sartor.files import explaining, load_arrays, load_tree, settled
from sartor.models import Model, rebuild
from sartor.personal.models import PersonalModels
from sartor.personal.store import ModelStore, stacked


@checks_arguments
def load(
    directory: AnyPath,
    *,
    model: Model | None = None,
    local: Model | None = None,
    engine: Engine | None = None,
) -> PersonalModels | CentralModel:
    """Read models saved by ``personal.save`` or ``central.save``.

    Args:
        directory: where they are.
        model: the hypothesis class; needed only for models made of the user's own functions,
            flax or equinox modules, which cannot be rebuilt from a file.
        local: likewise for the hypothesis class of Mapper's local models.
        engine: how to run them.

    Returns:
        What was saved. Clients' models are read one at a time, when asked for.
    """
    path = settled(Path(directory))
    if not (path / MANIFEST).is_file():
        inside = sorted(str(m.parent) for m in path.glob(f"**/{MANIFEST}"))
        hint = f"; there are models in {', '.join(inside)}" if inside else ""
        if any(path.glob("shard-*.safetensors")):
            hint = f"; a fit was not finished here: run it again, and personal.save({str(path)!r})"
        raise FileError(f"{path} holds no models saved by Sartor (no manifest.json){hint}")
    manifest = read_manifest(path)
    with explaining(f"{path / MANIFEST} is damaged", REMEDY):
        return _load(path, manifest, model, local, engine or Engine())


def _load(
    path: Path, manifest: dict[str, Any], model: Model | None, local: Model | None, engine: Engine
) -> PersonalModels | CentralModel:
    model = model or _rebuild(manifest["model"], f"the model in {path} was", "model")
    shape = jax.eval_shape(model.init, jax.random.key(0))
    label_names, feature_names = (
        None if names is None else tuple(names)
        for names in (manifest["label_names"], manifest.get("feature_names"))
    )
    scaled = manifest.get("scaling")
    scaling = None if scaled is None else Scaling.from_dict(scaled)
    central = None
    if "central" in manifest:
        hypotheses = load_tree(path / "central.safetensors", stacked(shape, manifest["q"]))
        rule = manifest["rule"]
        history = {name: np.array([last]) for name, last in manifest["last"].items()}
        history["loss"] = np.zeros(0, np.float32)
        central = CentralModel(
            model, hypotheses, manifest["central"], history, label_names,
            tuple(manifest["blocks"]), rule and rule_from(rule), engine,
            feature_names=feature_names, scaling=scaling, trained=_trained(path, "central"),
        )  # fmt: skip
    if central is not None and manifest["kind"] == "central":
        return central
    objective = _objective(manifest["objective"], model, local)
    if central is None and not objective.standalone:
        raise ValueError("central is missing")
    store, clients = ModelStore(leaf_shapes(objective), path), manifest["clients"]
    if set(store.ids) != set(clients):
        raise FileError(
            f"{path} should hold {len(clients)} clients' models and holds {len(store)}; "
            "shards are missing: restore them from a copy or save the models again"
        )
    baseline = None
    if central is not None and "baseline" in manifest:
        given = manifest["baseline"]
        hypotheses = load_tree(path / "baseline.safetensors", stacked(shape, given["q"]))
        baseline = dataclasses.replace(central, hypotheses=hypotheses, algorithm=given["central"])
    return PersonalModels(
        objective, central, store, clients, manifest["personal"], label_names, engine, baseline,
        feature_names=feature_names, scaling=scaling, trained=_trained(path, "own"),
    )  # fmt: skip


def _trained(path: Path, whose: str) -> Trained | None:
    """The rows that models were trained on; earlier versions have not written them down."""
    if not (path / TRAINED).exists():
        return None
    found = load_arrays(path / TRAINED, f"{whose}/")
    if found and "contents" not in found:
        warn(
            f"{path} is of an earlier version, which knew rows in another way: models loaded from "
            "it do not refuse rows that they were trained on"
        )
        return None
    return Trained(**found) if found else None


def _rebuild(spec: dict[str, Any] | None, what: str, argument: str) -> Model:
    if spec is None:
        raise ConfigError(
            f"{what} made of your own functions, which no file holds; pass the same one: "
            f"sartor.load(directory, {argument}=...)"
        )
    return rebuild(spec)


def _objective(table: dict[str, Any], model: Model, local: Model | None) -> Objective:
    """An objective back from its plain values."""
    name: str = table["name"]
    if name.lower() not in Objective.known:
        raise ConfigError(
            f"these models have the objective {name}, which is not one of Sartor's; import the "
            "module that defines it before you load them"
        )
    kind = Objective.known[name.lower()]
    values: dict[str, Any] = {
        field.name: as_tuples(table[field.name])
        for field in dataclasses.fields(kind)
        if field.name in table
    }
    if name.lower() == "mixture":
        values["local"] = local or _rebuild(
            values["local"], "the clients' local models were", "local"
        )
    found = kind(model, **values)
    check_fields(found)
    return found
