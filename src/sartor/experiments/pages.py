"""Reports on everything that this version can run: runs, advice and experiments."""

from sartor import report
from sartor.experiments import emnist, regret, synthetic

PAGES = {**report.PAGES, "synthetic": synthetic.PAGE, "emnist": emnist.PAGE, "regret": regret.PAGE}
"""How to report on each kind of results, by the name in ``results.json``."""
