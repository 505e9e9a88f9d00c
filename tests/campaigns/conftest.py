"""Puts the helpers of campaigns, and those of runs, within reach."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
sys.path.insert(0, str(Path(__file__).parent))

from campaign_cases import Campaign


@pytest.fixture(scope="package")
def campaigns(tmp_path_factory):
    """The campaign of each command, made when it is needed."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = Campaign(name, tmp_path_factory.mktemp(name))
        return made[name]

    return of


@pytest.fixture
def campaign(request, campaigns):
    """The campaign of a command."""
    return campaigns(request.param)
