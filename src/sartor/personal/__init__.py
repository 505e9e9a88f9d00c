"""Personal algorithms: a model for each client (the columns of the paper's tables)."""

from sartor.personal.base import Personal
from sartor.personal.dapper import Dapper
from sartor.personal.finetune import Finetune
from sartor.personal.load import load
from sartor.personal.local import Local
from sartor.personal.mapper import Mapper
from sartor.personal.models import PersonalModels
from sartor.personal.objectives import Theory

ALGORITHMS: dict[str, type[Personal]] = {
    kind.__name__: kind for kind in (Local, Finetune, Dapper, Mapper)
}
"""The personal algorithms by the name that configurations use."""

__all__ = [
    "ALGORITHMS",
    "Dapper",
    "Finetune",
    "Local",
    "Mapper",
    "Personal",
    "PersonalModels",
    "Theory",
    "load",
]
