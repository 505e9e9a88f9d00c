"""Runs: a configuration in, a directory out that can be resumed, compared and deleted."""

from sartor.runs.advised import advice_config, advise_run
from sartor.runs.config import Config, parse_config, read_config
from sartor.runs.run import Run, run

__all__ = ["Config", "Run", "advice_config", "advise_run", "parse_config", "read_config", "run"]
