"""Schedule → lanes → devices: the one place that knows how many clients run at once."""

from sartor.engine.cohort import Cohort, Trained, trainer
from sartor.engine.engine import Engine, check, check_labels
from sartor.engine.optimizers import Optimizer
from sartor.engine.rounds import Chunk, run_rounds

__all__ = [
    "Chunk",
    "Cohort",
    "Engine",
    "Optimizer",
    "Trained",
    "check",
    "check_labels",
    "run_rounds",
    "trainer",
]
