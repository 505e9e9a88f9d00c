"""The paper's examples come out as the paper argues; each finding could have failed."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from sartor.cli import app
from sartor.experiments.examples import EXAMPLES, Finding, separate_and_joint


@pytest.mark.filterwarnings("ignore")
def test_examples_through_the_command_line(monkeypatch):
    findings = {}

    def noted(title, example):
        def run(seed):
            findings[title] = example(seed)
            return findings[title]

        return run

    for title, example in list(EXAMPLES.items()):
        monkeypatch.setitem(EXAMPLES, title, noted(title, example))
    result = CliRunner().invoke(app, ["reproduce", "examples"])
    assert result.exit_code == 0, result.output
    assert result.output.count("as expected") == 8
    apart, joint = findings["separate against joint model interpolation (section 6)"]
    assert apart.value == pytest.approx(0.6145, abs=0.06)
    assert joint.value < 0.1


def test_a_finding_that_does_not_hold_fails_the_command(monkeypatch):
    bad = [Finding("a number", 1.0, "2", False)]
    for title in list(EXAMPLES):
        monkeypatch.setitem(EXAMPLES, title, lambda seed: bad)
    result = CliRunner().invoke(app, ["reproduce", "examples"])
    assert result.exit_code == 1
    assert "NOT as expected" in result.output


def test_the_excess_of_separate_training_can_be_written_down():
    # At λ = 0 odd clients pay -E log(½·1[y=0] + ½/d) for a central model that serves both.
    d = 50
    loss = -(np.log(0.5 + 0.5 / d) + (d - 1) * np.log(0.5 / d)) / d
    assert loss - np.log(d) == pytest.approx(0.6145, abs=1e-4)
    assert separate_and_joint.__doc__
