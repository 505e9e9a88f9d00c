"""Told to stop at any stage, a run says how to resume, leaves nothing half done, and resumes."""

from __future__ import annotations

import pytest
from campaign_cases import in_stages, spread
from sabotage import HALF, WORKED, Plan

from sartor.files import UNFINISHED


def stops_cleanly(campaign, stage, name, kind):
    """Send a process a signal, and resume what it did; returns what it has said."""
    folder = campaign.folder()
    moment = spread(campaign.moments[stage], kind, 0.5)
    said = campaign.befall(folder, Plan(stage, moment, name), 130)
    assert "Traceback" not in said and "Exception" not in said, said
    assert "Resume with\n  sartor " in said or "Start again with\n  sartor " in said, said
    assert not [path for path in folder.rglob(".*") if UNFINISHED.fullmatch(path.name)]
    campaign.resume(folder)
    return said


@pytest.mark.parametrize("name, kind", [("SIGINT", WORKED), ("SIGTERM", HALF)])
@in_stages()
def test_a_signal_stops_cleanly_in_every_stage(campaign, stage, name, kind):
    stops_cleanly(campaign, stage, name, kind)


def test_ctrl_c_finishes_the_round(campaigns):
    said = stops_cleanly(campaigns("quick"), "FedAvg: rounds", "SIGINT", WORKED)
    assert "Finishing the current step; press Ctrl-C again to stop now" in said
    assert "FedAvg stopped after round 3 of 5. Everything so far is kept. Resume with" in said


def test_termination_stops_cleanly_where_no_step_is_to_be_finished(campaigns):
    stops_cleanly(campaigns("quick"), "evaluating", "SIGTERM", HALF)
