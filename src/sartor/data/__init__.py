"""Clients and their examples: `ClientData`, its builders and readers, and what is in it."""

from sartor.data.arrays import from_arrays, from_dict
from sartor.data.convert import convert
from sartor.data.dataset import PARTS, ClientData
from sartor.data.download import download
from sartor.data.examples import Example, example, example_names
from sartor.data.files import open
from sartor.data.handwriting import handwriting
from sartor.data.info import Description, OrderShift, describe, order_shift
from sartor.data.names import with_labels
from sartor.data.synthetic import synthetic, synthetic_distributions
from sartor.data.tableinfo import TableDescription, describe_table
from sartor.data.tables import from_frame

__all__ = [
    "PARTS",
    "ClientData",
    "Description",
    "Example",
    "OrderShift",
    "TableDescription",
    "convert",
    "describe",
    "describe_table",
    "download",
    "example",
    "example_names",
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
