"""Day 2: new rows, new clients, misspelt ones, and clients that are to be forgotten."""

from __future__ import annotations

import json
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from estimator_cases import FAST, contents, shops
from sklearn.linear_model import Ridge

from sartor.errors import DataError
from sartor.estimators import PersonalClassifier, PersonalRegressor, load, own

ROWS, CLIENTS = 800, 8


def fitted(approach, **settings):
    """A model of the first rows, and all rows."""
    frame, y, _ = shops(rows=ROWS, clients=CLIENTS)
    model = PersonalClassifier(FAST, client="shop", approach=approach, **settings)
    return model.fit(frame[:600], y[:600]), frame, y


def said_by(action):
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    "approach", ["slopes", "category", "local", "model interpolation", "data interpolation",
                 "2 clusters"]
)  # fmt: skip
def test_an_update_leaves_all_others_as_they_are(approach, tmp_path):
    model, frame, y = fitted(approach)
    model.save(tmp_path / "m")
    files = contents(tmp_path / "m")
    before = model.predict_proba(frame)
    central = model.models_.central["global"].estimator
    new = frame[600:].assign(shop=np.where(frame[600:]["shop"] == "shop 4", "shop 99", "shop 3"))
    said_by(lambda: model.update(new, y[600:]))
    others = (frame["shop"] != "shop 3").to_numpy()
    np.testing.assert_array_equal(model.predict_proba(frame)[others], before[others])
    assert model.models_.central["global"].estimator is central
    model.save(tmp_path / "m")
    after = contents(tmp_path / "m")
    kept = {name for name in files if name.startswith("estimator-")}
    assert kept <= set(after)
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))


def test_a_new_client_gets_an_estimator_of_its_own_if_it_has_enough_rows(tmp_path):
    for approach in ("local", "model interpolation"):
        model, frame, y = fitted(approach)
        late = frame[600:].assign(shop="late")
        unknown = model.predict_proba(late)
        assert said_by(lambda: model.update(late, y[600:])) == []  # noqa: B023
        assert (model.models_.used(np.array([model.models_.ids["late"]])) == "own").all()
        model.save(tmp_path / approach)
        found = load(tmp_path / approach).predict_proba(late)
        assert (found != unknown).any(axis=1).mean() > 0.9
        np.testing.assert_array_equal(found, model.predict_proba(late))
    few = frame[600 : 600 + own.FEWEST_ROWS - 1].assign(shop="few")
    said = said_by(lambda: model.update(few, y[600 : 600 + len(few)]))
    assert len(said) == 1 and "'few'): too few rows" in said[0]
    np.testing.assert_array_equal(
        model.predict_proba(few), model.predict_proba(few.assign(shop=None))
    )


def test_a_new_client_gets_the_cluster_that_suits_its_rows():
    draw = np.random.default_rng(0)
    shop = draw.integers(0, 8, 1000)
    frame = pd.DataFrame({"day": draw.normal(size=1000), "shop": [f"shop {k}" for k in shop]})
    y = frame["day"].to_numpy() * np.where(shop % 2, 3.0, -3.0)
    model = PersonalRegressor(Ridge(), client="shop", approach="2 clusters").fit(frame, y)
    days = pd.DataFrame({"day": draw.normal(size=20)})
    for name, sign in (("up", 3.0), ("down", -3.0)):
        new = days.assign(shop=name)
        assert said_by(lambda: model.update(new, sign * days["day"])) == []  # noqa: B023
        np.testing.assert_allclose(model.predict(new), sign * days["day"], atol=0.2)
        assert model.models_.used(np.array([model.models_.ids[name]])) == ["cluster"]


