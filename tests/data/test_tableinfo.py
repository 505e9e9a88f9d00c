"""Any table is described as it is, and all that is odd about it is said at once."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sartor
from sartor.data import describe, describe_table, from_frame
from sartor.errors import ConfigError, DataError


def odd_table(rows=400):
    """A column for each thing that people should know of."""
    draw = np.random.default_rng(0)
    shop = draw.integers(0, 12, rows)
    y = draw.random(rows) < 0.4
    frame = pd.DataFrame({
        "shop": [f"shop {k}" for k in shop],
        "price": draw.normal(size=rows),
        "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows) % 90, "D"),
        "kind": draw.choice(["new", "old"], rows),
        "year": 2026,
        "order": [f"order {k}" for k in range(rows)],
        "number": draw.permutation(rows),
        "town": [f"town {k * 7}" for k in shop],
        "refund": np.where(y, "paid back", "none"),
        "money": np.where(y, 10.0 + draw.random(rows), draw.random(rows)),
        "amount": [f"{k % 50},5" for k in range(rows)],
        "when": [f"{k % 28 + 1:02d}/03/2026" for k in range(rows - 1)] + ["?"],
        "gust": np.where(draw.random(rows) < 0.75, np.nan, draw.normal(size=rows)),
        "rain": np.where(np.arange(rows) == 7, 41.0, draw.normal(size=rows) / 2),
        "returned": np.where(y, "yes", "no"),
    })  # fmt: skip
    return frame


SAID = {
    "year": "left out: one value in all rows",
    "order": "left out: 400 different words in 400 rows",
    "number": "a different value in each row: if it is a key",
    "town": "it stands for the client",
    "refund": "says almost perfectly what the label is",
    "money": "says almost perfectly what the label is",
    "amount": "words, but most are numbers",
    "when": "words, but most are dates: correct others, such as '?'",
    "gust": "% gaps",
    "rain": "standard deviations away",
}


def test_all_that_is_odd_is_said_at_once():
    about = describe_table(odd_table(), client="shop", label="returned")
    said = dict(about.attention)
    assert said.keys() == SAID.keys()
    for name, words in SAID.items():
        assert words in said[name], name
    rows = dict(about.rows())
    assert rows["clients"].startswith("12 (") and rows["examples"].startswith("400 (")
    assert rows["labels"].startswith("2 different: no 2") and rows["column kind"].startswith("2 ca")
    assert rows["column day"].startswith("dates from 2026-01-01")
    assert rows["attention: gust"] == said["gust"]


def test_labels_that_are_numbers():
    frame = odd_table().drop(columns=["refund", "money"])
    frame["sum"] = 3 * frame["price"] - 1
    frame["double"] = frame["price"] * 2 + np.random.default_rng(0).normal(size=400) / 3
    about = describe_table(frame.drop(columns="returned"), client="shop", label="sum")
    said = dict(about.attention)
    assert "says almost perfectly" in said["price"] and "double" not in said
    low, high = frame["sum"].min(), frame["sum"].max()
    assert dict(about.rows())["labels"] == f"numbers from {low:.6g} to {high:.6g}"


def test_roles_are_looked_at_too():
    frame = odd_table()
    frame.loc[:9, "shop"] = None
    frame.loc[20:24, "returned"] = None
    about = describe_table(frame, client="shop", label="returned", time="kind")
    said = dict(about.attention)
    assert (
        said["shop"] == "10 gaps (2.5%); these rows have no client, and get the model of everybody"
    )
    assert said["returned"] == "5 gaps (1.2%); these rows are left out"
    assert "is no date" in said["kind"]
    assert about.facts.examples == 385
    said = dict(describe_table(frame, client="shop", label="day").attention)
    assert "labels are times: make numbers of them" in said["day"]
    frame["parts"] = [[1]] * 400
    frame["far"] = np.where(np.arange(400) == 3, np.inf, 1.5)
    said = dict(describe_table(frame, client="shop", label="far").attention)
    assert "infinite labels" in said["far"] and "holds list" in said["parts"]


def test_columns_that_look_like_the_client():
    frame = odd_table()
    frame["seller"] = np.arange(400) % 9
    about = describe_table(frame.drop(columns="town"))
    assert list(about.clients_may_be)[:2] == ["shop", "seller"]
    assert "12 values, median" in about.clients_may_be["shop"]
    assert not {"order", "number", "price", "year", "when"} & set(about.clients_may_be)
    assert about.facts is None and "not named; these columns look" in dict(about.rows())["clients"]
    alone = describe_table(frame, client="shop")
    assert "labels" not in dict(alone.rows()) and alone.facts.clients == 12


def test_numbers_are_counted_as_client_data_are():
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({
        "user": draw.integers(0, 30, 500), "a": draw.normal(size=500), "b": draw.random(500) < 0.5,
        "day": draw.integers(0, 99, 500), "y": draw.integers(0, 3, 500),
    })  # fmt: skip
    frame["town"] = frame["user"] % 3
    roles = {"client": "user", "label": "y", "domain": "town", "time": "day"}
    data = from_frame(frame, **roles)
    mine, theirs = (dict(d.rows()) for d in (describe_table(frame, **roles), describe(data)))
    for name in theirs.keys() - {"column x", "column y"}:
        assert mine[name] == theirs[name]
    assert mine.keys() - theirs.keys() == {"column a", "column b"}


def test_a_shift_of_clients_is_noticed():
    draw = np.random.default_rng(2)
    owner = np.repeat(np.arange(40), 30)
    words = np.where(draw.random(1200) < np.where(owner < 25, 0.2, 0.9), "wet", "dry")
    frame = pd.DataFrame({"who": owner, "weather": words, "y": draw.integers(0, 2, 1200)})
    about = describe_table(frame, client="who", label="y")
    assert about.shift.split == 25 and "those from '25'" in about.shift.message
    mixed = frame.assign(who=draw.permutation(owner)).sort_values("who")
    assert describe_table(mixed, client="who", label="y").shift.message is None
    assert describe_table(frame[:200], client="who", label="y").shift is None


def test_wide_tables_are_cut_short_but_for_what_matters():
    columns = {f"c{j}": np.arange(60) % (2 + j % 3) for j in range(200)} | {"gone": [None] * 60}
    about = describe_table(pa.table(columns | {"who": np.arange(60) % 5}), client="who")
    rows = about.rows()
    assert ("columns", "and 141 more") in rows and len(rows) < 75
    assert ("attention: gone", "left out: empty") in rows


@pytest.mark.parametrize("name", ["shops", "deliveries", "calls", "ratings"])
def test_examples_can_be_described(name):
    found = sartor.data.example(name)
    about = describe_table(found.table, client=found.client, label=found.label, time=found.time)
    assert about.facts.clients >= 40 and not any("says almost" in w for _, w in about.attention)
    assert found.client in describe_table(found.table).clients_may_be


def test_what_is_refused():
    frame = odd_table(60)
    nobody = describe_table(frame.assign(shop=None), client="shop", label="returned")
    assert nobody.facts is None and dict(nobody.rows())["clients"].startswith("none; name a column")
    assert dict(nobody.attention)["shop"].startswith("60 gaps (100.0%)")
    with pytest.raises(ConfigError, match=r"client='shops': did you mean 'shop'.; label='return'"):
        describe_table(frame, client="shops", label="return")
    with pytest.raises(ConfigError, match="both 'shop'"):
        describe_table(frame, client="shop", label="shop")
    with pytest.raises(DataError, match=r"two columns|Arrow"):
        describe_table(pd.concat([frame, frame], axis=1), client="shop")
    with pytest.raises(DataError, match="DataFrame or a pyarrow Table"):
        describe_table([1, 2], client="shop")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "label, clients",
    [
        ([1, 2, 3] * 20, 10), ([-1, 1] * 30, 10), ([True, False] * 30, 10), ([0.5] * 60, 10),
        ([1e300, 0.0] * 30, 10), (["a", None] * 30, 5), ([datetime.date(2026, 1, 1)] * 60, 10),
        (list(range(10**10, 10**10 + 60)), 10), ([f"w{k}" for k in range(60)], 10),
    ],
)  # fmt: skip
def test_labels_of_any_kind(label, clients):
    table = pa.table({"who": [f"w{k % 10}" for k in range(60)], "x": range(60), "y": label})
    about = describe_table(table, client="who", label="y")
    assert dict(about.rows())["clients"].startswith(f"{clients} (")
