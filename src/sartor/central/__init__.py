"""Central algorithms: models trained on everybody's data (the rows of the paper's tables)."""

from sartor.central.agnostic import Agnostic
from sartor.central.base import Central
from sartor.central.clusters import BregmanClusters, KMeansClusters
from sartor.central.fedavg import FedAvg
from sartor.central.fitting import Fit
from sartor.central.hypcluster import HypCluster
from sartor.central.model import CentralModel
from sartor.central.starts import KMeansPlusPlus, Lent, Random, Warm

ALGORITHMS = Central.known
"""The central algorithms by the name that configurations use; your own once it is defined."""

__all__ = [
    "ALGORITHMS",
    "Agnostic",
    "BregmanClusters",
    "Central",
    "CentralModel",
    "FedAvg",
    "Fit",
    "HypCluster",
    "KMeansClusters",
    "KMeansPlusPlus",
    "Lent",
    "Random",
    "Warm",
]
