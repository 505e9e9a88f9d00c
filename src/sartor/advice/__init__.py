"""Should a client join, be clustered, be personalized? On top of everything that is fitted."""

from sartor.advice.advise import Advice, advise

__all__ = ["Advice", "advise"]
