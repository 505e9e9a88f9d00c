"""Mapper against its limits, against finite differences, and on the paper's own example."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import sartor
from sartor.engine import Batch, Job
from sartor.errors import ConfigError
from sartor.personal.mapper import Mapper
from sartor.personal.mixture import Mixture, interpolate
from sartor.randomness import mix
from sartor.trees import flatten

MODEL = sartor.models.mlp(4, (6,), classes=3)


def clients(sizes=(23, 6, 60, 8, 40, 17), seed=0):
    draw = np.random.default_rng(seed)
    client = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    x = draw.standard_normal((len(client), 4)).astype(np.float32)
    y = draw.integers(0, 3, len(client))
    return sartor.data.from_arrays(x, y, client)


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
        finetune = sartor.Finetune(learning_rate=0.1, epochs=3).fit(central, data, seed=2)
        x = data.columns["x"][:20]
        for client in data.ids:
            mixed = personal.predict_proba(client, x)
            expected = (
                central.predict_proba(x) if lambda_ == 0 else finetune.predict_proba(client, x)
            )
            np.testing.assert_allclose(mixed, expected, atol=1e-5)
            np.testing.assert_allclose(mixed.sum(axis=1), 1, atol=1e-5)


def test_a_joint_round_with_lambda_one_leaves_the_central_model(data, central):
    personal = Mapper(cover=(1.0,), rounds=4, cohort=3).fit(central, data, seed=0)
    jax.tree.map(np.testing.assert_array_equal, personal.central.hypotheses, central.hypotheses)
    moved = Mapper(cover=(0.5,), rounds=4, cohort=3).fit(central, data, seed=0)
    assert any(
        np.any(a != b)
        for a, b in zip(
            jax.tree.leaves(moved.central.hypotheses),
            jax.tree.leaves(central.hypotheses),
            strict=True,
        )
    )
    jax.tree.map(np.testing.assert_array_equal, moved.baseline.hypotheses, central.hypotheses)


def test_a_joint_round_with_lambda_zero_is_a_round_of_fedavg(data):
    common = {"rounds": 5, "cohort": 3}
    fedavg = sartor.FedAvg(learning_rate=0.05, server_momentum=0.0, **common)
    fedavg = fedavg.fit(MODEL, data, seed=4)
    algorithm = Mapper(cover=(0.0,), central_learning_rate=0.05, **common)
    joint = algorithm.fit(MODEL, data, seed=4).central
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        joint.hypotheses, fedavg.hypotheses,
    )  # fmt: skip


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
    logistic = sartor.models.logistic(features=4, classes=3)
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
        Mapper(local=sartor.models.logistic(features=4, classes=2)).fit(central, data)


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


@pytest.mark.filterwarnings("ignore:HypCluster")
def test_clusters_and_domains_go_on_by_their_own_rule(data):
    domain = np.array(["a", "b"] * 3)
    with_domains = sartor.ClientData(
        data.columns, data.rows, data.bounds, data.ids, data.seen, {"domain": domain}
    )
    common = {"rounds": 3, "cohort": 6, "learning_rate": 0.2}
    for algorithm in (
        sartor.KMeansClusters(q=2, features=("domain",), **common),
        sartor.Agnostic(domain_step=0.5, **common),
    ):
        central = algorithm.fit(MODEL, with_domains, seed=0)
        mapper = Mapper(rounds=3, cohort=6, cover=(0.0,), central_learning_rate=0.2)
        personal = mapper.fit(central, with_domains, seed=5)
        assert personal.central.q == central.q
        assert personal.cluster == dict(
            zip(data.ids, central.assign(with_domains).tolist(), strict=True)
        )
        # With λ = 0 they are rounds of the algorithm itself; of Agnostic nearly so, as clients tell
        # the loss along their training and not the one before it.
        seed = int(mix(5, "joint"))
        alone = algorithm.fit(MODEL, with_domains, seed=seed, start=central)
        tolerance = 1e-5 if algorithm.__class__ is sartor.KMeansClusters else 5e-3
        jax.tree.map(
            lambda a, b, t=tolerance: np.testing.assert_allclose(a, b, atol=t),
            personal.central.hypotheses, alone.hypotheses,
        )  # fmt: skip
    assert personal.central.history["domain_weights"].shape == (4, 2)
    first, last = personal.central.history["domain_weights"][[0, -1]]
    np.testing.assert_allclose(first, central.history["domain_weights"][-1], atol=1e-6)
    assert np.abs(last - first).max() > 1e-3


def test_from_nothing_it_is_the_pseudo_code(data):
    """One client a round, one step along the gradient of its mixture: no momentum anywhere."""
    one = data.select(["c2"])
    common = {"cover": (0.0,), "cohort": 1, "central_epochs": 0, "central_learning_rate": 0.3}
    three = Mapper(rounds=3, **common).fit(MODEL, one, seed=0).central.params
    params = sartor.FedAvg(rounds=1, learning_rate=1e-30).fit(MODEL, one, seed=0).params
    own = one.client("c2")
    x, y = own["x"], jnp.asarray(own["y"])
    for _ in range(3):
        gradient = jax.grad(lambda p: MODEL.loss(p, x, y).mean())(params)
        params = jax.tree.map(lambda p, g: p - 0.3 * g, params, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), three, params)


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
        sartor.Finetune(guard=True, learning_rate=30.0, epochs=20),
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
        base = sartor.models.logistic(features=4, classes=3)
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


def test_joint_rounds_and_trials_are_not_done_again(data, central, tmp_path, monkeypatch):
    from sartor.personal import choosing
    from sartor.personal.mapper import Joint

    algorithm = Mapper(rounds=2, cohort=3, cover=(0.0, 0.5))
    algorithm.fit(central, data, directory=tmp_path / "m")
    noted = []
    monkeypatch.setattr(choosing.TrialLosses, "note", lambda self, block: noted.append(block))
    monkeypatch.setattr(Joint, "clients", None)
    algorithm.fit(central, data, directory=tmp_path / "m")
    assert not noted
    # Trials of other work are not these.
    losses = choosing.TrialLosses(tmp_path / "m" / choosing.TRIALS, "another", 3)
    assert not losses.done.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cover": ()}, "the cover is empty"),
        ({"cover": (2,)}, "between 0 and 1"),
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


def test_kept_local_models_go_on_where_they_were(data, central):
    """λ = 1 alone: h_c stays, and every visit is one more stretch of training for the client."""
    common = {"cover": (1.0,), "cohort": 10, "epochs": 1, "batch": 1000, "learning_rate": 0.1}
    kept = Mapper(rounds=3, keep_local=True, select="train", **common).fit(central, data, seed=0)
    anew = Mapper(rounds=3, select="train", **common).fit(central, data, seed=0)
    alone = {
        epochs: sartor.Finetune(epochs=epochs, batch=1000, learning_rate=0.1).fit(central, data)
        for epochs in (1, 4)
    }
    x = data.columns["x"][:10]
    for k, client in enumerate(data.ids):
        visits = 3 if data.seen[k] else 0  # and the final rerun
        for personal, epochs in ((kept, visits + 1), (anew, 1)):
            np.testing.assert_allclose(
                personal.predict_proba(client, x),
                alone[epochs].predict_proba(client, x),
                atol=1e-5,
            )
    little = sartor.Engine(memory=4000, lanes=1)  # room for the states of one round
    again = Mapper(rounds=3, keep_local=True, select="train", **common)
    again = again.fit(central, data, seed=0, engine=little)
    for client in data.ids:
        found, wanted = (m.predict_proba(client, x) for m in (again, kept))
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_joint_rounds_choose_lambda_zero_where_it_is_best():
    """Labels are noise, so that a local model can only be worse than the central one."""
    draw = np.random.default_rng(0)
    rows = {
        f"c{k}": {
            "x": draw.standard_normal((30, 4)).astype(np.float32),
            "y": draw.integers(0, 3, 30),
        }
        for k in range(6)
    }
    noise = sartor.data.from_dict(rows).split(validation=0.4, seed=0)
    central = sartor.FedAvg(rounds=20, cohort=6, learning_rate=0.02).fit(MODEL, noise)
    algorithm = Mapper(cover=(0.0, 1.0), rounds=3, cohort=6, epochs=30, learning_rate=0.3)
    personal = algorithm.fit(central, noise)
    assert set(personal.lambda_.values()) == {0.0}
    np.testing.assert_array_equal(personal.central.history["lambda"], 0)


def test_streamed_joint_rounds_with_folds():
    data = clients(sizes=(10,) * 8)
    central = sartor.FedAvg(rounds=2, cohort=2).fit(MODEL, data)
    algorithm = Mapper(select="kfold", cover=(0.0, 0.5, 1.0), folds=2, rounds=2, cohort=2)
    results = [
        algorithm.fit(central, data, seed=1, engine=sartor.Engine(resident=resident, lanes=3))
        for resident in (True, False)
    ]
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, atol=1e-6),
        *(personal.central.hypotheses for personal in results),
    )


@pytest.mark.parametrize("rounds", [0, 3])
def test_guard_keeps_the_model_that_was_given(data, central, tmp_path, rounds):
    logistic = sartor.models.logistic(features=4, classes=3)
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
    assert "cluster" not in personal.evaluate(data, part="validation").extra
    personal.save(tmp_path / "m")
    x = data.columns["x"][:6]
    for models in (personal, sartor.load(tmp_path / "m")):
        for client in kept:
            np.testing.assert_allclose(
                models.predict_proba(client, x), central.predict_proba(x), atol=1e-6
            )
            assert models.lambda_[client] == 0


def test_kept_models_are_not_tried_on_what_they_have_seen(data, central):
    unsplit = clients()
    with pytest.raises(ConfigError, match="chosen by hold-out"):
        Mapper(keep_local=True).fit(central, unsplit)
    narrow = sartor.models.logistic(features=2, classes=3)
    with pytest.raises(sartor.errors.DataError, match="takes"):
        Mapper(local=narrow).fit(central, data)
