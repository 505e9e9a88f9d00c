"""Should a client join, be clustered, be personalized? On top of everything that is fitted."""

from sartor.advice.advice import Advice
from sartor.advice.advise import advise

__all__ = ["Advice", "advise"]
