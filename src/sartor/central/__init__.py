"""Central algorithms: models trained on everybody's data (the rows of the paper's tables)."""

from sartor.central.base import Central, CentralModel
from sartor.central.fedavg import FedAvg

ALGORITHMS: dict[str, type[Central]] = {"FedAvg": FedAvg}
"""The central algorithms by the name that configurations use."""

__all__ = ["ALGORITHMS", "Central", "CentralModel", "FedAvg"]
