"""Per-client scores and what can honestly be said of them; knows numbers only, never models."""

from sartor.evaluation.scores import Scores
from sartor.evaluation.statistics import (
    Comparison,
    Gains,
    benjamini_hochberg,
    bootstrap_interval,
    compare,
    gains,
    mcnemar,
    paired_t,
    sign_flip,
    worst_decile,
)
from sartor.evaluation.summary import Change, Estimate, Spread, Summary

__all__ = [
    "Change",
    "Comparison",
    "Estimate",
    "Gains",
    "Scores",
    "Spread",
    "Summary",
    "benjamini_hochberg",
    "bootstrap_interval",
    "compare",
    "gains",
    "mcnemar",
    "paired_t",
    "sign_flip",
    "worst_decile",
]
