"""Clients and their examples: `ClientData`, its builders and readers, and what is in it."""

from sartor.data.arrays import from_arrays, from_dict
from sartor.data.convert import convert
from sartor.data.dataset import PARTS, ClientData
from sartor.data.download import download
from sartor.data.files import open
from sartor.data.handwriting import handwriting
from sartor.data.info import Description, OrderShift, describe, order_shift
from sartor.data.names import with_labels
from sartor.data.synthetic import synthetic, synthetic_distributions
from sartor.data.tables import from_frame

__all__ = [
    "PARTS",
    "ClientData",
    "Description",
    "OrderShift",
    "convert",
    "describe",
    "download",
    "from_arrays",
    "from_dict",
    "from_frame",
    "handwriting",
    "open",
    "order_shift",
    "synthetic",
    "synthetic_distributions",
    "with_labels",
]
