"""Advice for each client: join the global model, join a cluster, interpolate, or train alone."""

from sartor.advice.advice import Advice
from sartor.advice.advise import advise

__all__ = ["Advice", "advise"]
