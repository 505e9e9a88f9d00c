"""Runs: a configuration in, a directory out that can be resumed, compared and deleted."""

from sartor.runs.advised import advice_config, advise_run
from sartor.runs.config import Config, parse_config, read_config
from sartor.runs.run import Run, read_any, run
from sartor.runs.table_config import TableConfig, parse_table_config

__all__ = [
    "Config",
    "Run",
    "TableConfig",
    "advice_config",
    "advise_run",
    "parse_config",
    "parse_table_config",
    "read_any",
    "read_config",
    "run",
]
