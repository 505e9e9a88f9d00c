"""Estimators by their names in configurations: from a list of packages, and nothing else."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression

from sartor.errors import ConfigError, nearest
from sartor.models import FACTORIES

Kind = Literal["classification", "regression"]

PACKAGES = ("sklearn", "lightgbm", "xgboost")
"""What classes of estimators may be imported from."""

BOOSTING = "boosting"
"""Sartor's default: gradient boosting of scikit-learn's, with as many iterations as are best."""

SHORT: Mapping[str, Mapping[Kind, str]] = {
    "linear": {
        "classification": "sklearn.linear_model.LogisticRegression",
        "regression": "sklearn.linear_model.Ridge",
    },
    "lightgbm": {
        "classification": "lightgbm.LGBMClassifier",
        "regression": "lightgbm.LGBMRegressor",
    },
    "xgboost": {
        "classification": "xgboost.XGBClassifier",
        "regression": "xgboost.XGBRegressor",
    },
}
"""Short names, and the classes that they stand for."""

NAMES = (BOOSTING, *SHORT)

OTHERS = "or a class such as sklearn.ensemble.RandomForestClassifier"
"""What else may be named."""

QUIET: Mapping[str, Mapping[str, Any]] = {"lightgbm": {"verbosity": -1}}
"""Arguments that keep a library from writing to the terminal, which a progress bar has."""


def check_name(name: Any) -> str:
    """The name of an estimator for tables; others are refused before anything is read.

    >>> check_name("sklearn.ensemble.RandomForestClassifier")
    'sklearn.ensemble.RandomForestClassifier'
    >>> check_name("os.system")
    Traceback (most recent call last):
        ...
    sartor.errors.ConfigError: model.name is 'os.system'; estimators come from sklearn, ...
    """
    if not isinstance(name, str):
        raise ConfigError(f"model.name must be a text (got {name!r})")
    if name in NAMES:
        return name
    package, dot, rest = name.partition(".")
    if not dot:
        known = [*NAMES, *FACTORIES]
        raise ConfigError(
            f"model.name is {name!r}; {nearest(name, known, 'choose one of')} {OTHERS}"
        )
    parts = rest.split(".")
    public = all(part.isidentifier() and not part.startswith("_") for part in parts)
    if package not in PACKAGES or not public:
        raise ConfigError(
            f"model.name is {name!r}; estimators come from {', '.join(PACKAGES)}: for others, use "
            "sartor.estimators.PersonalClassifier in Python"
        )
    return name


def make_estimator(table: Mapping[str, Any], kind: Kind, seed: int) -> Any:
    """The estimator that a table ``[model]`` names, with the arguments in it.

    Args:
        table: ``name``, and arguments of the class.
        kind: what it is to predict.
        seed: its ``random_state``, if it takes one and none is given.

    Returns:
        The estimator; ``None`` for Sartor's default.

    >>> make_estimator({"name": "linear", "C": 0.5}, "classification", 0)
    LogisticRegression(C=0.5, max_iter=1000, random_state=0)
    """
    name = check_name(table.get("name", BOOSTING))
    given = {key: value for key, value in table.items() if key != "name"}
    if name == BOOSTING:
        if given:
            raise ConfigError(
                f"model.{next(iter(given))} does not exist for 'boosting', which sets itself; for "
                "settings of your own, name a class such as lightgbm or "
                "sklearn.ensemble.HistGradientBoostingClassifier"
            )
        return None
    made = _class_of(SHORT[name][kind] if name in SHORT else name, kind)
    usual: dict[str, Any] = dict(QUIET.get(made.__module__.partition(".")[0], {}))
    if name in SHORT and made is LogisticRegression:
        usual["max_iter"] = 1000
    takes = _arguments(made)
    for key in given:
        if key not in takes:
            alike = next((other for other in takes if other.lower() == key.lower()), key)
            raise ConfigError(f"model.{key} does not exist for {name}; {nearest(alike, takes)}")
    if "random_state" in takes:
        usual["random_state"] = seed
    return _checked(made, name, usual | given, kind)


def _class_of(path: str, kind: Kind) -> Any:
    """The class of an estimator, imported."""
    module, _, name = path.rpartition(".")
    package = path.partition(".")[0]
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if error.name == package:
            raise ConfigError(
                f"model.name is {path!r}, and {package} is not installed; pip install {package}"
            ) from error
        raise ConfigError(
            f"model.name is {path!r}, and there is no module {module!r}; such as "
            "sklearn.ensemble.RandomForestClassifier is needed"
        ) from error
    made: Any = getattr(found, name, None)
    kinds = isinstance(made, type) and issubclass(made, BaseEstimator)
    if not kinds or made.__module__.partition(".")[0] not in PACKAGES:
        raise ConfigError(f"model.name is {path!r}: {_near(found, module, name)}")
    return made


def _near(module: Any, where: str, name: str) -> str:
    """What is wrong with the name of a class, and the nearest one."""
    classes = [
        n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, BaseEstimator)
    ]
    near = get_close_matches(name, classes, n=1, cutoff=0.5)
    known = "no estimator" if hasattr(module, name) else "not there"
    return f"it is {known}" + (
        f"; did you mean '{where}.{near[0]}'?" if near else f"; choose {OTHERS}"
    )


def _arguments(made: Any) -> list[str]:
    """The arguments of a class of estimators."""
    names: set[str] = set()
    for owner in made.__mro__:  # XGBoost's classes pass on what they do not name
        if issubclass(owner, BaseEstimator) and "__init__" in vars(owner):
            parameters = inspect.signature(owner.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
            if not any(p.kind == p.VAR_KEYWORD for p in parameters):
                break
    return sorted(names - {"self"})


def _checked(made: Any, name: str, arguments: Mapping[str, Any], kind: Kind) -> Any:
    """An estimator with these arguments, of the right kind."""
    try:
        estimator = made(**arguments)
        if hasattr(estimator, "_parameter_constraints"):  # of scikit-learn's own
            estimator._validate_params()
        fits = is_classifier(estimator) if kind == "classification" else is_regressor(estimator)
    except Exception as error:  # whatever the class does
        text = " ".join(str(error).split())
        raise ConfigError(f"model: {name} does not take these arguments: {text}") from error
    if not fits:
        wanted = "a classifier" if kind == "classification" else "a regressor"
        other = "regression" if kind == "classification" else "classification"
        raise ConfigError(
            f"model.name is {name!r}, and the label needs {wanted}; name one, or, if the label is "
            f"meant for {other}, say so: data.task={other} (--task {other})"
        )
    return estimator
