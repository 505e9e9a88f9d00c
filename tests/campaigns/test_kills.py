"""Killed at any moment of any stage, a run resumes to the same bits."""

from __future__ import annotations

import signal

from campaign_cases import EVERYWHERE, in_stages, spread
from sabotage import HALF, RENAMED, WRITTEN, Plan

from sartor.locks import LOCK

KILLS = 5
"""Kills in each stage."""


def killed(campaign, folder, plan):
    campaign.befall(folder, plan, -signal.SIGKILL)
    return 1


@in_stages()
def test_killed_five_times_in_every_stage(campaign, stage):
    moments = campaign.moments[stage]
    kinds = [*dict.fromkeys(moments)]
    shift = [one for _, one in EVERYWHERE].index(stage)  # so that kinds take turns
    first, second = (kinds[(shift + n * len(kinds) // 2) % len(kinds)] for n in (0, 1))
    plans = [
        Plan(stage, 0),
        Plan(stage, spread(moments, first, 0.4)),
        Plan(stage, spread(moments, second, 0.7)),
        Plan(stage, len(moments) - 1),
    ]
    kills = 0
    for plan in plans:
        folder = campaign.folder()
        kills += killed(campaign, folder, plan)
        if plan is plans[1]:  # and again, soon after it has resumed
            kills += killed(campaign, folder, Plan(stage, 1))
        campaign.resume(folder)
    named = ", ".join(moments[plan.moment] for plan in plans)
    print(f"{stage}: {len(moments)} moments, {kills} kills ({named}), all resumed")
    assert kills == KILLS


def test_the_campaign_has_100_kills():
    assert len(EVERYWHERE) * KILLS == 100


def test_killed_again_and_again(campaigns):
    """One run, killed in several stages: the slice of the campaign for `make test`."""
    campaign = campaigns("quick")
    folder = campaign.folder()
    for stage, kind in {"FedAvg: rounds": HALF, "Finetune": WRITTEN, "results": RENAMED}.items():
        killed(campaign, folder, Plan(stage, spread(campaign.moments[stage], kind, 0.3)))
        assert (folder / "out" / LOCK).exists()  # which holds nobody up
    campaign.resume(folder)
