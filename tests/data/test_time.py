"""Splits, folds and trials that know time and groups: nothing is learnt from later rows."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sartor
from sartor.advice.holdout import assign_folds, held_folds, split_by_fold
from sartor.errors import ConfigError, DataError
from sartor.personal.choosing import make_trials


def timed(seed, size=60, clients=4):
    draw = np.random.default_rng(seed)
    return sartor.data.from_arrays(
        None, draw.integers(0, 3, size), draw.integers(0, clients, size),
        time=draw.permutation(size),
    )  # fmt: skip


def grouped(seed, size=60, clients=4, groups=9):
    draw = np.random.default_rng(seed)
    return sartor.data.from_arrays(
        None, draw.integers(0, 3, size), draw.integers(0, clients, size),
        groups=draw.integers(0, groups, size),
    )  # fmt: skip


@given(st.integers(0, 2**32))
def test_by_time_the_test_part_is_the_last_one(seed):
    data = timed(seed).split(validation=0.2, test=0.3, seed=seed, by="time")
    for k in range(len(data)):
        parts = [data.time[data.part(k, part)] for part in ("train", "validation", "test")]
        ends = [(p.min(initial=np.inf), p.max(initial=-np.inf)) for p in parts]
        assert ends[0][1] < ends[1][0] or not len(parts[1])
        assert ends[1][1] < ends[2][0] or not len(parts[1]) or not len(parts[2])
        assert ends[0][1] < ends[2][0]
    assert data.merge_parts().fingerprint == timed(seed).fingerprint


@given(st.integers(0, 2**32), st.integers(5, 55))
@pytest.mark.filterwarnings("ignore:.* have no rows before")
def test_by_a_date_all_later_rows_are_the_test_part(seed, since):
    """Of a client who came later, one row is left to train on, by nobody else."""
    data = timed(seed).split(validation=0.2, by=since)
    for k in range(len(data)):
        train, validation, test = (
            data.time[data.part(k, part)] for part in ("train", "validation", "test")
        )
        assert (test >= since).all() and (validation < since).all()
        assert train.max() < validation.min(initial=np.inf)
        if data.seen[k]:
            assert (train < since).all()
        else:
            assert not len(validation) and len(train) == 1 and train[0] < test.min(initial=np.inf)
    assert data.merge_parts().fingerprint == timed(seed).fingerprint


def test_a_date_is_given_in_many_ways():
    days = np.array(["2026-04-30", "2026-05-01", "2026-04-01", "2026-05-02T10:00"], "datetime64[s]")
    data = sartor.data.from_arrays(None, [0, 1, 0, 1], list("aabb"), time=days)
    for by in (
        "2026-05-01", "2026-05-01 00:00:00", datetime.date(2026, 5, 1), pd.Timestamp("2026-05-01"),
        np.datetime64("2026-05-01"), datetime.datetime(2026, 5, 1), days[1].astype(float),
    ):  # fmt: skip
        assert data.split(by=by).sizes("test").tolist() == [1, 1]
    with pytest.warns(UserWarning, match="1 of 2 clients have no rows before 2026-04-02"):
        later = data.split(by="2026-04-02", unseen=0.0)
    assert later.seen.tolist() == [False, True]
    with pytest.raises(DataError, match=r"no row was observed before; .*2026-04-01.*a later one"):
        data.split(by="2026-04-01")
    with pytest.raises(DataError, match=r"from then on; .* 2026-05-02 10:00 .*an earlier one"):
        data.split(by="2027-01-01")
    with pytest.raises(DataError, match="the rows have no times"):
        sartor.data.from_arrays(None, [0, 1], ["a", "a"]).split(by="2026-05-01")
    with pytest.raises(ConfigError, match=r"test=0\.2: by='2026-05-01' says which rows"):
        data.split(test=0.2, by="2026-05-01")
    with pytest.raises(ConfigError, match="already has validation or test rows"):
        data.split(by="2026-05-01").split(by="2026-05-01")


@pytest.mark.parametrize("by", ["tine", "2026-05-32", True, None, float("nan"), 2**9999, {}, 1j])
def test_other_ways_to_split_are_refused(by):
    with pytest.raises((ConfigError, DataError), match="by"):
        timed(0).split(by=by)


@given(st.integers(0, 2**32))
def test_parts_that_are_given_are_kept(seed):
    data, draw = timed(seed), np.random.default_rng(seed)
    part = draw.choice(["train", "validation", "test"], 60, p=[0.6, 0.2, 0.2])
    part[np.unique(data.rows[data.bounds[:, 0]])] = "train"
    found = data.split(by=part)
    for k in range(len(found)):
        for name in ("train", "validation", "test"):
            assert (part[found.part(k, name)] == name).all()
    assert found.merge_parts().fingerprint == data.fingerprint
    test = pd.Series(part == "test")
    again, fewer = data.split(by=test), data.select(data.ids[1:]).split(by=test)
    np.testing.assert_array_equal(again.sizes("test"), found.sizes("test"))
    np.testing.assert_array_equal(fewer.sizes("test"), found.sizes("test")[1:])


def test_parts_that_cannot_be_given():
    data = sartor.data.from_arrays(None, [0, 1, 1], list("aab"))
    for by, said in {
        ("train", "test"): "by has 2 values; give the part of each of the 3 rows",
        ("train", "tset", "train"): "'tset' is not a part; did you mean 'test'",
        ("train", None, "train"): "column 'by', row 1: the value is missing",
        (1, 2, 0): "by: 1 is not a part; known are train, validation, test",
        (False, True, True): "client 'b' has no training rows",
    }.items():
        with pytest.raises(DataError, match=said):
            data.split(by=list(by))


@given(st.integers(0, 2**32), st.integers(1, 20))
@pytest.mark.filterwarnings("ignore:only .* rows are held out")
def test_groups_stay_whole_for_all_clients(seed, clients):
    """Also where clients have few groups: what one of them trains on, nobody holds out."""
    data = grouped(seed, clients=clients, groups=12).split(validation=0.2, test=0.3, seed=seed)
    part_of = {}
    for k in range(len(data)):
        for part in ("train", "validation", "test"):
            for group in data.groups[data.part(k, part)].tolist():
                assert part_of.setdefault(group, part) == part


def test_too_few_groups_to_hold_out_are_named():
    alone = np.arange(40) % 4
    data = sartor.data.from_arrays(None, alone % 2, np.arange(40), groups=alone)
    with pytest.warns(UserWarning, match="only 0 rows are held out, and not about 20"):
        data.split(test=0.5, seed=0)


def test_time_and_groups_are_not_both_taken():
    with pytest.raises(DataError, match=r"time and groups: .* name one"):
        sartor.data.from_arrays(None, [0, 1], ["a", "b"], time=[1, 2], groups=["x", "y"])


def rows_of(data, trials):
    """What each trial trains on, and what it is tried on: rows of the table."""
    for n in range(len(trials.client)):
        train, held = (
            data.rows[s.at(s.first[n] + np.arange(s.sizes[n]))] for s in (trials.train, trials.held)
        )
        assert len(train) and len(held)
        yield train, held


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_trials_train_on_the_past_alone(seed, folds):
    data = timed(seed)
    trials = make_trials(data, "kfold", folds, seed)
    for train, held in rows_of(data, trials):
        assert data.time[train].max() < data.time[held].min()
    assert np.bincount(trials.client).max() <= 2


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_trials_keep_groups_whole(seed, folds):
    data = grouped(seed)
    for train, held in rows_of(data, make_trials(data, "kfold", folds, seed)):
        assert not set(data.groups[train]) & set(data.groups[held])
    alone = sartor.data.from_arrays(None, [0, 1, 0], ["a"] * 3, groups=[7, 7, 7])
    assert make_trials(alone, "kfold", 5, 0).how.tolist() == ["prior"]


@given(st.integers(0, 2**32), st.integers(3, 6))
def test_folds_of_advice_know_time_and_groups(seed, folds):
    data = timed(seed)
    fold = assign_folds(data, folds, seed)
    for held_out in held_folds(data, folds):
        part = split_by_fold(data, fold, held_out, held_out)
        tests = [part.time[part.part(k, "test")] for k in range(len(part))]
        train = np.concatenate([part.time[part.part(k)] for k in range(len(part))])
        assert train.max() < np.concatenate(tests).min(initial=np.inf)
    data = grouped(seed)
    fold = assign_folds(data, folds, seed)
    for group in range(9):
        assert len(set(fold[data.groups[data.rows] == group])) <= 1


DATES = {
    "days": ["2024-01-03", "2024-01-01", "2024-02-29"],
    "seconds": ["2024-01-03 09:30:00", "2024-01-01T00:00:00", "2024-02-29 12:00"],
    "mixed": ["2024-01-03", "2024-01-01 09:30:00.25", "1500-01-01"],
    "zones": ["2024-01-03 09:30:00+02:00", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00-11:30"],
    "nanoseconds": ["2024-01-03 09:30:00.123456789", "2024-01-01", "2024-01-01"],
}


@pytest.mark.parametrize("kind", DATES)
def test_texts_are_times(tmp_path, kind):
    """As pd.read_csv leaves them, in every door; a CSV file means the same by them."""
    texts = DATES[kind]
    expected = [datetime.datetime.fromisoformat(text) for text in texts]
    utc = [t if t.tzinfo else t.replace(tzinfo=datetime.UTC) for t in expected]
    seconds = [t.timestamp() for t in utc]
    frame = pd.DataFrame(
        {"shop": list("aab"), "size": [1.0, 2, 3], "day": texts, "sold": [0, 1, 1]}
    )
    roles = {"client": "shop", "label": "sold", "time": "day"}
    frame.to_parquet(tmp_path / "table.parquet")
    found = [
        sartor.data.from_frame(frame, **roles),
        sartor.data.from_frame(frame.astype({"day": "category"}), **roles),
        sartor.data.from_frame(pa.Table.from_pandas(frame), **roles),
        sartor.data.open(tmp_path / "table.parquet", **roles),
        sartor.data.from_arrays(None, [0, 1, 1], list("aab"), time=texts),
    ]
    frame.to_csv(tmp_path / "table.csv", index=False)
    found.append(sartor.data.open(tmp_path / "table.csv", **roles))
    for data in found:
        np.testing.assert_allclose(data.time, seconds, rtol=0, atol=2e-6)


@pytest.mark.parametrize("wrong", ["01/02/2024", "2024", "2024-02-30", "2024-01-01T00:00:00Z"])
def test_texts_that_are_no_times_are_named(tmp_path, wrong):
    frame = pd.DataFrame({
        "shop": [f"s{k // 10}" for k in range(60)], "day": ["2024-01-01"] * 60, "sold": 1.5,
    })  # fmt: skip
    frame.loc[[37, 41], "day"] = wrong
    frame.to_csv(tmp_path / "table.csv", index=False)
    roles = {"client": "shop", "label": "sold", "time": "day"}
    message = rf"client 's3', column 'day', row 37: '{wrong}' is no date like .*pd\.to_datetime"
    with pytest.raises(DataError, match=message):
        sartor.data.from_frame(frame, **roles)
    with pytest.raises(DataError, match=message):
        sartor.data.open(tmp_path / "table.csv", **roles)


def test_a_column_of_dates_may_be_the_time(tmp_path):
    (tmp_path / "t.csv").write_text("shop,the day,sold\na,2024-01-01,0\nb,2024-01-02,1\n")
    with pytest.raises(DataError, match=r"time='the day', --time 'the day'; or .*--features"):
        sartor.data.open(tmp_path / "t.csv", client="shop", label="sold")


def test_times_and_groups_out_of_tables(tmp_path):
    days = [datetime.date(2026, 11, day) for day in (3, 1, 2)]
    table = pa.table({
        "shop": ["a", "a", "b"], "day": days, "hour": ["x", "y", "x"],
        "size": [1.0, 2.0, 3.0], "sold": [0, 1, 1],
    })  # fmt: skip
    roles = {"client": "shop", "label": "sold", "features": ["size"]}
    pa.csv.write_csv(table, tmp_path / "table.csv")
    for role, column in {"time": "day", "groups": "hour"}.items():
        data = sartor.data.from_frame(table, **roles, **{role: column})
        read = sartor.data.open(tmp_path / "table.csv", **roles, **{role: column})
        data.save(tmp_path / role)
        back = sartor.data.open(tmp_path / role)
        assert read.fingerprint == data.fingerprint == back.fingerprint
        if role == "time":
            assert np.diff(back.time).tolist() == [-2 * 86400, 86400]
        else:
            assert back.groups.tolist() == [0, 1, 0]
    alone = table.drop_columns("hour")
    found = sartor.data.from_frame(alone, client="shop", label="sold", time="day")
    assert found.feature_names == ("size",)
    with pytest.raises(DataError, match=r"client 'a', column 'shop', row 0: 'a' is no date;"):
        sartor.data.from_frame(table, client="shop", label="sold", features=["size"], time="shop")
    spans = table.append_column("span", pa.array([1, 2, 3], pa.duration("s")))
    with pytest.raises(DataError, match=r"time='span'.*a date, a time or a number"):
        sartor.data.from_frame(spans, client="shop", label="sold", features=["size"], time="span")
    with pytest.raises(DataError, match="the rows have no times"):
        sartor.data.from_arrays(None, [0, 1], ["a", "a"]).split(test=0.5, by="time")
