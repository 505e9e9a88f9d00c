"""Reports: tables and pictures of runs on one page."""

from sartor.report.page import write_report

__all__ = ["write_report"]
