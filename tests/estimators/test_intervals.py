"""Prediction intervals hold as many labels as they say, of each client and of new ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from estimator_cases import FAST, shops
from sklearn.linear_model import Ridge

from sartor.errors import ConfigError
from sartor.estimators import PersonalClassifier, PersonalRegressor, load
from sartor.estimators.intervals import POINTS, Intervals

LEVELS = (0.5, 0.9)


def normal(draw, size):
    return draw.normal(size=size)


def heavy(draw, size):
    return draw.standard_t(3, size=size)


def learned(error, owner, clients, everybody=None):
    """From errors of the clients' models, and of the global one."""
    losses = {"own": error**2, "global": (error if everybody is None else everybody) ** 2}
    names = np.full(clients, "own")
    return Intervals.learn(losses, owner, names, "global")


def scales_of(draw, clients):
    return np.exp(0.7 * draw.normal(size=clients))


@pytest.mark.parametrize("kind", [normal, heavy])
@pytest.mark.parametrize("seed", range(3))
def test_every_client_with_many_rows_has_intervals_of_its_own(kind, seed):
    draw = np.random.default_rng(seed)
    owner, fresh = np.repeat(np.arange(30), 500), np.repeat(np.arange(30), 4000)
    scale = scales_of(draw, 30)
    found = learned(scale[owner] * kind(draw, len(owner)), owner, 30)
    error = np.abs(scale[fresh] * kind(draw, len(fresh)))
    for level in LEVELS:
        inside = error < found.half_width(fresh, level)
        assert inside.mean() == pytest.approx(level, abs=0.012)
        by_client = inside.reshape(30, -1).mean(axis=1)
        np.testing.assert_allclose(by_client, level, atol=0.09 if kind is heavy else 0.06)


@pytest.mark.parametrize("kind", [normal, heavy])
@pytest.mark.parametrize("rows", [2, 5])
def test_clients_with_few_rows_have_wider_ones(kind, rows):
    """Half of all clients have few rows; how far they differ widens their intervals."""
    draw = np.random.default_rng(0)
    size = np.where(np.arange(600) % 2, rows, 100)
    owner, fresh = np.repeat(np.arange(600), size), np.repeat(np.arange(600), 50)
    scale = scales_of(draw, 600)
    found = learned(scale[owner] * kind(draw, len(owner)), owner, 600)
    error, few = np.abs(scale[fresh] * kind(draw, len(fresh))), size[fresh] == rows
    for level in LEVELS:
        width = found.half_width(fresh, level)
        assert (error < width)[few].mean() == pytest.approx(level, abs=0.035)
        assert (error < width)[~few].mean() == pytest.approx(level, abs=0.015)
    relative = found.half_width(fresh, 0.99) / scale[fresh]
    assert np.median(relative[few]) > 1.05 * np.median(relative[~few])


@pytest.mark.parametrize("kind", [normal, heavy])
def test_new_clients_differ_in_their_levels_and_their_scales(kind):
    draw = np.random.default_rng(1)
    size = draw.integers(1, 80, 300)  # as clients count, and not rows
    owner = np.repeat(np.arange(300), size)
    scale, level = scales_of(draw, 300), draw.normal(size=300)
    error = scale[owner] * kind(draw, len(owner))
    found = learned(error, owner, 300, everybody=error + level[owner])
    far = np.repeat(draw.normal(size=4000), 20)
    far += np.repeat(scales_of(draw, 4000), 20) * kind(draw, 80_000)
    for share in LEVELS:
        inside = np.abs(far) < found.half_width(np.full(80_000, -1), share)
        assert inside.mean() == pytest.approx(share, abs=0.03)
    later = found.half_width(np.array([300, -1]), 0.9)  # a client that came after the fit
    assert later[0] == later[1]


def test_of_few_clients_high_levels_are_the_largest_error():
    draw = np.random.default_rng(2)
    owner, error = np.repeat(np.arange(4), 50), np.abs(draw.normal(size=200))
    found = learned(error, owner, 4)
    np.testing.assert_allclose(found.half_width(np.full(1, -1), 0.9), error.max())


