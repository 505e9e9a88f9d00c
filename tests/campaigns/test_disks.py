"""Full and read-only disks: a clear error, nothing lost, and the same bits after making room."""

from __future__ import annotations

import json

import pytest
from campaign_cases import COMMANDS, in_stages, spread
from run_cases import contents
from sabotage import HALF, Plan, limited

SOAK = pytest.mark.soak
FULL = "free some space or choose another directory, then go on"


@in_stages("trials")
def test_a_full_disk_in_every_stage(campaign, stage):
    folder = campaign.folder()
    moment = spread(campaign.moments[stage], HALF, 0.6)
    said = campaign.befall(folder, Plan(stage, moment, "full"), 1)
    assert "error: cannot write " in said and "No space left on device" in said and FULL in said
    assert "Traceback" not in said and "Exception" not in said, said
    campaign.resume(folder)


@pytest.mark.parametrize("size", [1500, *(pytest.param(n, marks=SOAK) for n in (200, 9000))])
def test_a_limit_of_the_system(campaigns, size):
    """The system itself refuses to write more, in the middle of a file."""
    campaign = campaigns("quick")
    folder = campaign.folder()
    campaign.end(campaign.process(limited, folder, size), 1)
    said = folder.with_suffix(".log").read_text()
    assert "error: cannot write " in said and "File too large" in said and FULL in said
    campaign.resume(folder)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "quick" else SOAK) for n in COMMANDS]
)
def test_a_read_only_disk_is_refused_before_any_work(campaigns, name):
    campaign = campaigns(name)
    for folder in (campaign.folder(), campaign.finished):
        before = contents(folder)
        said = campaign.befall(folder, Plan("", 0, "read-only"), 1)
        assert "error: cannot write " in said and "Read-only file system" in said, said
        assert "choose another directory" in said
        reached = set(json.loads(folder.with_suffix(".json").read_text()))
        assert reached <= {"starting", "reading data"}  # advice looks at labels to choose a model
        assert contents(folder) == before


def test_a_place_below_a_file_is_refused_before_any_work(campaigns):
    campaign = campaigns("quick")
    folder = campaign.folder()
    campaign.end(campaign.start(folder, Plan("", 0), ["--out", "../quick.toml/out"]), 1)
    said = folder.with_suffix(".log").read_text()
    assert "quick.toml/out" in said and "choose another" in said and "Traceback" not in said
    assert set(json.loads(folder.with_suffix(".json").read_text())) <= {"starting"}
    assert not contents(folder)
