"""The paper's experiments and examples; each folder holds an experiment with its page."""
