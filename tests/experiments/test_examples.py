"""The paper's examples come out as the paper argues; each finding could have failed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from sartor.cli import app
from sartor.experiments.examples import EXAMPLES, Finding, odd_excess, separate_excess


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
    assert apart.value == pytest.approx(0.6145, abs=0.06) and joint.value < 0.1


def test_a_finding_that_does_not_hold_fails_the_command(monkeypatch):
    bad = [Finding("a number", 1.0, "2", False)]
    for title in list(EXAMPLES):
        monkeypatch.setitem(EXAMPLES, title, lambda seed: bad)
    result = CliRunner().invoke(app, ["reproduce", "examples"])
    assert result.exit_code == 1
    assert "NOT as expected" in result.output


def test_the_excess_of_separate_training_is_that_of_half_a_central_model():
    """At λ = 0 odd clients pay −E log(½·1[y=0] + ½/d) for a central model that serves both."""
    for d in (2, 50):
        half = np.full(d, 0.5 / d)
        half[0] += 0.5
        models = SimpleNamespace(
            clients=["client-0000", "client-0001"],
            # Even clients would have an infinite loss: they must not count.
            predict_proba=lambda client, x, half=half: half if client[-1] == "1" else 0 * half,
        )
        assert odd_excess(models, d) == pytest.approx(separate_excess(d))
    assert separate_excess(50) == pytest.approx(0.6145, abs=1e-4)
