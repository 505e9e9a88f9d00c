"""Central algorithms: models trained on everybody's data (the rows of the paper's tables)."""

from sartor.central.base import Central
from sartor.central.fedavg import FedAvg
from sartor.central.model import CentralModel

ALGORITHMS: dict[str, type[Central]] = {"FedAvg": FedAvg}
"""The central algorithms by the name that configurations use."""

__all__ = ["ALGORITHMS", "Central", "CentralModel", "FedAvg"]
