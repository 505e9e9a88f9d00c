"""Schedule → lanes → devices: the one place that knows how many clients run at once.

Everything outside this package imports from here. An algorithm of a round goes through
:meth:`Cohort.run`: a pass over a cohort's jobs, made of three pure functions.
"""

from sartor.engine.arguments import traced
from sartor.engine.blocks import Block, Jobs, Mixing, Stack, everybody, lanes_of, train_each
from sartor.engine.cohort import Cohort, Passed
from sartor.engine.engine import Engine
from sartor.engine.job import Batch, ClientProgram, Ended, Job
from sartor.engine.objectives import (
    Leaves,
    Objective,
    Own,
    from_scratch,
    leaf_shapes,
    lowered,
    pick,
    predict,
)
from sartor.engine.optimizers import (
    AUTOMATIC,
    SEARCHED,
    Automatic,
    Chosen,
    Optimizer,
    Searched,
    build,
)
from sartor.engine.planning import Planner
from sartor.engine.predicting import predict_each
from sartor.engine.programs import Recipe, trainer
from sartor.engine.rounds import Chunk, one_round, run_rounds
from sartor.engine.sampling import Sampler, in_order
from sartor.engine.schedule import Spans, padded, ragged, steps_of
from sartor.engine.scoring import (
    Against,
    EachScorer,
    Scored,
    losses_by_client,
    positions,
    score_shared,
)
from sartor.engine.states import ClientStates
from sartor.engine.trials import personalize, trial
from sartor.engine.vectorize import side_by_side

__all__ = [
    "AUTOMATIC",
    "SEARCHED",
    "Against",
    "Automatic",
    "Batch",
    "Block",
    "Chosen",
    "Chunk",
    "ClientProgram",
    "ClientStates",
    "Cohort",
    "EachScorer",
    "Ended",
    "Engine",
    "Job",
    "Jobs",
    "Leaves",
    "Mixing",
    "Objective",
    "Optimizer",
    "Own",
    "Passed",
    "Planner",
    "Recipe",
    "Sampler",
    "Scored",
    "Searched",
    "Spans",
    "Stack",
    "build",
    "everybody",
    "from_scratch",
    "in_order",
    "lanes_of",
    "leaf_shapes",
    "losses_by_client",
    "lowered",
    "one_round",
    "padded",
    "personalize",
    "pick",
    "positions",
    "predict",
    "predict_each",
    "ragged",
    "run_rounds",
    "score_shared",
    "side_by_side",
    "steps_of",
    "traced",
    "train_each",
    "trainer",
    "trial",
]
