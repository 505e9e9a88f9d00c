"""Estimators of scikit-learn's kind as bytes, without pickle; equal ones are equal bytes.

skops writes them, and restores only types that are known to be harmless. It is imported when
something is saved or loaded, and not before.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from sartor.errors import ConfigError

BOOSTED = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
TREE = "sklearn.tree._tree.Tree"

HARMLESS = (
    BOOSTED,
    TREE,
    "collections.OrderedDict",
    "functools.partial",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "lightgbm.sklearn.LGBMRegressor",
    "numpy.dtype",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy.interpolate._bsplines.BSpline",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRegressor",
)
"""Types that skops asks about, and that run no code of a file's. Nodes of trees are checked when
they are restored, and a partial function is one of a function that is harmless itself."""

DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members of archives: the earliest that they can have."""


def dump(estimator: Any) -> bytes:
    """An estimator, fitted or not, as bytes."""
    io_of = _skops()
    try:
        return _canonical(io_of.dumps(_packed(estimator)))
    except Exception as error:  # of skops, and whatever the estimator does
        raise ConfigError(
            f"{type(estimator).__name__} cannot be saved without pickle ({error}); use an "
            "estimator of scikit-learn's, LightGBM's or XGBoost's, without functions of your own "
            "such as lambdas"
        ) from error


def restore(content: bytes, name: str, trusted: Sequence[str] = ()) -> Any:
    """An estimator from bytes.

    Args:
        content: what :func:`dump` has made.
        name: of the file, for errors.
        trusted: types that may be restored beside those in ``HARMLESS``.
    """
    io_of = _skops()
    try:
        estimator = _unpacked(io_of.loads(content, trusted=[*HARMLESS, *trusted]))
    except io_of.exceptions.UntrustedTypesFoundException as error:
        unknown = set(io_of.get_untrusted_types(data=content)) - {*HARMLESS, *trusted}
        named = ", ".join(sorted(unknown))
        raise ConfigError(
            f"{name} restores types that are not known to be harmless: {named}. If you trust who "
            "wrote it, load(path, trusted=[...]) with their names, or on the command line --trust"
        ) from error
    for tree in _trees(estimator, set()):
        _check(tree)
    return estimator


def _skops() -> Any:
    try:
        import skops.io
        import skops.io.exceptions
    except ImportError as error:
        raise ConfigError(
            "estimators are saved and loaded by skops, which is not installed; run "
            "pip install skops"
        ) from error
    return skops.io


def _canonical(content: bytes) -> bytes:
    """An archive of skops without addresses in memory and times, compressed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(parts.pop("schema.json"))
    numbers: dict[int, int] = {}
    files: dict[str, str] = {}
    fresh = itertools.count(1)
    for node in _nodes(schema):
        if "<" in str(
            node.get("__class__")
        ):  # such as <lambda>, which skops writes and never finds
            raise TypeError(f"{node['__class__']} has no name to find it by")
        if "__id__" in node:
            # Values of JSON may be shared, or not, by chance.
            shared = node.get("__loader__") != "JsonNode"
            known = numbers.setdefault(node["__id__"], next(fresh)) if shared else next(fresh)
            node["__id__"] = known
        if isinstance(name := node.get("file"), str) and name in parts:
            files.setdefault(name, f"{len(files)}.{name.rpartition('.')[2]}")
            node["file"] = files[name]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        members = {"schema.json": json.dumps(schema).encode()}
        members |= {files[name]: _without_padding(parts[name]) for name in files}
        for name, part in members.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), part, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _without_padding(content: bytes) -> bytes:
    """An array of records without what was in memory between their fields."""
    if not content.startswith(b"\x93NUMPY"):
        return content
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        clean[name] = array[name]
    np.save(written := io.BytesIO(), clean, allow_pickle=False)
    return written.getvalue()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All tables in plain values, in their order."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for one in list(value.values()) if isinstance(value, dict) else value:
            yield from _nodes(one)


def _packed(estimator: Any) -> Any:
    """Boosting with the nodes of all its trees in one array; skops takes long for hundreds."""
    boosted = isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)
    if not boosted or not isinstance(getattr(estimator, "_predictors", None), list):
        return estimator
    trees = [tree for iteration in estimator._predictors for tree in iteration]
    found = copy.copy(estimator)
    found._predictors = {
        "each": len(trees) // max(len(estimator._predictors), 1),
        "sizes": np.array([len(tree.nodes) for tree in trees]),
        "splits": np.array([len(tree.raw_left_cat_bitsets) for tree in trees]),
        "nodes": np.concatenate([tree.nodes for tree in trees]),
        "binned": np.concatenate([tree.binned_left_cat_bitsets for tree in trees]),
        "raw": np.concatenate([tree.raw_left_cat_bitsets for tree in trees]),
    }
    return found


def _unpacked(estimator: Any) -> Any:
    packed = getattr(estimator, "_predictors", None)
    if isinstance(packed, dict):
        from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

        nodes = np.split(packed["nodes"], np.cumsum(packed["sizes"])[:-1])
        at = np.cumsum(packed["splits"])[:-1]
        splits = (np.split(packed[name], at) for name in ("binned", "raw"))
        trees = [TreePredictor(*parts) for parts in zip(nodes, *splits, strict=True)]
        each = packed["each"]
        estimator._predictors = [trees[i : i + each] for i in range(0, len(trees), each)]
    return estimator


def _trees(value: Any, seen: set[int]) -> Iterator[tuple[str, Any, int]]:
    """All trees in an estimator: their type, themselves, and the columns that they may ask for."""
    if id(value) in seen:
        return
    seen.add(id(value))
    several: Any = ()
    if isinstance(value, BaseEstimator):
        columns = getattr(value, "n_features_in_", 0)
        for iteration in getattr(value, "_predictors", None) or ():
            yield from ((BOOSTED, tree, columns) for tree in iteration)
        if hasattr(value, "tree_"):
            yield TREE, value.tree_, columns
        several = vars(value).values()
    elif isinstance(value, dict):
        several = value.values()
    elif isinstance(value, list | tuple) or (
        isinstance(value, np.ndarray) and value.dtype == object
    ):
        several = value if isinstance(value, list | tuple) else value.ravel().tolist()
    for one in several:
        if isinstance(one, BaseEstimator | dict | list | tuple | np.ndarray):
            yield from _trees(one, seen)


def _check(found: tuple[str, Any, int]) -> None:
    """Refuse a tree that leads outside itself, or back, or to a column that is not there."""
    kind, tree, columns = found
    if kind == BOOSTED:
        nodes = tree.nodes
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        sides, asked = (nodes["left"][inner], nodes["right"][inner]), nodes["feature_idx"][inner]
        of_words = nodes[inner][nodes["is_categorical"][inner] != 0]
        if not (of_words["bitset_idx"] < len(tree.raw_left_cat_bitsets)).all():
            raise ValueError("a tree asks for categories that are not there")
        count = len(nodes)
    else:
        inner = np.flatnonzero(tree.children_left >= 0)
        sides, asked = (tree.children_left[inner], tree.children_right[inner]), tree.feature[inner]
        count = tree.node_count
    for side in sides:
        if not ((side.astype(np.int64) > inner) & (side < count)).all():
            raise ValueError("a tree leads outside itself")
    if not ((asked >= 0) & (asked < columns)).all():
        raise ValueError("a tree asks for a column that is not there")
