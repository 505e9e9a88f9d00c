"""What the paper proves, as numbers: discrepancy, complexity, bounds, and what they advise."""

from sartor.theory import bounds
from sartor.theory.bound import Bound

__all__ = ["Bound", "bounds"]
