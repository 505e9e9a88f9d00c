"""Sartor gives every client a model of its own.

Central algorithms train on everybody's data, personal ones fit the result to each client, and
evaluation says who gains and who is hurt.
"""

from sartor import data, evaluation, models, theory
from sartor.advice import Advice, advise
from sartor.central import (
    Agnostic,
    BregmanClusters,
    CentralModel,
    FedAvg,
    HypCluster,
    KMeansClusters,
)
from sartor.data import ClientData
from sartor.engine import Engine, Optimizer, side_by_side
from sartor.errors import SartorError
from sartor.evaluation import Scores, compare
from sartor.models import Model
from sartor.personal import Dapper, Finetune, Local, Mapper, PersonalModels, load
from sartor.runs import run
from sartor.version import __version__

__all__ = [
    "Advice",
    "Agnostic",
    "BregmanClusters",
    "CentralModel",
    "ClientData",
    "Dapper",
    "Engine",
    "FedAvg",
    "Finetune",
    "HypCluster",
    "KMeansClusters",
    "Local",
    "Mapper",
    "Model",
    "Optimizer",
    "PersonalModels",
    "SartorError",
    "Scores",
    "__version__",
    "advise",
    "compare",
    "data",
    "evaluation",
    "load",
    "models",
    "run",
    "side_by_side",
    "theory",
]
