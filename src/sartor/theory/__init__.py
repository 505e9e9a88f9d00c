"""The paper's theory as numbers: label discrepancy, complexity, bounds, and choices by bounds."""

from sartor.theory import bounds
from sartor.theory.bound import Bound
from sartor.theory.choices import BestLambda, BestQ, best_lambda, best_q
from sartor.theory.complexity import Dimension, Rademacher, pseudo_dimension, rademacher
from sartor.theory.label_discrepancy import (
    Discrepancy,
    discrepancies,
    discrepancy,
    discrepancy_matrix,
)

__all__ = [
    "BestLambda",
    "BestQ",
    "Bound",
    "Dimension",
    "Discrepancy",
    "Rademacher",
    "best_lambda",
    "best_q",
    "bounds",
    "discrepancies",
    "discrepancy",
    "discrepancy_matrix",
    "pseudo_dimension",
    "rademacher",
]
