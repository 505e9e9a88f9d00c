"""Hypothesis classes: init, log-probabilities (or a mean), loss. Any function of yours fits."""

from sartor.models.adapters import from_equinox, from_flax, from_nnx
from sartor.models.base import Model, Params, count_parameters, in_precision, parameter_bytes
from sartor.models.checks import check, model_identity
from sartor.models.inputs import Shapes, column_shapes, device_dtype, example_shapes, take
from sartor.models.zoo import FACTORIES, categorical, cnn, linear, logistic, mlp, rebuild

__all__ = [
    "FACTORIES",
    "Model",
    "Params",
    "Shapes",
    "categorical",
    "check",
    "cnn",
    "column_shapes",
    "count_parameters",
    "device_dtype",
    "example_shapes",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "in_precision",
    "linear",
    "logistic",
    "mlp",
    "model_identity",
    "parameter_bytes",
    "rebuild",
    "take",
]
