"""Central algorithms: models trained on everybody's data (the rows of the paper's tables)."""

from sartor.central.agnostic import Agnostic
from sartor.central.base import Central
from sartor.central.clusters import BregmanClusters, KMeansClusters
from sartor.central.fedavg import FedAvg
from sartor.central.hypcluster import HypCluster
from sartor.central.model import CentralModel

ALGORITHMS: dict[str, type[Central]] = {
    kind.__name__: kind for kind in (FedAvg, Agnostic, HypCluster, KMeansClusters, BregmanClusters)
}
"""The central algorithms by the name that configurations use."""

__all__ = [
    "ALGORITHMS",
    "Agnostic",
    "BregmanClusters",
    "Central",
    "CentralModel",
    "FedAvg",
    "HypCluster",
    "KMeansClusters",
]
