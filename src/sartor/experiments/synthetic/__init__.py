"""The paper's synthetic experiment: Table 1 and Figure 1 (section 7.1 and its appendix).

A hundred clients draw symbols from distributions that are known, so that every loss can be computed
exactly beside the one on test samples, and compared with what is mathematically possible.
"""

from sartor.experiments.synthetic.experiment import reproduce
from sartor.experiments.synthetic.population import Settings, population_limit
from sartor.experiments.synthetic.results import as_text

__all__ = ["Settings", "as_text", "population_limit", "reproduce"]
