"""What several experiments share: their directory, saved parts, workers and verdicts."""
