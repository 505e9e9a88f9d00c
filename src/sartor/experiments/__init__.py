"""The paper's experiments and examples: settings, not machinery."""
