"""The score table adds up, selects consistently, and its summary hides nobody."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.errors import ConfigError, DataError
from sartor.evaluation import Scores, gains, mean_interval, worst_decile

sizes = st.lists(st.integers(1, 6), min_size=1, max_size=12)


def random_scores(n, seed=0, accuracy=True, baseline=True, domain=True) -> Scores:
    rng = np.random.default_rng(seed)
    n, p = np.asarray(n), len(n)
    common = dict(
        client=tuple(f"k{k}" for k in range(p)),
        size=rng.integers(0, 50, p),
        test_size=n,
        seen=rng.random(p) < 0.5,
        domain=tuple(rng.choice(["north", "south"], p)) if domain else None,
    )

    def examples():
        return dict(
            example_loss=rng.exponential(size=n.sum()).astype(np.float32),
            example_correct=rng.random(n.sum()) < 0.7 if accuracy else None,
        )

    central = Scores("FedAvg", **common, **examples()) if baseline else None
    extra = {
        "cluster": rng.integers(0, 3, p),
        "mixture_loss": rng.random(p),
        "central_mixture_loss": rng.random(p),
    }
    return Scores("Local", **common, **examples(), extra=extra, baseline=central)


def by_client(scores: Scores, values):
    return np.split(np.asarray(values, float), np.cumsum(scores.test_size)[:-1])


@given(sizes)
def test_client_means_are_means_over_the_clients_own_examples(n):
    s = random_scores(n)
    assert s.loss == pytest.approx([x.mean() for x in by_client(s, s.example_loss)])
    assert s.accuracy == pytest.approx([x.mean() for x in by_client(s, s.example_correct)])
    assert s.loss.dtype == s.accuracy.dtype == np.float64


def test_float32_losses_are_added_in_float64():
    s = Scores("a", ("k",), [1], [3], [True], np.array([2**24, 1, 1], np.float32))
    assert s.loss[0] == (2**24 + 2) / 3


@given(sizes, st.data())
def test_select_keeps_the_rows_of_the_clients_it_keeps(n, data):
    s = random_scores(n)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(n), max_size=len(n))))
    kept = s.select(mask)
    assert kept.loss.tolist() == s.loss[mask].tolist()
    assert kept.accuracy.tolist() == s.accuracy[mask].tolist()
    assert kept.baseline.loss.tolist() == s.baseline.loss[mask].tolist()
    assert kept.table().equals(s.table().filter(pa.array(mask)))
    assert len(s.seen_only()) + len(s.unseen_only()) == len(s)
    assert s.seen_only().seen.all() and not s.unseen_only().seen.any()


def test_the_table_has_the_columns_there_are():
    full = random_scores([2, 3]).table()
    assert full.column_names == [
        *("client", "size", "test_size", "seen", "domain", "loss", "accuracy"),
        *("central_loss", "central_accuracy", "cluster", "mixture_loss", "central_mixture_loss"),
    ]
    assert full["client"].to_pylist() == ["k0", "k1"]
    bare = random_scores([2, 3], accuracy=False, baseline=False, domain=False).table()
    assert "accuracy" not in bare.column_names and "domain" not in bare.column_names
    assert "central_loss" not in bare.column_names


def test_scores_cannot_be_changed_and_leave_the_callers_arrays_alone():
    loss = np.array([1.0, 2.0])
    s = Scores("a", ("k", "l"), [1, 1], [1, 1], [True, True], loss)
    with pytest.raises(ValueError, match="read-only"):
        s.example_loss[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.method = "b"
    loss[0] = 3.0  # still the caller's


# Mistakes


GOOD = dict(
    method="Local",
    client=("k", "l"),
    size=[4, 4],
    test_size=[2, 1],
    seen=[True, False],
    example_loss=[1.0, 2.0, 3.0],
    example_correct=[True, False, True],
)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(client=("k", "k")), "client 'k' has two rows"),
        (dict(size=[4]), "size must hold 2 values"),
        (dict(seen=[True] * 3), "seen must hold 2 values"),
        (dict(domain=("a",)), "domain must hold 2 values"),
        (dict(extra={"cluster": [1]}), "cluster must hold 2 values"),
        (dict(extra={"loss": [1, 2]}), "'loss' is the name of a column.*rename"),
        (dict(test_size=[3, 0]), "client 'l' has .*test_size 0: leave out"),
        (dict(example_loss=[1.0, 2.0]), r"example_loss must hold 3 values.*\(2,\)"),
        (dict(example_correct=[1.0]), "example_correct must hold 3 values"),
        (dict(example_loss=[1.0, 2.0, np.nan]), "client 'l' has example_loss nan"),
        (dict(example_loss=[1.0, np.nan, 2.0]), "client 'k' has example_loss nan"),
        (dict(example_correct=[0, 1, 7]), r"client 'l' has example_correct 7.0.*\[0, 1\]"),
        (dict(baseline=Scores(**{**GOOD, "client": ("l", "k")})), "the same order"),
        (dict(baseline=Scores(**{**GOOD, "test_size": [1, 2]})), "test_size"),
        (dict(baseline=Scores(**{**GOOD, "example_correct": None})), "or for neither"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(DataError, match=message):
        Scores(**{**GOOD, **change})


def test_other_mistakes_are_named():
    s = Scores(**GOOD)
    with pytest.raises(DataError, match="mask must hold 2 booleans"):
        s.select([0, 1])
    with pytest.raises(DataError, match="mask must hold 2 booleans"):
        s.select([True])
    with pytest.raises(ConfigError, match="metric"):
        s.examples("auc")
    with pytest.raises(DataError, match="'Local' has no clients to summarise"):
        s.select([False, False]).summary()


# The summary


def test_the_summary_by_hand():
    s = Scores(**GOOD).summary()
    assert (s.clients, s.examples) == (2, 3)
    assert (s.loss.mean, s.loss.weighted_mean, s.loss.worst_decile) == (2.25, 2.0, 3.0)
    assert (s.accuracy.mean, s.accuracy.worst_decile) == (0.75, 0.5)
    assert s.accuracy.weighted_mean == pytest.approx(2 / 3)
    assert s.loss.percentiles == pytest.approx(
        {5: 1.575, 25: 1.875, 50: 2.25, 75: 2.625, 95: 2.925}
    )
    assert s.loss_change is None and s.mixture_loss is None and s.forgetting is None
    assert (s.groups["seen"].loss.mean, s.groups["unseen"].loss.mean) == (1.5, 3.0)
    assert math.isnan(s.groups["seen"].loss.interval[0])


def test_the_summary_is_made_of_the_public_functions():
    scores = random_scores(np.random.default_rng(0).integers(1, 30, size=80))
    s = scores.summary()
    found = gains(scores, "loss")
    assert s.accuracy.interval == mean_interval(scores.accuracy)[:2]
    assert s.accuracy.worst_decile == worst_decile(scores.accuracy, higher_is_better=True)
    assert s.loss.weighted_mean == pytest.approx(scores.example_loss.mean(dtype=float))
    assert s.loss_change.mean == pytest.approx((scores.baseline.loss - scores.loss).mean())
    assert s.accuracy_change.mean == pytest.approx(
        (scores.accuracy - scores.baseline.accuracy).mean()
    )
    assert s.loss_change.interval == mean_interval(found.change)[:2]
    assert s.loss_change.hurt == np.mean(scores.loss > scores.baseline.loss)
    change = s.accuracy_change
    assert change.gained + change.hurt + change.unchanged == pytest.approx(1)
    forgot = scores.extra["mixture_loss"] - scores.extra["central_mixture_loss"]
    assert s.forgetting.mean == pytest.approx(forgot.mean())
    assert s.mixture_loss.mean == pytest.approx(scores.extra["mixture_loss"].mean())
    north = scores.select(np.array(scores.domain) == "north").summary()
    assert s.groups["domain=north"].loss == north.loss
    assert s.groups["unseen"].accuracy == scores.unseen_only().summary().accuracy


def test_groups_share_the_verdicts_of_all_clients():
    """Hurt and gained clients of the parts add up to those of the whole."""
    rng = np.random.default_rng(1)
    n = np.full(100, 40)
    facts = dict(
        client=tuple(map(str, range(100))), size=n, test_size=n, seen=np.arange(100) % 3 > 0
    )
    central, noise = rng.random((2, n.sum()))
    central_scores = Scores("FedAvg", **facts, example_loss=central)
    shift = np.repeat(rng.normal(0, 0.3, 100), 40)
    s = Scores(
        "Local",
        **facts,
        example_loss=central + noise - 0.5 + shift,
        baseline=central_scores,
        example_range=np.tile([-1.5, 1.5], (n.sum(), 1)),
    ).summary()
    assert 0 < s.loss_change.hurt_beyond_chance < s.loss_change.hurt
    for name in ("gained_beyond_chance", "hurt_beyond_chance", "hurt", "mean"):
        parts = [getattr(g.loss_change, name) * g.clients for g in s.groups.values()]
        assert sum(parts) == pytest.approx(getattr(s.loss_change, name) * 100)


def test_a_group_of_one_is_not_believed_sooner_for_being_alone():
    """One client with McNemar p = 1/32 among thirty with p = 1 is chance, in its group as well."""
    n, last = np.full(31, 6), np.repeat(np.arange(31) == 30, 6)
    facts = dict(client=tuple(map(str, range(31))), size=n, test_size=n, seen=np.arange(31) < 30)
    zeros = np.zeros(186)
    central = Scores("FedAvg", **facts, example_loss=zeros, example_correct=zeros)
    own = Scores("Local", **facts, example_loss=zeros, example_correct=last, baseline=central)
    unseen = own.summary().groups["unseen"].accuracy_change
    assert (unseen.gained, unseen.gained_beyond_chance) == (1.0, 0.0)
    assert gains(own.unseen_only(), "accuracy").beyond_chance.all()  # asked about it alone


@given(st.lists(st.integers(1, 6), min_size=1, max_size=10), st.booleans(), st.booleans())
def test_every_summary_is_json_and_an_aligned_text(n, accuracy, baseline):
    s = random_scores(n, accuracy=accuracy, baseline=baseline).summary()
    found = json.loads(json.dumps(s.to_dict(), allow_nan=False))
    assert found["loss"]["percentiles"]["50"] == pytest.approx(s.loss.percentiles[50])
    assert (found["accuracy"] is not None) == accuracy
    assert (found["loss_change"] is not None) == baseline
    for block in str(s).partition("\n\nrough: ")[0].split("\n\n"):
        rows = [line for line in block.splitlines() if "," in line[:20] and "test ex" not in line]
        assert len({len(row) for row in rows}) == 1


def test_the_summary_does_not_depend_on_the_order_of_clients():
    s = random_scores([3, 1, 4, 1, 5, 2], baseline=False)
    turn = np.array([5, 3, 0, 1, 4, 2])
    rows = np.concatenate([np.split(np.arange(16), np.cumsum(s.test_size)[:-1])[k] for k in turn])
    turned = Scores(
        s.method,
        tuple(s.client[k] for k in turn),
        s.size[turn],
        s.test_size[turn],
        s.seen[turn],
        s.example_loss[rows],
        s.example_correct[rows],
        tuple(s.domain[k] for k in turn),
        {name: column[turn] for name, column in s.extra.items()},
    )
    assert str(turned.summary()) == str(s.summary())


def test_infinite_losses_stay_visible():
    s = Scores("a", ("k", "l", "m"), [1] * 3, [1] * 3, [True] * 3, [1.0, np.inf, np.inf]).summary()
    assert s.loss.mean == s.loss.percentiles[95] == s.loss.worst_decile == np.inf
    assert s.loss.percentiles[5] == np.inf and s.to_dict()["loss"]["mean"] is None
    assert "inf" in str(s)


def test_intervals_of_few_clients_are_marked_in_words():
    few, enough = random_scores([2] * 20), random_scores([2] * 40)
    assert few.summary().loss.rough and " rough " in str(few.summary())
    assert "rough: fewer than 40 clients, so unusual ones may be missing" in str(few.summary())
    assert not enough.summary().loss.rough and enough.summary().groups["seen"].loss.rough
    alone = random_scores([2] * 4, baseline=False).summary()
    assert alone.to_dict()["loss"]["interval"] == [None, None] and "rough" not in str(alone)


def test_clients_that_are_all_alike_have_no_interval():
    s = Scores("a", tuple("klmnop"), [1] * 6, [2] * 6, [True] * 6, np.ones(12), np.ones(12))
    assert math.isnan(s.summary().accuracy.interval[0]) and s.summary().accuracy.mean == 1.0


def test_a_range_belongs_to_each_example_and_is_selected_with_it():
    ranges = np.stack([-np.arange(3.0), np.arange(3.0)], axis=1)
    facts = dict(client=("k", "l"), size=[1, 1], test_size=[2, 1], seen=[True, False])
    s = Scores("a", **facts, example_loss=np.ones(3), example_range=ranges)
    assert s.select([False, True]).example_range.tolist() == [[-2.0, 2.0]]
    assert s.select([True, False]).example_range.tolist() == [[0.0, 0.0], [-1.0, 1.0]]
    for wrong in (ranges[:2], ranges[:, ::-1], ranges * np.nan):
        with pytest.raises(DataError, match="example_range must hold a least and a most"):
            Scores("a", **facts, example_loss=np.ones(3), example_range=wrong)


def test_intervals_stay_where_scores_can_be():
    facts = dict(client=tuple("abcdef"), size=[5] * 6, test_size=[2] * 6, seen=[True] * 6)
    right = [1.0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    found = Scores("m", **facts, example_loss=[0.01, 9.0] + [0.01] * 10, example_correct=right)
    summary = found.summary()
    assert summary.accuracy.interval[1] == 1.0 and summary.loss.interval[0] == 0.0
