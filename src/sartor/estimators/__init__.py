"""Estimators of scikit-learn's kind: a model for each client of a table."""

from sartor.estimators.candidates import CANDIDATES as CANDIDATES
from sartor.estimators.personal import PersonalClassifier as PersonalClassifier
from sartor.estimators.personal import PersonalRegressor as PersonalRegressor
from sartor.estimators.store import load as load
