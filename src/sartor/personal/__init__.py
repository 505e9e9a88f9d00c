"""Personal algorithms: a model for each client (the columns of the paper's tables)."""

from sartor.personal.base import Personal, layer_names
from sartor.personal.choosing import Choices
from sartor.personal.dapper import Dapper
from sartor.personal.finetune import Finetune
from sartor.personal.load import load
from sartor.personal.local import Local
from sartor.personal.mapper import Mapper
from sartor.personal.models import PersonalModels
from sartor.personal.objectives import Theory
from sartor.personal.task import Source, Task

ALGORITHMS = Personal.known
"""The personal algorithms by the name that configurations use; your own once it is defined."""

__all__ = [
    "ALGORITHMS",
    "Choices",
    "Dapper",
    "Finetune",
    "Local",
    "Mapper",
    "Personal",
    "PersonalModels",
    "Source",
    "Task",
    "Theory",
    "layer_names",
    "load",
]
