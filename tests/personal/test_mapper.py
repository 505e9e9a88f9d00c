"""Mapper against its limits, against finite differences, and with guards and other classes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from jax.test_util import check_grads
from mapper_cases import MODEL, clients
from plain import Mapper

import sartor
from sartor.engine import Batch, Job
from sartor.errors import ConfigError
from sartor.personal.mixture import Mixture, interpolate
from sartor.trees import flatten


@pytest.fixture(scope="module")
def data():
    return clients().split(unseen=0.2, validation=0.25, test=0.2, seed=1)


@pytest.fixture(scope="module")
def central(data):
    return sartor.FedAvg(rounds=3, cohort=3).fit(MODEL, data, seed=0)


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 1.0])
def test_probabilities_are_mixed_and_sum_to_one(lambda_):
    draw = np.random.default_rng(0)
    p, q = draw.dirichlet(np.ones(5), (2, 7))
    mixed = np.exp(interpolate(lambda_, jnp.log(p), jnp.log(q), probabilities=True))
    np.testing.assert_allclose(mixed, lambda_ * p + (1 - lambda_) * q, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(axis=1), 1, atol=1e-6)


def batch_of(seed=0, n=9):
    key = jax.random.key(seed)
    x = jax.random.normal(key, (n, 4))
    return Batch(x, jnp.arange(n) % 3, jnp.arange(n) < n - 2, key)


@pytest.mark.parametrize("lambda_", [0.0, 0.4, 1.0])
def test_gradients_match_finite_differences(lambda_):
    with jax.enable_x64(True):
        objective, batch = Mixture(MODEL, MODEL), batch_of()
        wide = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float64), tree)  # noqa: E731
        h_c, h_l = (wide(MODEL.init(jax.random.key(k))) for k in range(2))
        stack = jax.tree.map(lambda a: a[None], h_c)
        job = Job(0, None, None, values={"lambda": jnp.float64(lambda_)})
        own = flatten(h_l)
        batch = batch._replace(central=MODEL.apply(h_c, batch.x, None))
        for name, function, at in (
            ("local", lambda p: objective.loss(p, stack, batch, job), own),
            ("central", lambda p: objective.central_loss(p, own, batch, job), h_c),
        ):
            gradient = jax.grad(function)(at)
            check_grads(function, (at,), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)
            zero = all(bool((leaf == 0).all()) for leaf in jax.tree.leaves(gradient))
            assert zero == ((name, lambda_) in (("local", 0.0), ("central", 1.0)))


def test_lambda_zero_is_the_central_model_and_one_is_the_local(data, central):
    for lambda_ in (0.0, 1.0):
        algorithm = Mapper(cover=(lambda_,), rounds=0, select="train", learning_rate=0.1, epochs=3)
        personal = algorithm.fit(central, data, seed=2)
        finetune = plain.Finetune(learning_rate=0.1, epochs=3).fit(central, data, seed=2)
        x = data.columns["x"][:20]
        for client in data.ids:
            mixed = personal.predict_proba(client, x)
            expected = (
                central.predict_proba(x) if lambda_ == 0 else finetune.predict_proba(client, x)
            )
            np.testing.assert_allclose(mixed, expected, atol=1e-5)
            np.testing.assert_allclose(mixed.sum(axis=1), 1, atol=1e-5)


def test_one_gradient_step_is_the_gradient_of_the_mixture(data, central):
    """One client, one round: h_c − η·∇ of the mixture's loss, as in the pseudo-code."""
    one = data.select(["c2"])
    algorithm = Mapper(
        cover=(0.5,), rounds=1, cohort=1, central_epochs=0, central_learning_rate=0.2,
        learning_rate=0.1, epochs=2, batch=1000,
    )  # fmt: skip
    plain = sartor.FedAvg(rounds=1, server_momentum=0.0, learning_rate=1e-12).fit(MODEL, one)
    personal = algorithm.fit(plain, one, seed=0)
    own = one.client("c2")
    x, y = own["x"], jnp.asarray(own["y"])

    def loss(local, h_c):
        said = (MODEL.apply(h, x, None) for h in (local, h_c))
        return MODEL.loss_of(interpolate(0.5, *said, probabilities=True), y).mean()

    h_c = h_l = plain.params
    for _ in range(2):
        h_l = jax.tree.map(lambda a, b: a - 0.1 * b, h_l, jax.grad(loss)(h_l, h_c))
    g = jax.grad(loss, argnums=1)(h_l, h_c)
    expected = jax.tree.map(lambda a, b: a - 0.2 * b, h_c, g)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), personal.central.params, expected
    )


def test_local_models_of_another_class(data, central, tmp_path):
    logistic = sartor.models.logistic(features=4, classes=3, scale=False)
    algorithm = Mapper(local=logistic, rounds=3, cohort=3, cover=(0.0, 0.5, 1.0), epochs=4)
    personal = algorithm.fit(central, data, seed=0)
    assert set(personal.store.shapes) == {"dense_1/w", "dense_1/b"}
    x = data.columns["x"][:5]
    personal.save(tmp_path / "m")
    loaded = sartor.load(tmp_path / "m")
    for client in data.ids:
        np.testing.assert_allclose(
            loaded.predict_proba(client, x), personal.predict_proba(client, x), atol=1e-6
        )
    assert loaded.lambda_ == personal.lambda_
    with pytest.raises(ConfigError, match="cannot be mixed"):
        Mapper(local=sartor.models.logistic(features=4, classes=2, scale=False)).fit(central, data)


