"""Schedules are complete, honest and tight, whatever the clients' sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.engine.sampling import sample_cohorts
from sartor.engine.schedule import NOBODY, one_each, pack, room, schedule, steps_of
from sartor.randomness import mix, shuffles, uniforms

sizes_of_rounds = st.integers(1, 3).flatmap(
    lambda rounds: st.integers(1, 9).flatmap(
        lambda jobs: st.lists(
            st.lists(st.integers(1, 70), min_size=jobs, max_size=jobs),
            min_size=rounds,
            max_size=rounds,
        )
    )
)


def make(sizes, batch=7, epochs=2, lanes=4, devices=1):
    sizes = np.array(sizes, np.int64)
    ends = np.cumsum(sizes).reshape(sizes.shape)
    keys = mix(0, "test", np.arange(sizes.size)).reshape(sizes.shape)
    return schedule(
        ends - sizes, sizes, keys, batch=batch, epochs=epochs, lanes=lanes, devices=devices
    )


@given(sizes_of_rounds, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]))
def test_every_example_is_read_once_an_epoch_by_its_own_job(sizes, lanes, devices):
    lanes *= devices
    plan = make(sizes, lanes=lanes, devices=devices)
    first = 0
    for r, members in enumerate(sizes):
        for job, size in enumerate(members):
            read = [
                plan.order[r, plan.at[r, s, lane] :][: plan.valid[r, s, lane]]
                for s in range(plan.valid.shape[1])
                for lane in range(lanes)
                if plan.valid[r, s, lane] and plan.job[r, s, lane] == job
            ]
            expected = np.repeat(np.arange(first, first + size), 2)
            np.testing.assert_array_equal(np.sort(np.concatenate(read)), expected)
            first += size


@given(sizes_of_rounds, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]))
def test_turns_hand_in_every_job_after_its_last_step_and_before_the_lanes_next(
    sizes, lanes, devices
):
    lanes *= devices
    plan = make(sizes, lanes=lanes, devices=devices)
    for r, members in enumerate(sizes):
        handed = plan.hands_in[r]
        assert sorted(handed[handed != NOBODY].tolist()) == list(range(len(members)))
        for lane in range(lanes):
            device = lane // (lanes // devices)
            bounds, holds = plan.bounds[r, :, device], NOBODY
            for n in range(plan.turns[r, device]):
                taken = plan.takes[r, n, lane]
                holds = taken if taken != NOBODY else holds
                for s in range(bounds[n], bounds[n + 1]):
                    if plan.valid[r, s, lane]:
                        assert plan.job[r, s, lane] == holds
                given_in = plan.hands_in[r, n, lane]
                if given_in != NOBODY:
                    assert given_in == holds
                    after = plan.valid[r, bounds[n + 1] :, lane] > 0
                    assert not (plan.job[r, bounds[n + 1] :, lane][after] == holds).any()


@given(sizes_of_rounds, st.integers(1, 8))
def test_packing_is_tight_and_waiting_for_turns_costs_nothing(sizes, lanes):
    steps = steps_of(np.array(sizes, np.int64), batch=7, epochs=1)
    packing = pack(steps, lanes)
    longest = packing.bounds.max(axis=(1, 2))
    # Graham's bound for list scheduling.
    bound = steps.sum(axis=1) / lanes + steps.max(axis=1) * (1 - 1 / lanes)
    assert (longest <= bound + 1e-9).all()
    ends = packing.start + steps
    assert (ends <= longest[:, None]).all()
    for r in range(len(steps)):
        for lane in range(lanes):
            mine = np.flatnonzero(packing.lane[r] == lane)
            order = mine[np.argsort(packing.start[r, mine])]
            assert (packing.start[r, order[1:]] >= ends[r, order[:-1]]).all()


def test_one_lane_has_a_turn_for_each_job_and_no_idle_step():
    plan = make([[30, 5, 12]], lanes=1)
    assert plan.turns.tolist() == [[3]]
    assert (plan.valid[0, : plan.bounds.max()] > 0).all()


def test_as_many_lanes_as_jobs_need_one_turn():
    assert make([[30, 5, 12]], lanes=3).turns.tolist() == [[1]]


def test_a_jobs_order_depends_on_its_key_alone():
    sizes, keys = np.array([[30, 40]]), mix(0, "test", [[1, 2]])
    alone = schedule(np.array([[0]]), sizes[:, 1:], keys[:, 1:], batch=8, epochs=2, lanes=1)
    both = schedule(np.array([[40, 0]]), sizes, keys, batch=8, epochs=2, lanes=2)
    lane = int(both.job[0, 0].argmax())  # the lane that starts with job 1
    at = both.at[0, : alone.at.shape[1], lane]
    for mine, same, count in zip(alone.at[0, :, 0], at, alone.valid[0, :, 0], strict=True):
        expected = alone.order[0, mine : mine + count]
        np.testing.assert_array_equal(expected, both.order[0, same : same + count])


def test_real_looking_cohorts_are_packed_far_better_than_padded():
    draw = np.random.default_rng(0)
    sizes = draw.lognormal(5.1, 0.4, (50, 20)).astype(np.int64)
    steps = steps_of(sizes, 20, 1)
    padded_share = steps.sum() / (steps.max(axis=1).sum() * 20)
    packed_share = steps.sum() / (pack(steps, 12).bounds.max(axis=2).sum() * 12)
    assert packed_share > 0.8 > 0.65 > padded_share


def test_room_is_what_the_schedule_needs():
    steps = np.array([[3, 4, 5, 9]])
    sizes = 10 * steps
    # Lanes 9 3 and 5 4: turns after 8, 9 and 12. Two epochs of more than a batch have two orders.
    apart = np.arange(4)
    assert room(pack(steps, 2), sizes, 10, 1, apart) == (12, 3, 210)
    assert room(one_each(steps), sizes, 40, 2, apart) == (9, 1, 30 + 40 + 2 * 50 + 2 * 90)
    assert room(one_each(steps), sizes, 10, 1, share=np.array([0, 1, 1, 2])) == (9, 1, 160)


def test_jobs_that_share_read_the_same():
    sizes, keys = np.array([[30, 30, 30, 4]]), mix(0, "test", [[1, 1, 1, 2]])
    settings = {"batch": 8, "epochs": 2, "lanes": 4}
    apart = schedule(np.array([[5, 5, 5, 0]]), sizes, keys, **settings)
    shared = schedule(
        np.array([[5, 5, 5, 0]]), sizes, keys, share=np.array([3, 3, 3, 7]), **settings
    )
    assert shared.order.shape == (1, 2 * 30 + 4) and apart.order.shape == (1, 3 * 2 * 30 + 4)
    for s, lane in np.ndindex(apart.at.shape[1:]):
        count = apart.valid[0, s, lane]
        read = [p.order[0, p.at[0, s, lane] :][:count] for p in (apart, shared)]
        np.testing.assert_array_equal(*read)


@given(st.integers(1, 400), st.integers(1, 60))
def test_cohorts_are_drawn_without_replacement(population, size):
    cohorts = sample_cohorts(0, range(20), population, size)
    assert cohorts.shape == (20, min(population, size))
    for cohort in cohorts:
        assert len(set(cohort.tolist())) == len(cohort)
        assert cohort.min() >= 0 and cohort.max() < population


@pytest.mark.parametrize(("population", "size"), [(40, 4), (40, 20)])
def test_cohorts_are_uniform(population, size):
    """Each client takes part equally often: a χ² of participations, on both ways of drawing."""
    rounds = 4000
    counts = np.bincount(sample_cohorts(1, range(rounds), population, size).ravel())
    expected = rounds * size / population
    variance = expected * (1 - size / population)
    statistic = ((counts - expected) ** 2 / variance).sum()
    assert statistic < 40 + 5 * np.sqrt(80)
    assert len(np.unique(sample_cohorts(1, range(50), population, size), axis=0)) > 40


def test_uniforms_and_shuffles_are_fair():
    from scipy import stats

    words = mix(3, "fair", np.arange(200_000))
    assert stats.kstest(uniforms(words), "uniform").pvalue > 1e-3
    orders = shuffles(mix("orders", np.arange(6000)), np.full(6000, 3)).reshape(-1, 3)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6 and stats.chisquare(counts).pvalue > 1e-3


def test_jobs_of_one_length_are_packed_as_others_are():
    """By arithmetic; a round with another length beside it takes the loop."""
    random = np.random.default_rng(0)
    for _ in range(50):
        jobs, lanes = int(random.integers(1, 40)), int(random.integers(1, 9))
        equal = np.repeat(random.integers(1, 6, (3, 1)), jobs, axis=1)
        other = np.concatenate([equal, equal[:1]])
        other[3, 0] += 1
        quick, slow = pack(equal, lanes), pack(other, lanes)
        np.testing.assert_array_equal(quick.lane, slow.lane[:3])
        np.testing.assert_array_equal(quick.start, slow.start[:3])
    assert pack(np.zeros((2, 3), np.int64), 2).lane.shape == (2, 3)
