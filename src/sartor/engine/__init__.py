"""Schedule → lanes → devices: the one place that knows how many clients run at once."""

from sartor.engine.cohort import Cohort, Trained
from sartor.engine.engine import Engine, check
from sartor.engine.optimizers import Optimizer
from sartor.engine.rounds import Chunk, Pass, run_rounds
from sartor.engine.together import side_by_side

__all__ = [
    "Chunk",
    "Cohort",
    "Engine",
    "Optimizer",
    "Pass",
    "Trained",
    "check",
    "run_rounds",
    "side_by_side",
]
