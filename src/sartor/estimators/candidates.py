"""Candidates: the ways to make models for clients that are tried on held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sartor.advice.decide import REFERENCE
from sartor.estimators.approaches import Approach, Recalibrate, Slopes
from sartor.estimators.crossed import LEVELS_AND_SLOPES, Crossed
from sartor.estimators.own import Own

GLOBAL = REFERENCE
"""The name of the model that all clients share, and that does not know them."""

MIXTURE = "mixture"
"""The name of the candidate that others are mixed in."""

HALF = "mixture, half"
"""The name of the same, mixed with the global model."""


@dataclass(frozen=True)
class Candidate:
    """A way to make models for clients.

    Attributes:
        base: the central model that it begins with.
        approach: what is fitted beside it; ``None`` for nothing.
        lambda_: the weight of this in a mixture with the global model; 1 for no mixture.
        parts: the weights of other candidates that this is a mixture of; none if it is not.
    """

    base: str
    approach: Approach | None = None
    lambda_: float = 1.0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def personal(self) -> float:
        """λ, the weight of all but the global model."""
        shared = self.parts.get(GLOBAL, 0.0) if self.parts else float(self == Candidate(GLOBAL))
        return self.lambda_ * (1 - shared)

    @property
    def words(self) -> str:
        """What it is, for people."""
        found = BASES[self.base]
        if self.parts:
            found = "a mixture: " + ", ".join(f"{w:.0%} {n}" for n, w in self.parts.items())
        if self.approach is not None:
            found = f"{self.approach.words}, on top of {found}"
        if self.lambda_ < 1:
            found += f"; mixed with {1 - self.lambda_:.0%} of the global model"
        return found


BASES = {
    GLOBAL: "one model for all clients",
    "category": "one model that sees the client as one more column",
    "linear": "one linear model",
    "2 clusters": "a model for each of 2 clusters of clients",
    "3 clusters": "a model for each of 3 clusters of clients",
}
"""The central models that candidates begin with."""

ALIKE = (GLOBAL, "linear")
"""Those that do not know clients."""

CANDIDATES: Mapping[str, Candidate] = {
    GLOBAL: Candidate(GLOBAL),
    "linear, level": Candidate("linear", Recalibrate("the client's own level", slope=False)),
    "linear": Candidate("linear", Slopes()),
    "category": Candidate("category"),
    "recalibrate": Candidate(GLOBAL, Recalibrate()),
    "slopes": Candidate(GLOBAL, Slopes()),
    "category, recalibrate": Candidate("category", Recalibrate()),
    "model interpolation": Candidate(
        GLOBAL, Own("a model of the client's rows that begins with the scores", beside=True), 0.5
    ),
    "local": Candidate(GLOBAL, Own("a model of the client's rows alone")),
    "crossed": Candidate(GLOBAL, Crossed()),
    "linear, crossed": Candidate("linear", Crossed(LEVELS_AND_SLOPES, slopes=True)),
    "2 clusters": Candidate("2 clusters"),
    "3 clusters": Candidate("3 clusters"),
    "data interpolation": Candidate(
        GLOBAL, Own("a model of the client's rows and a sample of everybody's", share=0.5)
    ),
}
"""What is tried by default, in this order, while there is time; then a mixture of all."""
