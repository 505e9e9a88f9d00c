"""Saved models of all kinds, back from disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sartor import estimators
from sartor.central import CentralModel
from sartor.checking import AnyPath, checks_arguments
from sartor.engine import Engine
from sartor.errors import ConfigError
from sartor.estimators import PersonalClassifier, PersonalRegressor
from sartor.estimators.store import FORMAT, MANIFEST, OURS
from sartor.models import Model
from sartor.personal import PersonalModels
from sartor.personal import load as load_models


@checks_arguments
def load(
    directory: AnyPath,
    *,
    model: Model | None = None,
    local: Model | None = None,
    engine: Engine | None = None,
    trusted: Sequence[str] | None = None,
) -> PersonalModels | CentralModel | PersonalClassifier | PersonalRegressor:
    """Read models that were saved by ``save``, whatever they are.

    Args:
        directory: where they are.
        model: the hypothesis class; needed only for models made of the user's own functions,
            flax or equinox modules, which cannot be rebuilt from a file.
        local: likewise for the hypothesis class of Mapper's local models.
        engine: how to run them.
        trusted: for classifiers and regressors of tables, types that files may restore beside
            those that are known to be harmless.

    Returns:
        What was saved. Clients' models in JAX are read one at a time, when asked for.
    """
    path = Path(directory).expanduser()
    if _is_estimator(path):
        for name, value in {"model": model, "local": local, "engine": engine}.items():
            if value is not None:
                raise ConfigError(
                    f"{name} is for models in JAX, and {path} holds an estimator; leave it out"
                )
        found: PersonalClassifier | PersonalRegressor = estimators.load(path, trusted=trusted or ())
        return found
    if trusted is not None:
        raise ConfigError(
            f"trusted is for estimators, and {path} holds none; leave it out: models in JAX "
            "restore no types"
        )
    return load_models(directory, model=model, local=local, engine=engine)


def _is_estimator(path: Path) -> bool:
    """Whether a directory holds an estimator; the reader says what is wrong with it."""
    try:
        found = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        return path.is_dir() and any(OURS.fullmatch(file.name) for file in path.iterdir())
    except (OSError, ValueError, RecursionError):
        found = None
    return isinstance(found, dict) and found.get("format") == FORMAT