@pytest.mark.parametrize(
    "approach, said",
    [
        ("category", r"nothing is fitted to single clients by 'category'"),
        ("2 clusters", r"nothing is fitted to single clients by '2 clusters'"),
        ("global", r"nothing is fitted to single clients by 'global'"),
        ("local", r"fitted to rows that are not kept"),
        ("data interpolation", r"fitted to rows that are not kept"),
    ],
)
def test_an_update_says_for_whom_nothing_changes(approach, said):
    model, frame, y = fitted(approach)
    before = model.predict_proba(frame)
    some = (frame["shop"] == "shop 3") & (np.arange(len(frame)) >= 600)
    with pytest.warns(UserWarning, match=rf"change nothing for 1 client \('shop 3'\): .*{said}"):
        model.update(frame[some], y[some])
    np.testing.assert_array_equal(model.predict_proba(frame), before)


def test_rows_of_nobody_change_nothing():
    model, frame, y = fitted("slopes")
    before = model.predict_proba(frame)
    with pytest.warns(UserWarning, match="no row has a client"):
        model.update(frame[600:].assign(shop=None), y[600:])
    np.testing.assert_array_equal(model.predict_proba(frame), before)
    new = frame[600:].assign(shop=["shop 3", None] * 100)
    with pytest.warns(UserWarning, match="100 of 200 new rows have no client"):
        model.update(new, y[600:])


def test_new_rows_make_effects_as_a_fit_to_all_rows_would():
    frame, _, score = shops(rows=2000, clients=CLIENTS)
    y = score + np.random.default_rng(0).normal(size=len(score))
    mine = np.flatnonzero(frame["shop"] == "shop 3")
    early = np.setdiff1d(np.arange(len(frame)), mine[5:])
    settings = {"client": "shop", "approach": "slopes"}
    part = PersonalRegressor(Ridge(), **settings).fit(frame.iloc[early], y[early])
    whole = PersonalRegressor(Ridge(), **settings).fit(frame, y)
    expected = whole.predict(frame.iloc[mine])
    before = np.abs(part.predict(frame.iloc[mine]) - expected).mean()
    part.update(frame.iloc[mine[5:]], y[mine[5:]])
    assert np.abs(part.predict(frame.iloc[mine]) - expected).mean() < before / 4


@pytest.mark.parametrize("approach", ["auto", "slopes", "category", "local", "2 clusters"])
def test_who_is_dropped_leaves_no_trace(approach, tmp_path):
    frame, y, _ = shops(rows=ROWS, clients=CLIENTS)
    frame["shop"] = frame["shop"].replace({"shop 3": "Elizabeth's"})
    model = PersonalClassifier(FAST, client="shop", approach=approach).fit(frame, y)
    model.save(tmp_path / "m")
    assert any(b"Elizabeth" in content for content in contents(tmp_path / "m").values())
    number, mine = model.models_.ids["Elizabeth's"], (frame["shop"] == "Elizabeth's").to_numpy()
    before = model.predict_proba(frame)
    again = load(tmp_path / "m").drop("Elizabeth's")
    again.save(tmp_path / "m")
    found = contents(tmp_path / "m")
    assert not any(b"Elizabeth" in content for content in found.values())
    files = set(json.loads(found["manifest.json"])["files"])
    assert {name for name in found if "/" not in name} == {"manifest.json", *files}
    after = load(tmp_path / "m")
    np.testing.assert_array_equal(after.predict_proba(frame)[~mine], before[~mine])
    unknown = after.predict_proba(frame[mine].assign(shop="nobody"))
    np.testing.assert_array_equal(after.predict_proba(frame[mine]), unknown)
    assert after.models_.rows[number] == 0
    if after.decision_ is not None:
        assert np.isnan(after.decision_.loss[number])
    # Others who come later are not taken for it, nor does it come back as it was.
    late = frame[:60].assign(shop=["zoo", "Elizabeth's"] * 30)
    said_by(lambda: after.update(late, y[:60]))
    assert len(set(after.models_.ids.values())) == len(after.models_.ids) == CLIENTS + 1
    np.testing.assert_array_equal(after.predict_proba(frame)[~mine], before[~mine])
    after.save(tmp_path / "m")


