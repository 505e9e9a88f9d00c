"""Per-client scores and what can honestly be said of them; knows numbers only, never models."""

from sartor.evaluation.means import Interval, mean_interval, mean_test, sign_flip
from sartor.evaluation.scores import Scores
from sartor.evaluation.statistics import (
    Comparison,
    Gains,
    benjamini_hochberg,
    betting,
    compare,
    gains,
    holm,
    mcnemar,
    worst_decile,
)
from sartor.evaluation.summary import Change, Estimate, Spread, Summary

__all__ = [
    "Change",
    "Comparison",
    "Estimate",
    "Gains",
    "Interval",
    "Scores",
    "Spread",
    "Summary",
    "benjamini_hochberg",
    "betting",
    "compare",
    "gains",
    "holm",
    "mcnemar",
    "mean_interval",
    "mean_test",
    "sign_flip",
    "worst_decile",
]