def test_evaluation_scores_the_mixture(data, central):
    personal = Mapper(rounds=2, cohort=3, cover=(0.0, 0.5, 1.0), epochs=4).fit(central, data)
    scores = personal.evaluate(data)
    for row, client in enumerate(scores.client):
        own = data.client(client, "test")
        p = personal.predict_proba(client, own["x"])
        loss = -np.log(p[np.arange(len(p)), own["y"]]).mean()
        np.testing.assert_allclose(scores.loss[row], loss, rtol=1e-4)
        assert scores.extra["lambda"][row] == personal.lambda_[client]
    baseline = central.evaluate(data)
    np.testing.assert_allclose(scores.baseline.loss, baseline.loss, rtol=1e-6)


def test_who_cannot_be_tried_takes_what_is_best_on_average(central):
    lone = clients(sizes=(60, 60, 60, 1, 1))
    y = (lone.columns["x"][:, 0] > 0).astype(int)  # learnt in no time, but not by the central model
    lone = dataclasses.replace(lone, columns={**lone.columns, "y": y})
    lone = lone.split(validation=0.25, seed=0)
    algorithm = Mapper(rounds=1, cohort=5, cover=(0.0, 1.0), epochs=60, learning_rate=0.3)
    with pytest.warns(UserWarning, match="too little data"):
        personal = algorithm.fit(central, lone)
    assert set(personal.lambda_.values()) == {1.0}
    assert personal.central.history["lambda"].tolist() == [1.0]


def test_a_guard_keeps_clients_from_diverging(data, central):
    x = data.columns["x"].copy()
    x[data.rows[data.bounds[2, 0] : data.bounds[2, 2]]] *= 1e4
    wild = dataclasses.replace(data, columns={**data.columns, "x": x})
    for algorithm in (
        plain.Finetune(guard=True, learning_rate=30.0, epochs=20),
        Mapper(guard=True, rounds=0, learning_rate=30.0, epochs=20, cover=(1.0,)),
    ):
        personal = algorithm.fit(central, wild)
        assert personal.clients["c2"]["kept"]
        np.testing.assert_allclose(
            personal.predict_proba("c2", x[:4]), central.predict_proba(x[:4]), atol=1e-6
        )


def test_work_of_another_local_model_or_in_finished_models_is_not_taken_for_ours(
    data, central, tmp_path
):
    def local(scale):
        base = sartor.models.logistic(features=4, classes=3, scale=False)
        return sartor.Model(
            base.init, lambda p, x, key: base.apply(p, scale * x, key), classes=3, input_shape=(4,)
        )

    settings = {"rounds": 2, "cohort": 3, "cover": (0.5,), "learning_rate": 0.5}
    first, second = (Mapper(local=local(scale), **settings) for scale in (1.0, -2.0))
    first.fit(central, data, directory=tmp_path / "m")
    other = second.fit(central, data, directory=tmp_path / "m")
    fresh = second.fit(central, data)
    jax.tree.map(np.testing.assert_array_equal, other.central.params, fresh.central.params)
    other.save(tmp_path / "m")
    before = sorted(p.name for p in (tmp_path / "m").iterdir())
    with pytest.raises(sartor.errors.FileError, match="finished models of other work"):
        first.fit(central, data, directory=tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cover": ()}, "the cover is empty"),
        ({"cover": (2,)}, "from 0 to 1"),
        ({"rounds": -1}, "rounds must be a whole number"),
        ({"central_epochs": 0.5}, "central_epochs must be a whole number"),
        ({"select": "test"}, "select must be one of"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        Mapper(**settings)
    with pytest.raises(ConfigError, match="starts from a central model"):
        Mapper(rounds=0).fit(MODEL, clients())


@pytest.mark.parametrize("rounds", [0, 3])
def test_guard_keeps_the_model_that_was_given(data, central, tmp_path, rounds):
    logistic = sartor.models.logistic(features=4, classes=3, scale=False)
    algorithm = Mapper(
        local=logistic, guard=True, cover=(0.5,), rounds=rounds, cohort=3, epochs=20,
        learning_rate=0.5, central_learning_rate=2.0,
    )  # fmt: skip
    personal = algorithm.fit(central, data, seed=0)
    kept = [client for client, decided in personal.clients.items() if decided["kept"]]
    assert kept
    assert personal.central.q == personal.given.q == 1
    moved = jax.tree.leaves(personal.central.hypotheses)[0] - jax.tree.leaves(central.hypotheses)[0]
    assert (np.abs(moved).max() > 0.01) == (rounds > 0)  # so it matters which one is kept
    scores = personal.evaluate(data, part="validation", allow_trained=True)
    assert "cluster" not in scores.extra
    personal.save(tmp_path / "m")
    x = data.columns["x"][:6]
    for models in (personal, sartor.load(tmp_path / "m")):
        for client in kept:
            np.testing.assert_allclose(
                models.predict_proba(client, x), central.predict_proba(x), atol=1e-6
            )
            assert models.lambda_[client] == 0