def test_misspelt_clients_are_named():
    model, frame, _ = fitted("slopes")
    rows = frame[:4].assign(shop=["Shop 3", "shpo 4", "shop 77", "kiosk"])
    said = said_by(lambda: model.predict(rows))
    assert len(said) == 1 and "2 clients are unknown and probably misspelt" in said[0]
    assert "'Shop 3' (did you mean 'shop 3'?)" in said[0] and "'shop 4'" in said[0]
    assert said_by(lambda: model.predict(rows[2:])) == []
    said = said_by(lambda: model.update(rows[:1], ["yes"]))
    assert "new client" in said[0] and "'shop 3'" in said[0]


def test_record_batches_and_tables_of_arrow_are_frames():
    frame, y, _ = shops(rows=200, clients=4)
    table = pa.Table.from_pandas(frame)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(table, y)
    expected = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(table), expected)
    np.testing.assert_array_equal(model.predict_proba(table.to_batches()[0]), expected)
    model.update(table.slice(0, 10), y[:10])


def test_many_rows_are_predicted_and_one_client_updated_within_a_second(monkeypatch):
    monkeypatch.setattr("sartor.estimators.makers.ITERATIONS", 40)
    frame, y, _ = shops(rows=5200, clients=104)
    model = PersonalClassifier(client="shop", approach="slopes", folds=2).fit(frame, y)
    many = pd.concat([frame] * 13)[:64_000]
    model.predict(many[:10])
    began = time.process_time()
    assert model.predict(many).shape == (64_000,)
    assert time.process_time() - began < 1.0
    began = time.process_time()
    model.update(frame[:50].assign(shop="late"), y[:50])
    assert time.process_time() - began < 1.0


def test_rows_that_were_fitted_to_are_no_fresh_rows(tmp_path):
    model, frame, y = fitted("slopes")
    with pytest.raises(DataError, match="fitted to 600 of these 650 rows"):
        model.evaluate(frame[:650], y[:650])
    with pytest.raises(DataError, match="give rows that were held out"):
        model.report(tmp_path / "report.html", frame[:300], y[:300])
    assert len(model.evaluate(frame[600:], y[600:]).client) > 1
    model.update(frame[600:], y[600:])
    with pytest.raises(DataError, match="no fresh ones"):
        model.evaluate(frame[600:], y[600:])
    model.save(tmp_path / "m")
    with pytest.raises(DataError, match="no fresh ones"):
        load(tmp_path / "m").evaluate(frame[:600], y[:600])


def test_rows_that_are_all_alike_may_be_fresh():
    draw = np.random.default_rng(0)
    X = pd.DataFrame({"rain": draw.random(600) < 0.5, "shop": draw.choice(["A", "B"], 600)})
    y = X.rain ^ (X["shop"] == "A")
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(X[:300], y[:300])
    assert set(model.evaluate(X[300:], y[300:]).client) == {"A", "B"}


@pytest.mark.parametrize("approach", ["recalibrate", "linear"])
def test_bits_do_not_depend_on_who_else_in_a_request_is_known(approach):
    """The order of sums depends on how many rows are scored together."""
    frame, y, _ = shops(rows=ROWS, clients=CLIENTS)
    late = frame[600:].assign(shop="late")
    model = PersonalRegressor(Ridge(), client="shop", approach=approach)
    model.fit(frame[:600], (y[:600] == "yes").astype(float))
    requests = [pd.concat([frame[k : k + 1], late[k : k + 1]]) for k in range(150)]
    before = [model.predict(request)[0] for request in requests]
    model.update(late, (y[600:] == "yes").astype(float))
    assert [model.predict(request)[0] for request in requests] == before


def test_a_seed_that_was_drawn_is_saved(tmp_path):
    frame, y, _ = shops(rows=300, clients=4)
    model = PersonalClassifier(FAST, client="shop", approach="slopes", random_state=None)
    model.fit(frame, y).save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again.random_state, int)
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_clients_with_numbers_are_forgotten_by_number():
    frame, y, _ = shops(rows=300, clients=4)
    frame["shop"] = frame["shop"].str[-1].astype(int)
    model = PersonalClassifier(FAST, client="shop", approach="slopes").fit(frame, y)
    assert "2" not in model.drop(2).models_.ids
