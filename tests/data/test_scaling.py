"""Features on one scale: what models see does not depend on the units of columns."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import sartor
from sartor.data.scaling import MOST_WHITENED, Scaling
from sartor.engine.columns import gather


def clients(x, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, len(x))
    return sartor.data.from_arrays(x, y, np.arange(len(x)) % 4).split(test=0.25, seed=seed)


@given(st.integers(0, 2**32), st.sampled_from(["standardize", "whiten"]))
def test_scaled_features_have_no_mean_and_unit_variance(seed, scale):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(200, 3)) @ draw.normal(size=(3, 3)) * [1, 1e4, 1e-4] + [0, 5e4, 1]
    try:
        data = clients(x, seed)
    except sartor.SartorError:  # the last column may vary too little for 32 bits
        reject()
    scaling = Scaling.of(data, scale)
    rows = np.concatenate([data.part(k) for k in range(len(data))])
    z = scaling(data.columns["x"][rows])
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-2)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-2)
    if scale == "whiten":
        np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=2e-2)


def test_only_training_parts_of_seen_clients_count():
    x = np.random.default_rng(0).normal(size=(200, 2))
    data = sartor.data.from_arrays(x, np.arange(200) % 2, np.arange(200) % 8)
    data = data.split(unseen=0.25, validation=0.2, test=0.2, seed=0)
    before = Scaling.of(data, "whiten")
    wild = np.array(data.columns["x"])
    train = np.concatenate([data.part(k) for k in np.flatnonzero(data.seen)])
    wild[np.setdiff1d(np.arange(200), train)] = 1e6
    other = dataclasses.replace(data, columns={**data.columns, "x": wild})
    assert Scaling.of(other, "whiten").digest == before.digest


def test_constant_and_equal_columns_do_no_harm():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(100, 1))
    data = clients(np.concatenate([x, 2 * x, np.full_like(x, 7.0), 1e8 + 0 * x], axis=1))
    z = Scaling.of(data, "whiten")(data.columns["x"])
    assert np.isfinite(z).all()
    assert np.abs(z).max() < 10
    assert (z[:, 2:] == 0).all()


def test_many_features_are_standardized_only():
    x = np.random.default_rng(0).normal(size=(100, MOST_WHITENED + 1))
    assert Scaling.of(clients(x), "whiten").matrix.ndim == 1


def test_devices_get_scaled_features_and_data_keeps_its_own():
    data = clients(np.random.default_rng(0).normal(5.0, 3.0, size=(80, 2)))
    scaling = Scaling.of(data, "standardize")
    scaled = data.scaled(scaling)
    assert scaled is data.scaled(scaling)
    assert scaled.scaled(scaling) is scaled
    assert scaled.fingerprint == data.fingerprint
    places = np.arange(len(data.rows))
    on_device = gather(sartor.Engine(), scaled, places)["x"]
    np.testing.assert_array_equal(on_device, scaling(data.columns["x"][data.rows]))
    np.testing.assert_array_equal(scaled.columns["x"], data.columns["x"])


@pytest.mark.parametrize("kind", ["linear", "logistic", "mlp"])
def test_units_do_not_matter(kind, tmp_path):
    draw = np.random.default_rng(1)
    x = draw.normal(size=(240, 3)).astype(np.float32)
    target = x @ [1.0, -2.0, 0.5] + 0.1 * draw.normal(size=240)
    y = target if kind == "linear" else (target > 0).astype(int)
    units = np.array([1e-3, 1.0, 1e3], np.float32)
    fitted = []
    for factor in (np.ones(3, np.float32), units):
        data = sartor.data.from_arrays(x * factor, y, np.arange(240) % 6).split(test=0.25, seed=0)
        model = {
            "linear": lambda: sartor.models.linear(3),
            "logistic": lambda: sartor.models.logistic(3, 2),
            "mlp": lambda: sartor.models.mlp(3, (4,), classes=2),
        }[kind]()
        central = sartor.FedAvg(rounds=20).fit(model, data)
        personal = sartor.Finetune(epochs=2, learning_rate=0.01).fit(central, data)
        personal.save(tmp_path / "models")
        loaded = sartor.load(tmp_path / "models")
        predict = "predict" if kind == "linear" else "predict_proba"
        mine = getattr(personal, predict)("1", x[:50] * factor)
        np.testing.assert_array_equal(mine, getattr(loaded, predict)("1", x[:50] * factor))
        np.testing.assert_array_equal(personal.evaluate(data).loss, loaded.evaluate(data).loss)
        fitted.append((central.evaluate(data).loss, mine))
    for one, other in zip(*fitted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)


def test_a_model_can_see_features_as_they_are():
    data = clients(np.random.default_rng(0).normal(5.0, 3.0, size=(80, 2)))
    assert sartor.FedAvg(rounds=1).fit(sartor.models.logistic(2, 2), data).scaling is not None
    plain = sartor.models.logistic(2, 2, scale=False)
    assert sartor.FedAvg(rounds=1).fit(plain, data).scaling is None
    assert plain.spec["scale"] is False
    images = sartor.models.logistic((2, 2), 2)
    assert images.scale is None
