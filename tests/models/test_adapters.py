"""Real flax and equinox modules train through the same path as the ready models."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sartor
from sartor.errors import ConfigError

eqx = pytest.importorskip("equinox")
nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.relu(nn.Dense(16)(x))
        x = nn.Dropout(0.3, deterministic=not train)(x)
        return nn.Dense(3)(x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(4, 16, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.last = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.first(x))))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    drop: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(4, 16, key=one)
        self.drop = eqx.nn.Dropout(0.3)
        self.last = eqx.nn.Linear(16, 3, key=two)

    def __call__(self, x, key=None):
        return self.last(self.drop(jax.nn.relu(self.first(x)), key=key))


MODELS = {
    "linen": lambda: sartor.models.from_flax(Linen(), input_shape=(4,), classes=3),
    "nnx": lambda: sartor.models.from_nnx(Nnx, input_shape=(4,), classes=3),
    "equinox": lambda: sartor.models.from_equinox(Equinox, input_shape=(4,), classes=3),
}


def clients():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((240, 4)).astype(np.float32)
    y = x[:, :3].argmax(axis=1)
    return sartor.data.from_arrays(x, y, np.arange(240) % 6).split(test=0.25, seed=0)


@pytest.mark.parametrize("kind", MODELS)
def test_a_module_trains_personalizes_saves_and_loads(kind, tmp_path):
    model, data = MODELS[kind](), clients()
    central = sartor.FedAvg(rounds=30, cohort=4, learning_rate=0.1).fit(model, data, seed=0)
    assert central.evaluate(data).accuracy.mean() > 0.7
    assert central.loss[-5:].mean() < 0.8 * central.loss[:5].mean()
    personal = sartor.Finetune(epochs=2, learning_rate=0.05).fit(central, data, seed=0)
    personal.save(tmp_path / "models")
    with pytest.raises(ConfigError, match=r"your own functions.*model="):
        sartor.load(tmp_path / "models")
    loaded = sartor.load(tmp_path / "models", model=model)
    x = data.client("3", "test")["x"]
    np.testing.assert_array_equal(loaded.predict_proba("3", x), personal.predict_proba("3", x))


@pytest.mark.parametrize("kind", MODELS)
def test_dropout_is_on_in_training_and_off_in_evaluation(kind):
    model = MODELS[kind]()
    params, x = model.init(jax.random.key(0)), jnp.ones((5, 4))
    assert jnp.array_equal(model.apply(params, x, None), model.apply(params, x, None))
    one, two = (model.apply(params, x, jax.random.key(k)) for k in (1, 2))
    again = model.apply(params, x, jax.random.key(1))
    assert not jnp.array_equal(one, two)
    assert jnp.array_equal(one, again)


class LinenNorm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=True)(x))


def test_batch_norm_is_refused():
    with pytest.raises(ConfigError, match="batch norm"):
        sartor.models.from_flax(LinenNorm(), input_shape=(4,), classes=3).init(jax.random.key(0))
    with pytest.raises(ConfigError, match="batch norm"):
        sartor.models.from_nnx(
            lambda rngs: nnx.BatchNorm(4, rngs=rngs), input_shape=(4,), classes=4
        )
    with pytest.raises(ConfigError, match="batch norm"):
        sartor.models.from_equinox(
            lambda key: eqx.nn.BatchNorm(4, axis_name="batch", mode="ema"),
            input_shape=(4,),
            classes=4,
        )


def test_a_regression_module_predicts_a_number():
    model = sartor.models.from_equinox(lambda key: eqx.nn.Linear(4, 1, key=key), input_shape=(4,))
    assert model.apply(model.init(jax.random.key(0)), jnp.ones((3, 4)), None).shape == (3,)