def test_rows_that_were_never_held_out_are_left_out():
    draw = np.random.default_rng(3)
    owner, error = np.repeat(np.arange(10), 60), draw.normal(size=600)
    plain = learned(error, owner, 11)
    found = learned(np.append(error, np.full(50, np.nan)), np.append(owner, np.arange(50) % 5), 11)
    for name in ("scale", "shapes", "new"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert found.scale[10] == pytest.approx(np.median(found.scale), rel=0.1)  # it has no rows
    nothing = learned(np.full(600, np.nan), owner, 11)
    assert np.isinf(nothing.half_width(np.array([0, -1]), 0.5)).all()


def test_models_without_errors_have_intervals_without_width():
    owner = np.repeat(np.arange(5), 20)
    found = learned(np.zeros(100), owner, 5)
    np.testing.assert_array_equal(found.half_width(np.array([0, 4, -1]), 0.9), 0.0)
    some = learned(np.where(owner == 2, 0.0, np.sin(np.arange(100))), owner, 5)
    assert np.isfinite(some.half_width(owner, 0.9)).all()


def sales(draw, shops, rows):
    """Shops with levels and noise of their own."""
    shop = draw.integers(0, len(shops), rows)
    level, noise = np.array(shops).T
    frame = pd.DataFrame({"day": draw.random(rows), "shop": [f"shop {k}" for k in shop]})
    return frame, 3 * frame["day"] + level[shop] + noise[shop] * draw.normal(size=rows), shop


@pytest.fixture(scope="module")
def fitted():
    draw = np.random.default_rng(0)
    shops = list(zip(draw.normal(size=40), np.exp(0.7 * draw.normal(size=40)), strict=True))
    frame, y, _ = sales(draw, shops, 6000)
    return PersonalRegressor(Ridge(), client="shop", approach="recalibrate").fit(frame, y), shops


@pytest.mark.parametrize("level", LEVELS)
def test_intervals_of_a_regressor_hold_labels(fitted, level):
    model, shops = fitted
    draw = np.random.default_rng(1)
    frame, y, shop = sales(draw, shops, 40_000)
    low, high = model.predict_interval(frame, level).T
    np.testing.assert_allclose((low + high) / 2, model.predict(frame))
    inside = (low < y) & (y < high)
    assert inside.mean() == pytest.approx(level, abs=0.015)
    by_shop = np.bincount(shop, inside) / np.bincount(shop)
    np.testing.assert_allclose(by_shop, level, atol=0.13)
    others = list(zip(draw.normal(size=2000), np.exp(0.7 * draw.normal(size=2000)), strict=True))
    frame, y, shop = sales(draw, others, 40_000)
    frame["shop"] = [f"new {k}" for k in shop]
    low, high = model.predict_interval(frame, level).T
    assert ((low < y) & (y < high)).mean() == pytest.approx(level, abs=0.06)


def test_higher_levels_are_wider_and_known_clients_are_narrower(fitted):
    model, shops = fitted
    frame, _, _ = sales(np.random.default_rng(2), shops, 200)
    several = [np.diff(model.predict_interval(frame, at))[:, 0] for at in (0.1, 0.5, 0.9, 0.99)]
    assert (np.diff(several, axis=0) > 0).all()
    new = np.diff(model.predict_interval(frame.assign(shop="new"), 0.9))[:, 0]
    assert np.median(several[2]) < new[0]
    np.testing.assert_allclose(new, new[0])


def test_a_client_that_is_dropped_has_the_interval_of_a_new_one(fitted, tmp_path):
    draw = np.random.default_rng(3)
    frame, y, _ = sales(draw, fitted[1], 2000)
    model = PersonalRegressor(Ridge(), client="shop", approach="recalibrate").fit(frame, y)
    before = model.predict_interval(frame)
    model.save(tmp_path / "models")
    np.testing.assert_array_equal(load(tmp_path / "models").predict_interval(frame), before)
    mine = (frame["shop"] == "shop 3").to_numpy()
    model.drop("shop 3")
    after, new = model.predict_interval(frame), model.predict_interval(frame.assign(shop="new"))
    np.testing.assert_array_equal(after[mine], new[mine])
    np.testing.assert_array_equal(after[~mine], before[~mine])
    assert np.isnan(model.models_.intervals.scale).sum() == 1
    late = frame[mine].assign(shop="late")
    model.update(late, y[mine])
    np.testing.assert_allclose(np.diff(model.predict_interval(late)), np.diff(new[mine]))


def test_intervals_without_clients_and_by_time():
    draw = np.random.default_rng(4)
    frame, y, _ = sales(draw, [(0.0, 1.0)] * 5, 3000)
    alone = PersonalRegressor(Ridge()).fit(frame[["day"]], y)
    by_time = PersonalRegressor(Ridge(), client="shop", time="when").fit(
        frame.assign(when=np.arange(3000)), y
    )
    fresh, labels, _ = sales(draw, [(0.0, 1.0)] * 5, 10_000)
    for model, columns in ((alone, ["day"]), (by_time, ["day", "shop"])):
        low, high = model.predict_interval(fresh[columns]).T
        assert ((low < labels) & (labels < high)).mean() == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, float("nan"), "0.9", None, True])
def test_a_level_is_a_share(fitted, level):
    with pytest.raises(ConfigError, match=r"level=.* must be between 0 and 1"):
        fitted[0].predict_interval(pd.DataFrame({"day": [0.5], "shop": ["shop 1"]}), level)


def test_classes_have_no_intervals():
    frame, y, _ = shops(rows=300)
    model = PersonalClassifier(FAST, client="shop", approach="global").fit(frame, y)
    assert not hasattr(model, "predict_interval") and model.models_.intervals is None


def test_the_quantiles_that_are_kept_are_few(fitted):
    found = fitted[0].models_.intervals
    assert found.shapes.shape[1] == len(found.new) == POINTS
    assert len(found.shapes) <= 10
