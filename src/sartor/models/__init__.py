"""Hypothesis classes: init, log-probabilities (or a mean), loss. Any function of yours fits."""

from sartor.models.adapters import from_equinox, from_flax, from_nnx
from sartor.models.base import Model, Params, count_parameters, in_precision, parameter_bytes
from sartor.models.zoo import FACTORIES, categorical, cnn, linear, logistic, mlp

__all__ = [
    "FACTORIES",
    "Model",
    "Params",
    "categorical",
    "cnn",
    "count_parameters",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "in_precision",
    "linear",
    "logistic",
    "mlp",
    "parameter_bytes",
]
