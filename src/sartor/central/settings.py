"""Hyper-parameters of algorithms: checked when they are given, and described in plain values."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sartor.checking import check_fields, checked
from sartor.data import ClientData
from sartor.engine import Optimizer
from sartor.errors import ConfigError
from sartor.models import Model
from sartor.trees import flatten, traced_hash


def describe(algorithm: Any) -> dict[str, Any]:
    """An algorithm's name and hyper-parameters, as plain values."""

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Optimizer):
            return {"name": value.name, **{key: plain(name, v) for key, v in value.options}}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Model):
            weights = jax.eval_shape(value.init, jax.random.key(0))
            return value.spec or {"leaves": {n: list(a.shape) for n, a in flatten(weights).items()}}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return describe(value)
        if isinstance(value, optax.GradientTransformation):
            return "custom " + _what_it_does(name, value)
        if isinstance(value, list | tuple):
            return [plain(name, v) for v in value]
        raise _no_setting(algorithm, name, value)

    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}
    return {"name": type(algorithm).__name__, **{n: plain(n, v) for n, v in fields.items()}}


def _what_it_does(name: str, optimizer: optax.GradientTransformation) -> str:
    """A hash of what an optimizer does to two weights. Servers do not know the loss."""
    weights, rule = {"w": jnp.zeros(2)}, optax.with_extra_args_support(optimizer)
    known = {} if name == "server_optimizer" else {"value": jnp.zeros(())}

    def update(gradient: Any, state: Any, params: Any) -> Any:
        return rule.update(gradient, state, params, **known)

    try:
        return traced_hash(update, weights, rule.init(weights), weights)
    except TypeError as error:
        given = ", ".join(["the gradient", "the parameters", *(["the loss"] if known else [])])
        raise ConfigError(
            f"{name} asks for more than {given} ({error}); choose another optimizer"
        ) from error


def _no_setting(algorithm: Any, name: str, value: Any) -> ConfigError:
    return ConfigError(
        f"{type(algorithm).__name__}: {name} cannot hold a {type(value).__name__} "
        f"(got {value!r:.80}); use numbers, texts, tuples, frozen dataclasses, a Model or an "
        "optimizer"
    )


def models_in(settings: Any) -> dict[str, Model]:
    """The hypothesis classes among the settings of an algorithm, by the names of their fields."""
    found: dict[str, Model] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Model):
            found[field.name] = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            found |= models_in(value)
    return found


def check_subclass(algorithm: Any) -> None:
    """Tell the author of a new algorithm what is missing, and check the settings of all others."""
    kind = type(algorithm)
    if "__dataclass_params__" not in vars(kind) or not kind.__dataclass_params__.frozen:
        raise ConfigError(
            f"{kind.__name__} must be a frozen dataclass: write "
            "@dataclasses.dataclass(frozen=True) above its class"
        )
    check_fields(algorithm)


def check_settings(algorithm: Any) -> None:
    """Refuse settings that cannot be written to files, or not be hashed to find programs again.

    This comes before a fit, as algorithms may convert settings when they are made.
    """
    describe(algorithm)
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        try:
            hash(value)
        except TypeError as error:
            raise _no_setting(algorithm, field.name, value) from error


def check_clusters(algorithm: Any, q: int, data: ClientData) -> None:
    """Refuse more clusters than there are clients to be in them."""
    seen = int(data.seen.sum())
    if q > seen:
        raise ConfigError(
            f"{type(algorithm).__name__}: q is {q}, but there are only {seen} seen clients; choose "
            "a smaller q"
        )


def check_seed(seed: Any) -> int:
    """The seed as a whole number, or an error."""
    return int(checked("seed", seed, int))
