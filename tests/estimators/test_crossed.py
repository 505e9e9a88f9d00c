"""Two groupings in estimators: users and items, and shops in regions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from estimator_cases import FAST, shops
from sklearn.linear_model import Ridge

from sartor.effects import Grouping, fit_crossed
from sartor.errors import ConfigError, DataError
from sartor.estimators import PersonalClassifier, PersonalRegressor, crossed, load

APPROACHES = {"crossed": "recalibrate", "linear, crossed": "linear"}
"""With one grouping and with two."""


def ratings(seed=0, rows=4000, users=60, items=30, nested=False):
    """Users and items with levels of their own, and users with a slope."""
    draw = np.random.default_rng(seed)
    user, item = draw.integers(0, users, rows), draw.integers(0, items, rows)
    if nested:
        item = user % items
    frame = pd.DataFrame({
        "price": draw.normal(size=rows),
        "kind": draw.choice(["new", "old"], rows),
        "user": [f"u{k}" for k in user],
        "item": [f"i{k}" for k in item],
    })  # fmt: skip
    own, slope, other = draw.normal(size=users), draw.normal(size=users), draw.normal(size=items)
    y = own[user] + 2 * other[item] + (1 + slope[user]) * frame["price"] + (frame["kind"] == "new")
    return frame, np.asarray(y + 0.5 * draw.normal(size=rows), float)


@pytest.fixture(scope="module")
def fitted():
    frame, y = ratings()
    model = PersonalRegressor(Ridge(), client="user", second="item", approach="crossed")
    return model.fit(frame[:3000], y[:3000])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("approach", APPROACHES)
def test_two_groupings_predict_better_than_one(nested, approach):
    # Regions know something of users of whom there are few rows.
    frame, y = ratings(rows=3000, users=1000, nested=True) if nested else ratings()
    half, without = len(y) // 2, frame.drop(columns="item")
    one = PersonalRegressor(Ridge(), client="user", approach=APPROACHES[approach])
    one.fit(without[:half], y[:half])
    two = PersonalRegressor(Ridge(), client="user", second="item", approach=approach)
    two.fit(frame[:half], y[:half])
    more = two.score(frame[half:], y[half:]) - one.score(without[half:], y[half:])
    assert more > (0.015 if nested else 0.2)


def test_auto_finds_out_that_two_groupings_pay():
    frame, y = ratings()
    model = PersonalRegressor(Ridge(), client="user", second="item").fit(frame[:3000], y[:3000])
    tried = model.tried_.losses
    assert set(APPROACHES) <= set(tried)
    assert min(tried, key=lambda name: np.nanmean(tried[name])) not in ("global", "linear")
    assert model.score(frame[3000:], y[3000:]) > 0.85
    without = PersonalRegressor(Ridge(), client="user").fit(frame[:300], y[:300])
    assert not set(APPROACHES) & set(without.tried_.losses)


def test_effects_are_those_of_a_crossed_fit_to_what_the_central_model_leaves(fitted):
    added, models = fitted.models_.added["crossed"], fitted.models_
    own, second = fitted.effects(), fitted.effects("second")
    assert own["column"].to_pylist()[:2] == ["level", "slope of the global model's score"]
    assert len(own) == 120 and len(second) == 30
    assert second["second"].to_pylist() == list(models.second)
    assert set(second["approach"].to_pylist()) == {"crossed"}
    np.testing.assert_array_equal(np.reshape(own["effect"], (60, 2)), added.own.clients)
    frame, y = ratings()
    deviation = np.std(np.array(second["effect"]))
    assert deviation == pytest.approx(2, rel=0.3)
    rows = models.rows_of(fitted._read(frame[:3000], None), y[:3000])
    central = models.global_scores(rows)
    ones = np.ones((3000, 1))
    varying = np.concatenate([ones, central], axis=1)
    expected = fit_crossed(
        varying,  # what all have in common is the central model's
        Grouping(varying, rows.owner, 60),
        Grouping(ones, rows.second, 30),
        y[:3000],
        offset=central[:, 0],
    )
    # It was fitted to scores by models that had not seen the rows, which differ a little.
    np.testing.assert_allclose(added.own.clients, expected.first.clients, atol=0.15)
    np.testing.assert_allclose(added.second.clients, expected.second.clients, atol=0.15)


def test_unknown_levels_of_either_grouping_have_no_effect(fitted):
    frame, _ = ratings()
    frame = frame[:50]
    everybody = fitted.predict(frame.assign(user="new"))
    own, second = (fitted.effects(of).to_pandas() for of in ("client", "second"))
    level = dict(zip(second["second"], second["effect"], strict=True))
    known, unknown = fitted.predict(frame), fitted.predict(frame.assign(item="new"))
    np.testing.assert_allclose(known - unknown, frame["item"].map(level), atol=1e-9)
    np.testing.assert_allclose(fitted.predict(frame.assign(item=None)), unknown)
    parts = own.pivot(index="client", columns="column", values="effect").loc[frame["user"]]
    slope = parts["slope of the global model's score"].to_numpy()
    expected = everybody + parts["level"].to_numpy() + slope * everybody
    np.testing.assert_allclose(unknown, expected, atol=1e-9)


def test_new_rows_change_their_clients_and_nobody_else(fitted, tmp_path):
    frame, y = ratings()
    fitted.save(tmp_path / "models")
    model = load(tmp_path / "models")
    before = fitted.predict(frame)
    np.testing.assert_array_equal(model.predict(frame), before)
    assert model.effects("second").equals(fitted.effects("second"))
    new = frame[3000:].copy()
    mine, late = (new["user"] == "u3").to_numpy(), (new["user"] == "u4").to_numpy()
    new.loc[late, "user"] = "late"
    new.loc[mine, "item"] = "never seen"
    model.update(new[mine | late], y[3000:][mine | late])
    after, others = model.predict(frame), (frame["user"] != "u3").to_numpy()
    np.testing.assert_array_equal(after[others], before[others])
    assert (after[~others] != before[~others]).all()
    # A new user is the one whose rows it got.
    same, other = (model.predict(new[late].assign(user=user)) for user in ("u4", "nobody"))
    found = model.predict(new[late])
    assert np.abs(found - same).mean() < 0.5 * np.abs(other - same).mean()
    model.drop("u3")
    unknown = model.predict(frame.assign(user="nobody"))
    np.testing.assert_array_equal(model.predict(frame)[~others], unknown[~others])
    assert not model.models_.added["crossed"].own.clients[fitted.models_.ids["u3"]].any()


def test_columns_of_arrays_are_named_by_their_positions():
    frame, y = ratings(rows=800)
    x = np.c_[frame["price"], frame["user"].str[1:].astype(int), frame["item"].str[1:].astype(int)]
    found = PersonalRegressor(Ridge(), client=1, second=2, approach="crossed").fit(x, y)
    beside = PersonalRegressor(Ridge(), second=1, approach="crossed")
    beside.fit(np.delete(x, 1, axis=1), y, client=frame["user"])
    same = beside.predict(np.delete(x, 1, axis=1), client=frame["user"])
    np.testing.assert_allclose(found.predict(x), same)
    assert len(found.models_.view.preparation.names) == 1


def test_wrong_settings_are_refused(monkeypatch):
    frame, y = ratings(rows=200)
    with pytest.raises(ConfigError, match="second='items': no such column; did you mean 'item'"):
        PersonalRegressor(Ridge(), client="user", second="items").fit(frame, y)
    with pytest.raises(ConfigError, match="two roles"):
        PersonalRegressor(Ridge(), client="user", second="user").fit(frame, y)
    with pytest.raises(ConfigError, match="'crossed' needs a second grouping: name its column by"):
        PersonalRegressor(Ridge(), client="user", approach="crossed").fit(frame, y)
    model = PersonalRegressor(Ridge(), client="user", second="item", approach="crossed")
    model.fit(frame, y)
    with pytest.raises((ConfigError, DataError, ValueError), match="item"):
        model.predict(frame.drop(columns="item"))
    with pytest.raises(ConfigError, match="of='items' must be 'client' or 'second'"):
        model.effects("items")
    table, labels, _ = shops(rows=200)
    with pytest.raises(ConfigError, match="second='kind': a second grouping is for regression"):
        PersonalClassifier(FAST, client="shop", second="kind").fit(table, labels)
    monkeypatch.setattr(crossed, "MOST", 20)
    with pytest.raises(ConfigError, match="second has 30 levels; with 59 clients there can be 20"):
        model.fit(frame, y)


def test_effects_of_one_grouping_are_listed_too():
    frame, y, score = shops(rows=900)
    numbers = PersonalRegressor(Ridge(), client="shop", approach="slopes").fit(frame, score)
    table = numbers.effects()
    assert table.column_names == ["client", "column", "effect", "deviation"]
    assert {"level", "rain", "price"} <= set(table["column"].to_pylist())
    rain = table.to_pandas().query("column == 'rain'").set_index("client")
    assert 1 < rain["effect"].std() < 3 and (rain["deviation"] > 0).all()
    assert len(numbers.effects("second")) == 0
    kinds = np.where(frame["rain"] > 0.5, "wet", y)
    model = PersonalClassifier(FAST, client="shop", approach="recalibrate").fit(frame, kinds)
    several = model.effects()
    assert set(several["class"].to_pylist()) == {"no", "wet", "yes"}
    assert len(several) == 3 * 20 * 4  # the level, and the slopes of three scores
    model.drop("shop 3")
    assert "shop 3" not in model.effects()["client"].to_pylist()
    alike = PersonalClassifier(FAST, client="shop", approach="global").fit(frame, y)
    assert len(alike.effects()) == 0
