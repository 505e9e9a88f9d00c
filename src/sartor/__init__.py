"""Sartor gives every client a model of its own.

Central algorithms train on everybody's data, personal ones fit the result to each client, and
evaluation says who gains and who is hurt.
"""

from sartor import central, data, engine, evaluation, models, personal, theory
from sartor.advice import Advice, advise
from sartor.central import (
    Agnostic,
    BregmanClusters,
    Central,
    CentralModel,
    FedAvg,
    HypCluster,
    KMeansClusters,
)
from sartor.data import ClientData
from sartor.engine import Automatic, Engine, Optimizer, Searched, side_by_side
from sartor.errors import SartorError
from sartor.estimators import PersonalClassifier, PersonalRegressor
from sartor.evaluation import Scores, compare
from sartor.loading import load
from sartor.models import Model
from sartor.personal import Dapper, Finetune, Local, Mapper, Personal, PersonalModels
from sartor.runs import run
from sartor.version import __version__

__all__ = [
    "Advice",
    "Agnostic",
    "Automatic",
    "BregmanClusters",
    "Central",
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
    "Personal",
    "PersonalClassifier",
    "PersonalModels",
    "PersonalRegressor",
    "SartorError",
    "Scores",
    "Searched",
    "__version__",
    "advise",
    "central",
    "compare",
    "data",
    "engine",
    "evaluation",
    "load",
    "models",
    "personal",
    "run",
    "side_by_side",
    "theory",
]
