"""The paper's EMNIST experiment: Tables 2 and 3 (section 7.2 and its appendix), and beyond.

Test accuracy of clients that took part in central training and of others, for three central
algorithms as they are and with three personal ones.
"""

from sartor.experiments.emnist.experiment import reproduce
from sartor.experiments.emnist.results import as_text
from sartor.experiments.emnist.settings import Settings

__all__ = ["Settings", "as_text", "reproduce"]
